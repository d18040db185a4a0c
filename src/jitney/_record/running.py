"""What runs while a program is traced: the user's code, which must be what was followed, and that
of installed packages.

Python tells by a profile function in 3.11, and by `sys.monitoring` from 3.12 on. Where another tool
has them, nothing is kept.
"""

from __future__ import annotations

import dataclasses
import gc
import linecache
import os
import random
import sys
import threading
import types
import typing
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax.monitoring
import numpy as np

from .._jax.trees import is_a
from .._owners import owner, owner_of, short
from .allowed import ENVIRONMENT, is_barred_call
from .instructions import Codes
from .looked_up import UNTOLD, LookedUp
from .opened import described, told_of_opening
from .remembered import Traced
from .sets import MAKES_SETS, is_used_up, is_view
from .unsure import Unsure
from .whose import CORE, is_installed, is_known

_BLIND = "another tool watches the code that runs, so nobody sees what is read"
_OS = os.__file__
_EVALUATE = (dataclasses.__file__, typing.__file__)
_CHECKER = "<@beartype(__beartype_checker_"
_MONITORING = jax.monitoring.record_event.__code__.co_filename
_OPENS_FOR_ITSELF = ("_jax", "_kept", "_limits.py", "_stages", "_sparsity", "_verify")
"""Parts of jitney that read its own folder of programs, and what the machine is; others read what
the user names.
"""
# by which JAX writes and logs, and jitney finds its folder
_ON_BEHALF = frozenset(("absl", "etils", "platformdirs"))


class Ran:
    """What ran.

    Args:
        followed: The user's code that was followed; of some why it may not run.
        looked_up: Notes what is asked for by computed names.
        traced: Notes what functions compute that remember it.
    """

    def __init__(self, followed: Codes, looked_up: LookedUp, traced: Traced):
        self.followed = followed
        self.traced = traced
        self.remembered = Codes()
        """Code of which the results are noted."""
        self.remembered.add(traced.codes, None)
        self._looked_up = looked_up
        self.libraries = Codes()
        """Code of installed packages, and the module that it is of."""
        self.problem: str | None = None
        self._thread = threading.get_ident()
        self._environment = set(_environment_codes())

    def here(self) -> bool:
        """Whether this is the thread that traces."""
        return threading.get_ident() == self._thread

    def started(self, frame: types.FrameType) -> bool:
        """A function runs. Whether it need not be told of again."""
        code = frame.f_code
        if code in self._environment:
            if not _is_nobodys(frame):
                self._fail(f"`{_asker(frame)}` reads the environment")
            return False
        if code in MAKES_SETS and not _is_nobodys(frame):
            self._fail(f"`{_asker(frame)}` makes a set, whose order may be another in each process")
        module = str(frame.f_globals.get("__name__", ""))
        whose = owner_of(frame)
        if whose == "generated":  # what a tool wrote, for whose module it runs in
            whose = "stdlib" if is_installed(module) else "user"
        if code.co_filename.startswith("<") and _is_made_of_class(frame, module):
            return True
        if code.co_filename.startswith(_CHECKER) and _is_of_contract(frame):
            return False
        problem = self._problem(code, whose, module)
        if problem is not None and _is_aside(frame):
            # what a module does when it is imported, which is nobody's doing; its functions may run
            # again
            return False
        if problem is not None:
            self._fail(problem)
        elif whose not in ("user", "stdlib"):
            self.libraries.add((code,), module)
        return True

    def _problem(self, code: types.CodeType, whose: str, module: str) -> str | None:
        """Why code may read what nobody has looked at."""
        if whose == "user" and code in self.followed:
            return self.followed[code]
        if whose == "user":
            return (
                f"`{code.co_name}` ({short(code.co_filename)}:{code.co_firstlineno}) runs, which no"
                " name that was followed leads to"
            )
        if whose not in ("user", "stdlib") and not is_known(module):
            return (
                f"it runs code of `{module}`, and nobody has looked whether that package has a"
                " state of its own"
            )
        return None

    def is_heard(self, code: types.CodeType) -> bool:
        """Whether what this code calls matters: JAX and its like ask clocks and files for
        themselves.
        """
        return owner(code.co_filename) not in CORE

    def called(self, called: Any, frame: types.FrameType, first: Any = UNTOLD) -> None:
        """It calls what is no function of Python."""
        if called is getattr or called is hasattr:
            self._asked(frame, first)
        elif is_view(called) and frame.f_code in self.followed and not is_used_up(frame):
            what = (
                f"hands on the {called.__name__} of a dict, of which `&`, `|`, `-` and `^` make"
                " a set"
            )
            self._fail(f"`{_asker(frame)}` {what}, whose order may be another in each process")
        elif is_barred_call(called) and not _is_nobodys(frame):
            self._fail(
                f"`{_asker(frame)}` calls `{getattr(called, '__name__', called)}`, which says"
                " something else in another process"
            )

    def opened(self, event: str, about: tuple[Any, ...], frame: types.FrameType) -> None:
        """Something outside of the process is opened; what is found there is in no key."""
        if not (_opens_for_itself(frame) or _is_aside(frame)):
            self._fail(
                f"`{_user(frame)}` {described(event, about)}, and what that says is not followed"
            )

    def _asked(self, frame: types.FrameType, first: Any) -> None:
        if frame.f_code not in self.followed or self.problem is not None:
            return
        try:
            self._looked_up.note(frame, first)
        except Unsure as unsure:
            self._fail(str(unsure))

    def _fail(self, problem: str) -> None:
        self.problem = self.problem or problem


