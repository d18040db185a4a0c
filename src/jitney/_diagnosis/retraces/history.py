"""History of the traces of a function, and from it the causes of each new program.

A call is compared with the nearest earlier call, the one with the fewest differences, since that is
the program that could have been shared. If nothing differs, the program existed and has been
dropped since. All of this runs at a trace or compile, never in a warm call.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

from ..._errors import Where
from ..._stages.derivatives.derive import Derived
from ..._stages.plan import difference
from ..._view.layout import MAX_ENTRIES
from ..counters.counters import Call, Counters, Event
from . import remedies
from .cache_drops import DROPPED
from .cause import Cause
from .causes import causes
from .closures import cells, changed_cells, weak_stand_in
from .remedies import AuthorContext
from .sentences import sentence_of
from .trace_record import TraceRecord

LOGGER = logging.getLogger("jitney")
"""Logger of each new trace and its cause, at level INFO, for services that do not poll `stats`."""
# Number of earlier calls that a new one is compared with.
_NEAR = 16
_AGAIN = "the same call again"
# Number of lines whose functions are remembered.
_FUNCTIONS = 1024


@dataclass(frozen=True)
class _SeenFunction:
    """Decorated function that may be created anew, in words that keep neither it nor its arguments
    alive.
    """

    code: object
    cells: tuple[tuple[str, object], ...]
    record: TraceRecord


@dataclass
class History:
    """Traces and compiles of one function with its options.

    Args:
        where: The function.
        counters: Counters to which causes are added.
        fn: Returns the function, if it is still alive.
        asked: Returns the axes and options that the author has written.
    """

    where: Where
    counters: Counters
    fn: Callable[[], Callable[..., object]]
    asked: Callable[[], AuthorContext]
    _near: list[TraceRecord] = field(default_factory=list[TraceRecord])
    _seen: dict[Hashable, tuple[int, int, int]] = field(
        default_factory=dict[Hashable, tuple[int, int, int]]
    )
    _cleared: int = 0
    _dropped: Counter[Hashable] = field(default_factory=Counter[Hashable])
    _lock: AbstractContextManager[bool] = field(default_factory=threading.RLock)

    def forget(self) -> None:
        """Record that `clear_cache` dropped all programs, and release their records."""
        with self._lock:
            self._cleared += 1
            self._near.clear()

    def drop(self, keys: Hashable) -> None:
        """Record that the programs of one set of static values were dropped, since there were too
        many.
        """
        self._dropped[hash(keys)] += 1

    def record_trace(self, record: TraceRecord, call: Call) -> None:
        """Record a trace that is under way in this thread.

        Args:
            record: The trace.
            call: The call of the function that the trace is for.
        """
        with self._lock:
            old, found = self._diagnose(record, traced=True)
            self._keep(record)

        under_way = self.counters.of_call(threading.get_ident(), call)
        # JAX traces a second time for arrays that are on a mesh. That trace belongs to the event of
        # the call under way, so it gets no event of its own.
        if (
            record.placed
            and found[0].kind == "decision"
            and found[0].new == _AGAIN
            and under_way is not None
            and not under_way.compiled
        ):
            self.counters.add_sentence(
                "the same call, whose arrays had to be moved to where the program takes them"
            )
            return
        sentence = sentence_of(old, record, found)
        self.counters.add_sentence(sentence)
        self.counters.event(Event(found, threading.get_ident(), call, record.identity))
        self._log("traced", sentence, found)

    def compile_event(self, record: TraceRecord, call: Call) -> Event | None:
        """Return the event that a compile belongs to: its trace, or a new event if it was not
        traced.
        """
        with self._lock:
            traced = self.counters.pending_trace(
                None if record.padded else record.identity, threading.get_ident()
            )
            if traced is not None:
                return traced
            old, found = self._diagnose(record, traced=False)
            # A second program of one call, such as that of its derivative.
            if (
                found[0].kind == "unknown"
                and self.counters.of_call(threading.get_ident(), call) is not None
            ):
                return None
            self._keep(record)
        event = Event(found, threading.get_ident(), call, record.identity, compiled=True)
        self.counters.event(event)
        self._log("compiled", sentence_of(old, record, found), found)
        return event

    def _log(self, what: str, sentence: str, found: tuple[Cause, ...]) -> None:
        """Log a trace, or a compile without one, of this function."""
        fields = {"function": str(self.where), "causes": found}
        LOGGER.info("%s: %s: %s", self.where, what, sentence, extra=fields)

    def _diagnose(
        self,
        record: TraceRecord,
        *,
        traced: bool,
    ) -> tuple[TraceRecord | None, tuple[Cause, ...]]:
        gone = self._drop_cause(record)
        if gone is not None:
            return record, (gone,)
        if not self._near:
            return _diagnose_first_call(self.where, self.fn, self.asked, record)

        # Nearest call: the fewest causes, then the fewest stages that are planned differently.
        asked = self.asked()
        old: TraceRecord | None = None
        found: tuple[Cause, ...] = ()
        for each in reversed(self._near):
            differing = causes(each, record, asked)
            # Nothing differs: an earlier trace of the same call ended in an error, so that it was
            # never compiled; otherwise the cause is unknown.
            if not differing:
                given_up = (
                    traced
                    and self.counters.pending_trace(each.identity, threading.get_ident())
                    is not None
                )
                words = "a trace that came to no end", _AGAIN
                return each, (
                    Cause("decision", None, None, *words) if given_up else Cause("unknown"),
                )
            if old is None or (len(differing), _plan_distance(each, record)) < (
                len(found),
                _plan_distance(old, record),
            ):
                old, found = each, differing
            if (
                len(found) == 1
                and record.identity not in self._seen
                and not _plan_distance(old, record)
            ):
                # No earlier call can be nearer than by a single cause.
                break
        return old, found

    def _drop_cause(self, record: TraceRecord) -> Cause | None:
        """Cause if the program of this call existed and was dropped."""
        # Numbers of the drops of each kind when the program was made; a higher number now is a
        # drop.
        at = self._seen.get(record.identity)
        if at is None:
            return None
        if at[1] != self._cleared:
            return Cause(
                "cache eviction",
                None,
                None,
                "kept",
                "dropped by clear_cache()",
                remedy=remedies.CLEARED,
            )
        if at[2] != self._dropped[hash(record.keys)]:
            what = f"dropped: more than {MAX_ENTRIES} sets of static values"
            return Cause("cache eviction", None, None, "kept", what, remedy=remedies.FULL)
        if at[0] != DROPPED.times():
            return Cause(
                "cache eviction",
                None,
                None,
                "kept",
                "dropped by jax.clear_caches()",
                remedy=remedies.JAX_CLEARED,
            )
        return None

    def _keep(self, record: TraceRecord) -> None:
        self._near.append(record)
        del self._near[:-_NEAR]
        if len(self._seen) >= 2 * MAX_ENTRIES:
            del self._seen[next(iter(self._seen))]
        self._seen[record.identity] = (
            DROPPED.times(),
            self._cleared,
            self._dropped[hash(record.keys)],
        )
        _LINES.remember(self.fn(), self.asked(), record)


def _plan_distance(old: TraceRecord, new: TraceRecord) -> int:
    """Number of stages that are planned differently, to break ties between equally near calls."""
    return 0 if old.plan is None or new.plan is None else len(difference(old.plan, new.plan))


def _diagnose_first_call(
    where: Where,
    fn: Callable[[], Callable[..., object]],
    asked: Callable[[], AuthorContext],
    record: TraceRecord,
) -> tuple[TraceRecord | None, tuple[Cause, ...]]:
    """Nearest record and causes for a first call, whose function may have been created anew."""
    made = _LINES.find(fn(), asked())
    if made is None:
        return None, (Cause("first call"),)
    written = _user_function(fn())
    # The function is new, but its line and code are known: name the values that it closes over.
    now, before = dict(cells(written)), dict(made.cells)
    changed = changed_cells(made.cells, cells(written))
    old = ", ".join(f"{name}={before.get(name)}" for name in changed) or str(where)
    new = ", ".join(f"{name}={now[name]}" for name in changed) or "created again"
    remedy = remedies.for_hoisting(written.__name__, changed)
    found = (
        Cause("function", None, None, old, new, remedy=remedy),
        *causes(made.record, _in_words(record), asked()),
    )
    return made.record, found


class _FunctionsByLine:
    """Functions by the line that creates them: a function that is created anew per call compiles
    per call.
    """

    def __init__(self) -> None:
        self._made: dict[Hashable, _SeenFunction] = {}
        self._lock = threading.Lock()

    def find(
        self,
        fn: Callable[..., object],
        asked: AuthorContext,
    ) -> _SeenFunction | None:
        """Find a function that the same line created before, of the same code and around the same
        functions.
        """
        key = _line(fn, asked)
        written = _user_function(fn)
        earlier = None if key is None else self._made.get(key)
        if earlier is None or earlier.code != written.__code__:
            return None
        now = dict(cells(written))

        # Compare only functions among the closed-over values: a decorator's wrapper has the same
        # code for every function that it wraps.
        for name, before in earlier.cells:
            value = now.get(name)
            if (_is_code(before) or _is_code(value)) and value != before:
                return None
        return earlier

    def remember(
        self,
        fn: Callable[..., object],
        asked: AuthorContext,
        record: TraceRecord,
    ) -> None:
        key = _line(fn, asked)
        if key is None:
            return
        written = _user_function(fn)
        with self._lock:
            if len(self._made) >= _FUNCTIONS:
                del self._made[next(iter(self._made))]
            self._made[key] = _SeenFunction(
                written.__code__,
                cells(written),
                _in_words(record),
            )


_LINES = _FunctionsByLine()


def _user_function(fn: object) -> Any:
    """The user's function, under any derivatives."""
    return fn.fn if isinstance(fn, Derived) else fn


def _in_words(record: TraceRecord) -> TraceRecord:
    """Copy of a record that keeps nothing alive of the call."""
    static = tuple((path, weak_stand_in(value)) for path, value in record.static)
    return replace(
        record,
        static=static,
        fields=(),
        tree=(),
        plan=None,
        keys=None,
    )


def _line(fn: Callable[..., object], asked: AuthorContext) -> Hashable | None:
    """Key of a line that creates functions; a derivative has the key of its function's line."""
    if isinstance(fn, Derived):
        inner = _line(fn.fn, asked)
        return inner and (inner, fn.what, fn.wrt)
    code = getattr(fn, "__code__", None)
    if code is None or hasattr(fn, "__wrapped__"):
        return None
    return (
        code.co_filename,
        code.co_firstlineno,
        fn.__name__,
        fn.__qualname__,
        fn.__module__,
        asked.options,
    )


def _is_code(value: object) -> bool:
    return hasattr(value, "co_code")
