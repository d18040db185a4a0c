"""Counters of a program, filled from the reports of `jax.monitoring`.

JAX reports each trace, lowering and compile to listeners, in the thread that does it, but not for
which program. One listener is registered with the first program. It walks up the call stack to the
nearest call of a program and adds to that program's counters. Reports come only when something is
compiled, so a warm call pays nothing.
"""

from __future__ import annotations

import functools
import inspect
import math
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from .._errors import plural
from .._host.own_time import OWN_TIME
from .._jax.typed import Array, NumPyArray
from .._public import public_in
from .._text.shown import Shown
from .cause import Cause

if TYPE_CHECKING:
    from rich.table import Table

    from .._stages.fill import PaddedAxis

TRACED = "/jax/core/compile/jaxpr_trace_duration"
LOWERED = "/jax/core/compile/jaxpr_to_mlir_module_duration"
COMPILED = "/jax/core/compile/backend_compile_duration"
HIT = "/jax/compilation_cache/cache_hits"
Call = tuple[int, int]
"""Identity of a call among those of its thread: the `id` of its frame, and the number of calls so
far.
"""
Locals = dict[str, Any]
"""Local variables of the frame of a call."""
# Number of causes of retraces that are remembered.
_KEPT = 100
# Counts of rows that are added up at once.
_PARTS = 256
# Number of remedies in a table.
_SHOWN = 10


@dataclass(frozen=True)
class Advised:
    """Causes with their remedies, and the number of programs that each remedy saves, where
    counted.
    """

    causes: tuple[tuple[Cause, ...], ...] = ()
    saves: Mapping[str, str] = field(default_factory=dict[str, str])

    def __add__(self, other: Advised) -> Advised:
        return Advised(self.causes + other.causes, {**self.saves, **other.saves})