def _is_made_of_class(frame: types.FrameType, module: str) -> bool:
    """Whether a tool wrote this code from the fields of a class, which are read: `collections` for
    named tuples, Equinox to flatten, the text in which `dataclasses` defines a method, which is
    followed when it runs, and the annotation of a field, which `typing` reads.
    """
    code, caller = frame.f_code, frame.f_back
    if module.startswith("namedtuple_"):
        return True
    if code.co_name == "<module>" and caller is not None and caller.f_code.co_filename in _EVALUATE:
        return True
    of_equinox = type(frame.f_globals.get("MISSING")).__module__.startswith("equinox.")
    return (
        of_equinox
        and not module
        and code.co_filename.startswith(("<generated_flatten_", "<generated_unflatten_"))
    )


def _is_of_contract(frame: types.FrameType | None) -> bool:
    """Whether beartype checks for jitney's contract, which raises or does nothing, that a value is
    of a type; both are read.
    """
    while frame is not None:
        name = frame.f_code.co_filename
        if owner(name) not in ("stdlib", "generated") and "beartype" not in Path(name).parts:
            return owner(name) == "jitney"
        frame = frame.f_back
    return False


def _environment_codes() -> list[types.CodeType]:
    kind: Any = type(os.environ)
    found = [getattr(getattr(kind, name, None), "__code__", None) for name in ENVIRONMENT]
    return [
        code
        for code in (*found, os.getenv.__code__)
        if code is not None and code.co_filename == _OS
    ]


def _is_of_core(frame: types.FrameType | None) -> bool:
    """Whether who asked, past the standard library, is JAX or its like, or Python that imports."""
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith("<frozen importlib"):
            return True
        if owner(name) not in ("stdlib", "generated") and _ON_BEHALF.isdisjoint(Path(name).parts):
            return owner(name) in CORE
        frame = frame.f_back
    return False


def _opens_for_itself(frame: types.FrameType | None) -> bool:
    """Whether who opens a file, past the standard library, is JAX, jitney where it reads what is
    its own, or a library that shows lines of the source in a message; or Python that imports.
    """
    shows_source = False
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith("<frozen importlib"):
            return True
        shows_source = shows_source or name == linecache.__file__
        whose = owner(name)
        if whose not in ("stdlib", "generated") and _ON_BEHALF.isdisjoint(Path(name).parts):
            is_own = whose == "jitney" and not set(_OPENS_FOR_ITSELF).isdisjoint(Path(name).parts)
            return is_own or whose in ("jax", "jaxlib") or (shows_source and whose != "user")
        frame = frame.f_back
    return False


def _user(frame: types.FrameType) -> str:
    """The function of the user's that runs, or else who asked."""
    at: types.FrameType | None = frame
    while at is not None and owner(at.f_code.co_filename) != "user":
        at = at.f_back
    return _asker(frame if at is None else at)


