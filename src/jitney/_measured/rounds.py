"""Times of several ways in turn, so that what the machine does meanwhile hits all of them alike.

A round calls each way in order and then in reverse (A B B A, and B A A B in the next), so that a
drift favours neither. Laps are short beside the slices of time that a busy machine gives to each
process, and of the two laps of a way in a round the lesser counts: a process that is put off in one
of them loses that lap, not the round. Under load 10 on two cores the ratio of a function to itself
was so within 2 % in each of 32 rounds' intervals; with laps five times as long and their mean it
was between 0.05 and 12.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

import jax

_jax: Any = jax
Prepare = Callable[[], Callable[[], Any]]
"""Makes what a call needs, outside of the clock, and gives the call."""
# seconds of a lap, and the least of one: long beside the clock's own call
_LAP, _SHORT = 2e-4, 5e-5
_MOST_CALLS = 10_000
_TRIED = 3  # warm calls, of which the fastest says how many make a lap


class Side:
    """One way to be timed.

    Args:
        call: Makes the call; its result is waited for, leaf by leaf.
        prepare: Where each call needs something made before, outside of the clock, as what takes
            its arguments for itself does.
    """

    def __init__(self, call: Callable[[], Any] | None = None, prepare: Prepare | None = None):
        self._call, self._prepare = call, prepare
        self.calls = 1

    @property
    def prepared(self) -> bool:
        """Whether each call needs something made before."""
        return self._prepare is not None

    def lap(self) -> float:
        """Seconds of a call, over as many as make a lap."""
        call = self._call if self._prepare is None else self._prepare()
        if call is None:
            raise AssertionError("a way has a call, or makes one")
        wait = _jax.block_until_ready
        if self.calls > 1:
            # what the other way has left in the processor's caches is not part of the lap
            wait(call())
        start = time.perf_counter()
        for _ in range(self.calls):
            wait(call())
        return (time.perf_counter() - start) / self.calls


def set_laps(ways: Sequence[Side]) -> None:
    """Find how many calls make a lap: as many of each way, unless the lap of a fast one would be
    too short for the clock.
    """
    if any(way.prepared for way in ways):
        return
    fastest = [max(1e-9, min(way.lap() for _ in range(_TRIED))) for way in ways]
    calls = max(1, math.ceil(_LAP / max(fastest)))
    for way, seconds in zip(ways, fastest, strict=True):
        way.calls = min(_MOST_CALLS, max(calls, math.ceil(_SHORT / seconds)))


def one_round(ways: Sequence[Side], *, turned: bool) -> list[float]:
    """Seconds of a call of each way, the lesser of two laps."""
    order = list(reversed(range(len(ways)))) if turned else list(range(len(ways)))
    seconds = [math.inf] * len(ways)
    for i in (*order, *reversed(order)):
        seconds[i] = min(seconds[i], ways[i].lap())
    return seconds


def rounds(ways: Sequence[Side], least: int, most: int, seconds: float) -> list[list[float]]:
    """Seconds of a call of each way, round by round: as many rounds as the seconds allow.

    Args:
        ways: What is timed.
        least: So many rounds, however long they take.
        most: And no more than so many.
        seconds: For all of them.
    """
    timed: list[list[float]] = []
    with undisturbed():
        set_laps(ways)
        until = time.perf_counter() + seconds
        while len(timed) < least or (len(timed) < most and time.perf_counter() < until):
            timed.append(one_round(ways, turned=len(timed) % 2 == 1))
    return timed


@contextmanager
def undisturbed() -> Generator[None]:
    """Without the collector of cycles, as `timeit` does it: it would run in whoever's lap made the
    last object.
    """
    was = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
