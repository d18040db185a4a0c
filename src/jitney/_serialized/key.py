"""Cache key of a program: one digest of its function, its call, and everything around them that a
trace may depend on.

Everything in the digest is content, so it is equal in another process. A value without a reliable
fingerprint of its content raises `NotDeterministic`, and the program is traced.

The digest of a value is in `_record/values.py`. `request.py` looks for the program of a key, or
records what its trace reads, and `kept.py` runs or stores it.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import equinox
import jax
import jaxlib
import numpy as np

from .._body.body import CallPlanner
from .._body.function import FunctionInfo
from .._contract.contract import all_matches
from .._host.limits import cores
from .._jax.equinox_checks import on_error
from .._jax.mesh import current as current_mesh
from .._jax.typed import Array
from .._record.classes import registered_anywhere
from .._record.dynamic_reads import Read
from .._record.instructions import Codes
from .._record.memoised import TracedCacheEntries
from .._record.unsure import NotDeterministic
from .._record.values import ContentHasher
from .._signature.options import AUTO, tolerance_of
from .._stages.derivatives.derive import Derived
from .._version import __version__
from .._view.layout import aval_parts
from .._view.true_sizes import TrueSizes
from .mesh_layout import MeshLayout

_PACKAGE = Path(__file__).parents[1]
_IRRELEVANT = (
    "cache",
    "jax_log",
    "debug_log",
    "dump",
    "traceback",
    "explain",
    "pprint",
    "transfer",
    "pgle",
    "distributed",
    "coordination",
    "platforms",
)
"""Parts of the names of JAX settings that no trace depends on."""
_VARIABLES = ("XLA_", "EQX_", "LIBTPU_", "CUDA_VISIBLE", "JAX_")


@dataclass(frozen=True)
class Key:
    """Cache key of a computation.

    Args:
        text: The digest.
        codes: Code of the user that was followed: all that may run in the trace, and for some the
            reason why it may not.
        remembering: Memoised functions among it.
        is_as_computed: Whether all their memoised results are what they would compute now.
        scope: Digest of the settings.
        arrays: Large arrays among what the trace may read, by the digest of their content.
    """

    text: str
    codes: Codes
    remembering: Sequence[object]
    is_as_computed: bool
    scope: str
    arrays: Mapping[str, object]


def key_of(
    body: CallPlanner,
    arrays: Sequence[Array],
    counts: TrueSizes | None = None,
    reads: Sequence[Read] = (),
    laid: MeshLayout | None = None,
    of: Sequence[str] = (),
    traced: TracedCacheEntries | None = None,
) -> Key:
    """Return the key of a call, or of another computation of its function (`of`). With `reads`,
    attributes that its trace looked up by computed names, it is the second key.

    Raises:
        NotDeterministic: Something that a trace may read has no reliable fingerprint.
    """
    refused = cache_obstacle(body)
    if refused is not None:
        raise NotDeterministic(refused)

    # The surroundings: versions, settings, devices, registered pytree classes.
    around = [_versions(), _settings(), _machine(laid), registered_anywhere()]
    scope = hashlib.blake2b(repr(around).encode()).hexdigest()
    walk = ContentHasher(scope, traced)
    walk.say(scope, *of)
    # With a budget the program depends on the compiler's count of bytes, and so on the processor.
    if any(memory is not None for memory in _budgets(body.core)):
        walk.say(*processor())

    # The call, then the function and all that it leads to.
    _add_call(walk, body, arrays)
    # The true sizes of a padded call are data, not part of the key.
    if counts is not None:
        walk.say("padded", repr(counts.key))
    fn = body.core.fn()
    walk.add(fn, "")
    for module, name in reads:
        walk.add_read(module, name)
    text = walk.digest()
    return Key(
        text,
        walk.codes,
        walk.remembering,
        walk.is_as_computed,
        scope,
        walk.arrays,
    )


def cache_obstacle(body: CallPlanner) -> str | None:
    """Return why programs of a body are not cached; None if they are."""
    options = body.options
    if AUTO in _budgets(body.core):
        return (
            'programs with `memory="auto"` are not cached: what is free is another number each time'
        )
    given = {
        "mesh": options.mesh is not None and options.shard is None,
        'precision="auto:..."': tolerance_of(options.precision) is not None,
        'compiler="fast"': options.compiler == "fast",
        "compiler={...}": isinstance(options.compiler, tuple),
        "debug_nans": options.debug_nans,
        "accumulate": options.accumulate,
        "JITNEY_DISABLE": options.disabled is not None,
        'on_trace_error="eager"': options.on_trace_error == "eager",
        "on_compile_error": options.on_compile_error != "raise",
        "on_memory_error": options.on_memory_error != "raise",
    }
    named = [name for name, is_given in given.items() if is_given]
    return f"programs with `{named[0]}` are not cached yet" if named else None


def _budgets(core: FunctionInfo) -> tuple[int | str | None, int | str | None]:
    """Return the memory budgets of the program, and of the backward pass of a derivative in it."""
    fn = core.fn()
    return core.options.memory, fn.memory if isinstance(fn, Derived) else None


@cache
def processor() -> tuple[str, ...]:
    """Return the properties of the processors that the compiler's count of bytes may depend on, by
    which a program with `memory` is chosen: their features, from Linux, and their number.

    Raises:
        NotDeterministic: The compiler tries several variants, and takes the fastest.
    """
    where = jax.devices()[0].platform
    if where != "cpu":
        raise NotDeterministic(
            f"programs with `memory` are cached for CPUs only: on {where} the compiler chooses by"
            " measured times"
        )
    about = Path("/proc/cpuinfo")
    lines = about.read_text().splitlines() if about.exists() else []
    prefixes = ("flags", "Features", "model name")
    features = {line for line in lines if line.startswith(prefixes)}
    limits = (f"{limit.by} {limit.value}" for limit in cores())
    return (*sorted(features), *limits)


def _add_call(
    walk: ContentHasher,
    body: CallPlanner,
    arrays: Sequence[Array],
) -> None:
    """Add the arguments to the digest: their structure, static values by content, and arrays by
    shape, dtype and weak type.
    """
    layout, contract = body.layout, body.core.contract
    abstract: list[jax.ShapeDtypeStruct] = []
    for array in arrays:
        shape, dtype, weak = aval_parts(array)
        if not isinstance(dtype, np.dtype):
            raise NotDeterministic(f"an argument is an array of {dtype}")
        abstract.append(jax.ShapeDtypeStruct(shape, dtype, weak_type=weak))

    walk.say(
        str(layout.treedef),
        repr(layout.dynamic),
        repr(layout.names),
        body.core.name,
    )
    walk.add(body.options, "options")
    parameters = [(p.name, int(p.kind), p.hint, p.has_default) for p in contract.parameters]
    walk.add(parameters, "annotations")
    walk.add((contract.result, contract.unresolved), "annotations")

    values = layout.values(abstract, body.statics)
    # Annotations of module fields included: they may be strings with other names in them.
    matches = all_matches(contract, body.core.binder.values_by_name(values))
    walk.add([(match.path, match.hint) for match in matches], "annotations")
    walk.add(values, "arguments")


def _versions() -> list[str]:
    packages = [jax, jaxlib, equinox, np]
    return [
        sys.version,
        str(sys.flags.optimize),
        __version__,
        str(_PACKAGE),
        *(str(package.__version__) for package in packages),
    ]


def _settings() -> list[str]:
    """Return the settings of JAX in this thread, except where it writes logs and caches, and those
    of NumPy.
    """
    names = sorted(
        name for name in jax.config.values if not any(part in name for part in _IRRELEVANT)
    )
    settings = [f"{name}={getattr(jax.config, name, None)!r}" for name in names]
    variables = sorted(
        f"{name}={value}"
        for name, value in os.environ.items()
        if name.startswith(_VARIABLES) and not _is_irrelevant(name)
    )
    return [
        *settings,
        *variables,
        on_error(),
        repr((np.geterr(), np.get_printoptions(), np.getbufsize())),
    ]


def _is_irrelevant(name: str) -> bool:
    return any(part in name.lower() for part in _IRRELEVANT)


def _machine(laid: MeshLayout | None) -> list[str]:
    devices = jax.devices()
    if laid is not None:
        return [
            sys.platform,
            platform.machine(),
            *laid.describe(),
            str(devices[0].client.platform_version),
        ]
    if len(devices) != 1 or jax.process_count() != 1:
        raise NotDeterministic("programs without `shard` are kept on one device only")
    if current_mesh(None, nested=False) is not None:
        raise NotDeterministic("programs are not cached under a mesh")
    return [
        sys.platform,
        platform.machine(),
        devices[0].platform,
        devices[0].device_kind,
        str(devices[0].client.platform_version),
    ]
