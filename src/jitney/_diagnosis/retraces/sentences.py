"""Differences between two traces, printed in one line of `stats.retraces`."""

from __future__ import annotations

from collections.abc import Sequence

from ..._stages.plan import difference
from ..._view.layout import static_text
from ..._view.view import View
from .cause import Cause
from .trace_record import TraceRecord, type_text

_UNKNOWN = "the arguments, JAX's settings and the mesh are the same"


def sentence_of(
    old: TraceRecord | None,
    new: TraceRecord,
    found: Sequence[Cause],
) -> str:
    """Text of the differences from the nearest earlier trace, in one line.

    It has decisions of the plan that follow from the causes too; `causes` names those only if there
    is no other cause.
    """
    if old is None or found[0].kind in ("cache eviction", "unknown"):
        return "first call" if found[0].kind == "first call" else "; ".join(map(_cause_text, found))
    before = dict(old.surroundings)
    beside = {"function", "static value"}
    # In another mesh arrays are elsewhere.
    if before.get("mesh") == dict(new.surroundings).get("mesh"):
        beside |= {"committed", "sharding"}
    plans = [] if old.plan is None or new.plan is None else difference(old.plan, new.plan)
    differences = [
        *_arrays(old.view, new.view),
        *_statics(old, new),
        *plans,
        *(
            f"{what} {before[what]} -> {value}"
            for what, value in new.surroundings
            if before.get(what, value) != value
        ),
    ]
    # Causes that the differences do not mention: of an array that is elsewhere, its place.
    rest = [
        str(cause)
        for cause in found
        if cause.kind in beside and not any(f"{cause.argument!r}" in text for text in differences)
    ]
    told = [*differences, *_few(rest)] or _few([str(cause) for cause in found])
    return "; ".join(told)


def _cause_text(cause: Cause) -> str:
    return f"unknown: {_UNKNOWN}" if cause.kind == "unknown" else str(cause)


def _arrays(old: View, new: View) -> list[str]:
    before = {leaf.path: leaf for leaf in old.leaves}
    after = {leaf.path: leaf for leaf in new.leaves}
    changed = [
        f"{path!r} {type_text(before[path])} -> {type_text(leaf)}"
        for path, leaf in after.items()
        if path in before and type_text(before[path]) != type_text(leaf)
    ]
    gone = [path for path in before if path not in after]
    come = [path for path in after if path not in before]
    return [
        *_few(changed),
        *([f"no array any more in {', '.join(_few(gone))}"] if gone else []),
        *([f"a new array in {', '.join(_few(come))}"] if come else []),
    ]


def _statics(old: TraceRecord, new: TraceRecord) -> list[str]:
    before = dict(old.static)
    return _few(
        [
            f"static {path!r} {static_text(before[path])} -> {static_text(value)}"
            if path in before
            else f"a new static {path!r}"
            for path, value in new.static
            if path not in before
            or (before[path] is not value and static_text(before[path]) != static_text(value))
        ]
    )


def _few(items: Sequence[str]) -> list[str]:
    return list(items) if len(items) <= 4 else [*items[:3], f"and {len(items) - 3} more"]
