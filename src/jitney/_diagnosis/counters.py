"""Counters of a program, as `jax.monitoring` reports them.

JAX reports each trace, lowering and compile to listeners, in the thread that does it, without saying for whom. One listener, registered
with the first program, finds the program by looking up the call stack for the nearest call of one. That happens only when
something is compiled: a warm call pays nothing.
"""

from __future__ import annotations

import inspect
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import TYPE_CHECKING, Any

import jax

if TYPE_CHECKING:
    from rich.table import Table

    from .._stages.fill import Filled

_TRACE = "/jax/core/compile/jaxpr_trace_duration"
_LOWER = "/jax/core/compile/jaxpr_to_mlir_module_duration"
_COMPILE = "/jax/core/compile/backend_compile_duration"
_HIT = "/jax/compilation_cache/cache_hits"
_KEPT = 100  # causes of retraces remembered


@dataclass(frozen=True)
class Stats:
    """What a program has done so far. Seconds are wall-clock seconds, by phase, for this program alone.

    `compiles` are of the program; `incidental` ones of what is computed around it, such as arrays that the body makes once.
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

    def to_dict(self) -> dict[str, Any]:
        return {**self.__dict__, "retraces": list(self.retraces)}

    def __rich__(self) -> Table:
        from .._console import table

        rows = [
            ("calls", f"{self.calls}: {self.hits} in-process hits, {self.eager} eager"),
            ("traces", f"{self.traces} ({self.trace_seconds:.3f} s), lowering {self.lower_seconds:.3f} s"),
            ("compiles", f"{self.compiles} ({self.compile_seconds:.3f} s), {self.persistent_hits} persistent-cache hits"),
            *([("incidental", f"{self.incidental} small programs besides, for what is around it")] if self.incidental else []),
            *([("verified", f"{self.verified}")] if self.verified else []),
            *((f"axis {axis}", f"{len(self.sizes[axis])} sizes padded by {part:.1%} on average") for axis, part in self.padding.items()),
            *((f"trace {n}", cause) for n, cause in enumerate(self.retraces, max(1, self.traces - len(self.retraces) + 1))),
        ]
        return table("stats", [[(name, "cyan"), (text, "")] for name, text in rows])

    def __str__(self) -> str:
        from .._console import text_of

        return text_of(self)

    def _repr_html_(self) -> str:
        from .._console import html_of

        return html_of(self)


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
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys((_TRACE, _LOWER, _COMPILE), 0.0))
    warned: set[str] = field(default_factory=set[str])
    sizes: dict[str, Counter[int]] = field(default_factory=dict[str, Counter[int]])
    rows: dict[str, int] = field(default_factory=dict[str, int])
    causes: list[str] = field(default_factory=list[str])

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
            trace_seconds=self.seconds[_TRACE],
            lower_seconds=self.seconds[_LOWER],
            compile_seconds=self.seconds[_COMPILE],
            retraces=tuple(self.causes),
            sizes={axis: dict(seen) for axis, seen in self.sizes.items()},
            verified=self.verified,
            incidental=self.incidental,
            padding={axis: self.rows[axis] / sum(n * times for n, times in seen.items()) - 1 for axis, seen in self.sizes.items()},
        )


def total(several: Sequence[Counters]) -> Stats:
    """What several programs have done together."""
    whole = Counters("")
    for each in several:
        for name in ("calls", "misses", "traces", "eager", "verified", "compile_events", "incidental", "persistent_hits"):
            setattr(whole, name, getattr(whole, name) + getattr(each, name))
        for event, seconds in each.seconds.items():
            whole.seconds[event] += seconds
        for axis, seen in each.sizes.items():
            whole.sizes.setdefault(axis, Counter()).update(seen)
            whole.rows[axis] = whole.rows.get(axis, 0) + each.rows[axis]
        whole.causes += each.causes
    return whole.stats()


class Listener:
    """The one listener; `owners` maps the code of a function to what finds the counters in its frame."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owners: dict[CodeType, Callable[[dict[str, Any]], Counters]] = {}
        self._registered = False
        self._found = threading.local()

    def register(self) -> None:
        """Listen from now on; later calls do nothing."""
        with self._lock:
            if not self._registered:
                jax.monitoring.register_event_duration_secs_listener(self._duration)
                jax.monitoring.register_event_listener(self._event)
                self._registered = True

    def owns(self, function: Any, find: Callable[[dict[str, Any]], Counters]) -> None:
        """Events below a call of `function` belong to the counters that `find` gets from its local variables."""
        self._owners[inspect.unwrap(function).__code__] = find

    def _nearest(self) -> Counters | None:
        frame = inspect.currentframe()
        while frame is not None:
            find = self._owners.get(frame.f_code)
            if find is not None:
                return find(frame.f_locals)
            frame = frame.f_back
        return None

    def _duration(self, event: str, duration_secs: float, **kwargs: Any) -> None:
        if event not in (_TRACE, _LOWER, _COMPILE):
            return
        hit = event == _COMPILE and self._was_hit()  # whoever's it was: the next compile has its own
        counters = self._nearest()
        if counters is None or (event == _TRACE and kwargs.get("fun_name", counters.name) != counters.name):
            return  # helpers such as `jnp.linalg.norm` are jitted too: their trace is part of the program's own
        counters.seconds[event] += duration_secs
        if event == _COMPILE:
            own = _of_program(kwargs.get("fun_name"), counters.name)
            counters.compile_events += own
            counters.incidental += not own
            counters.persistent_hits += own and hit

    def _was_hit(self) -> bool:
        hit = getattr(self._found, "hit", False)
        self._found.hit = False
        return hit

    def _event(self, event: str, **kwargs: Any) -> None:
        if event == _HIT:  # within a compile, whose end says of what
            self._found.hit = True


def _of_program(named: str | None, name: str) -> bool:
    """Whether what was compiled is the program itself: JAX calls it `f`, `jit_f` or `jit(f)` (0.10.2 to 0.12.0.1)."""
    return named is None or named in (name, f"jit_{name}", f"jit({name})")


LISTENER = Listener()
