"""`jitney.watch` and `jitney.no_compiles`: JAX's tracing, lowering and compiling of all code.

JAX reports each span of work to listeners when it is over, in the thread that did it, with the name
of the function (`jax.monitoring`, 0.10.0 to 0.12.0.1). Spans nest: the seconds of an inner span are
subtracted from the outer one, so each second is counted once. The user's line is the one on the
stack at the report. Transfers between host and device are not reported: their number is unknown,
not zero. Nothing is registered before the first `watch`, and a warm call reports nothing. With
`memory` a thread samples what the process and its devices hold.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from contextvars import ContextVar, Token
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Self, TypeVar, cast

import jax

from .._errors import CompileError
from .._owners import shorten, users_place
from .._public import public_in
from .._text.shown import Shown
from .counters.counters import COMPILED, HIT, LOWERED, TRACED
from .memory_course import MemoryCourse, MemoryWatch, read_budget

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

P = ParamSpec("P")
R = TypeVar("R")
Phase = Literal["traces", "lowers", "compiles"]
_PHASES: dict[str, Phase] = {TRACED: "traces", LOWERED: "lowers", COMPILED: "compiles"}
_SECONDS: dict[Phase, str] = {
    "traces": "trace_seconds",
    "lowers": "lower_seconds",
    "compiles": "compile_seconds",
}
# Number of rows in a table.
_SHOWN = 20


@public_in("jitney.types")
@dataclass(frozen=True)
class Work:
    """JAX's work for one function, as called from one line.

    Args:
        name: The function that was traced or compiled: the user's, or an operation of `jax.numpy`
            that was called outside of any `jit`.
        place: The user's line, `fit.py:12 (step)`.
        traces: Number of traces.
        lowers: Number of lowerings.
        compiles: Number of compiles by XLA.
        cache_hits: Number of programs that were read from the persistent cache instead.
        trace_seconds: Wall-clock seconds of tracing, without spans of work inside.
        lower_seconds: Wall-clock seconds of lowering.
        compile_seconds: Wall-clock seconds of compiling, or of reading the persistent cache.
    """

    name: str
    place: str
    traces: int = 0
    lowers: int = 0
    compiles: int = 0
    cache_hits: int = 0
    trace_seconds: float = 0.0
    lower_seconds: float = 0.0
    compile_seconds: float = 0.0

    @property
    def seconds(self) -> float:
        """Seconds of tracing, lowering and compiling."""
        return self.trace_seconds + self.lower_seconds + self.compile_seconds

    def and_one(self, phase: Phase, seconds: float, *, hit: bool) -> Work:
        """Copy with another span of work added."""
        which = "cache_hits" if hit else phase
        return replace(
            self,
            **{
                which: getattr(self, which) + 1,
                _SECONDS[phase]: getattr(self, _SECONDS[phase]) + seconds,
            },
        )


@public_in("jitney.types")
class Watch(Shown):
    """JAX's work until now, by all threads; returned by `jitney.watch`."""

    def __init__(self, memory: MemoryWatch | None = None) -> None:
        self._lock = threading.Lock()
        self._work: dict[tuple[str, str], Work] = {}
        self._entered = 0
        self._memory = memory

    @property
    def work(self) -> tuple[Work, ...]:
        """Work by function and line, longest first."""
        with self._lock:
            return tuple(sorted(self._work.values(), key=lambda work: -work.seconds))

    @property
    def traces(self) -> int:
        """Number of traces, including those of functions that are called inside of others."""
        return sum(work.traces for work in self.work)

    @property
    def lowers(self) -> int:
        """Number of programs that were lowered."""
        return sum(work.lowers for work in self.work)

    @property
    def compiles(self) -> int:
        """Number of programs that XLA compiled."""
        return sum(work.compiles for work in self.work)

    @property
    def cache_hits(self) -> int:
        """Number of programs that came from the persistent cache."""
        return sum(work.cache_hits for work in self.work)

    @property
    def seconds(self) -> float:
        """Wall-clock seconds of tracing, lowering and compiling, each counted once; summed over
        threads.
        """
        return sum(work.seconds for work in self.work)

    @property
    def transfers(self) -> int | None:
        """None, for unknown: JAX reports no transfers. On accelerators `jax.transfer_guard("log")`
        logs them; on CPUs it is silent.
        """
        return None

    @property
    def memory(self) -> MemoryCourse | None:
        """Memory until now; None without `memory=` of `jitney.watch`."""
        return None if self._memory is None else self._memory.course()

    def to_dict(self) -> dict[str, Any]:
        """The counts as data, for JSON."""
        totals = {
            name: getattr(self, name)
            for name in ("traces", "lowers", "compiles", "cache_hits", "seconds", "transfers")
        }
        memory = self.memory
        held = {} if memory is None else {"memory": memory.to_dict()}
        return {**totals, "work": [work.__dict__ for work in self.work], **held}

    def __enter__(self) -> Self:
        with self._lock:
            self._entered += 1
            if self._entered == 1 and self._memory is not None:
                self._memory.start()
        _LISTENER.add(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._lock:
            self._entered -= 1
            left = not self._entered
            if left:
                _LISTENER.remove(self)
        # Not under the lock: the end waits for the thread that samples.
        if left and self._memory is not None:
            self._memory.sampler.stop()
            raised, self._memory.raised = self._memory.raised, None
            if raised is not None and error is None:
                raise raised

    def __call__(self, fn: Callable[P, R]) -> Callable[P, R]:
        """Decorate a function so that its calls are watched; `fn.watch` is the work in all of
        them.
        """

        @functools.wraps(fn)
        def watched(*args: P.args, **kwargs: P.kwargs) -> R:
            with self:
                return fn(*args, **kwargs)

        watched_: Any = watched
        watched_.watch = self
        return watched_

    def saw(
        self,
        phase: Phase,
        name: str,
        place: str,
        seconds: float,
        *,
        hit: bool,
    ) -> None:
        """Count a span of work."""
        with self._lock:
            key = name, place
            work = self._work.get(key, Work(name, place))
            self._work[key] = work.and_one(phase, seconds, hit=hit)

    def saw_compile(self, name: str, place: str, start: float, end: float) -> None:
        """Note the memory of a compile that is over."""
        if self._memory is not None:
            self._memory.compiled(name, place, start, end)

    def __rich__(self) -> Table | Group:
        from rich.console import Group

        memory = self.memory
        return self._table() if memory is None else Group(self._table(), "", memory)

    def _table(self) -> Table:
        from .._text.console import figures

        work = self.work
        told = [
            (
                "function",
                "called from",
                "traces",
                "compiles",
                "cached",
                "trace s",
                "lower s",
                "compile s",
            ),
            *(
                (
                    w.name,
                    w.place,
                    f"{w.traces}",
                    f"{w.compiles}",
                    f"{w.cache_hits}",
                    *_in_seconds(w),
                )
                for w in (*work[:_SHOWN], *_rest(work[_SHOWN:]))
            ),
        ]
        title = (
            f"{self.traces} traces, {self.compiles} compiles, {self.cache_hits} from the cache,"
            f" {self.seconds:.3f} s; transfers unknown"
        )
        return figures(title, told)


def _in_seconds(work: Work) -> tuple[str, str, str]:
    return f"{work.trace_seconds:.3f}", f"{work.lower_seconds:.3f}", f"{work.compile_seconds:.3f}"


def _rest(work: tuple[Work, ...]) -> tuple[Work, ...]:
    if not work:
        return ()
    fields = (
        "traces",
        "lowers",
        "compiles",
        "cache_hits",
        "trace_seconds",
        "lower_seconds",
        "compile_seconds",
    )
    return (
        Work(
            f"and {len(work)} more",
            "",
            **{name: sum(getattr(each, name) for each in work) for name in fields},
        ),
    )


def watch(*, memory: bool | int | str = False) -> Watch:
    """Watch JAX trace, lower and compile all code, decorated or not: a context manager and a
    decorator.

    ```python
    with jitney.watch() as seen:
        train()
    print(seen)  # by function and line: how often, how many seconds
    ```

    All threads are counted while it is entered. It may be entered again, and continues counting. A
    warm call costs nothing.

    Args:
        memory: Whether the memory of the process and of its devices is sampled too, by a thread, a
            hundred times a second (`seen.memory`). A size, `"8GiB"` or bytes, is a budget: there is
            a `MemoryWarning` as soon as the process holds more.
    Raises:
        OptionError: `memory` is neither a flag nor a size.
    """
    if memory is False:
        return Watch()
    return Watch(MemoryWatch(read_budget("jitney.watch()", memory)))


@public_in("jitney.types")
class NoCompiles:
    """Context manager and decorator that `jitney.no_compiles` returns."""

    def __init__(self) -> None:
        # Each thread leaves what it has entered itself: its context has the token.
        self._here = threading.local()

    @property
    def _tokens(self) -> list[Token[bool]]:
        """Tokens of this thread, the outermost entry first."""
        return self._here.__dict__.setdefault("tokens", [])

    def __repr__(self) -> str:
        return f"<jitney.no_compiles: {'entered' if self._tokens else 'not entered'}>"

    def __enter__(self) -> None:
        _LISTENER.register()
        self._tokens.append(_FORBIDDEN.set(True))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _FORBIDDEN.reset(self._tokens.pop())
        if isinstance(error, CompileError):
            shorten(error)

    def __call__(self, fn: Callable[P, R]) -> Callable[P, R]:
        """Decorate a function in which compiling is an error."""

        @functools.wraps(fn)
        def forbidding(*args: P.args, **kwargs: P.kwargs) -> R:
            with NoCompiles():
                return fn(*args, **kwargs)

        return cast("Callable[P, R]", forbidding)


def no_compiles() -> NoCompiles:
    """Forbid compiling in this thread: a context manager and a decorator.

    The error is raised when XLA has finished, as JAX reports the compile then. (An exception that
    is raised inside its lowering would let JAX compile that function over and over.) A program from
    the persistent cache counts as well, because it is not a warm call.

    Raises:
        CompileError: A program was compiled; with its name and the line.
    """
    return NoCompiles()


_FORBIDDEN: ContextVar[bool] = ContextVar("_FORBIDDEN", default=False)


class _WatchListener:
    """Receiver of JAX's reports, which passes them on to each `Watch`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._registered = False
        self._watching: tuple[Watch, ...] = ()
        self._of_thread = threading.local()

    def register(self) -> None:
        """Register with JAX; later calls do nothing."""
        with self._lock:
            if not self._registered:
                jax.monitoring.register_event_time_span_listener(self._span)
                jax.monitoring.register_event_listener(self._event)
                self._registered = True

    def add(self, watch: Watch) -> None:
        self.register()
        with self._lock:
            # A new tuple, since `_span` iterates over the old one without the lock.
            if watch not in self._watching:
                self._watching = (*self._watching, watch)

    def remove(self, watch: Watch) -> None:
        with self._lock:
            self._watching = tuple(each for each in self._watching if each is not watch)

    def _event(self, event: str, **kwargs: object) -> None:
        if event == HIT:
            self._of_thread.hit = True

    def _span(
        self,
        event: str,
        start_time: float,
        end_time: float,
        **kwargs: object,
    ) -> None:
        phase = _PHASES.get(event)
        if phase is None:
            return
        name = _function_name(str(kwargs.get("fun_name", "?")))
        hit = phase == "compiles" and self._was_hit()
        if self._watching:
            alone, place = self._alone(start_time, end_time), users_place()
            for watch in self._watching:
                watch.saw(phase, name, place, alone, hit=hit)
                if phase == "compiles":
                    watch.saw_compile(name, place, start_time, end_time)
        # A listener runs in the thread that compiled, so the exception reaches the caller through
        # JAX.
        if phase == "compiles" and _FORBIDDEN.get():
            raise CompileError(
                f"{name}() at {users_place()}",
                "it was compiled here, where `jitney.no_compiles()` forbids that.",
                "Each new shape, dtype, static value or function is compiled when it is first"
                " called.",
                "call it once before, or `compile` it; `print(f.stats)` says why a decorated"
                " function was traced again.",
            )

    def _was_hit(self) -> bool:
        hit = getattr(self._of_thread, "hit", False)
        self._of_thread.hit = False
        return hit

    def _alone(self, start: float, end: float) -> float:
        """Seconds of a span without the spans of the same thread inside it."""
        spans: list[tuple[float, float]] = getattr(self._of_thread, "spans", [])
        # Spans are reported when they end, so inner ones come before the outer one. A span inside
        # this one is removed here: the span around both subtracts this one only.
        inside = [span for span in spans if span[0] >= start]
        before = [span for span in spans if span[0] < start]
        self._of_thread.spans = [*before, (start, end)][-_REMEMBERED:]

        nested = sum(b - a for a, b in inside)
        return max(0.0, end - start - nested)


# Largest number of finished spans inside one that is not over.
_REMEMBERED = 1000


def _function_name(name: str) -> str:
    """Name of the function that JAX reports as `f` or `jit(f)`."""
    return name[4:-1] if name.startswith("jit(") and name.endswith(")") else name


_LISTENER = _WatchListener()
