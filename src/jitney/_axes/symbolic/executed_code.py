"""Check the code that runs during a trace, and its calls, against the allowlist of
`bytecode_audit.py`: code that cannot look at a size unseen by the hooks of `dim_hooks.py`.

`_host/code_monitor.py` tells which functions start. If another tool is in its way, the report says
so, and each size is traced.
"""

from __future__ import annotations

import gc
import sys
import threading
import types
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from ..._host.code_monitor import UNTOLD, ThreadObserver, watch_thread
from ..._owners import is_naming_cell, owner, owner_of, place_of
from .bytecode_audit import is_allowed, violations

_TRUSTED = ("jax", "jaxlib", "jitney", "equinox", "numpy", "stdlib", "generated")
"""Owners of code that is not checked: it may inspect types, but acts alike on symbols and numbers.
"""
_COMPANIONS = frozenset(
    (
        "jaxtyping",
        "beartype",
        "wadler_lindig",
        "opt_einsum",
        "typing_extensions.py",
        "etils",
        "absl",
        "platformdirs",
    )
)
"""Packages that JAX, Equinox and jitney call, trusted likewise; the last three where a constant is
compiled, and looked up in the compile cache.
"""
_WRITTEN = ("<@beartype", "<generated_")
"""Names of code that beartype and Equinox write."""
_BLIND = "other tools watch the code that runs, so jitney cannot see whether it reads sizes"


@contextmanager
def observe_code(report: Callable[[str], None]) -> Generator[None]:
    """Report each function that runs inside of this context, in this thread, and may look at a size
    unseen: its line, and the reason.
    """
    observer = _CodeObserver(report, sys._getframe(2))  # pyright: ignore[reportPrivateUsage]
    gc.callbacks.append(observer.collects)
    try:
        with watch_thread(observer) as watch:
            yield
        if watch.is_blind:
            report(_BLIND)
    finally:
        gc.callbacks.remove(observer.collects)
        observer.outside = None


class _CodeObserver(ThreadObserver):
    """Observer of the code that runs while a function is traced.

    Args:
        report: Receives each finding as a line.
        outside: The frame that traces; the walk up the stack ends there.
    """

    def __init__(
        self,
        report: Callable[[str], None],
        outside: types.FrameType | None,
    ):
        self.report = report
        self.outside = outside
        # Code that is not trusted, whose calls are observed too. By identity: codes of two files
        # may be equal, and hashing one takes a microsecond.
        self.others: dict[int, types.CodeType] = {}
        self.here = threading.get_ident()
        # Number of finished garbage collections when one last began in this thread.
        self.collections = -1

    def check_start(self, frame: types.FrameType) -> bool:
        """Check a function that starts; one that runs aside is checked when it starts again."""
        code = frame.f_code
        if _is_trusted(code.co_filename) and not _is_typed(frame):
            return True
        if self._is_aside(frame):
            return False
        self.others[id(code)] = code
        for what in violations(code, frame.f_globals, frame.f_locals):
            self._tell(frame, what)
            break
        return True

    def events_of(self, code: types.CodeType) -> tuple[str, ...]:
        """Observe the calls of untrusted code."""
        return ("CALL",) if id(code) in self.others else ()

    def check_call(self, called: object, frame: types.FrameType, first: object = UNTOLD) -> None:
        """Check a call that untrusted code makes."""
        del first
        if not is_allowed(called):
            name = getattr(called, "__name__", type(called).__name__)
            self._tell(frame, f"calls `{name}`")

    def collects(self, phase: str, _: dict[str, int]) -> None:
        """Note the start of a garbage collection; a callback for `gc.callbacks`."""
        if phase == "start" and threading.get_ident() == self.here:
            self.collections = _collections()

    def _is_aside(self, frame: types.FrameType | None) -> bool:
        """Return whether code runs because of a garbage collection or an import, or because jitney
        names a cell of a notebook, so that it cannot have been given a size.

        A collection runs code of its own: callbacks, finalizers, generators that are closed.
        """
        # No collection has finished since one began in this thread: it is still under way.
        if self.collections == _collections() or is_naming_cell(frame):
            return True
        callbacks = {getattr(callback, "__code__", None) for callback in gc.callbacks}
        while frame is not None and frame is not self.outside:
            if frame.f_code in callbacks or frame.f_code.co_filename == _IMPORTS:
                return True
            frame = frame.f_back
        return False

    def _tell(self, frame: types.FrameType, what: str) -> None:
        self.report(f"{place_of(frame, frame.f_code.co_firstlineno)} {what}")


def _collections() -> int:
    """The number of finished garbage collections."""
    return sum(generation["collections"] for generation in gc.get_stats())


_IMPORTS = "<frozen importlib._bootstrap>"


def _is_trusted(file: str) -> bool:
    return owner(file) in _TRUSTED or not _COMPANIONS.isdisjoint(Path(file).parts)


def _is_typed(frame: types.FrameType) -> bool:
    """Return whether code has no file because a user has typed it: at a prompt, for `python -c`,
    into `exec`. Code that a library writes belongs to its caller.
    """
    file, module = frame.f_code.co_filename, frame.f_globals.get("__name__", "")
    is_written = file.startswith(_WRITTEN) or module.startswith("namedtuple_")
    return owner(file) == "generated" and not is_written and owner_of(frame) == "user"
