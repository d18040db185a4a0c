"""Clock of the time that jitney's own searches take while JAX traces a function.

A derivative searches for the structure of its Jacobian, and for a choice that fits into memory,
during what JAX measures as its trace. Each thread has its own clock. It runs during such a search,
and counts nested searches once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager


class OwnTime(threading.local):
    """Seconds of the current thread."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._running = False

    @property
    def runs(self) -> bool:
        """True while this thread is in such a search."""
        return self._running

    def add(self, seconds: float) -> None:
        """Add seconds that turned out to be jitney's own."""
        if not self._running:
            self.seconds += seconds

    @contextmanager
    def running(self) -> Generator[None]:
        """Count the time inside this context as jitney's own."""
        # The outer search counts the time of this one.
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