@public_in("jitney.types")
@dataclass(frozen=True, repr=False)
class Stats(Shown):
    """Statistics of a program so far. Seconds are wall-clock seconds, by phase, for this program
    alone.

    Of `trace_seconds`, `own_seconds` are the part that tracing took beyond one run of the body:
    contract, plan, proofs (refused ones too), padding and cutting, the search for the structure of
    a Jacobian or for a size that fits into memory, and compiles for these searches. `compiles` are
    of the program; `incidental` ones are of computations around it, such as arrays that the body
    creates once. `retraces` has a line for each trace, and `causes` all differences, as data, for
    each trace and each compile without one. `derivatives` are calls by derivative, each a program
    of its own with its own count: `f.grad.stats`. `saved_seconds` are those that `auto` saved in
    the calls since its choice, less those that finding it took. Remedies are proven when `causes`
    is read, which traces the body at sizes that were seen; printing, `to_dict` and copying do the
    same.
    """

    calls: int
    traces: int
    compiles: int
    hits: int
    persistent_hits: int
    eager: int
    trace_seconds: float
    lower_seconds: float
    compile_seconds: float
    retraces: tuple[str, ...]
    sizes: dict[str, dict[int, int]]
    padding: dict[str, float]
    verified: int = 0
    incidental: int = 0
    own_seconds: float = 0.0
    saved_seconds: float = 0.0
    derivatives: dict[str, int] = field(default_factory=dict[str, int])
    advise: Callable[[], Advised] = field(default=Advised, compare=False)

    @functools.cached_property
    def _computed_advice(self) -> Advised:
        return self.advise()

    @property
    def causes(self) -> tuple[tuple[Cause, ...], ...]:
        """Differences, for each trace and each compile without one, with remedies that were
        proven.
        """
        return self._computed_advice.causes

    def repaid_after(self, saved: float) -> int | None:
        """Return the number of calls after which the seconds of tracing, lowering and compiling so
        far are repaid; None if a call saves nothing.

        Args:
            saved: Seconds that a warm call saves, beside the plain function: the difference of the
                medians of `jitney.measure(f, ..., against=plain)`.
        """
        spent = self.trace_seconds + self.lower_seconds + self.compile_seconds
        return math.ceil(spent / saved) if saved > 0 else None

    def to_dict(self) -> dict[str, Any]:
        figures = {each.name: getattr(self, each.name) for each in fields(self) if each.compare}
        causes = [[cause.to_dict() for cause in each] for each in self.causes]
        return {**figures, "retraces": list(self.retraces), "causes": causes}

    def __reduce__(self) -> tuple[object, ...]:
        figures = {each.name: getattr(self, each.name) for each in fields(self) if each.compare}
        # Pickling and copying prove the remedies first, since `advise` refers to the program.
        return _rebuild_stats, (figures, self._computed_advice)

    def __rich__(self) -> Table:
        from .._text.console import table

        rows = [
            ("calls", f"{self.calls}: {self.hits} in-process hits, {self.eager} eager"),
            (
                "traces",
                (
                    f"{self.traces} ({self.trace_seconds:.3f} s, {self.own_seconds:.3f} s"
                    f" jitney's), lowering {self.lower_seconds:.3f} s"
                ),
            ),
            (
                "compiles",
                (
                    f"{self.compiles} ({self.compile_seconds:.3f} s), {self.persistent_hits}"
                    " persistent-cache hits"
                ),
            ),
            *(
                [("incidental", f"{self.incidental} small programs besides, for what is around it")]
                if self.incidental
                else []
            ),
            *([("verified", f"{self.verified}")] if self.verified else []),
            *([("auto", f"{self.saved_seconds:.3f} s saved")] if self.saved_seconds else []),
            *(
                (f"f.{name}", f"{plural(calls, 'call')}, see its own `stats`")
                for name, calls in self.derivatives.items()
            ),
            *(
                (
                    f"axis {axis}",
                    f"{plural(len(self.sizes[axis]), 'size')} padded by {part:.1%} on average",
                )
                for axis, part in self.padding.items()
            ),
            *(("to write", text) for text in self._to_write()),
            *(
                (f"trace {n}", cause)
                for n, cause in enumerate(
                    self.retraces, max(1, self.traces - len(self.retraces) + 1)
                )
            ),
        ]
        return table("stats", [[(name, "cyan"), (text, "")] for name, text in rows])

    def _to_write(self) -> list[str]:
        """Remedies with what they save: programs if they were counted, else the number of programs
        with that cause.
        """
        saves = self._computed_advice.saves
        return [
            f"{remedy} ({seconds:.3f} s, {saves.get(remedy) or plural(times, 'program')})"
            for remedy, (seconds, times) in self._remedies()[:_SHOWN]
        ]

    def _remedies(self) -> list[tuple[str, tuple[float, int]]]:
        """Remedies by the seconds of the programs that each is about, most first."""
        cost: dict[str, tuple[float, int]] = {}
        for each in self.causes:
            # A program with several causes needs the remedies of all of them; without one for each
            # cause it is traced all the same.
            if not all(cause.remedy for cause in each):
                continue
            for remedy in dict.fromkeys(cause.remedy for cause in each):
                seconds, times = cost.get(remedy, (0.0, 0))
                cost[remedy] = seconds + each[0].seconds, times + 1
        return sorted(cost.items(), key=lambda item: -item[1][0])


def _rebuild_stats(figures: Mapping[str, Any], advised: Advised) -> Stats:
    return Stats(**figures, advise=lambda: advised)


@dataclass
class Event:
    """New trace or compile: its causes, and the call and thread that it is for."""

    causes: tuple[Cause, ...]
    thread: int
    call: Call
    identity: Hashable
    compiled: bool = False
    seconds: float = 0.0

    def timed_causes(self) -> tuple[Cause, ...]:
        """Causes of the event, with its cost in seconds."""
        return tuple(replace(cause, seconds=self.seconds) for cause in self.causes)


_SizesOfAxes = tuple[tuple[str, int, int], ...]
"""Name, true size and size of the bucket of each padded axis of a call."""