def _imports(frame: types.FrameType | None) -> bool:
    """Whether this runs because an installed module is imported."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        if owner(frame.f_code.co_filename) == "user":
            return False
        frame = frame.f_back
    return False


def _is_aside(frame: types.FrameType | None) -> bool:
    """Whether this runs beside the trace: because a module is imported, or a listener told."""
    return _imports(frame) or _listens(frame)


def _is_nobodys(frame: types.FrameType | None) -> bool:
    """Whether who asks is JAX or its like, or asks beside the trace."""
    return _is_of_core(frame) or _is_aside(frame)


def _listens(frame: types.FrameType | None) -> bool:
    """Whether JAX tells a listener (`jax.monitoring`) what it does. What that sets of what is read,
    a trace has changed.
    """
    while frame is not None:
        if frame.f_code.co_filename == _MONITORING:
            return True
        frame = frame.f_back
    return False


def _asker(frame: types.FrameType | None) -> str:
    while frame is not None and owner(frame.f_code.co_filename) in ("stdlib", "generated"):
        frame = frame.f_back
    return "it" if frame is None else f"{frame.f_code.co_name} ({short(frame.f_code.co_filename)})"


@contextmanager
def watched(followed: Codes, looked_up: LookedUp, traced: Traced) -> Generator[Ran]:
    """Follow what runs in this thread. No garbage is collected meanwhile: what that runs is
    nobody's doing, and another thing each time.

    Raises:
        Unsure: Another tool is at it.
    """
    ran = Ran(followed, looked_up, traced)
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        with (
            told_of_opening(ran.opened),
            _monitored(ran) if sys.version_info >= (3, 12) else _profiled(ran),
        ):
            before = _drawn()
            yield ran
            if _drawn() != before:
                ran.problem = ran.problem or (
                    "it draws random numbers of NumPy's or Python's, which are others in each"
                    " process"
                )
    finally:
        if was_collecting:
            gc.enable()


def _drawn() -> tuple[str, object]:
    """Where the random numbers stand that all share. Whoever draws moves them on, by whatever
    name.
    """
    state: Any = np.random.get_state(legacy=False)
    return (
        repr(
            [
                (name, part.tobytes() if is_a(part, np.ndarray) else part)
                for name, part in state["state"].items()
            ]
        ),
        random.getstate(),
    )


@contextmanager
def _profiled(ran: Ran) -> Generator[None]:
    """By a profile function, in Python 3.11."""
    if sys.getprofile() is not None:
        raise Unsure(_BLIND)
    profile = Follower(ran)
    sys.setprofile(profile)
    try:
        yield
    finally:
        if sys.getprofile() is not profile:
            ran.problem = ran.problem or _BLIND
        else:
            sys.setprofile(None)


class Follower:
    """The profile function that tells what runs. A trace with symbolic sizes has one of its own
    meanwhile, which tells this one.
    """

    def __init__(self, ran: Ran):
        self._ran = ran
        self._known = Codes()
        self._heard = Codes()

    def __call__(self, frame: types.FrameType, what: str, value: Any) -> None:
        code = frame.f_code
        if what == "call":
            if code not in self._known and self._ran.started(frame):
                self._known.add((code,), None)
        elif what == "c_call":
            if code not in self._heard:
                self._heard.add((code,), self._ran.is_heard(code))
            if self._heard[code]:
                self._ran.called(value, frame)
        elif what == "return" and code in self._ran.remembered:
            self._ran.traced.returned(value)


@contextmanager
def _monitored(ran: Ran) -> Generator[None]:
    """By `sys.monitoring`: functions that start, and what those call that are not of JAX and its
    like.
    """
    monitoring: Any = getattr(sys, "monitoring")  # noqa: B009 - of Python 3.12
    tool = next((i for i in (4, 3, 5, 2, 1, 0) if monitoring.get_tool(i) is None), None)
    if tool is None:
        raise Unsure(_BLIND)
    events = monitoring.events
    heard = Codes()

    def start(code: types.CodeType, _: int) -> Any:
        if not ran.here():
            return None
        if ran.is_heard(code) and code not in heard:
            heard.add((code,), None)
            monitoring.set_local_events(
                tool, code, events.CALL | (events.PY_RETURN if code in ran.remembered else 0)
            )
        return monitoring.DISABLE if ran.started(sys._getframe(1)) else None  # pyright: ignore[reportPrivateUsage]

    def call(_: types.CodeType, __: int, value: Any, first: Any) -> None:
        if ran.here():
            ran.called(value, sys._getframe(1), first)  # pyright: ignore[reportPrivateUsage]

    def returned(_: types.CodeType, __: int, value: Any) -> None:
        if ran.here():
            ran.traced.returned(value)

    monitoring.use_tool_id(tool, "jitney")
    monitoring.register_callback(tool, events.PY_RETURN, returned)
    monitoring.register_callback(tool, events.PY_START, start)
    monitoring.register_callback(tool, events.CALL, call)
    monitoring.set_events(tool, events.PY_START)
    monitoring.restart_events()
    try:
        yield
    finally:
        monitoring.set_events(tool, 0)
        for code, _ in heard:
            monitoring.set_local_events(tool, code, 0)
        for event in (events.PY_START, events.CALL, events.PY_RETURN):
            monitoring.register_callback(tool, event, None)
        monitoring.free_tool_id(tool)
