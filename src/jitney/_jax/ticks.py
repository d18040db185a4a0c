"""Progress bar of a program's calls, drawn from callbacks in its loops."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

import jax
import numpy as np

# How often a progress bar moves, at most.
_TICKS = 100


class Ticks:
    """Progress bar that opens with the first callback of a call and closes with the last.

    Args:
        name: Name of the function.
        n: How many iterations a call has.
        each: Name of the iterations.
    """

    def __init__(
        self,
        name: str,
        n: int,
        each: str = "steps",
    ):
        self._name, self._n, self._each = name, n, each
        self._every = max(1, -(-n // _TICKS))
        self._lock = threading.Lock()
        self._open: AbstractContextManager[Callable[..., None]] | None = None
        self._advance: Callable[..., None] = _nothing
        # Iterations of the call under way. One that comes again is of the next call, where this one
        # has failed midway.
        self._seen: set[int] = set()

    def trace(self, at: jax.Array) -> None:
        """Trace a callback in every `_every`-th iteration.

        Args:
            at: The number of the iteration, from 1 on.
        """
        jax.lax.cond(
            at % np.int32(self._every) == np.int32(0),
            lambda: jax.debug.callback(self._tick, at),
            _nothing,
        )

    def _tick(self, at: object) -> None:
        from .._text.console import bar

        iteration, whole = int(np.asarray(at)), self._n // self._every
        # Callbacks may run in several threads at once.
        with self._lock:
            if iteration in self._seen:
                self._close()
            if self._open is None:
                self._open = bar(self._name, self._n, 0, 1, of="", each=self._each)
                self._advance = self._open.__enter__()
            self._seen.add(iteration)
            last = len(self._seen) == whole
            self._advance(self._n - (whole - 1) * self._every if last else self._every)
            if last:
                self._close()

    def _close(self) -> None:
        if self._open is not None:
            self._open.__exit__(None, None, None)
        self._open = None
        self._seen.clear()


def _nothing() -> None:
    pass