@dataclass(slots=True)
class CallTally:
    """Number of padded calls of the same sizes."""

    calls: int = 0


@dataclass
class Counters:
    """Running totals behind `Stats`."""

    name: str
    calls: int = 0
    misses: int = 0
    traces: int = 0
    eager: int = 0
    verified: int = 0
    compile_events: int = 0
    incidental: int = 0
    persistent_hits: int = 0
    own_seconds: float = 0.0
    saved_seconds: float = 0.0
    seconds: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys((TRACED, LOWERED, COMPILED), 0.0)
    )
    warned: set[str] = field(default_factory=set[str])
    row_sizes: dict[str, Counter[int]] = field(default_factory=dict[str, Counter[int]])
    row_parts: dict[str, list[tuple[NumPyArray, NumPyArray]]] = field(
        default_factory=dict[str, "list[tuple[NumPyArray, NumPyArray]]"]
    )
    row_elements: dict[str, int] = field(default_factory=dict[str, int])
    tallies: dict[_SizesOfAxes, CallTally] = field(
        default_factory=dict["_SizesOfAxes", "CallTally"]
    )
    sentences: list[str] = field(default_factory=list[str])
    events: list[Event] = field(default_factory=list[Event])
    advise: Callable[[Sequence[Event]], Advised] = lambda events: Advised(
        tuple(event.timed_causes() for event in events)
    )

    def event(self, event: Event) -> None:
        """Append a new trace or compile; old ones are dropped."""
        self.events.append(event)
        del self.events[:-_KEPT]

    def of_call(self, thread: int, call: Call) -> Event | None:
        """The latest trace or compile of a thread, if it belongs to this call."""
        for event in reversed(self.events):
            if event.thread == thread:
                return event if event.call == call else None
        return None

    def pending_trace(
        self,
        identity: Hashable | None,
        thread: int,
    ) -> Event | None:
        """The latest trace with this identity that has not been compiled.

        Without an identity, the latest one of this thread: a padded call has the identity of its
        bucket.
        """
        for event in reversed(self.events):
            if event.compiled:
                continue
            if identity is None and event.thread == thread:
                return event
            if identity is not None and event.identity == identity:
                return event
        return None

    def add_sentence(self, text: str) -> None:
        """Append the causes of a trace, as one line; old lines are dropped."""
        self.sentences.append(text)
        del self.sentences[:-_KEPT]

    def total(self) -> float:
        """Total seconds of tracing, lowering and compiling."""
        return sum(self.seconds.values())

    def warn_once(self, about: str) -> bool:
        """Return True the first time that `about` is passed."""
        first = about not in self.warned
        self.warned.add(about)
        return first

    def tally(self, axes: Sequence[PaddedAxis]) -> CallTally:
        """Return what counts padded calls of these sizes. It is added up when it is read."""
        key = tuple((axis.name, axis.size, axis.high) for axis in axes)
        return self.tallies.setdefault(key, CallTally())

    def count_padded_call(self, axes: Sequence[PaddedAxis]) -> None:
        """Count a padded call."""
        self.tally(axes).calls += 1

    @property
    def sizes(self) -> dict[str, Counter[int]]:
        """Axis -> its true sizes, each with its number of calls or rows."""
        out = {name: Counter(seen) for name, seen in self.row_sizes.items()}
        for name, parts in [*self.row_parts.items()]:
            sizes, times = _joined(parts)
            seen = dict(zip(sizes.tolist(), times.tolist(), strict=True))
            out.setdefault(name, Counter()).update(seen)
        for axes, tally in [*self.tallies.items()]:
            for name, size, _ in axes:
                out.setdefault(name, Counter())[size] += tally.calls
        return out

    @property
    def rows(self) -> dict[str, int]:
        """Axis -> elements that the programs of all calls took along it."""
        out = {**self.row_elements}
        for axes, tally in [*self.tallies.items()]:
            for name, _, high in axes:
                out[name] = out.get(name, 0) + high * tally.calls
        return out

    def count_rows(
        self,
        axis: str,
        sizes: NumPyArray,
        times: NumPyArray,
        elements: int,
    ) -> None:
        """Count rows of unlike lengths. They are added up when they are read.

        Args:
            axis: The axis.
            sizes: Sizes of rows along it.
            times: How many rows have each.
            elements: How many elements programs take for all of them.
        """
        parts = self.row_parts.setdefault(axis, [])
        parts.append((sizes, times))
        if len(parts) >= _PARTS:
            self.row_parts[axis] = [_joined(parts)]
        self.row_elements[axis] = self.row_elements.get(axis, 0) + elements

    def add_sizes(self, axis: str, sizes: Counter[int], elements: int) -> None:
        """Add what other counters have of an axis."""
        self.row_sizes.setdefault(axis, Counter()).update(sizes)
        self.row_elements[axis] = self.row_elements.get(axis, 0) + elements

    def stats(self) -> Stats:
        sizes, rows = self.sizes, self.rows
        return Stats(
            calls=self.calls,
            traces=self.traces,
            compiles=self.compile_events - self.persistent_hits,
            hits=max(0, self.calls - self.misses - self.eager),
            persistent_hits=self.persistent_hits,
            eager=self.eager,
            trace_seconds=self.seconds[TRACED],
            own_seconds=self.own_seconds,
            saved_seconds=self.saved_seconds,
            lower_seconds=self.seconds[LOWERED],
            compile_seconds=self.seconds[COMPILED],
            retraces=tuple(self.sentences),
            advise=partial(self.advise, tuple(self.events)),
            sizes={axis: dict(seen) for axis, seen in sizes.items()},
            verified=self.verified,
            incidental=self.incidental,
            padding={
                axis: rows[axis] / sum(n * times for n, times in seen.items()) - 1
                for axis, seen in sizes.items()
            },
        )


