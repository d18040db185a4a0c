"""Seconds of calls, measured without waiting for their results.

A call returns before the device is done, so somebody else has to wait for its end: a thread of this
module, for the calls with the numbers 1, 2, 4, 8, ... of a size. Of all other calls nothing is
known but their number.
"""

from __future__ import annotations

import os
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


class CallTimes:
    """Number of the calls of one size, and the seconds of some of them."""

    def __init__(self) -> None:
        self.calls = 0
        self.timed = 0
        self.least: float | None = None
        self._next = 1

    @property
    def taken(self) -> float:
        """Seconds of all calls, if each took as long as the shortest of those that were timed."""
        return self.calls * (self.least or 0.0)

    def run(self, call: Callable[[], T], *, timed: bool = False) -> T:
        """Run a call. It is timed if its number is a power of two, or if `timed`."""
        self.calls += 1
        if not timed and self.calls < self._next:
            return call()
        self._next = max(self._next, 2 * self.calls)
        began = clock()
        out = call()
        leaves = tree_flatten(out)[0]
        if all(map(_is_ready, leaves)):
            self.add(clock() - began)
        else:
            WATCHERS.submit(partial(self._await, leaves, began))
        return out

    def add(self, seconds: float) -> None:
        """Take the seconds of a call."""
        self.timed += 1
        self.least = seconds if self.least is None else min(self.least, seconds)

    def _await(self, leaves: list[object], began: float) -> None:
        try:
            jax.block_until_ready(leaves)
        except (RuntimeError, ValueError):
            # The call failed, or its result was donated meanwhile: whoever reads it is told.
            return
        self.add(clock() - began)


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
