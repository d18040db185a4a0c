"""Counters of a program, as `jax.monitoring` reports them.

JAX reports each trace, lowering and compile to listeners, in the thread that does it, without
saying for whom. One listener, registered with the first program, finds the program by looking up
the call stack for the nearest call of one. That happens only when something is compiled: a warm
call pays nothing.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

import jax

from .._errors import counted
from .._own_time import OWN_TIME
from .._shown import Shown
from .cause import Cause

if TYPE_CHECKING:
    from rich.table import Table

    from .._stages.fill import Filled

TRACED = "/jax/core/compile/jaxpr_trace_duration"
LOWERED = "/jax/core/compile/jaxpr_to_mlir_module_duration"
COMPILED = "/jax/core/compile/backend_compile_duration"
HIT = "/jax/compilation_cache/cache_hits"
Call = tuple[int, int]
"""What tells a call from others of the same thread: its frame, and how many calls there were."""
_KEPT = 100  # causes of retraces remembered
_SHOWN = 10  # remedies of a table


@dataclass(frozen=True)
class Advised:
    """Causes with their remedies, and what those save whose programs were counted."""

    causes: tuple[tuple[Cause, ...], ...] = ()
    saves: Mapping[str, str] = field(default_factory=dict[str, str])

    def __add__(self, other: Advised) -> Advised:
        return Advised(self.causes + other.causes, {**self.saves, **other.saves})


@dataclass(frozen=True, repr=False)
class Stats(Shown):
    """What a program has done so far. Seconds are wall-clock seconds, by phase, for this program
    alone.

    Of `trace_seconds`, `own_seconds` are what tracing took beyond one run of the body: contract,
    plan, proofs (refused ones too), what pads and cuts, the search for the structure of a Jacobian
    or for what fits into memory, and what is compiled for that. `compiles` are of the program;
    `incidental` ones of what is computed around it, such as arrays that the body makes once.
    `retraces` has a line for each trace, and `causes` all that differed, as data, for each trace
    and each compile without one. `derivatives` are calls by derivative, each a program of its own
    with its own count: `f.grad.stats`. Remedies are proven where `causes` is looked at, which
    traces the body at sizes that were seen; printed, as a dict and copied, it is.
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
    derivatives: dict[str, int] = field(default_factory=dict[str, int])
    advise: Callable[[], Advised] = field(default=Advised, compare=False)

    @functools.cached_property
    def _advised(self) -> Advised:
        return self.advise()

    @property
    def causes(self) -> tuple[tuple[Cause, ...], ...]:
        """All that differed, for each trace and each compile without one, with remedies that were
        proven.
        """
        return self._advised.causes

    def to_dict(self) -> dict[str, Any]:
        figures = {each.name: getattr(self, each.name) for each in fields(self) if each.compare}
        causes = [[cause.to_dict() for cause in each] for each in self.causes]
        return {**figures, "retraces": list(self.retraces), "causes": causes}

    def __reduce__(self) -> Any:
        figures = {each.name: getattr(self, each.name) for each in fields(self) if each.compare}
        return _again, (figures, self._advised)

    def __rich__(self) -> Table:
        from .._console import table

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
            *(
                (f"f.{name}", f"{counted(calls, 'call')}, see its own `stats`")
                for name, calls in self.derivatives.items()
            ),
            *(
                (
                    f"axis {axis}",
                    f"{counted(len(self.sizes[axis]), 'size')} padded by {part:.1%} on average",
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
        """Remedies with what they save: programs if they were counted, else how many there were
        with that cause.
        """
        saves = self._advised.saves
        return [
            f"{remedy} ({seconds:.3f} s, {saves.get(remedy) or counted(times, 'program')})"
            for remedy, (seconds, times) in self._remedies()[:_SHOWN]
        ]

    def _remedies(self) -> list[tuple[str, tuple[float, int]]]:
        """By the seconds of the programs that each is about. One with several causes needs all of
        their remedies.
        """
        cost: dict[str, tuple[float, int]] = {}
        for each in self.causes:
            for remedy in (
                dict.fromkeys(cause.remedy for cause in each)
                if all(cause.remedy for cause in each)
                else ()
            ):
                seconds, times = cost.get(remedy, (0.0, 0))
                cost[remedy] = seconds + each[0].seconds, times + 1
        return sorted(cost.items(), key=lambda item: -item[1][0])


def _again(figures: Mapping[str, Any], advised: Advised) -> Stats:
    return Stats(**figures, advise=lambda: advised)


@dataclass
class Event:
    """One new trace or compile: why, and for which call in which thread."""

    causes: tuple[Cause, ...]
    thread: int
    call: Call
    identity: Hashable
    compiled: bool = False
    seconds: float = 0.0

    def told(self) -> tuple[Cause, ...]:
        """Its causes, with what it has cost."""
        return tuple(replace(cause, seconds=self.seconds) for cause in self.causes)


@dataclass
class Counters:
    """The running totals behind `Stats`."""

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
    seconds: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys((TRACED, LOWERED, COMPILED), 0.0)
    )
    warned: set[str] = field(default_factory=set[str])
    sizes: dict[str, Counter[int]] = field(default_factory=dict[str, Counter[int]])
    rows: dict[str, int] = field(default_factory=dict[str, int])
    causes: list[str] = field(default_factory=list[str])
    events: list[Event] = field(default_factory=list[Event])
    advise: Callable[[Sequence[Event]], Advised] = lambda events: Advised(
        tuple(event.told() for event in events)
    )

    def event(self, event: Event) -> None:
        """Remember a new trace or compile."""
        self.events.append(event)
        del self.events[:-_KEPT]

    def of_call(self, thread: int, call: Call) -> Event | None:
        """The latest trace or compile of a thread, if it is of this call."""
        latest = next((event for event in reversed(self.events) if event.thread == thread), None)
        return latest if latest is not None and latest.call == call else None

    def uncompiled(self, identity: Hashable | None, thread: int) -> Event | None:
        """A trace for such a call that nobody has compiled; without identity (padded calls have
        their bucket's) this thread's latest.
        """
        traced = [event for event in reversed(self.events) if not event.compiled]
        alike = (
            event
            for event in traced
            if (event.thread == thread if identity is None else event.identity == identity)
        )
        return next(alike, None)

    def cause(self, text: str) -> None:
        """Remember why a trace happened."""
        self.causes.append(text)
        del self.causes[:-_KEPT]

    def total(self) -> float:
        """Seconds of tracing, lowering and compiling."""
        return sum(self.seconds.values())

    def warn_once(self, about: str) -> bool:
        """True the first time."""
        first = about not in self.warned
        self.warned.add(about)
        return first

    def padded(self, axes: Iterable[Filled]) -> None:
        """Count a padded call."""
        for axis in axes:
            self.sizes.setdefault(axis.name, Counter())[axis.size] += 1
            self.rows[axis.name] = self.rows.get(axis.name, 0) + axis.high

    def stats(self) -> Stats:
        return Stats(
            calls=self.calls,
            traces=self.traces,
            compiles=self.compile_events - self.persistent_hits,
            hits=max(0, self.calls - self.misses - self.eager),
            persistent_hits=self.persistent_hits,
            eager=self.eager,
            trace_seconds=self.seconds[TRACED],
            own_seconds=self.own_seconds,
            lower_seconds=self.seconds[LOWERED],
            compile_seconds=self.seconds[COMPILED],
            retraces=tuple(self.causes),
            advise=partial(self.advise, tuple(self.events)),
            sizes={axis: dict(seen) for axis, seen in self.sizes.items()},
            verified=self.verified,
            incidental=self.incidental,
            padding={
                axis: self.rows[axis] / sum(n * times for n, times in seen.items()) - 1
                for axis, seen in self.sizes.items()
            },
        )


def total(several: Sequence[Counters]) -> Stats:
    """What several programs have done together."""
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
        ):
            setattr(whole, name, getattr(whole, name) + getattr(each, name))
        for event, seconds in each.seconds.items():
            whole.seconds[event] += seconds
        for axis, seen in each.sizes.items():
            whole.sizes.setdefault(axis, Counter()).update(seen)
            whole.rows[axis] = whole.rows.get(axis, 0) + each.rows[axis]
        whole.causes += each.causes
    advise = [each.stats().advise for each in several]
    return replace(whole.stats(), advise=lambda: sum((ask() for ask in advise), start=Advised()))


