"""Check the code that runs during a trace, and its calls, against the allowlist of
`bytecode_audit.py`: code that cannot look at a size unseen by the hooks of `dim_hooks.py`.

Functions that start are observed by a profile function in Python 3.11, and by `sys.monitoring` from
3.12 on. If another tool occupies these, the report says so, and each size is traced.
"""

from __future__ import annotations

import gc
import sys
import threading
import types
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from ..._host.code_monitor import claim
from ..._owners import is_naming_cell, owner, owner_of, place_of
from ..._record.trace_monitor import Follower
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
    watch = _CodeObserver(report, sys._getframe(2))  # pyright: ignore[reportPrivateUsage]
    gc.callbacks.append(watch.collects)
    try:
        with (
            _observe_by_monitoring(watch)
            if sys.version_info >= (3, 12)
            else _observe_by_profile(watch)
        ):
            yield
    finally:
        gc.callbacks.remove(watch.collects)
        watch.outside = None


class _CodeObserver:
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
        # By identity: codes of two files may be equal, and hashing one takes a microsecond.
        self.seen: dict[int, types.CodeType] = {}
        # Code that is not trusted, whose calls are observed too.
        self.others: dict[int, types.CodeType] = {}
        self.here = threading.get_ident()
        # Number of finished garbage collections when one last began in this thread.
        self.collections = -1

    def check_start(self, frame: types.FrameType) -> None:
        """Check a function that starts for the first time."""
        code = frame.f_code
        if _is_trusted(code.co_filename) and not _is_typed(frame):
            self.seen[id(code)] = code
        elif not self._is_aside(frame):
            self.seen[id(code)] = self.others[id(code)] = code
            for what in violations(code, frame.f_globals, frame.f_locals):
                self._tell(frame, what)
                return

    def check_call(self, code: types.CodeType, value: object) -> None:
        """Check a call that untrusted code makes."""
        if not is_allowed(value):
            frame = _running(code)
            name = getattr(value, "__name__", type(value).__name__)
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


def _running(code: types.CodeType) -> types.FrameType:
    """The innermost frame that runs the given code; there is one."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame.f_code is not code and frame.f_back is not None:
        frame = frame.f_back
    return frame


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


@contextmanager
def _observe_by_profile(watch: _CodeObserver) -> Generator[None]:
    """Observe code by a profile function, in Python 3.11."""

    outer: Callable[..., object] | None = sys.getprofile()
    is_ours = isinstance(outer, Follower) or getattr(outer, "__module__", "") == __name__
    if outer is not None and not is_ours:
        watch.report(_BLIND)
        yield
        return
    sys.setprofile(_profile_function(watch, outer))
    try:
        yield
    finally:
        sys.setprofile(outer)


ProfileFunction = Callable[[types.FrameType, str, object], object]


def _profile_function(watch: _CodeObserver, outer: Callable[..., object] | None) -> ProfileFunction:
    """Profile function that also calls the one of an outer trace."""
    # It runs some 300,000 times in a trace: each name is its own, and most events end early.
    seen, others = watch.seen, watch.others

    def profile(frame: types.FrameType, what: str, value: object) -> None:
        if what == "call":
            if id(frame.f_code) not in seen:
                watch.check_start(frame)
        elif what == "c_call" and id(frame.f_code) in others:
            watch.check_call(frame.f_code, value)

    def both(frame: types.FrameType, what: str, value: object) -> None:
        profile(frame, what, value)
        if outer is not None:
            outer(frame, what, value)

    return profile if outer is None else both


@contextmanager
def _observe_by_monitoring(watch: _CodeObserver) -> Generator[None]:
    """Observe code by `sys.monitoring`: functions that start, and the calls of untrusted ones. It
    costs next to nothing.
    """
    monitor = claim()
    if monitor is None:
        watch.report(_BLIND)
        yield
        return
    here = threading.get_ident()

    def start(code: types.CodeType, _: int) -> object:
        if threading.get_ident() != here:
            return None
        if id(code) not in watch.seen:
            watch.check_start(sys._getframe(1))  # pyright: ignore[reportPrivateUsage]
            if id(code) in watch.others:
                monitor.listen(code, "CALL")
        # No more events for code that has been checked, until another monitor restarts them.
        return monitor.disable if id(code) in watch.seen else None

    def call(
        code: types.CodeType,
        _: int,
        value: object,
        __: object,
    ) -> None:
        if threading.get_ident() == here:
            watch.check_call(code, value)

    try:
        monitor.begin({"PY_START": start, "CALL": call}, everywhere=("PY_START",), restart=True)
        yield
    finally:
        monitor.end()
