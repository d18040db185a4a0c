"""Reasons for which `auto` leaves the calls of a function alone, known from its options."""

from __future__ import annotations

from ..._signature.options import AUTO, OPTIONAL, Options, is_measured, tolerance_of
from ..._verify import is_verified
from .cut_axes import is_jacobian


def obstacle(options: Options, fn: object) -> str | None:
    """Return why nothing is tried of a function with these options; None if something may be."""
    if not (options.vmap or options.memory is not None or is_jacobian(fn)):
        return "no `vmap` axis, whose elements are proven to be computed each alone"
    given = {
        "donate": options.donate,
        "pad": options.pad,
        'remat="auto"': options.memory is not None and options.remat == AUTO,
        "memory and workers": options.memory is not None and options.workers is not None,
        "shard": options.shard is not None and options.mesh != OPTIONAL,
        'precision="auto:..."': tolerance_of(options.precision) is not None,
        "max_compiles": options.max_compiles is not None,
        'runtime_checks="later"': options.runtime_checks == "later",
        "jitney.accumulate": options.accumulate,
        "progress": options.progress,
        "on_compile_error": options.on_compile_error != "raise",
        "on_memory_error": options.on_memory_error != "raise",
        "JITNEY_DISABLE": options.disabled is not None,
    }
    named = next((name for name, is_given in given.items() if is_given), None)
    if named is not None:
        return f"not together with `{named}`"
    if is_measured(options.chunk):
        return '`chunk="fast"` measures by itself'
    if options.chunk and options.chunk[0][0] not in {axis.name for axis in options.vmap}:
        return f"`chunk` cuts {options.chunk[0][0]!r}, and one axis is cut at a time"
    if options.chunk and options.workers is not None:
        return "`chunk` and `workers` are given"
    return "`verify` compares what it runs, and all at once" if is_verified(options) else None
