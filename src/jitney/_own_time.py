"""The seconds that jitney's own searches take while JAX traces a function: what of a trace is not
the function's.

A derivative looks for the structure of its Jacobian, and for what fits into memory, in the middle
of what JAX takes for its trace. Each thread has a clock of its own, which runs while such a search
does, and once for one that is inside another.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager


class OwnTime(threading.local):
    """Seconds of this thread."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._running = False

    @property
    def runs(self) -> bool:
        """Whether this thread is in such a search."""
        return self._running

    def add(self, seconds: float) -> None:
        """Count what has turned out to be jitney's own."""
        if not self._running:
            self.seconds += seconds

    @contextmanager
    def running(self) -> Generator[None]:
        """What is done here is jitney's own."""
        if self._running:
            yield
            return
        self._running = True
        began = time.perf_counter()
        try:
            yield
        finally:
            self._running = False
            self.seconds += time.perf_counter() - began


OWN_TIME = OwnTime()
