"""Rounds of timings of several functions in turn, so that other load on the machine hits all alike.

A round calls each function in order and then in reverse (A B B A, and B A A B in the next), so that
a drift favours neither. Laps are short compared with the time slices that a busy machine gives to
each process, and of the two laps of a function in a round the lesser counts: a process that is
suspended in one of them loses that lap, not the round. Under load 10 on two cores the ratio of a
function to itself was so within 2 % in each of 32 rounds' intervals; with laps five times as long
and their mean it was between 0.05 and 12.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

import jax

Prepare = Callable[[], Callable[[], object]]
"""Function that prepares the arguments of a call, untimed, and returns the call."""
# Seconds of a lap, and the shortest lap: long compared with the call of the clock.
_LAP, _SHORT = 2e-4, 5e-5
_MOST_CALLS = 10_000
# Warm calls, the fastest of which sets the number of calls in a lap.
_TRIED = 3


class Side:
    """Function to time, with its arguments.

    Args:
        call: The call; its result is waited for, leaf by leaf.
        prepare: Preparation of each call, untimed, for functions that donate their arguments.
    """

    def __init__(
        self,
        call: Callable[[], object] | None = None,
        prepare: Prepare | None = None,
    ):
        self._call, self._prepare = call, prepare
        self.calls = 1

    @property
    def needs_preparation(self) -> bool:
        """True if each call needs a preparation."""
        return self._prepare is not None

    def lap(self) -> float:
        """Return the seconds of a call, as the mean of the calls in a lap."""
        call = self._call if self._prepare is None else self._prepare()
        if call is None:
            raise AssertionError("a way has a call, or makes one")
        wait = jax.block_until_ready
        if self.calls > 1:
            # An untimed call first: the processor's caches are filled by the other function.
            wait(call())
        start = time.perf_counter()
        for _ in range(self.calls):
            wait(call())
        return (time.perf_counter() - start) / self.calls


def set_laps(ways: Sequence[Side]) -> None:
    """Set the number of calls in a lap.

    It is the same for all functions, unless the lap of a fast one would be too short for the clock.
    """
    if any(way.needs_preparation for way in ways):
        return
    # Each call needs arguments of its own, so a lap with a preparation is one call.
    fastest = [max(1e-9, min(way.lap() for _ in range(_TRIED))) for way in ways]
    calls = max(1, math.ceil(_LAP / max(fastest)))
    for way, seconds in zip(ways, fastest, strict=True):
        way.calls = min(_MOST_CALLS, max(calls, math.ceil(_SHORT / seconds)))


def one_round(ways: Sequence[Side], *, turned: bool) -> list[float]:
    """Return the seconds of a call of each function, the lesser of two laps."""
    order = list(reversed(range(len(ways)))) if turned else list(range(len(ways)))
    seconds = [math.inf] * len(ways)
    for i in (*order, *reversed(order)):
        seconds[i] = min(seconds[i], ways[i].lap())
    return seconds


def rounds(
    ways: Sequence[Side],
    least: int,
    most: int,
    seconds: float,
) -> list[list[float]]:
    """Return the seconds of a call of each function, round by round, until the time is over.

    Args:
        ways: The functions.
        least: Minimum of rounds, even if they take longer.
        most: Maximum of rounds.
        seconds: Time for all of them.
    """
    timed: list[list[float]] = []
    with pause_gc():
        set_laps(ways)
        until = time.perf_counter() + seconds
        while len(timed) < least or (len(timed) < most and time.perf_counter() < until):
            timed.append(one_round(ways, turned=len(timed) % 2 == 1))
    return timed


@contextmanager
def pause_gc() -> Generator[None]:
    """Disable the garbage collector of cycles, as `timeit` does.

    It would run in the lap of whichever function created the last object.
    """
    was = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
