"""Threads that work on the parts of a call, beside the thread that makes the call.

That thread works too: parts wait in a queue, and whoever is free takes the next one. So a call ends
whether or not any other thread comes to help, as when all are busy with calls of other threads, in
a process that was forked, or while Python ends and no thread can be started.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from ...._signature.options import MOST_WORKERS


class WorkerThreads:
    """The threads of this process that help with calls."""

    def __init__(self) -> None:
        # Process -> its pool: a fork copies the pool, and not its threads.
        self._pools: dict[int, ThreadPoolExecutor] = {}

    def run(self, tasks: Sequence[Callable[[], None]], workers: int) -> None:
        """Run tasks in so many threads, of which this one is the first.

        An exception of a task, or one that a signal raises here, ends the call: tasks that have not
        begun do not begin.
        """
        waiting = deque(tasks)

        def work() -> None:
            while waiting:
                try:
                    task = waiting.popleft()
                except IndexError:  # another thread has taken the last one
                    return
                task()

        helpers: list[Future[None]] = []
        try:
            self._start(helpers, work, min(workers, len(tasks)) - 1)
            work()
        finally:
            waiting.clear()
            # One that has not begun has nothing left to do.
            begun = [helper for helper in helpers if not helper.cancel()]
        for helper in begun:
            helper.result()

    def _start(
        self,
        helpers: list[Future[None]],
        work: Callable[[], None],
        count: int,
    ) -> None:
        process = os.getpid()
        pool = self._pools.get(process)
        if pool is None:
            # Without a lock, which a fork may find taken: no pool starts a thread by itself.
            # It starts a thread only where none is idle.
            made = ThreadPoolExecutor(MOST_WORKERS, "jitney-worker")
            pool = self._pools.setdefault(process, made)
        for _ in range(count):
            try:
                helpers.append(pool.submit(work))
            except RuntimeError:  # Python ends, or the system has no more threads
                return


THREADS = WorkerThreads()
"""All calls share them."""