def _joined(parts: Sequence[tuple[NumPyArray, NumPyArray]]) -> tuple[NumPyArray, NumPyArray]:
    """Sizes of rows, each once, and how many rows have each."""
    sizes, times = map(np.concatenate, zip(*parts, strict=True))
    distinct, which = np.unique(sizes, return_inverse=True)
    counts = np.zeros(len(distinct), np.int64)
    np.add.at(counts, which, times)
    return distinct, counts


def total(several: Sequence[Counters]) -> Stats:
    """Statistics of several programs together."""
    whole = Counters("")
    for each in several:
        for name in (
            "calls",
            "misses",
            "traces",
            "eager",
            "verified",
            "compile_events",
            "incidental",
            "persistent_hits",
            "own_seconds",
            "saved_seconds",
        ):
            setattr(whole, name, getattr(whole, name) + getattr(each, name))
        for event, seconds in each.seconds.items():
            whole.seconds[event] += seconds
        rows = each.rows
        for axis, seen in each.sizes.items():
            whole.add_sizes(axis, seen, rows[axis])
        whole.sentences += each.sentences
    # Remedies stay lazy: proving them traces the bodies.
    advise = [each.stats().advise for each in several]
    return replace(whole.stats(), advise=lambda: sum((ask() for ask in advise), start=Advised()))


@dataclass(frozen=True)
class Owner:
    """Functions that find the program of an event, from the local variables of a call's frame.

    Args:
        find: Returns the counters.
        compiled: Returns the event that a compile belongs to, also given the identity of the call;
            None if causes are not recorded.
        arrays: Returns the arrays of the call.
    """

    find: Callable[[Locals], Counters]
    compiled: Callable[[Locals, Call], Event | None] | None = None
    arrays: Callable[[Locals], Sequence[Array]] | None = None


