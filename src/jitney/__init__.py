"""Make numerical JAX code fast without rewriting it.

    @jitney.optimize(vmap="fit", pad={"points": "pow2"})
    def residual(rate: float, t: Float[Array, "points"], y: Float[Array, "points"]):
        return jnp.exp(-rate * t) - y

`jitney.optimize` compiles a function as the named axes of its signature say; `lazy_derivatives`
chooses how its derivatives are computed; `f.plan(...)` has each decision with its reason, and
`f.stats` the cause of each trace. `configure` has the settings of the process. The modules
`analysis`, `errors`, `processes`, `simulation`, `states`, `testing` and `types` hold the rest.

Each name is imported on first access, and JAX with it: `import jitney` alone takes almost no time,
and `python -m jitney` parses its arguments before JAX is loaded.

A reader of the source begins with `_stages/plan.py`, which decides the stages of a call and builds
the function that JAX compiles. `_interface/optimize.py` reads a function's signature,
`_body/body.py` turns it into a function of flat arrays, and `_program/entry.py` leads from the key
of a call to the compiled program.
"""

import os as _os
import sys as _sys
import typing as _typing

from ._lazy import names as _names
from ._version import __version__ as __version__

if _typing.TYPE_CHECKING:
    from . import analysis as analysis
    from . import errors as errors
    from . import processes as processes
    from . import simulation as simulation
    from . import states as states
    from . import testing as testing
    from . import types as types
    from ._checks.outstanding import wait as wait
    from ._devices.configure import configure as configure
    from ._devices.host import host as host
    from ._devices.machine import devices as devices
    from ._devices.pipeline import pipeline as pipeline
    from ._devices.put import place as place
    from ._diagnosis.jax_work import no_compiles as no_compiles
    from ._diagnosis.jax_work import watch as watch
    from ._errors import JitneyError as JitneyError
    from ._errors import JitneyWarning as JitneyWarning
    from ._export.loading.loaded import load as load
    from ._interface.derivatives.lazy_derivatives import lazy_derivatives as lazy_derivatives
    from ._interface.optimize import optimize as optimize
    from ._interface.program import Program as Program
    from ._interface.scan_steps import scan_steps as scan_steps
    from ._interface.shared import shared as shared
    from ._interface.stack import stack as stack
    from ._jax.mesh import mesh as mesh
    from ._measured.measure import measure as measure
    from ._measured.profile import profile as profile
    from ._precision.loss_scale import LossScale as LossScale
    from ._program.rows.ragged import ragged as ragged
    from ._signature.buckets import Bucket as Bucket
    from ._stream.accumulate import accumulate as accumulate
    from ._stream.stream import stream as stream
    from ._values.static_once import static as static
    from ._view.field_axes import register_axes as register_axes
else:
    __getattr__, __dir__, __all__ = _names(
        __name__,
        {
            "wait": "_checks.outstanding",
            "configure": "_devices.configure",
            "host": "_devices.host",
            "devices": "_devices.machine",
            "pipeline": "_devices.pipeline",
            "place": "_devices.put",
            "no_compiles": "_diagnosis.jax_work",
            "watch": "_diagnosis.jax_work",
            "JitneyError": "_errors",
            "JitneyWarning": "_errors",
            "load": "_export.loading.loaded",
            "lazy_derivatives": "_interface.derivatives.lazy_derivatives",
            "optimize": "_interface.optimize",
            "Program": "_interface.program",
            "scan_steps": "_interface.scan_steps",
            "shared": "_interface.shared",
            "stack": "_interface.stack",
            "mesh": "_jax.mesh",
            "measure": "_measured.measure",
            "profile": "_measured.profile",
            "LossScale": "_precision.loss_scale",
            "ragged": "_program.rows.ragged",
            "Bucket": "_signature.buckets",
            "static": "_values.static_once",
            "accumulate": "_stream.accumulate",
            "stream": "_stream.stream",
            "register_axes": "_view.field_axes",
        },
        modules=("analysis", "errors", "processes", "simulation", "states", "testing", "types"),
        former="_former",
        private=False,
    )

# JAX may trace something before a name of jitney is accessed. This import creates the contexts that
# are part of the keys of JAX's caches.
if "jax" in _sys.modules:
    from ._jax import user_contexts as _user_contexts  # noqa: F401  # pyright: ignore[reportUnusedImport]

# JAX may start before a name is accessed, and these settings have to be made before that.
if not {"JITNEY_THREADS", "JITNEY_MEMORY", "JITNEY_PLATFORM"}.isdisjoint(_os.environ):
    from ._devices.configure import from_environment as _from_environment

    _from_environment()
