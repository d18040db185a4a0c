"""What is done when Python ends or forks: an error that nobody has looked for is printed, and the
exit status says so.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from typing import Any

from .._owners import shorten


def at_exit(wait: Callable[[], None], forget: Callable[[], None]) -> None:
    """Have what `wait` raises at the end of Python printed, and `forget` called in processes that
    are forked.
    """

    def last() -> None:
        try:
            wait()
        except Exception as error:  # noqa: BLE001 - there is nobody left to raise it to
            shorten(error)
            sys.excepthook(type(error), error, error.__traceback__)
            sys.stderr = _Failing(sys.stderr)

    atexit.register(last)  # behind JAX's, so that it comes before
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=forget)


class _Failing:
    """Standard error that cannot be flushed once Python ends, which makes the exit status 120: what
    is raised in `atexit` changes none, and leaving by `os._exit` would lose what files have not
    written yet. See `sys.exit` in Python's reference.
    """

    closed = False  # or Python would not flush it

    def __init__(self, stream: Any):
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def flush(self) -> None:
        """Flush, and fail if Python is ending.

        Raises:
            OSError: It is.
        """
        if self._stream is not None and not self._stream.closed:
            self._stream.flush()
        if sys.is_finalizing():
            raise OSError("a run-time check has failed")
