"""The name of a program among those that are kept: one digest of its function, its call, and all
around them that a trace may depend on.

What is in it is equal in a process where the program is found, by content. What is not sure to be
told by content is `Unsure`, and the program is traced.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import equinox
import jax
import jaxlib
import numpy as np

from .._body.body import Body
from .._body.function import Function
from .._contract.contract import all_matches
from .._jax.equinox_checks import on_error
from .._jax.mesh import current as current_mesh
from .._jax.trees import is_a
from .._limits import cores
from .._record.classes import registered_anywhere
from .._record.instructions import Codes
from .._record.looked_up import Read
from .._record.remembered import Traced
from .._record.unsure import Unsure
from .._record.values import Walk
from .._signature.options import AUTO, tolerance_of
from .._stages.derive import Derived
from .._version import __version__
from .._view.layout import described
from .._view.true_sizes import Counts
from .laid import Laid

_PACKAGE = Path(__file__).parents[1]
_jax: Any = jax
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
"""In the names of settings of JAX that no trace depends on."""
_VARIABLES = ("XLA_", "EQX_", "LIBTPU_", "CUDA_VISIBLE", "JAX_")


@dataclass(frozen=True)
class Key:
    """What a call is looked for by.

    Args:
        text: The key.
        codes: The user's code that was followed: all that may run in its trace, and of some why it
            may not.
        remembering: The functions among it that remember what they returned.
        is_as_computed: Whether all that these remember is what they would compute now.
        scope: The settings, by one digest.
    """

    text: str
    codes: Codes
    remembering: Sequence[Any]
    is_as_computed: bool
    scope: str


def key_of(
    body: Body,
    arrays: Sequence[Any],
    counts: Counts | None = None,
    reads: Sequence[Read] = (),
    laid: Laid | None = None,
    of: Sequence[str] = (),
    traced: Traced | None = None,
) -> Key:
    """The key of a call, or of what else is computed of its function (`of`); with what its trace
    asked modules for by computed names, the second one.

    Raises:
        Unsure: Something that may be read cannot be told by content.
    """
    refused = unsupported(body.core)
    if refused is not None:
        raise Unsure(refused)
    scope = hashlib.blake2b(
        repr([_versions(), _settings(), _machine(laid), registered_anywhere()]).encode()
    ).hexdigest()
    walk = Walk(scope, traced)
    walk.say(scope, *of)
    if any(memory is not None for memory in _budgets(body.core)):
        walk.say(*processor())
    _add_call(walk, body, arrays)
    if counts is not None:  # of a padded call; its true sizes are data
        walk.say("padded", repr(counts.key))
    fn = body.core.fn()
    walk.add(fn, "")
    for module, name in reads:
        walk.ask(module, name)
    text = walk.digest()
    return Key(text, walk.codes, walk.remembering, walk.is_as_computed, scope)


def unsupported(core: Function) -> str | None:
    """Why programs of a function are not kept; None where they are."""
    options = core.options
    if AUTO in _budgets(core):
        return (
            'programs with `memory="auto"` are not kept: what is free is another number each time'
        )
    given = {
        "mesh": options.mesh is not None and options.shard is None,
        'precision="auto:..."': tolerance_of(options.precision) is not None,
        'compiler="fast"': options.compiler == "fast",
        "debug_nans": options.debug_nans,
        "accumulate": options.accumulate,
        "JITNEY_DISABLE": options.disabled is not None,
        'on_trace_error="eager"': options.on_trace_error == "eager",
    }
    named = [name for name, is_given in given.items() if is_given]
    return f"programs with `{named[0]}` are not kept yet" if named else None


def _budgets(core: Function) -> tuple[Any, Any]:
    """What the program, and the backward pass of a derivative inside of it, may take."""
    fn: Any = core.fn()
    return core.options.memory, fn.memory if is_a(fn, Derived) else None


@cache
def processor() -> tuple[str, ...]:
    """What the compiler's count of bytes may depend on, by which a program with `memory` is chosen:
    what the processors can do, as Linux says it, and how many there are.

    Raises:
        Unsure: What compiles tries several ways, and takes the fastest.
    """
    where = _jax.devices()[0].platform
    if where != "cpu":
        raise Unsure(
            f"programs with `memory` are kept for CPUs only: on {where} the compiler chooses by"
            " measured times"
        )
    about = Path("/proc/cpuinfo")
    lines = about.read_text().splitlines() if about.exists() else []
    told = {line for line in lines if line.startswith(("flags", "Features", "model name"))}
    return (*sorted(told), *(f"{limit.by} {limit.value}" for limit in cores()))


def _add_call(walk: Walk, body: Body, arrays: Sequence[Any]) -> None:
    """The arguments: their structure, what is static by content, what is an array by shape, dtype
    and weak type.
    """
    layout, contract = body.layout, body.core.contract
    abstract: list[Any] = []
    for array in arrays:
        shape, dtype, weak = described(array)
        if not is_a(dtype, np.dtype):
            raise Unsure(f"an argument is an array of {dtype}")
        abstract.append(jax.ShapeDtypeStruct(shape, dtype, weak_type=weak))
    walk.say(str(layout.treedef), repr(layout.dynamic), repr(layout.names), body.core.name)
    walk.add(body.core.options, "options")
    walk.add(
        [(p.name, int(p.kind), p.hint, p.has_default) for p in contract.parameters], "annotations"
    )
    walk.add((contract.result, contract.unresolved), "annotations")
    values = layout.values(abstract, body.statics)
    # of fields of modules too, which may be texts with other names in them
    matches = all_matches(contract, body.core.binder.named(values))
    walk.add([(match.path, match.hint) for match in matches], "annotations")
    walk.add(values, "arguments")


def _versions() -> list[str]:
    packages: list[Any] = [jax, jaxlib, equinox, np]
    return [
        sys.version,
        str(sys.flags.optimize),
        __version__,
        str(_PACKAGE),
        *(str(package.__version__) for package in packages),
    ]


def _settings() -> list[str]:
    """All settings of JAX, as they are for this thread now, but for those that say where it writes
    what; and those of NumPy.
    """
    names = sorted(
        name for name in _jax.config.values if not any(part in name for part in _IRRELEVANT)
    )
    said = [f"{name}={getattr(_jax.config, name, None)!r}" for name in names]
    variables = sorted(
        f"{name}={value}"
        for name, value in os.environ.items()
        if name.startswith(_VARIABLES) and not _is_irrelevant(name)
    )
    return [
        *said,
        *variables,
        on_error(),
        repr((np.geterr(), np.get_printoptions(), np.getbufsize())),
    ]


def _is_irrelevant(name: str) -> bool:
    return any(part in name.lower() for part in _IRRELEVANT)


def _machine(laid: Laid | None) -> list[str]:
    devices = _jax.devices()
    if laid is not None:
        return [
            sys.platform,
            platform.machine(),
            *laid.told(),
            str(devices[0].client.platform_version),
        ]
    if len(devices) != 1 or _jax.process_count() != 1:
        raise Unsure("programs without `shard` are kept on one device only")
    if current_mesh(None, nested=False) is not None:
        raise Unsure("programs are not kept under a mesh")
    return [
        sys.platform,
        platform.machine(),
        devices[0].platform,
        devices[0].device_kind,
        str(devices[0].client.platform_version),
    ]
