"""Seconds of calls, measured without waiting for their results.

A call returns before the device is done, so somebody else has to wait for its end: a thread of this
module, for the calls with the numbers 1, 2, 4, 8, ... of a size. Of all other calls nothing is
known but their number.

Two figures come of it. The least seconds are what calls take at least, however long results wait
for each other: what is spent is counted by them. The usual seconds are those of calls before which
the device was idle. They are more where a call takes new memory from the system at every second
call, say, and ways are compared by them.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import jax

from ..._jax.trees import attribute, tree_flatten

T = TypeVar("T")
clock = time.perf_counter
"""The clock of all that is measured here; tests have their own."""
cpu_clock = time.process_time
"""Seconds of all cores in this process; tests have their own."""


class CallTimes:
    """Number of the calls of one size, and the seconds of some of them."""

    def __init__(self) -> None:
        self.calls = 0
        self.timed = 0
        self.least: float | None = None
        # Of calls before which the device was idle.
        self._alone: list[float] = []
        # The cores that they kept busy.
        self._busy: list[float] = []
        self._next = 1

    @property
    def taken(self) -> float:
        """Seconds of all calls, if each took as long as the shortest of those that were timed."""
        return self.calls * (self.least or 0.0)

    @property
    def usual(self) -> float | None:
        """Median of the seconds of calls that began alone; the least seconds of all, if none did;
        None if no call was timed.
        """
        return statistics.median_low(self._alone) if self._alone else self.least

    @property
    def busy(self) -> float:
        """Median of the cores that calls which began alone kept busy; 1 if there are none."""
        return statistics.median_low(self._busy) if self._busy else 1.0

    def run(self, call: Callable[[], T], *, alone: bool = False) -> T:
        """Run a call. It is timed if its number is a power of two, or if the device was idle
        before it.
        """
        self.calls += 1
        if not alone and self.calls < self._next:
            return call()
        self._next = max(self._next, 2 * self.calls)
        began = (clock(), cpu_clock())
        out = call()
        leaves = tree_flatten(out)[0]
        if all(map(_is_ready, leaves)):
            self._end(began, alone=alone)
        else:
            WATCHERS.submit(partial(self._await, leaves, began, alone=alone))
        return out

    def _end(self, began: tuple[float, float], *, alone: bool) -> None:
        """Take a call that has ended now."""
        seconds, busy = clock() - began[0], cpu_clock() - began[1]
        self.add(seconds, alone=alone)
        if alone and seconds > 0:
            self._busy.append(busy / seconds)

    def add(self, seconds: float, *, alone: bool = False) -> None:
        """Take the seconds of a call, before which the device was idle, if it began `alone`."""
        if alone:
            self._alone.append(seconds)
        self.timed += 1
        self.least = seconds if self.least is None else min(self.least, seconds)

    def _await(
        self,
        leaves: list[object],
        began: tuple[float, float],
        *,
        alone: bool,
    ) -> None:
        try:
            jax.block_until_ready(leaves)
        except (RuntimeError, ValueError):
            # The call failed, or its result was donated meanwhile: whoever reads it is told.
            return
        self._end(began, alone=alone)


def _is_ready(leaf: object) -> bool:
    ask = attribute(leaf, "is_ready", None)
    return ask is None or bool(ask())


class Watchers:
    """One thread of this process that waits for results."""

    def __init__(self) -> None:
        # Process -> its pool: a fork copies the pool, and not its thread.
        self._pools: dict[int, ThreadPoolExecutor] = {}

    def submit(self, task: Callable[[], None]) -> None:
        """Run a task in the thread; not at all, if Python ends or no thread can be started."""
        process = os.getpid()
        pool = self._pools.get(process)
        if pool is None:
            pool = self._pools.setdefault(process, ThreadPoolExecutor(1, "jitney-auto"))
        try:
            pool.submit(task)
        except RuntimeError:
            return


WATCHERS = Watchers()
"""All calls share it."""
