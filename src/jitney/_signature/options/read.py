"""Reading of the keywords of `@optimize`: each by its reader, and those that contradict each other
refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ..._errors import Where, name_fix
from ..._extent import AUTO
from .readers import fail
from .table import NAMES, OPTIONS, Options
from .values import is_measured, policy_of, tolerance_of

# Keywords of `jax.jit`, similar transforms and `equinox.filter_jit`, and their spelling in jitney.
_ELSEWHERE = {
    "static_argnames": 'static="name"',
    "static_argnums": 'static="name", by name instead of position',
    "donate_argnames": 'donate="name"',
    "donate_argnums": 'donate="name", by name instead of position',
    "in_axes": 'vmap="batch", or by argument: vmap={"batch": {"x": 0}}',
    "axis_name": 'vmap="batch"',
    "in_shardings": 'shard={"batch": "data"}, by named axis',
    "out_shardings": 'shard={"batch": "data"}, by named axis',
    "policy": 'remat="dots_saveable"',
    "compiler_options": "compiler={...}",
}
_NOT_CARRIED_OUT = "jitney accepts no option that it does not carry out."


@dataclass(frozen=True)
class _Contradiction:
    """Options that are valid one by one but not together.

    Args:
        found: Returns the offending part of the options, or a false value if there is none.
        what: First part of the message; `{}` is replaced by the result of `found`.
        rule: Second part.
        fix: Third part.
    """

    found: Callable[[Options], object]
    what: str
    rule: str
    fix: str


# The first match is reported, so the order matters.
_CONTRADICTIONS = (
    _Contradiction(
        lambda o: o.mesh is not None and o.shard is None,
        "`mesh` is given, and `shard` is not.",
        "The mesh is where `shard` places axes.",
        'say which: shard={"batch": "data"}.',
    ),
    _Contradiction(
        lambda o: _listing({*o.static} & {*o.donate}),
        "{} cannot be static and donated.",
        "A static value has no device buffer to donate.",
        "name it in one of the two options.",
    ),
    _Contradiction(
        lambda o: o.pad and not o.contracts,
        "`pad` and contracts=False contradict each other.",
        "The sizes of padded axes are those that the contract binds, so it is checked.",
        "drop contracts=False.",
    ),
    _Contradiction(
        lambda o: o.ragged != "list" and not (o.pad and len(o.vmap) == 1),
        'ragged="padded" has no rows: it goes with `vmap` over one axis and `pad`.',
        "It says how results come back that are of unlike lengths in the rows of a call.",
        'write vmap="row", pad={"points": "pow2"} with it.',
    ),
    _Contradiction(
        lambda o: o.pad and o.chunk and not _cuts_rows(o),
        "`pad` and `chunk` together are not supported yet.",
        "Only the axis of `vmap` is cut while others are padded.",
        "keep one: `chunk` needs no padding for a last chunk that is shorter.",
    ),
    _Contradiction(
        lambda o: (
            o.memory is not None and any(chunk != AUTO for _, chunk in o.chunk) and dict(o.chunk)
        ),
        "`memory` chooses the size of chunks, and chunk={!r} says it already.",
        'It goes with chunk={axis: "auto"}, or alone.',
        'write chunk={"points": "auto"}, memory="2GiB".',
    ),
    _Contradiction(
        lambda o: o.remat == AUTO and o.memory is None,
        'remat="auto" has no memory to keep to.',
        "It recomputes the least in the backward pass that brings a gradient below `memory`.",
        'write memory="2GiB" with it, or memory="auto" for what is free.',
    ),
    _Contradiction(
        lambda o: o.remat == AUTO and o.chunk,
        'remat="auto" and `chunk` together are not supported yet.',
        "`memory` is kept by recomputing or by cutting, one of them.",
        "keep one; `jitney.accumulate` takes the batch of a loss in parts.",
    ),
    _Contradiction(
        lambda o: o.remat == AUTO and o.shard is not None,
        'remat="auto" and `shard` together are not supported yet.',
        "What a gradient takes is measured on one device.",
        "keep one, or name a policy of `jax.checkpoint_policies`.",
    ),
    _Contradiction(
        lambda o: o.roll is not None and o.shard is not None,
        "`roll` and `shard` together are not supported yet.",
        "Whether a loop runs as fast as layers one behind the other was measured on one device.",
        "keep one, or write the layers as a `jax.lax.scan`.",
    ),
    _Contradiction(
        lambda o: o.roll is not None and o.on_trace_error == "eager",
        'roll="auto" and on_trace_error="eager" contradict each other.',
        "Layers are found in the traced program; a body that cannot be traced has none.",
        'drop on_trace_error="eager".',
    ),
    _Contradiction(
        lambda o: o.memory is not None and o.pad and not _cuts_rows(o),
        "`pad` and `memory` together are not supported yet.",
        _NOT_CARRIED_OUT,
        "keep one: what `memory` cuts needs no padding.",
    ),
    _Contradiction(
        lambda o: o.on_trace_error == "eager" and _of_products(o.precision),
        'precision={} and on_trace_error="eager" contradict each other.',
        "Products are cast in the traced program; a body that cannot be traced has none.",
        'drop on_trace_error="eager", or write precision="bf16-all", which casts arguments.',
    ),
    _Contradiction(
        lambda o: is_measured(o.chunk) and o.chunk[0][0] not in [a.name for a in o.vmap[:1]],
        'chunk="fast" is of an axis that is not the outermost of `vmap`.',
        "Widths are measured on a part of the elements, which `vmap` computes each alone.",
        'give a size, or "auto".',
    ),
    _Contradiction(
        lambda o: (
            is_measured(o.chunk)
            and _first_given(
                {
                    "donate": o.donate,
                    "shard": o.shard is not None,
                    'precision="auto:..."': tolerance_of(o.precision) is not None,
                }
            )
        ),
        'chunk="fast" and `{}` together are not supported yet.',
        "What is measured runs several times, on parts of the arguments.",
        "give a size, or leave out the other.",
    ),
    _Contradiction(
        lambda o: o.workers and not o.vmap,
        "`workers` is given, and `vmap` is not.",
        "Threads share an axis that `vmap` adds: each of its elements is computed alone.",
        'write vmap="batch" with it, on a function of one element.',
    ),
    _Contradiction(
        lambda o: (
            o.workers
            and next((name for name, _ in o.chunk if name not in {a.name for a in o.vmap}), None)
        ),
        "`workers` and a chunk of {!r}, which the signature has, together are not supported yet.",
        "Threads share the axis that `vmap` adds, and a sum over another one is not theirs.",
        "keep one; `shard` divides such an axis over the devices of one CPU.",
    ),
    _Contradiction(
        lambda o: o.workers and o.donate,
        "`workers` and `donate` contradict each other.",
        "Each thread gets a part of an array, and its result is a part of the whole.",
        "keep one: the whole result has a buffer of its own.",
    ),
    _Contradiction(
        lambda o: (
            o.workers
            and _first_given(
                {
                    "pad": o.pad,
                    "memory": o.memory is not None,
                    "shard": o.shard is not None,
                    'precision="auto:..."': tolerance_of(o.precision) is not None,
                }
            )
        ),
        "`workers` and `{}` together are not supported yet.",
        _NOT_CARRIED_OUT,
        "keep one of the two.",
    ),
    _Contradiction(
        lambda o: (
            falls_back(o)
            and _first_given(
                {
                    "pad": o.pad,
                    "shard": o.shard is not None,
                    "workers": o.workers,
                    'chunk="fast"': is_measured(o.chunk),
                    'precision="auto:..."': tolerance_of(o.precision) is not None,
                }
            )
        ),
        "`on_compile_error` or `on_memory_error` and `{}` together are not supported yet.",
        "A call is repeated where it is one program, on one device.",
        "leave out the fallback, or the other option.",
    ),
    _Contradiction(
        lambda o: o.progress and not o.chunk and o.memory is None,
        "progress=True has no chunks to count.",
        "A bar shows how many chunks of a call are done.",
        'write chunk={"points": 1024} with it; `jitney.scan_steps(progress=True)` shows the steps'
        " of a loop.",
    ),
    _Contradiction(
        lambda o: (
            o.progress
            and _first_given(
                {
                    'chunk="fast"': is_measured(o.chunk),
                    "chunk={axis: 1}": any(chunk == 1 for _, chunk in o.chunk),
                    'remat="auto"': o.remat == AUTO,
                    "pad": o.pad,
                    "shard": o.shard is not None,
                    "workers": o.workers,
                    "auto": o.auto,
                }
            )
        ),
        "`progress` and `{}` together are not supported yet.",
        "The bar moves by a callback in one loop over chunks, on one device.",
        "keep one of the two.",
    ),
    _Contradiction(
        lambda o: _listing({name for axis in o.vmap for name in axis.arguments} & {*o.static}),
        "{} cannot be static and mapped.",
        "A static value is one value for the whole program.",
        "name it in one of the two options.",
    ),
)


def falls_back(options: Options) -> bool:
    """Return whether a call that XLA cannot compile or run is repeated another way."""
    return (options.on_compile_error, options.on_memory_error) != ("raise", "raise")


def _cuts_rows(options: Options) -> bool:
    """Return whether what is cut is rows: elements of the one axis of `vmap`, which is not
    padded.
    """
    if len(options.vmap) != 1 or is_measured(options.chunk):
        return False
    rows = options.vmap[0].name
    is_padded = rows in [name for name, _ in options.pad]
    return not is_padded and all(name == rows for name, _ in options.chunk)


def read_options(where: Where | str, raw: Mapping[str, object]) -> Options:
    """Validate the keywords of `@optimize`.

    Raises:
        OptionError: An option is unknown, malformed, not built yet, or contradicts another.
    """
    for name in raw:
        _check_name(where, name)
    given: dict[str, object] = {}
    for name, option in OPTIONS.items():
        if name in raw and option.read is not None:
            given[name] = option.read(where, name, raw[name])
    options = replace(Options(), **given)

    # Each option is valid by itself here.
    for contradiction in _CONTRADICTIONS:
        found = contradiction.found(options)
        if found:
            fail(
                where,
                contradiction.what.format(found),
                contradiction.rule,
                contradiction.fix,
                code="J201",
            )

    return options


def _check_name(where: Where | str, name: str) -> None:
    if name in _ELSEWHERE:
        fail(
            where,
            f"unknown option {name!r}.",
            "It is JAX's; jitney's go by the names of arguments and axes.",
            f"write {_ELSEWHERE[name]}.",
            code="J200",
        )
    if name not in NAMES:
        fail(
            where,
            f"unknown option {name!r}.",
            f"The options are {', '.join(NAMES)}.",
            name_fix(name, NAMES, "leave it out."),
            code="J200",
        )


def _of_products(precision: str | tuple[tuple[str, str], ...] | None) -> str:
    """A policy of products as the user wrote it; "" for any other policy."""
    if policy_of(precision) is None and tolerance_of(precision) is None:
        return ""
    return repr(dict(precision) if isinstance(precision, tuple) else precision)


def _first_given(given: Mapping[str, object]) -> str | None:
    return next((name for name, is_given in given.items() if is_given), None)


def _listing(names: set[str]) -> str:
    return ", ".join(repr(name) for name in sorted(names))
