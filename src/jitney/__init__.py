"""Make numerical JAX code fast without rewriting it.

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
    from ._analysis.axes import axes as axes
    from ._analysis.communication import communication as communication
    from ._analysis.frontier import frontier as frontier
    from ._analysis.precision_report import precision_report as precision_report
    from ._analysis.strategy import strategy as strategy
    from ._checks.outstanding import wait as wait
    from ._devices.configure import configure as configure
    from ._devices.host import Fetch as Fetch
    from ._devices.host import host as host
    from ._devices.machine import DeviceFacts as DeviceFacts
    from ._devices.machine import Machine as Machine
    from ._devices.machine import devices as devices
    from ._devices.pipeline import Pipeline as Pipeline
    from ._devices.pipeline import Schedule as Schedule
    from ._devices.pipeline import pipeline as pipeline
    from ._devices.put import place as place
    from ._devices.visualize import Placement as Placement
    from ._devices.visualize import visualize as visualize
    from ._diagnosis.cause import Cause as Cause
    from ._diagnosis.counters import Stats as Stats
    from ._diagnosis.jax_work import NoCompiles as NoCompiles
    from ._diagnosis.jax_work import Watch as Watch
    from ._diagnosis.jax_work import Work as Work
    from ._diagnosis.jax_work import no_compiles as no_compiles
    from ._diagnosis.jax_work import watch as watch
    from ._errors import AxisError as AxisError
    from ._errors import BudgetError as BudgetError
    from ._errors import CompileError as CompileError
    from ._errors import ContractError as ContractError
    from ._errors import DataError as DataError
    from ._errors import DerivativeError as DerivativeError
    from ._errors import DonationError as DonationError
    from ._errors import ExportError as ExportError
    from ._errors import JitneyError as JitneyError
    from ._errors import JitneyWarning as JitneyWarning
    from ._errors import MeshError as MeshError
    from ._errors import NonFiniteError as NonFiniteError
    from ._errors import OptionError as OptionError
    from ._errors import PrecisionError as PrecisionError
    from ._errors import ProcessError as ProcessError
    from ._errors import StateError as StateError
    from ._errors import StaticError as StaticError
    from ._errors import TraceError as TraceError
    from ._errors import VerificationError as VerificationError
    from ._export.loaded import ExportedProgram as ExportedProgram
    from ._export.loaded import Loaded as Loaded
    from ._export.loaded import load as load
    from ._interface.derivatives import Derivative as Derivative
    from ._interface.derivatives import lazy_derivatives as lazy_derivatives
    from ._interface.optimize import optimize as optimize
    from ._interface.program import Program as Program
    from ._interface.scan_steps import scan_steps as scan_steps
    from ._interface.shared import shared as shared
    from ._interface.stack import Stacked as Stacked
    from ._interface.stack import stack as stack
    from ._interface.state import DerivedField as DerivedField
    from ._interface.state import State as State
    from ._interface.state import derived as derived
    from ._jax.compile_cache.cache import CacheFacts as CacheFacts
    from ._jax.mesh import Mesh as Mesh
    from ._jax.mesh import mesh as mesh
    from ._measured.measure import Measurement as Measurement
    from ._measured.measure import Timing as Timing
    from ._measured.measure import measure as measure
    from ._measured.profile import Profile as Profile
    from ._measured.profile import profile as profile
    from ._measured.verdict import Verdict as Verdict
    from ._precision.loss_scale import LossScale as LossScale
    from ._processes.checkpoints import Checkpoints as Checkpoints
    from ._processes.distributed import Processes as Processes
    from ._processes.distributed import distributed as distributed
    from ._processes.from_processes import from_processes as from_processes
    from ._program.tolerance import Deviation as Deviation
    from ._program.tolerance import PrecisionReport as PrecisionReport
    from ._program.tolerance import Product as Product
    from ._report.axis_facts import AxisFacts as AxisFacts
    from ._report.communication import Collective as Collective
    from ._report.communication import Communication as Communication
    from ._report.frontier import Frontier as Frontier
    from ._report.frontier import Saving as Saving
    from ._report.plan_report import Report as Report
    from ._report.strategy import Strategy as Strategy
    from ._report.strategy import Way as Way
    from ._report.streamed import Streamed as Streamed
    from ._report.streamed import StreamStats as StreamStats
    from ._signature.buckets import Bucket as Bucket
    from ._simulate.device import Device as Device
    from ._simulate.figures import Share as Share
    from ._simulate.figures import Simulation as Simulation
    from ._simulate.figures import Sweep as Sweep
    from ._simulate.figures import Traffic as Traffic
    from ._simulate.simulate import simulate as simulate
    from ._stream.accumulate import accumulate as accumulate
    from ._stream.stream import stream as stream
    from ._view.module_axes import register_axes as register_axes
else:
    __getattr__, __dir__, __all__ = _names(
        __name__,
        {
            "axes": "_analysis.axes",
            "Collective": "_report.communication",
            "Communication": "_report.communication",
            "communication": "_analysis.communication",
            "Frontier": "_report.frontier",
            "Saving": "_report.frontier",
            "frontier": "_analysis.frontier",
            "precision_report": "_analysis.precision_report",
            "Strategy": "_report.strategy",
            "Way": "_report.strategy",
            "strategy": "_analysis.strategy",
            "wait": "_checks.outstanding",
            "configure": "_devices.configure",
            "Fetch": "_devices.host",
            "host": "_devices.host",
            "DeviceFacts": "_devices.machine",
            "Machine": "_devices.machine",
            "devices": "_devices.machine",
            "Pipeline": "_devices.pipeline",
            "Schedule": "_devices.pipeline",
            "pipeline": "_devices.pipeline",
            "place": "_devices.put",
            "Placement": "_devices.visualize",
            "visualize": "_devices.visualize",
            "Cause": "_diagnosis.cause",
            "Stats": "_diagnosis.counters",
            "NoCompiles": "_diagnosis.jax_work",
            "Watch": "_diagnosis.jax_work",
            "Work": "_diagnosis.jax_work",
            "no_compiles": "_diagnosis.jax_work",
            "watch": "_diagnosis.jax_work",
            "AxisError": "_errors",
            "BudgetError": "_errors",
            "CompileError": "_errors",
            "ContractError": "_errors",
            "DataError": "_errors",
            "DerivativeError": "_errors",
            "DonationError": "_errors",
            "ExportError": "_errors",
            "JitneyError": "_errors",
            "JitneyWarning": "_errors",
            "MeshError": "_errors",
            "NonFiniteError": "_errors",
            "OptionError": "_errors",
            "PrecisionError": "_errors",
            "ProcessError": "_errors",
            "StateError": "_errors",
            "StaticError": "_errors",
            "TraceError": "_errors",
            "VerificationError": "_errors",
            "ExportedProgram": "_export.loaded",
            "Loaded": "_export.loaded",
            "load": "_export.loaded",
            "Derivative": "_interface.derivatives",
            "lazy_derivatives": "_interface.derivatives",
            "optimize": "_interface.optimize",
            "Program": "_interface.program",
            "scan_steps": "_interface.scan_steps",
            "shared": "_interface.shared",
            "Stacked": "_interface.stack",
            "stack": "_interface.stack",
            "DerivedField": "_interface.state",
            "State": "_interface.state",
            "derived": "_interface.state",
            "CacheFacts": "_jax.compile_cache.cache",
            "Mesh": "_jax.mesh",
            "mesh": "_jax.mesh",
            "Measurement": "_measured.measure",
            "Timing": "_measured.measure",
            "measure": "_measured.measure",
            "Profile": "_measured.profile",
            "profile": "_measured.profile",
            "Verdict": "_measured.verdict",
            "LossScale": "_precision.loss_scale",
            "Checkpoints": "_processes.checkpoints",
            "Processes": "_processes.distributed",
            "distributed": "_processes.distributed",
            "from_processes": "_processes.from_processes",
            "Deviation": "_program.tolerance",
            "PrecisionReport": "_program.tolerance",
            "Product": "_program.tolerance",
            "AxisFacts": "_report.axis_facts",
            "Report": "_report.plan_report",
            "Bucket": "_signature.buckets",
            "Device": "_simulate.device",
            "Share": "_simulate.figures",
            "Simulation": "_simulate.figures",
            "Sweep": "_simulate.figures",
            "Traffic": "_simulate.figures",
            "simulate": "_simulate.simulate",
            "accumulate": "_stream.accumulate",
            "Streamed": "_report.streamed",
            "StreamStats": "_report.streamed",
            "stream": "_stream.stream",
            "register_axes": "_view.module_axes",
        },
    )

# JAX may trace something before a name of jitney is accessed. This import creates the contexts that
# are part of the keys of JAX's caches.
if "jax" in _sys.modules:
    from ._jax import user_contexts as _user_contexts  # noqa: F401  # pyright: ignore[reportUnusedImport]

# JAX may start before a name is accessed, and these settings have to be made before that.
if not {"JITNEY_THREADS", "JITNEY_MEMORY", "JITNEY_PLATFORM"}.isdisjoint(_os.environ):
    from ._devices.configure import from_environment as _from_environment

    _from_environment()
