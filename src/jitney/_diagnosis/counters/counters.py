"""Running totals of one program: calls, traces, compiles, padded sizes, and why it was traced.

A padded call adds one to a tally of its sizes, and rows of unlike lengths are appended as arrays:
totals by axis are added up when they are read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ..._jax.typed import NumPyArray
from ..retraces.cause import Cause
from .stats import Advised, Stats

if TYPE_CHECKING:
    from ..._stages.fill import PaddedAxis

Call = tuple[int, int]
"""Identity of a call among those of its thread: the `id` of its frame, and the number of calls so
far.
"""
# Names of the events that JAX reports to `jax.monitoring`.
TRACED = "/jax/core/compile/jaxpr_trace_duration"
LOWERED = "/jax/core/compile/jaxpr_to_mlir_module_duration"
COMPILED = "/jax/core/compile/backend_compile_duration"
HIT = "/jax/compilation_cache/cache_hits"
# Number of causes of retraces that are remembered.
_KEPT = 100
# Counts of rows that are added up at once.
_PARTS = 256


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

    def of_all() -> Advised:
        return sum((ask() for ask in advise), start=Advised())

    return replace(whole.stats(), advise=of_all)
