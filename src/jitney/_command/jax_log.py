"""Interpretation of the events of a run: the compiled programs, with times, shapes and causes.

    {"kind": "explained", "text": "TRACING CACHE MISS at train.py:9 ...", ...}
    {"kind": "span", "event": ".../jaxpr_trace_duration", "name": "step", "start": 1.0, ...}
    {"kind": "compiling", "text": "Compiling jit(step) with global shapes and types (...)..."}
    {"kind": "span", ...}, twice: lowering, then compiling

become one `CompileRecord("step", cause, shapes=("float32[3]",), ...)`. The events of a thread are
in the order of time. A text of JAX that does not have the expected form is skipped: shapes or
causes are unknown then.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from .._diagnosis.counters.counters import COMPILED, LOWERED, TRACED
from .._diagnosis.jax_work import Phase, Watch
from .._owners import owner, short
from .._text.json import Record
from .findings.own import decorated_places

_PHASES: dict[str, Phase] = {TRACED: "traces", LOWERED: "lowers", COMPILED: "compiles"}
# Letters of a detail that are kept: static values may be whole trees.
_LONG = 160
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
class SourceLine:
    """Line of code, and the function that contains it.

    Args:
        file: Path of the file.
        line: Number of the line.
        function: Name of the function.
        first: First line of the function.
    """

    file: str
    line: int
    function: str
    first: int

    def __str__(self) -> str:
        return f"{short(self.file)}:{self.line} ({self.function})"


@dataclass(frozen=True)
class Explanation:
    """JAX's explanation of a trace.

    Args:
        name: Name of the traced function.
        file: File of its definition; empty if JAX does not report it.
        line: Line of its definition.
        why: Kind of the cause.
        details: Differences in JAX's words, argument by argument: `x, now f32[4] and before
            f32[3]`.
    """

    name: str
    file: str
    line: int
    why: Why
    details: tuple[str, ...] = ()


@dataclass(frozen=True)
class CompileRecord:
    """Program that was compiled, or read from the persistent cache.

    Args:
        name: JAX's name of the function.
        cause: JAX's explanation of the trace; None if there is none, as for JAX's own functions.
        shapes: Types of its arrays in order, `float32[3]`; None if unknown.
        near: Innermost line that is not JAX's.
        place: Innermost line of the user; None for work of a library in a thread of its own.
        trace_seconds: Seconds of tracing, with functions inside.
        lower_seconds: Seconds of lowering.
        compile_seconds: Seconds of compiling, or of reading the cache.
        hit: True if it came from the persistent cache.
        start: Start of the first of its spans, in seconds since the program's start.
        key: JAX's cache key of the compiled program: equal keys are equal programs. Empty if
            unknown.
        ours: True if the function is decorated.
    """

    name: str
    cause: Explanation | None
    shapes: tuple[str, ...] | None
    near: SourceLine | None
    place: SourceLine | None
    trace_seconds: float
    lower_seconds: float
    compile_seconds: float
    hit: bool
    start: float
    key: str = ""
    ours: bool = False

    @property
    def seconds(self) -> float:
        """Seconds of tracing, lowering and compiling."""
        return self.trace_seconds + self.lower_seconds + self.compile_seconds

    @property
    def code_owner(self) -> str:
        """Owner of the compiled function: "user", "jax", ..., or "jitney" for a decorated one.

        Empty if JAX does not report the definition.
        """
        if self.ours:
            return "jitney"
        return owner(self.cause.file) if self.cause is not None and self.cause.file else ""


@dataclass(frozen=True)
class JaxLog:
    """Everything that JAX reported during a run.

    Args:
        compiled: Programs, in order of compilation.
        watch: Work by function and line, each second counted once, as `jitney.watch` counts it.
        seconds: Seconds by phase, each counted once: trace, lower, compile, cache read.
        spans: Phase, name, start and seconds of each outermost span, in seconds since the start,
            for a timeline.
    """

    compiled: tuple[CompileRecord, ...]
    watch: Watch
    seconds: Mapping[str, float]
    spans: tuple[tuple[str, str, float, float], ...]


@dataclass
class _Thread:
    """State of one thread between events.

    Args:
        hit: True if a cache hit was reported for the program that is compiled next.
        key: Cache key of that program.
        over: Start and end of spans that may be inside of one that is still open.
        made: Start and end of lowering and compiling.
        asked: Explanations without a trace so far, by function.
        traced: Explanation, start and seconds of traces without a program so far, by function.
        lowered: Start and seconds of lowering, by function.
        shapes: Types of the arrays, by function.
    """

    hit: bool = False
    key: str = ""
    over: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    made: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    asked: dict[str, list[Explanation]] = field(default_factory=lambda: defaultdict(list))
    traced: dict[str, tuple[Explanation | None, float, float]] = field(
        default_factory=dict[str, tuple[Explanation | None, float, float]]
    )
    lowered: dict[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])
    shapes: dict[str, tuple[str, ...] | None] = field(
        default_factory=dict[str, "tuple[str, ...] | None"]
    )


class _LogReader:
    def __init__(self, began: float, decorated: Collection[tuple[str, int]]):
        self.began = began
        self.decorated = decorated
        self.threads: dict[int, _Thread] = defaultdict(_Thread)
        self.known: set[tuple[str, int, str]] = set()
        self.compiled: list[CompileRecord] = []
        self.watch = Watch()
        self.seconds: dict[str, float] = {
            "trace": 0.0,
            "lower": 0.0,
            "compile": 0.0,
            "cache read": 0.0,
        }
        self.spans: list[tuple[int, str, str, float, float]] = []

    def read(self, event: Record) -> None:
        thread = self.threads[event["thread"]]
        kind = event["kind"]
        # JAX reports a hit, and the key of a program, before the span of the compile that they
        # belong to.
        if kind == "hit":
            thread.hit = True
        elif kind == "explained":
            said = parse_explanation(event["text"])
            if said is not None:
                thread.asked[said.name].append(self._first(said))
        elif kind == "keyed":
            keyed = re.search(r"with key '([^']+)'", event["text"])
            thread.key = keyed[1] if keyed else ""
        elif kind == "compiling":
            name, shapes = parse_compiling(event["text"])
            thread.shapes[name] = shapes
        elif event["event"] in _PHASES:
            self._span(thread, _PHASES[event["event"]], plain_name(event["name"]), event)

    def _first(self, said: Explanation) -> Explanation:
        """Correct "a new function" to "first call" where a name is new on its line.

        A library defines all functions that it wraps on one line, so another function there is new
        only if its name was there.
        """
        known = (said.file, said.line, said.name)
        if said.why == "a new function" and known not in self.known:
            said = replace(said, why="first call")
        self.known.add(known)
        return said

    def _span(
        self,
        thread: _Thread,
        phase: Phase,
        name: str,
        event: Record,
    ) -> None:
        start, end = event["start"], event["end"]
        hit = phase == "compiles" and thread.hit
        lines = [SourceLine(*frame) for frame in event["frames"]]
        place = next((line for line in lines if _is_users(line.file)), None)

        # Spans are reported when they end, so those inside of this one came before. Their seconds
        # are theirs, and only the remainder is this span's own.
        inside = [span for span in thread.over if span[0] >= start]
        alone = max(0.0, end - start - sum(b - a for a, b in inside))
        thread.over = [*(span for span in thread.over if span[0] < start), (start, end)]
        self.watch.saw(phase, name, str(place) if place else "a library", alone, hit=hit)
        which = "cache read" if hit else phase.removesuffix("s")
        self.seconds[which] += alone
        self.spans.append((event["thread"], which, name, start - self.began, end - start))

        # Seconds of a trace include functions that are traced inside, but not programs that are
        # lowered and compiled meanwhile.
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
        lines: Sequence[SourceLine],
        place: SourceLine | None,
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
            CompileRecord(name, cause, shapes, near, place, *spans, hit, first, thread.key, ours)
        )
        thread.hit, thread.key = False, ""
        # Bounds the list: only recent spans can lie inside of a trace.
        del thread.made[:-100]


def read_events(events: Sequence[Mapping[str, object]], began: float) -> JaxLog:
    """Interpret the recorded events of a run that began at `began`, in seconds since 1970."""
    reader = _LogReader(began, decorated_places())
    for event in events:
        reader.read(event)
    return JaxLog(
        tuple(reader.compiled),
        reader.watch,
        reader.seconds,
        _outermost(reader.spans),
    )


def _outermost(
    spans: Sequence[tuple[int, str, str, float, float]],
) -> tuple[tuple[str, str, float, float], ...]:
    """Return the spans that lie in no other span of their thread, by start.

    A span is reported when it is over, so spans inside of it come before it.
    """
    kept: dict[int, list[tuple[str, str, float, float]]] = defaultdict(list)
    for thread, phase, name, start, seconds in spans:
        # Drop the spans that this one contains.
        while kept[thread] and kept[thread][-1][2] >= start:
            kept[thread].pop()
        kept[thread].append((phase, name, start, seconds))
    return tuple(
        sorted((span for each in kept.values() for span in each), key=lambda span: span[2])
    )


def plain_name(name: str) -> str:
    """Return the name of the function that JAX calls `f` or `jit(f)`."""
    return name[4:-1] if name.startswith("jit(") and name.endswith(")") else name


def _is_users(file: str) -> bool:
    return owner(file) in ("user", "generated")


def parse_compiling(text: str) -> tuple[str, tuple[str, ...] | None]:
    """Return the function and the shapes in JAX's text at a compile.

    The text is `Compiling jit(f) with global shapes and types (ShapedArray(float32[3]), ...). ...`.
    Shapes are None if it lists anything but arrays.
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


def parse_explanation(text: str) -> Explanation | None:
    """Parse JAX's explanation of a trace; None for another text."""
    lines = [line.strip() for line in text.splitlines()]
    # The line that names the function, `for NAME defined at FILE:LINE` or `NAME id=... defined at
    # ...`.
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

    # The lines with bullets are the differences.
    details = tuple(
        _detail(line.removeprefix("* ").removeprefix("at "))
        for line in lines
        if line.startswith("* ")
    )
    return Explanation(
        told[1], told[2] or "", int(told[3] or 0), _miss_reason(text, details), details
    )


def _detail(text: str) -> str:
    """Return a difference in few words: of static arguments their values, if these are short."""
    static = re.search(
        r"^(.*?), now .*?\bStatic\(val=(.*?)\) and before .*?\bStatic\(val=(.*?)\)", text
    )
    if static is None:
        return text[:_LONG]
    at, *values = static.groups()
    now, before = (value if len(value) < _LONG // 4 else "..." for value in values)
    return f"static value at {at.removeprefix('input path ')}, now {now} and before {before}"


def _miss_reason(text: str, details: Sequence[str]) -> Why:
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
