"""Listener of `jax.monitoring` that finds the program of a report.

JAX reports each trace, lowering and compile to listeners, in the thread that does it, but not for
which program. One listener is registered with the first program. It walks up the call stack to the
nearest call of a program and adds to that program's counters. Reports come only when something is
compiled, so a warm call pays nothing.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

import jax

from ..._host.own_time import OWN_TIME
from ..._jax.typed import Array
from .counters import COMPILED, HIT, LOWERED, TRACED, Call, Counters, Event

Locals = dict[str, Any]
"""Local variables of the frame of a call."""


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
