"""What a function has been traced and compiled for, and from it the causes of each new program.

A call is compared with the nearest one before it, the one that differs in the fewest things: that
is what the author would have had to keep. Where nothing differs the program was there, and has been
dropped since. All of it happens where something is traced or compiled.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Any

from .._errors import Where
from .._stages.derive import Derived
from .._stages.plan import difference
from .._view.layout import MAX_ENTRIES
from . import remedies
from .cause import Cause
from .closures import cells, changed_cells, worded
from .counters import Call, Counters, Event
from .dropped_programs import DROPPED
from .remedies import Asked
from .retraces import TraceRecord, causes, sentence_of

_NEAR = 16  # calls that a new one is compared with
_AGAIN = "the same call again"
_FUNCTIONS = 1024  # lines whose functions are remembered


@dataclass(frozen=True)
class _Made:
    """A decorated function that may be made anew, in words: nothing here keeps it, or what it was
    called with, alive.
    """

    code: Any
    cells: tuple[tuple[str, Any], ...]
    record: TraceRecord


@dataclass
class History:
    """Of one function with its options.

    Args:
        where: The function.
        counters: Where its causes are kept.
        fn: The function itself, if anybody still holds it.
        asked: What the author has written.
    """

    where: Where
    counters: Counters
    fn: Callable[[], Any]
    asked: Callable[[], Asked]
    _near: list[TraceRecord] = field(default_factory=list[TraceRecord])
    _seen: dict[Hashable, tuple[int, int, int]] = field(
        default_factory=dict[Hashable, tuple[int, int, int]]
    )
    _cleared: int = 0
    _dropped: Counter[Hashable] = field(default_factory=Counter[Hashable])
    _lock: Any = field(default_factory=threading.RLock)

    def forget(self) -> None:
        """Its programs were dropped, by `clear_cache`; and nothing of what they were made for is
        kept.
        """
        with self._lock:
            self._cleared += 1
            self._near.clear()

    def drop(self, keys: Hashable) -> None:
        """The programs of one set of static values were dropped, since there were too many."""
        self._dropped[hash(keys)] += 1

    def traced(self, record: TraceRecord, call: Call) -> None:
        """Remember a trace, which is under way in this thread; `call` is that of the function's
        that it is for.
        """
        with self._lock:
            old, found = self._why(record, traced=True)
            self._keep(record)
        under_way = self.counters.of_call(threading.get_ident(), call)
        if (
            record.placed
            and found[0].kind == "decision"
            and found[0].new == _AGAIN
            and under_way is not None
            and not under_way.compiled
        ):
            self.counters.cause(
                "the same call, whose arrays had to be moved to where the program takes them"
            )
            return  # JAX traces again for arrays that are of a mesh
        self.counters.cause(sentence_of(old, record, found))
        self.counters.event(Event(found, threading.get_ident(), call, record.identity))

    def compiled(self, record: TraceRecord, call: Call) -> Event | None:
        """What a compile belongs to, for a call that may not have been traced: its trace, or one
        without.
        """
        with self._lock:
            traced = self.counters.uncompiled(
                None if record.padded else record.identity, threading.get_ident()
            )
            if traced is not None:
                return traced
            _, found = self._why(record, traced=False)
            if (
                found[0].kind == "unknown"
                and self.counters.of_call(threading.get_ident(), call) is not None
            ):
                return None  # a second program of one call, as of its derivative
            self._keep(record)
        event = Event(found, threading.get_ident(), call, record.identity, compiled=True)
        self.counters.event(event)
        return event

    def _why(
        self, record: TraceRecord, *, traced: bool
    ) -> tuple[TraceRecord | None, tuple[Cause, ...]]:
        gone = self._gone(record)
        if gone is not None:
            return record, (gone,)
        if not self._near:
            return _before(self.where, self.fn, self.asked, record)
        asked = self.asked()
        old: TraceRecord | None = None
        found: tuple[Cause, ...] = ()
        for each in reversed(self._near):
            differing = causes(each, record, asked)
            if not differing:
                given_up = (
                    traced
                    and self.counters.uncompiled(each.identity, threading.get_ident()) is not None
                )
                words = "a trace that came to no end", _AGAIN
                return each, (
                    Cause("decision", None, None, *words) if given_up else Cause("unknown"),
                )
            if old is None or (len(differing), _replanned(each, record)) < (
                len(found),
                _replanned(old, record),
            ):
                old, found = each, differing
            if (
                len(found) == 1
                and record.identity not in self._seen
                and not _replanned(old, record)
            ):
                break  # none is nearer
        return old, found

    def _gone(self, record: TraceRecord) -> Cause | None:
        """Why a program that was there is no more."""
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


def _replanned(old: TraceRecord, new: TraceRecord) -> int:
    """How many stages are decided differently: of calls that are as near, the one that was run in
    the same way is nearer.
    """
    return 0 if old.plan is None or new.plan is None else len(difference(old.plan, new.plan))


def _before(
    where: Where, fn: Callable[[], Any], asked: Callable[[], Asked], record: TraceRecord
) -> tuple[TraceRecord | None, tuple[Cause, ...]]:
    """The first call, of a function that may have been made anew."""
    made = _LINES.find(fn(), asked())
    if made is None:
        return None, (Cause("first call"),)
    written = _written(fn())
    now, before = dict(cells(written)), dict(made.cells)
    changed = changed_cells(made.cells, cells(written))
    old = ", ".join(f"{name}={before.get(name)}" for name in changed) or str(where)
    new = ", ".join(f"{name}={now[name]}" for name in changed) or "made anew"
    remedy = remedies.for_hoisting(written.__name__, changed)
    found = (
        Cause("function", None, None, old, new, remedy=remedy),
        *causes(made.record, _in_words(record), asked()),
    )
    return made.record, found


class _Lines:
    """Functions by the line that makes them: one that is made anew on each call compiles on each
    call.
    """

    def __init__(self) -> None:
        self._made: dict[Hashable, _Made] = {}
        self._lock = threading.Lock()

    def find(self, fn: Any, asked: Asked) -> _Made | None:
        """One that was made there before, of the same code, around functions of the same code."""
        key, fn = _line(fn, asked), _written(fn)
        made = None if key is None else self._made.get(key)
        if made is None or made.code != fn.__code__:
            return None
        now = dict(cells(fn))
        wrapped = [
            (now.get(name), value)
            for name, value in made.cells
            if _is_code(value) or _is_code(now.get(name))
        ]
        return made if all(a == b for a, b in wrapped) else None

    def remember(self, fn: Any, asked: Asked, record: TraceRecord) -> None:
        key, fn = _line(fn, asked), _written(fn)
        if key is None:
            return
        with self._lock:
            if len(self._made) >= _FUNCTIONS:
                del self._made[next(iter(self._made))]
            self._made[key] = _Made(fn.__code__, cells(fn), _in_words(record))


_LINES = _Lines()


def _written(fn: Any) -> Any:
    """The function that somebody wrote."""
    return fn.fn if isinstance(fn, Derived) else fn


def _in_words(record: TraceRecord) -> TraceRecord:
    """A record that keeps nothing alive of what the function was called with."""
    static = tuple((path, worded(value)) for path, value in record.static)
    return replace(record, static=static, fields=(), tree=(), plan=None, keys=None)


def _line(fn: Any, asked: Asked) -> Hashable | None:
    """What tells one line that makes functions from others; a derivative is of its function's
    line.
    """
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


def _is_code(value: Any) -> bool:
    return hasattr(value, "co_code")
