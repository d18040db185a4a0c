"""What JAX did in a program, from what it said: programs with their times, their shapes, and why.

Each thread said its part in order: why a function is traced, that it was traced, for which shapes
it is compiled, that it was lowered and compiled. A text that does not read as expected gives
nothing: then shapes or causes are unknown.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from .._diagnosis.counters import COMPILED, LOWERED, TRACED
from .._diagnosis.jax_work import Phase, Watch
from .._owners import owner, short
from .findings.own import decorated_places

_PHASES: dict[str, Phase] = {TRACED: "traces", LOWERED: "lowers", COMPILED: "compiles"}
_LONG = 160  # letters of a detail: static values may be whole trees
Why = Literal[
    "first call",
    "a new function",
    "other shapes or types",
    "another static value",
    "another structure",
    "another setting",
    "unknown",
]


@dataclass(frozen=True)
class Line:
    """A line of code, and the function that it stands in.

    Args:
        file: Its path.
        line: Its number.
        function: The function.
        first: The function's first line.
    """

    file: str
    line: int
    function: str
    first: int

    def __str__(self) -> str:
        return f"{short(self.file)}:{self.line} ({self.function})"


@dataclass(frozen=True)
class Explained:
    """What JAX said about why it traces.

    Args:
        name: The function that is traced.
        file: Where it is defined; empty where JAX does not say.
        line: Its line.
        why: The kind of the cause.
        details: In JAX's words, argument by argument: `x, now f32[4] and before f32[3]`.
    """

    name: str
    file: str
    line: int
    why: Why
    details: tuple[str, ...] = ()


@dataclass(frozen=True)
class Compiled:
    """One program that was compiled, or taken from the cache.

    Args:
        name: The function, as JAX has it.
        cause: What JAX said when it traced the function; None where it said nothing, as of its own
            functions.
        shapes: Of its arrays in order, `float32[3]`; None where they are unknown.
        near: The innermost line that is not JAX's.
        place: The user's line; None where a library did it in a thread of its own.
        trace_seconds: Of tracing, with functions inside.
        lower_seconds: Of lowering.
        compile_seconds: Of compiling, or of reading the cache.
        hit: Whether it came from the persistent cache.
        start: When its trace began, or its lowering, in seconds since the program's start.
        key: JAX's key of the compiled program: equal keys are equal programs. Empty where it is
            unknown.
    """

    name: str
    cause: Explained | None
    shapes: tuple[str, ...] | None
    near: Line | None
    place: Line | None
    trace_seconds: float
    lower_seconds: float
    compile_seconds: float
    hit: bool
    start: float
    key: str = ""
    ours: bool = False  # whether the function is decorated

    @property
    def seconds(self) -> float:
        """All together."""
        return self.trace_seconds + self.lower_seconds + self.compile_seconds

    @property
    def defined(self) -> str:
        """Whose the function that is compiled is: "user", "jax", ..., "jitney" of a decorated one;
        empty where JAX did not say.
        """
        if self.ours:
            return "jitney"
        return owner(self.cause.file) if self.cause is not None and self.cause.file else ""


@dataclass(frozen=True)
class Happened:
    """All of it.

    Args:
        compiled: Programs, in order.
        watch: Work by function and line, each second counted once, as `jitney.watch` counts it.
        seconds: By phase, each second counted once: trace, lower, compile, cache read.
        spans: Phase, name, start and seconds of each span that lies in no other, in seconds since
            the start, for a timeline.
    """

    compiled: tuple[Compiled, ...]
    watch: Watch
    seconds: Mapping[str, float]
    spans: tuple[tuple[str, str, float, float], ...]


@dataclass
class _Thread:
    """What is open in one thread."""

    hit: bool = False
    key: str = ""
    # spans that may lie inside one that is not over
    over: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    # of lowering and compiling
    made: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    asked: dict[str, list[Explained]] = field(default_factory=lambda: defaultdict(list))
    traced: dict[str, tuple[Explained | None, float, float]] = field(
        default_factory=dict[str, tuple[Explained | None, float, float]]
    )
    lowered: dict[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])
    shapes: dict[str, tuple[str, ...] | None] = field(
        default_factory=dict[str, "tuple[str, ...] | None"]
    )


class _Reader:
    def __init__(self, began: float, decorated: Collection[tuple[str, int]]):
        self.began = began
        self.decorated = decorated
        self.threads: dict[int, _Thread] = defaultdict(_Thread)
        self.known: set[tuple[str, int, str]] = set()
        self.compiled: list[Compiled] = []
        self.watch = Watch()
        self.seconds: dict[str, float] = {
            "trace": 0.0,
            "lower": 0.0,
            "compile": 0.0,
            "cache read": 0.0,
        }
        self.spans: list[tuple[int, str, str, float, float]] = []

    def read(self, event: Mapping[str, Any]) -> None:
        thread = self.threads[event["thread"]]
        kind = event["kind"]
        if kind == "hit":
            thread.hit = True
        elif kind == "explained":
            said = explained(event["text"])
            if said is not None:
                thread.asked[said.name].append(self._first(said))
        elif kind == "keyed":
            keyed = re.search(r"with key '([^']+)'", event["text"])
            thread.key = keyed[1] if keyed else ""
        elif kind == "compiling":
            name, shapes = compiling(event["text"])
            thread.shapes[name] = shapes
        elif event["event"] in _PHASES:
            self._span(thread, _PHASES[event["event"]], plain_name(event["name"]), event)

    def _first(self, said: Explained) -> Explained:
        """A library defines all functions that it wraps on one line, so another one there is a new
        one only if its name was there.
        """
        known = (said.file, said.line, said.name)
        if said.why == "a new function" and known not in self.known:
            said = replace(said, why="first call")
        self.known.add(known)
        return said

    def _span(self, thread: _Thread, phase: Phase, name: str, event: Mapping[str, Any]) -> None:
        start, end = event["start"], event["end"]
        hit = phase == "compiles" and thread.hit
        lines = [Line(*frame) for frame in event["frames"]]
        place = next((line for line in lines if _is_users(line.file)), None)
        inside = [span for span in thread.over if span[0] >= start]
        alone = max(0.0, end - start - sum(b - a for a, b in inside))
        thread.over = [*(span for span in thread.over if span[0] < start), (start, end)]
        self.watch.saw(phase, name, str(place) if place else "a library", alone, hit=hit)
        which = "cache read" if hit else phase.removesuffix("s")
        self.seconds[which] += alone
        self.spans.append((event["thread"], which, name, start - self.began, end - start))
        if phase == "traces":
            asked = thread.asked.get(name)
            others = sum(b - a for a, b in thread.made if a >= start)
            thread.traced[name] = (
                asked.pop() if asked else None,
                start,
                max(0.0, end - start - others),
            )
            return
        thread.made.append((start, end))
        if phase == "lowers":
            thread.lowered[name] = start, end - start
            return
        self._program(thread, name, lines, place, start, end - start, hit=hit)

    def _program(
        self,
        thread: _Thread,
        name: str,
        lines: Sequence[Line],
        place: Line | None,
        start: float,
        seconds: float,
        *,
        hit: bool,
    ) -> None:
        cause, trace_start, trace_seconds = thread.traced.pop(name, (None, start, 0.0))
        lower_start, lower_seconds = thread.lowered.pop(name, (start, 0.0))
        first = min(start, trace_start, lower_start) - self.began
        near, shapes = (lines[0] if lines else None), thread.shapes.pop(name, None)
        ours = cause is not None and (cause.file, cause.line) in self.decorated
        spans = trace_seconds, lower_seconds, seconds
        self.compiled.append(
            Compiled(name, cause, shapes, near, place, *spans, hit, first, thread.key, ours)
        )
        thread.hit, thread.key = False, ""
        del thread.made[:-100]


def happened(events: Sequence[Mapping[str, Any]], began: float) -> Happened:
    """Read what was recorded."""
    reader = _Reader(began, decorated_places())
    for event in events:
        reader.read(event)
    return Happened(tuple(reader.compiled), reader.watch, reader.seconds, _outermost(reader.spans))


def _outermost(
    spans: Sequence[tuple[int, str, str, float, float]],
) -> tuple[tuple[str, str, float, float], ...]:
    """Those that lie in no other of their thread. One is reported when it is over, so what lies
    inside came before.
    """
    kept: dict[int, list[tuple[str, str, float, float]]] = defaultdict(list)
    for thread, phase, name, start, seconds in spans:
        while kept[thread] and kept[thread][-1][2] >= start:
            kept[thread].pop()
        kept[thread].append((phase, name, start, seconds))
    return tuple(
        sorted((span for each in kept.values() for span in each), key=lambda span: span[2])
    )


def plain_name(name: str) -> str:
    """The function that JAX calls `f` or `jit(f)`."""
    return name[4:-1] if name.startswith("jit(") and name.endswith(")") else name


def _is_users(file: str) -> bool:
    return owner(file) in ("user", "generated")


def compiling(text: str) -> tuple[str, tuple[str, ...] | None]:
    """The function and the shapes in `Compiling jit(f) with global shapes and types
    (ShapedArray(float32[3]), ...). ...`.
    """
    match = re.match(
        r"Compiling (.+?) with global shapes and types [\[(](.*?)[\])]\. Argument mapping",
        text,
        flags=re.DOTALL,
    )
    if match is None:
        return plain_name(text.removeprefix("Compiling ").split(" ")[0]), None
    listed = match[2].strip().rstrip(",")
    shapes = re.findall(r"ShapedArray\(([^()]*)\)", listed)
    rest = re.sub(r"ShapedArray\([^()]*\)|[\s,]", "", listed)
    return plain_name(match[1]), None if rest else tuple(shapes)


def explained(text: str) -> Explained | None:
    """What JAX says about a trace; None where it is another text."""
    lines = [line.strip() for line in text.splitlines()]
    told = next(
        (
            match
            for line in lines
            if (
                match := re.fullmatch(
                    r"(?:for )?(.+?)(?: id=\d+)?(?: defined at (.+):(\d+))?", line
                )
            )
            and (line.startswith("for ") or " id=" in line)
        ),
        None,
    )
    if told is None:
        return None
    details = tuple(
        _detail(line.removeprefix("* ").removeprefix("at "))
        for line in lines
        if line.startswith("* ")
    )
    return Explained(told[1], told[2] or "", int(told[3] or 0), _why(text, details), details)


def _detail(text: str) -> str:
    """A difference in few words: of statics their values, where they are short."""
    static = re.search(
        r"^(.*?), now .*?\bStatic\(val=(.*?)\) and before .*?\bStatic\(val=(.*?)\)", text
    )
    if static is None:
        return text[:_LONG]
    at, *values = static.groups()
    now, before = (value if len(value) < _LONG // 4 else "..." for value in values)
    return f"static value at {at.removeprefix('input path ')}, now {now} and before {before}"


def _why(text: str, details: Sequence[str]) -> Why:
    if "never seen function" in text:
        return (
            "a new function"
            if "seen another function defined on the same line" in text
            else "first call"
        )
    if "different input types" in text:
        return "other shapes or types"
    if "different input pytree" in text:
        return (
            "another static value"
            if details and all(each.startswith("static ") for each in details)
            else "another structure"
        )
    return "another setting" if "Tracing context doesn't match" in text else "unknown"
