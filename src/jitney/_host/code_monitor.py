"""Monitor of the code that runs: callbacks by event, and all given back at the end.

Three parts of jitney listen by this module. The trace of a program that is stored and the symbolic
trace watch their own thread, in each version of Python:

    with watch_thread(observer) as watch:               `observer` hears of starts and calls
        ...                                             `watch.is_blind`: another tool is in the way

Python 3.12 and later tell up to six tools which code runs, by `sys.monitoring`. Python 3.11 calls
one profile function, which an inner watch shares with an outer one. `python -m jitney run` listens
in all threads, from 3.12 on; it loads this file without jitney, so that the file imports nothing
but the standard library.

    monitor = claim()                                   None: Python 3.11, or no id is free
    monitor.begin({"PY_START": start, "CALL": call}, everywhere=("PY_START",))
    monitor.listen(code, "CALL")                        calls of one code object only
    monitor.end()
"""

from __future__ import annotations

import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from types import CodeType, FrameType, ModuleType

# 3 and 4 first: Python reserves the other ids for debuggers, coverage, profilers and optimisers by
# convention.
_IDS = (3, 4, 5, 2, 1, 0)


class CodeMonitor:
    """A tool of `sys.monitoring`, which holds its id until `end`.

    Args:
        api: The module.
        tool: The id.
    """

    def __init__(self, api: ModuleType, tool: int):
        self._api = api
        self._tool = tool
        self._heard: tuple[int, ...] = ()
        # By `id`: equal code objects may be of different files. The values keep them alive, so that
        # an id is not used twice.
        self._codes: dict[int, CodeType] = {}

    @property
    def disable(self) -> object:
        """Result of a callback that wants no more of an event for this code."""
        return self._api.DISABLE

    def begin(
        self,
        callbacks: Mapping[str, Callable[..., object]],
        everywhere: Iterable[str],
        *,
        restart: bool = False,
    ) -> None:
        """Call a function for each of these events.

        Args:
            callbacks: Name of an event -> the function.
            everywhere: Events of all code; the others are heard where `listen` says.
            restart: Whether events come again for code whose callbacks have returned `disable`.
        """
        # The callbacks must be there before the first event.
        self._heard = tuple(map(self._event, callbacks))
        for event, callback in zip(self._heard, callbacks.values(), strict=True):
            self._api.register_callback(self._tool, event, callback)
        self._api.set_events(self._tool, self._mask(everywhere))
        if restart:
            self._api.restart_events()

    def listen(self, code: CodeType, *names: str) -> None:
        """Hear these events of one code object."""
        mask = self._mask(names)
        self._codes[id(code)] = code
        self._api.set_local_events(self._tool, code, mask)

    def listens(self, code: CodeType) -> bool:
        """Return whether events of a code object are heard by `listen`."""
        return id(code) in self._codes

    def end(self) -> None:
        """Hear no more, and give the id back."""
        self._api.set_events(self._tool, 0)
        for code in self._codes.values():
            self._api.set_local_events(self._tool, code, 0)
        for event in self._heard:
            self._api.register_callback(self._tool, event, None)
        self._api.free_tool_id(self._tool)
        self._codes.clear()

    def _event(self, name: str) -> int:
        return getattr(self._api.events, name)

    def _mask(self, names: Iterable[str]) -> int:
        mask = 0
        for name in names:
            mask |= self._event(name)
        return mask


def claim() -> CodeMonitor | None:
    """Return a monitor with an id of its own; None in Python 3.11, and where no id is free."""
    api = getattr(sys, "monitoring", None)
    if api is None:
        return None
    for tool in _IDS:
        if api.get_tool(tool) is not None:
            continue
        try:
            api.use_tool_id(tool, "jitney")
        except ValueError:
            # Another thread has taken it since.
            continue
        return CodeMonitor(api, tool)
    return None


UNTOLD = object()
"""The first argument of a call in Python 3.11, which does not tell it."""
_Profile = Callable[[FrameType, str, object], object]


