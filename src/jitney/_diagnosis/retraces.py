"""Why a function was traced again: two calls compared in the words of the one who wrote the function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .._stages.plan import Plan, difference
from .._view.layout import static_text
from .._view.view import View


@dataclass(frozen=True)
class TraceRecord:
    """What one trace was made for."""

    view: View
    static: tuple[tuple[str, Any], ...]
    keys: Any
    plan: Plan


def cause(old: TraceRecord | None, new: TraceRecord) -> str:
    """One line: what differs from the trace before."""
    if old is None:
        return "first call"
    differences = [*_arrays(old.view, new.view), *_statics(old, new), *difference(old.plan, new.plan)]
    if differences:
        return "; ".join(differences)
    if old.keys != new.keys:
        return "another static value or tree structure"
    return "same arguments: another sharding, mesh, default device, x64 or precision setting of JAX, or an outer transform"


def _arrays(old: View, new: View) -> list[str]:
    before = {leaf.path: leaf for leaf in old.leaves}
    after = {leaf.path: leaf for leaf in new.leaves}
    changed = [
        f"{path!r} {_short(before[path])} -> {_short(leaf)}"
        for path, leaf in after.items()
        if path in before and _short(before[path]) != _short(leaf)
    ]
    gone = [path for path in before if path not in after]
    come = [path for path in after if path not in before]
    return [
        *_few(changed),
        *([f"no array any more in {', '.join(_few(gone))}"] if gone else []),
        *([f"a new array in {', '.join(_few(come))}"] if come else []),
    ]


def _short(leaf: Any) -> str:
    return str(leaf).split(": ", 1)[1]


def _statics(old: TraceRecord, new: TraceRecord) -> list[str]:
    before = dict(old.static)
    return _few(
        [
            f"static {path!r} {static_text(before[path])} -> {static_text(value)}" if path in before else f"a new static {path!r}"
            for path, value in new.static
            if path not in before or (before[path] is not value and static_text(before[path]) != static_text(value))
        ]
    )


def _few(items: Sequence[str]) -> list[str]:
    return list(items) if len(items) <= 4 else [*items[:3], f"and {len(items) - 3} more"]
