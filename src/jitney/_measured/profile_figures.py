"""Figures of a trace: the seconds of each program, each scope and each operation.

The time of an operation is without that of the operations inside of it, such as the iterations of a
loop; the time of a program is that during which a device was at any of its operations. JAX's name
of an operation is a path:

    jit(f)/jitney.optimize/vmap batch/vmap(mask n)/while/body/sin

has the scopes `vmap batch` and `mask n`, and the operation `sin`.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from .._program.lowering import SCOPE
from .annotations import CALLED, COMPILED
from .trace_file import HloOperation, HloProgram, ProfilerTrace, Span, parts_of

_JIT = re.compile(r"^jit\((.*)\)$")
_TRANSFORM = re.compile(r"^(jvp|transpose|vmap|vjp|linearize)\((.*)\)$")
_OF_JAX = re.compile(
    r"^(while|body|cond|scan|closed_call|core_call|pjit|checkpoint|remat|remat2|rematted_computation|custom_[jv][vj]p_call\w*|branch_\d+_fun|\w+_fun)?$"
)
"""Parts of a path that JAX adds for primitives with a body."""
_BACKWARD = "backward"
# Nanoseconds.
_SECOND = 1e9


@dataclass(frozen=True)
class ProgramTime:
    """Seconds of the calls of one function.

    Functions of one name share a row: XLA gives the same program to those with the same operations.

    Args:
        name: The function; its derivatives are `residual.grad` and the like.
        place: Place of its definition, `residual() at fit.py:12`; "" if it was not called as a
            Program.
        calls: Number of its calls as a Program, outside of other compiled functions and of JAX's
            transforms (`jax.grad(f)(x)`), whose runs are counted all the same; None, for unknown,
            if it was not called as a Program.
        runs: Number of runs of its compiled programs.
        host_seconds: Seconds of these calls on the host, without the two below if they were in the
            same thread: flattening the arguments, dispatch, padding, and waiting.
        compile_seconds: Seconds of these calls in tracing, lowering and compiling, or reading the
            persistent cache.
        device_seconds: Seconds during which a device was at its operations; the sum over devices.
    """

    name: str
    place: str
    calls: int | None = None
    runs: int = 0
    host_seconds: float = 0.0
    compile_seconds: float = 0.0
    device_seconds: float = 0.0


@dataclass(frozen=True)
class OperationTime:
    """Seconds of one operation, or of a whole scope.

    Args:
        program: Function that it is a part of.
        scope: Stages, named axes and the user's scopes around it, outermost first: `chunk points /
            pass 1`.
        name: JAX's name of the operation, or XLA's for operations that XLA adds; "" for a whole
            scope.
        place: The user's line, `fit.py:12`; "" if unknown.
        times: Number of runs.
        seconds: Seconds on the devices, without operations inside of it.
    """

    program: str
    scope: str
    name: str
    place: str
    times: int
    seconds: float


@dataclass(frozen=True)
class Figures:
    """Figures of a trace, longest first."""

    programs: tuple[ProgramTime, ...]
    scopes: tuple[OperationTime, ...]
    operations: tuple[OperationTime, ...]


def figures(trace: ProfilerTrace) -> Figures:
    """Sum the seconds of a trace by program, scope and operation."""
    ran = operations_of(trace)
    inside: defaultdict[tuple[str, str, str, str], float] = defaultdict(float)
    times = Counter[tuple[str, str, str, str]]()
    # An operation that runs inside of another one counts for itself alone.
    for thread in by_thread(ran):
        for each, alone in zip(thread, _self_times(thread), strict=True):
            key = each.program, " / ".join(each.scopes), each.name, each.operation.place
            inside[key] += alone
            times[key] += 1
    operations = [OperationTime(*key, times[key], spent / _SECOND) for key, spent in inside.items()]

    # The figures of a scope are the sums over its operations.
    scopes: dict[tuple[str, str], OperationTime] = {}
    for each in operations:
        key = each.program, each.scope
        whole = scopes.get(key, replace(each, name="", place="", times=0, seconds=0.0))
        scopes[key] = replace(
            whole, times=whole.times + each.times, seconds=whole.seconds + each.seconds
        )
    return Figures(_programs(trace, ran), _longest(scopes.values()), _longest(operations))


def _longest(times: Iterable[OperationTime]) -> tuple[OperationTime, ...]:
    return tuple(sorted(times, key=lambda each: -each.seconds))


@dataclass(frozen=True)
class OperationRun:
    """Run of one operation.

    Args:
        span: Its time, and its row.
        operation: Its names in JAX and XLA.
        program: Function that it is a part of.
        scopes: Scopes around it, outermost first.
        name: JAX's name of it.
    """

    span: Span
    operation: HloOperation
    program: str
    scopes: tuple[str, ...]
    name: str


def operations_of(trace: ProfilerTrace) -> list[OperationRun]:
    """Return the runs of operations, by row and start.

    With devices in the trace the host's spans of operations are only their dispatch, and are left
    out. Operations that XLA adds have no path, and those inside of a loop may have one that begins
    in the loop: both get the scopes of their loop.
    """
    spans = [span for span in trace.spans if span.is_operation]
    if any(span.process.startswith("/device:") for span in spans):
        spans = [span for span in spans if span.process.startswith("/device:")]

    names = _functions(trace, spans)
    paths: dict[str, tuple[tuple[str, ...], str]] = {}
    out: list[OperationRun] = []
    for span in spans:
        program = span.facts.get("program_id"), span.facts.get("hlo_module")
        operation = trace.operation(span)
        if operation.path not in paths:
            paths[operation.path] = scopes_of(operation.path)
        scopes, name = paths[operation.path]
        out.append(
            OperationRun(
                span,
                operation,
                names[program],
                scopes,
                name or re.sub(r"\.\d+$", "", operation.name),
            )
        )
    return [each for thread in by_thread(out) for each in _complete_paths(thread)]


def _complete_paths(thread: Sequence[OperationRun]) -> Iterator[OperationRun]:
    """Yield the operations of a row, those with a partial path in their enclosing scopes."""
    open_: list[OperationRun] = []
    for each in thread:
        # A stack of the operations that are running: spans are sorted by their start.
        while open_ and open_[-1].span.end <= each.span.start:
            open_.pop()
        whole = each
        if (
            open_
            and not each.operation.path.startswith("jit(")
            and open_[-1].program == each.program
        ):
            whole = replace(each, scopes=(*open_[-1].scopes, *each.scopes))
        open_.append(whole)
        yield whole


def _functions(trace: ProfilerTrace, spans: Sequence[Span]) -> dict[tuple[object, object], str]:
    """Return the function of each program, by id and name of the program."""
    names: dict[tuple[object, object], str] = {}
    for span in spans:
        key = span.facts.get("program_id"), span.facts.get("hlo_module")
        if key not in names:
            # Programs of one name may be of several functions: then only XLA's name is certain.
            told = {_function(each) for each in trace.programs(span)}
            names[key] = told.pop() if len(told) == 1 else str(key[1]).removeprefix("jit_")
    return names


def _function(program: HloProgram) -> str:
    paths = [parts_of(operation.path) for operation in program.operations.values()]
    first = [_JIT.match(path[0]) for path in paths if len(path) > 1]
    names = Counter(match[1] for match in first if match)
    return names.most_common(1)[0][0] if names else program.name.removeprefix("jit_")


def scopes_of(path: str) -> tuple[tuple[str, ...], str]:
    """Return the scopes in a path, outermost first, and the operation."""
    # A fusion of several operations, whose paths are joined by ";": the scopes are their common
    # prefix.
    if ";" in path:
        each = [scopes_of(part) for part in path.split(";")]
        shared = takewhile(
            lambda scopes: len(set(scopes)) == 1, zip(*(scopes for scopes, _ in each), strict=False)
        )
        return tuple(scopes[0] for scopes in shared), each[0][1]

    *parts, name = parts_of(path)
    scopes: list[str] = []
    backward = False
    for n, part in enumerate(parts):
        bare, is_backward = _bare(part)
        backward = backward or is_backward
        for each in parts_of(bare):
            inner = _JIT.match(each)
            if (
                inner is not None
                and n
                and [_bare(part)[0] for part in parts[n + 1 : n + 2]] == [SCOPE]
            ):
                # `jit(g)/jitney.optimize`: a Program inside of another one.
                scopes.append(inner[1])
            elif inner is None and each != SCOPE and not _OF_JAX.match(each):
                scopes.append(each)
    return (*scopes, *([_BACKWARD] if backward else [])), name


def _bare(part: str) -> tuple[str, bool]:
    """Return a part of a path without its transforms, and whether it belongs to a backward pass."""
    backward = False
    # `transpose(jvp(name))`: JAX nests transforms, and only the transposed program is the backward
    # pass.
    while match := _TRANSFORM.match(part):
        backward = backward or match[1] == "transpose"
        part = match[2]
    return part, backward


def by_thread(ran: Sequence[OperationRun]) -> list[list[OperationRun]]:
    """Return the operations of each row of the trace by their start, the outer ones first."""
    threads: defaultdict[int, list[OperationRun]] = defaultdict(list)
    for each in ran:
        threads[each.span.thread].append(each)
    return [
        sorted(thread, key=lambda each: (each.span.start, -each.span.end))
        for thread in threads.values()
    ]


def _self_times(thread: Sequence[OperationRun]) -> list[float]:
    """Return the nanoseconds of each operation without those inside of it."""
    alone = [each.span.end - each.span.start for each in thread]
    open_: list[int] = []
    for n, each in enumerate(thread):
        while open_ and thread[open_[-1]].span.end <= each.span.start:
            open_.pop()
        # Subtract from the innermost enclosing operation only: the outer ones lose that one as a
        # whole.
        if open_:
            outer = open_[-1]
            end = min(each.span.end, thread[outer].span.end)
            alone[outer] -= end - each.span.start
        open_.append(n)
    return [max(0.0, each) for each in alone]


def _programs(trace: ProfilerTrace, ran: Sequence[OperationRun]) -> tuple[ProgramTime, ...]:
    devices = defaultdict(lambda: defaultdict(list))
    runs = defaultdict(set)
    for each in ran:
        devices[each.program][each.span.process, each.span.facts.get("device_ordinal")].append(
            each.span
        )
        facts = each.span.facts
        runs[each.program].add((facts.get("program_id"), facts.get("run_id")))
    rows: dict[str, ProgramTime] = {}
    for name, spans in devices.items():
        # A device may run several operations at a time: the union of their spans is its busy time.
        busy = sum(map(_union_length, spans.values()))
        rows[name] = ProgramTime(name, "", runs=len(runs[name]), device_seconds=busy / _SECOND)

    # Join the calls on the host to the programs on the devices, by name.
    for name, calls in _calls(trace).items():
        places = ", ".join(sorted({call.place for call in calls}))
        host, compiling = (
            sum(call.host for call in calls) / _SECOND,
            sum(call.compiling for call in calls),
        )
        row = rows.get(name, ProgramTime(name, ""))
        rows[name] = replace(
            row, place=places, calls=len(calls), host_seconds=host, compile_seconds=compiling
        )
    return tuple(
        sorted(
            rows.values(),
            key=lambda row: -(row.device_seconds + row.host_seconds + row.compile_seconds),
        )
    )


@dataclass(frozen=True)
class _Call:
    """Call of a Program: its place, nanoseconds on the host, and seconds of compiling."""

    place: str
    host: float
    compiling: float


def _calls(trace: ProfilerTrace) -> dict[str, list[_Call]]:
    """Return the calls of Programs, by name."""
    threads: defaultdict[int, list[Span]] = defaultdict(list)
    for span in trace.spans:
        if CALLED in span.facts or COMPILED in span.facts or span.is_operation:
            threads[span.thread].append(span)

    calls: defaultdict[str, list[_Call]] = defaultdict(list)
    for thread in threads.values():
        thread.sort(key=lambda span: span.start)
        begun = [span.start for span in thread]
        for call in thread:
            if CALLED not in call.facts:
                continue
            inside = thread[bisect_left(begun, call.start) : bisect_right(begun, call.end)]
            # Each call ends with a mark of its seconds, and calls may be nested: the last mark is
            # this call's own, and includes the others.
            marks = [float(span.facts[COMPILED]) for span in inside if COMPILED in span.facts]
            compiling = marks[-1] if marks else 0.0
            host = (
                call.end
                - call.start
                - _union_length([span for span in inside if span.is_operation])
                - compiling * _SECOND
            )
            calls[call.name].append(_Call(str(call.facts[CALLED]), max(0.0, host), compiling))
    return calls


def _union_length(spans: Sequence[Span]) -> float:
    """Return the nanoseconds of the union of the spans."""
    covered, until = 0.0, 0.0
    for span in sorted(spans, key=lambda span: span.start):
        covered += max(0.0, span.end - max(span.start, until))
        until = max(until, span.end)
    return covered