class CounterListener:
    """The process's single listener; `_owners` maps the code of a function to the `Owner` of its
    calls.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owners: dict[CodeType, Owner] = {}
        self._registered = False
        self._found = threading.local()

    def register(self) -> None:
        """Register with JAX; later calls do nothing."""
        with self._lock:
            if not self._registered:
                jax.monitoring.register_event_duration_secs_listener(self._duration)
                jax.monitoring.register_event_listener(self._event)
                self._registered = True

    def attribute_to(
        self,
        function: Callable[..., object],
        owner: Owner,
    ) -> None:
        """Attribute events below a call of `function` to the counters that `owner` finds in its
        frame.
        """
        self._owners[inspect.unwrap(function).__code__] = owner

    def call(self, counters: Counters) -> tuple[Call, Sequence[Array]]:
        """Identity of the nearest call, and its arrays if it is a call of these counters."""
        nearest = self._nearest()
        if nearest is None:
            return (0, 0), ()
        owner, frame = nearest
        names = frame.f_locals
        if owner.arrays is None or owner.find(names) is not counters:
            # A frame's `id` is reused once the frame is gone, so the number of calls is a part of
            # the identity.
            return (id(frame), counters.calls), ()
        return (id(frame), counters.calls), owner.arrays(names)

    def _nearest(self) -> tuple[Owner, FrameType] | None:
        frame = inspect.currentframe()
        while frame is not None:
            owner = self._owners.get(frame.f_code)
            if owner is not None:
                return owner, frame
            frame = frame.f_back
        return None

    def _duration(
        self,
        event: str,
        duration_secs: float,
        **kwargs: Any,
    ) -> None:
        if event not in (TRACED, LOWERED, COMPILED):
            return
        # Reset the flag even if nobody owns this compile, or the next one would take the hit.
        hit = event == COMPILED and self._was_hit()
        nearest = self._nearest()
        if nearest is None:
            return
        owner, frame = nearest
        names = frame.f_locals
        counters = owner.find(names)
        if event == TRACED and kwargs.get("fun_name", counters.name) != counters.name:
            # Helpers such as `jnp.linalg.norm` are jitted too: the program's own trace includes
            # theirs.
            return
        # A compile inside one of jitney's searches is in the seconds of the trace around it
        # already.
        if event == TRACED or not OWN_TIME.runs:
            counters.seconds[event] += duration_secs
        own = event != COMPILED or _of_program(kwargs.get("fun_name"), counters.name)
        if event == COMPILED:
            counters.compile_events += own
            counters.incidental += not own
            counters.persistent_hits += own and hit
        if own:
            self._add_cost(event, duration_secs, owner, frame, counters)

    def _add_cost(
        self,
        event: str,
        seconds: float,
        owner: Owner,
        frame: FrameType,
        counters: Counters,
    ) -> None:
        """Add to the cost of the trace or compile under way."""
        mine = counters.of_call(threading.get_ident(), (id(frame), counters.calls))
        if mine is None or (event != TRACED and mine.compiled):
            mine = None
        # A lowering without a trace gets its event only when it is compiled: keep its seconds until
        # then.
        if event == LOWERED and mine is None:
            self._found.lowering = seconds
            return
        if event == COMPILED:
            if mine is None and owner.compiled is not None:
                mine = owner.compiled(frame.f_locals, (id(frame), counters.calls))
                seconds += getattr(self._found, "lowering", 0.0)
            self._found.lowering = 0.0
        if mine is not None:
            mine.seconds += seconds
            mine.compiled = mine.compiled or event == COMPILED

    def _was_hit(self) -> bool:
        hit = getattr(self._found, "hit", False)
        self._found.hit = False
        return hit

    def _event(self, event: str, **kwargs: object) -> None:
        # JAX reports a hit before the end of the compile that it belongs to, in the same thread.
        if event == HIT:
            self._found.hit = True


def _of_program(named: str | None, name: str) -> bool:
    """Return whether a compile is that of the program itself, which JAX calls `f`, `jit_f` or
    `jit(f)` (0.10.2 to 0.12.0.1).
    """
    return named is None or named in (name, f"jit_{name}", f"jit({name})")


LISTENER = CounterListener()
