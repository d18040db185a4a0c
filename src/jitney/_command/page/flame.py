"""Flame graph of tracing, lowering and compiling: the user's functions, programs, phases.

Spans inside of another span in time are part of it. Spans of equal name and phase at one place are
added up. JAX reports no seconds of a `jit` that is traced inside of another one (0.10.2 to
0.12.0.1), but reports that it traces it: the bar of the outer trace lists the names.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from ..._diagnosis.counters.counters import COMPILED, LOWERED, TRACED
from ..._errors import shortlist
from ..._owners import owner, short
from ..._text.json import Data, Record
from ..jax_log import parse_explanation, plain_name

_PHASES = {TRACED: "trace", LOWERED: "lower", COMPILED: "compile"}
_COLOURS = {
    "trace": "var(--p1)",
    "lower": "var(--p2)",
    "compile": "var(--p3)",
    "cache read": "var(--p4)",
}
# Share of the whole below which a bar is too narrow to draw.
_LEAST = 1e-3
_DEEP = 24
# Pixels of a row.
_HIGH = 22


@dataclass
class FlameBar:
    """Bar of the flame, with the bars inside of it.

    Args:
        name: Name of the function.
        phase: "trace", "lower", "compile", "cache read", or empty for a function of the user.
        seconds: Seconds of this bar and of all inside.
        times: Number of spans.
        jits: Functions traced inside without seconds, and how often.
        inside: Bars inside, by name and phase.
    """

    name: str
    phase: str = ""
    seconds: float = 0.0
    times: int = 0
    jits: dict[str, int] = field(default_factory=dict[str, int])
    inside: dict[tuple[str, str], FlameBar] = field(
        default_factory=dict[tuple[str, str], "FlameBar"]
    )

    def child(self, name: str, phase: str = "") -> FlameBar:
        """Return the inner bar of a name and a phase, which is added if it is the first."""
        return self.inside.setdefault((name, phase), FlameBar(name, phase))

    def add(self, other: FlameBar) -> None:
        """Add the seconds, counts and inner bars of another bar of the same name."""
        self.seconds += other.seconds
        self.times += other.times
        for name, times in other.jits.items():
            self.jits[name] = self.jits.get(name, 0) + times
        for key, node in other.inside.items():
            self.inside.setdefault(key, FlameBar(*key)).add(node)

    def to_dict(self, least: float = 0.0, deep: int = _DEEP) -> Data:
        """Return the bar as plain data, longest first, without inner bars below `least` seconds."""
        kept = [node for node in self.inside.values() if node.seconds >= least] if deep else []
        inside = [
            node.to_dict(least, deep - 1) for node in sorted(kept, key=lambda node: -node.seconds)
        ]
        return {
            "name": self.name,
            "phase": self.phase,
            "seconds": self.seconds,
            "times": self.times,
            "jits": self.jits,
            "inside": inside,
        }


def flame(events: Sequence[Record]) -> Data:
    """Return the flame of recorded events as plain data; see `launch.py`."""
    root = FlameBar("all of it")
    # By thread: the spans that are in no other one so far, each with its start and its callers.
    over: dict[int, list[tuple[float, FlameBar, list[str]]]] = defaultdict(list)
    hits: set[int] = set()
    # Names that JAX explained since the last trace ended, by thread.
    asked: dict[int, list[str]] = defaultdict(list)

    for event in events:
        thread = event["thread"]
        if event["kind"] == "hit":
            hits.add(thread)
        elif event["kind"] == "explained":
            said = parse_explanation(event["text"])
            asked[thread] += [said.name] if said is not None and _is_users(said.file) else []
        elif event["kind"] == "span" and event["event"] in _PHASES:
            phase = _PHASES[event["event"]]
            if phase == "compile" and thread in hits:
                hits.discard(thread)
                phase = "cache read"
            node = FlameBar(
                plain_name(event["name"]), phase, max(0.0, event["end"] - event["start"]), 1
            )
            if phase == "trace":
                node.jits = dict(
                    Counter(name for name in asked.pop(thread, ()) if name != node.name)
                )
            waiting = over[thread]
            # A span that started later and was reported before lies inside of this one.
            while waiting and waiting[-1][0] >= event["start"]:
                inner = waiting.pop()[1]
                node.inside.setdefault(
                    (inner.name, inner.phase), FlameBar(inner.name, inner.phase)
                ).add(inner)
            waiting.append((event["start"], node, _users(event["frames"])))

    for each in over.values():
        for _, node, callers in each:
            _stand(root, node, callers)
    return root.to_dict(_LEAST * root.seconds)


def _stand(root: FlameBar, node: FlameBar, callers: Sequence[str]) -> None:
    """Add an outermost span to the tree, below the user's functions that led to it."""
    at = root
    # Each caller on the path gets the seconds; calls through the same functions share their bars.
    for name in (*callers, node.name):
        at.seconds += node.seconds
        at = at.child(name)
    at.seconds += node.seconds
    at.times += node.phase in ("compile", "cache read")
    at.inside.setdefault((node.phase, node.phase), FlameBar(node.phase, node.phase)).add(
        FlameBar(node.phase, node.phase, node.seconds, node.times, node.jits, node.inside)
    )


def _users(frames: Sequence[Sequence[Any]]) -> list[str]:
    """Return the user's functions of a stack, outermost first."""
    return [
        short(file) if function == "<module>" else f"{function} ({short(file)}:{first})"
        for file, _, function, first in reversed(frames)
        if _is_users(file)
    ]


def _is_users(file: str) -> bool:
    return owner(file) in ("user", "generated")


def draw(told: Record) -> str:
    """Draw the flame upside down: the whole on top, inner bars below, as wide as their seconds."""
    whole = told["seconds"]
    if not whole:
        return "<h2>Flame of trace, lower and compile</h2><p>Nothing was compiled.</p>"
    bars: list[str] = []
    deepest = _bars(told, 0.0, 0, whole, bars)
    return (
        '<h2>Flame of trace, lower and compile</h2><p class="soft">From above: functions of the'
        " program, what they compile, its phases, and what is traced and compiled inside. A bar is"
        " as wide as its seconds; a click on it widens it, one on the first shows all.</p><div"
        f' class="flame" style="height:{(deepest + 1) * _HIGH}px">{"".join(bars)}</div>'
    )


def _bars(
    node: Record,
    start: float,
    row: int,
    whole: float,
    bars: list[str],
) -> int:
    """Append the bars of a node, from left to right, and return the deepest row."""
    name, phase, seconds = escape(node["name"]), node["phase"], node["seconds"]
    left, wide = 100 * start / whole, 100 * seconds / whole
    label = name if not phase or phase == node["name"] else f"{name} ({phase})"
    times = f", {node['times']} times" if node["times"] > 1 else ""
    jits = shortlist(
        [f"{jit} {times}" if times > 1 else jit for jit, times in node["jits"].items()]
    )
    within = escape(f", with {jits} inside, whose seconds JAX does not report") if jits else ""
    look = f'style="left:{left:.3f}%;width:{wide:.3f}%;top:{row * _HIGH}px' + (
        f';background:{_COLOURS[phase]}"' if phase else '" class="user"'
    )
    bars.append(
        f'<button {look} data-left="{left:.4f}" data-wide="{wide:.4f}" title="{label}:'
        f' {seconds:.3f} s{times}{within}">{label} <i>{seconds:.2f} s</i></button>'
    )
    deepest = row
    for inner in node["inside"]:
        deepest = max(deepest, _bars(inner, start, row + 1, whole, bars))
        start += inner["seconds"]
    return deepest