@dataclass(frozen=True)
class Owner:
    """Whose the events below a call of a function are.

    Args:
        find: The counters, from the call's local variables.
        compiled: What a compile belongs to, from them and the number of the call; None where nobody
            asks why it came.
        arrays: The arrays of the call, from them.
    """

    find: Callable[[dict[str, Any]], Counters]
    compiled: Callable[[dict[str, Any], Call], Event | None] | None = None
    arrays: Callable[[dict[str, Any]], Sequence[Any]] | None = None


class Listener:
    """The one listener; `owners` maps the code of a function to what finds the counters in its
    frame.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owners: dict[CodeType, Owner] = {}
        self._registered = False
        self._found = threading.local()

    def register(self) -> None:
        """Listen from now on; later calls do nothing."""
        with self._lock:
            if not self._registered:
                jax.monitoring.register_event_duration_secs_listener(self._duration)
                jax.monitoring.register_event_listener(self._event)
                self._registered = True

    def owns(self, function: Any, owner: Owner) -> None:
        """Events below a call of `function` belong to the counters that its owner gets from its
        local variables.
        """
        self._owners[inspect.unwrap(function).__code__] = owner

    def call(self, counters: Counters) -> tuple[Call, Sequence[Any]]:
        """The nearest call: a number that no other call under way has, and its arrays, if it is one
        of these counters.
        """
        nearest = self._nearest()
        if nearest is None:
            return (0, 0), ()
        owner, frame = nearest
        names = frame.f_locals
        if owner.arrays is None or owner.find(names) is not counters:
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

    def _duration(self, event: str, duration_secs: float, **kwargs: Any) -> None:
        if event not in (TRACED, LOWERED, COMPILED):
            return
        # whoever's it was: the next compile has its own
        hit = event == COMPILED and self._was_hit()
        nearest = self._nearest()
        if nearest is None:
            return
        owner, frame = nearest
        names = frame.f_locals
        counters = owner.find(names)
        if event == TRACED and kwargs.get("fun_name", counters.name) != counters.name:
            # helpers such as `jnp.linalg.norm` are jitted too: their trace is part of the program's
            # own
            return
        # what is compiled in a search is in the seconds of the trace around it
        if event == TRACED or not OWN_TIME.runs:
            counters.seconds[event] += duration_secs
        own = event != COMPILED or _of_program(kwargs.get("fun_name"), counters.name)
        if event == COMPILED:
            counters.compile_events += own
            counters.incidental += not own
            counters.persistent_hits += own and hit
        if own:
            self._spent(event, duration_secs, owner, frame, counters)

    def _spent(
        self, event: str, seconds: float, owner: Owner, frame: FrameType, counters: Counters
    ) -> None:
        """Add to what the trace or compile under way has cost. What is lowered for no trace is told
        when it is compiled.
        """
        mine = counters.of_call(threading.get_ident(), (id(frame), counters.calls))
        if mine is None or (event != TRACED and mine.compiled):
            mine = None
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

    def _event(self, event: str, **kwargs: Any) -> None:
        if event == HIT:  # within a compile, whose end says of what
            self._found.hit = True


def _of_program(named: str | None, name: str) -> bool:
    """Whether what was compiled is the program itself: JAX calls it `f`, `jit_f` or `jit(f)`
    (0.10.2 to 0.12.0.1).
    """
    return named is None or named in (name, f"jit_{name}", f"jit({name})")


LISTENER = Listener()
