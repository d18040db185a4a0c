"""Hooks for the end of Python and for forks: print an error that nobody has waited for, and exit
with a status that is not 0.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from typing import TextIO

from .._owners import shorten


def at_exit(wait: Callable[[], None], forget: Callable[[], None]) -> None:
    """Register `wait` for the end of Python, and `forget` for forked child processes.

    An error that `wait` raises is printed, and the exit status is not 0.
    """

    def last() -> None:
        try:
            wait()
        except Exception as error:  # noqa: BLE001 - there is nobody left to raise it to
            shorten(error)
            sys.excepthook(type(error), error, error.__traceback__)
            sys.stderr = _Failing(sys.stderr)

    # `atexit` runs in reverse order of registration. JAX has registered its own hook before, so
    # this one runs before JAX's.
    atexit.register(last)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=forget)


class _Failing:
    """Standard error that fails to flush while Python ends, which makes the exit status 120.

    An exception in an `atexit` hook does not change the exit status, and `os._exit` would lose what
    files have not written yet. See `sys.exit` in Python's reference.
    """

    # Python flushes only streams that are not closed.
    closed = False

    def __init__(self, stream: TextIO | None):
        self._stream = stream

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

    def flush(self) -> None:
        """Flush, and fail if Python is ending.

        Raises:
            OSError: Python is ending.
        """
        if self._stream is not None and not self._stream.closed:
            self._stream.flush()
        if sys.is_finalizing():
            raise OSError("a run-time check has failed")