class ThreadObserver(ABC):
    """Observer of the code that one thread runs."""

    @abstractmethod
    def check_start(self, frame: FrameType) -> bool:
        """Check a function that starts; return whether later starts of its code need no check."""

    def events_of(self, code: CodeType) -> tuple[str, ...]:
        """Return the further events of a code object that has started: "CALL", "PY_RETURN"."""
        del code
        return ()

    def check_call(self, called: object, frame: FrameType, first: object = UNTOLD) -> None:
        """Check a call that such code makes, of something other than a Python function in 3.11."""
        del called, frame, first

    def note_return(self, value: object) -> None:
        """Note a value that such code returns."""
        del value


class ThreadWatch:
    """A watch of one thread.

    Args:
        is_blind: Whether code runs unseen: another tool has what this one needs, or has taken it
            since, as a body does that is profiled inside.
    """

    def __init__(self, *, is_blind: bool = False):
        self.is_blind = is_blind


@contextmanager
def watch_thread(observer: ThreadObserver) -> Generator[ThreadWatch]:
    """Tell an observer of the code that this thread runs, until the end of the block."""
    watch = ThreadWatch()
    by = _by_monitoring if hasattr(sys, "monitoring") else _by_profile
    with by(observer, watch):
        yield watch


@contextmanager
def _by_monitoring(observer: ThreadObserver, watch: ThreadWatch) -> Generator[None]:
    """Watch by `sys.monitoring`, from 3.12 on; it costs next to nothing."""
    monitor = claim()
    if monitor is None:
        watch.is_blind = True
        yield
        return
    here = threading.get_ident()
    known: dict[int, CodeType] = {}

    def start(code: CodeType, _: int) -> object:
        if threading.get_ident() != here:
            return None
        # Another monitor that begins restarts the events of code that needs no check.
        if id(code) not in known:
            if observer.check_start(sys._getframe(1)):  # pyright: ignore[reportPrivateUsage]
                known[id(code)] = code
            # Local events for this code only: a global CALL event would slow down all of JAX.
            events = () if monitor.listens(code) else observer.events_of(code)
            if events:
                monitor.listen(code, *events)
        # `disable` turns the event off for this code, so a hot function costs one event.
        return monitor.disable if id(code) in known else None

    def call(_: CodeType, __: int, value: object, first: object) -> None:
        if threading.get_ident() == here:
            observer.check_call(value, sys._getframe(1), first)  # pyright: ignore[reportPrivateUsage]

    def returned(_: CodeType, __: int, value: object) -> None:
        if threading.get_ident() == here:
            observer.note_return(value)

    callbacks = {"PY_START": start, "CALL": call, "PY_RETURN": returned}
    try:
        monitor.begin(callbacks, everywhere=("PY_START",), restart=True)
        yield
    finally:
        monitor.end()


@contextmanager
def _by_profile(observer: ThreadObserver, watch: ThreadWatch) -> Generator[None]:
    """Watch by a profile function, in Python 3.11."""
    outer = sys.getprofile()
    # The profile function of another tool stays, and hears what it has asked for.
    if outer is not None and getattr(outer, "__module__", "") != __name__:
        watch.is_blind = True
        yield
        return
    profile = _profile_function(observer, outer)
    sys.setprofile(profile)
    try:
        yield
    finally:
        if sys.getprofile() is profile:
            sys.setprofile(outer)
        else:
            watch.is_blind = True


def _profile_function(observer: ThreadObserver, outer: Callable[..., object] | None) -> _Profile:
    """Profile function of an observer, which also calls the one of an outer watch."""
    # It runs some 300,000 times in a trace: each name is its own, and most events end early.
    known: dict[int, CodeType] = {}
    calls: dict[int, CodeType] = {}
    returns: dict[int, CodeType] = {}

    def start(frame: FrameType) -> None:
        code = frame.f_code
        if observer.check_start(frame):
            known[id(code)] = code
        events = observer.events_of(code)
        if "CALL" in events:
            calls[id(code)] = code
        if "PY_RETURN" in events:
            returns[id(code)] = code

    def profile(frame: FrameType, what: str, value: object) -> None:
        if what == "call":
            if id(frame.f_code) not in known:
                start(frame)
        elif what == "c_call":
            if id(frame.f_code) in calls:
                observer.check_call(value, frame)
        elif what == "return" and id(frame.f_code) in returns:
            observer.note_return(value)

    def both(frame: FrameType, what: str, value: object) -> None:
        profile(frame, what, value)
        if outer is not None:
            outer(frame, what, value)

    return profile if outer is None else both
