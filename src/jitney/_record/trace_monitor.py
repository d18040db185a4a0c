"""Monitor of the code that runs during a trace: the user's code, which must be code that was
hashed, and that of installed packages.

Bytecode does not show every read, so the trace is watched as well (`_host/code_monitor.py`). If
another tool is in the way, no program is cached. Input: the code objects in the key. Output:
`TraceMonitor.problem`, the first reason why the key may miss something, and
`TraceMonitor.libraries`, the installed code that ran.
"""

from __future__ import annotations

import dataclasses
import gc
import linecache
import os
import random
import types
import typing
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import jax.monitoring
import numpy as np

from .._host import code_monitor
from .._host.code_monitor import UNTOLD, ThreadObserver
from .._owners import is_naming_cell, owner, owner_of, short
from .allowlist import ENVIRONMENT, is_barred_call
from .audit_hook import describe_event, report_opens
from .dynamic_reads import LookedUp
from .instructions import Codes
from .memoised import TracedCacheEntries
from .origin import CORE, is_installed, is_known
from .sets import MAKES_SETS, is_used_up, is_view
from .unsure import NotDeterministic

_BLIND = "another tool watches the code that runs, so jitney cannot see what is read"
_OS = os.__file__
_EVALUATE = (dataclasses.__file__, typing.__file__)
_CHECKER = "<@beartype(__beartype_checker_"
_MONITORING = jax.monitoring.record_event.__code__.co_filename
_OPENS_FOR_ITSELF = ("_jax", "_serialized", "_host", "_stages", "_sparsity", "_verify")
"""Parts of jitney that read its own cache folder and the machine's limits; other parts read files
that the user names.
"""
# packages by which JAX writes files and logs, and jitney finds its cache folder
_ON_BEHALF = frozenset(("absl", "etils", "platformdirs"))


class TraceMonitor(ThreadObserver):
    """Record of the code that ran during a trace.

    Args:
        followed: The user's code that was hashed, each with the reason why it may not run, or None.
        looked_up: Recorder of attributes that are looked up by computed names.
        traced: Recorder of results that memoised functions compute.
    """

    def __init__(
        self,
        followed: Codes,
        looked_up: LookedUp,
        traced: TracedCacheEntries,
    ):
        self.followed = followed
        self.traced = traced
        self.remembered = Codes()
        """Code of memoised functions, whose results are noted."""
        self.remembered.add(traced.codes, None)
        self._looked_up = looked_up
        self.libraries = Codes()
        """Code of installed packages that ran, each with its module."""
        self.problem: str | None = None
        self._environment = set(_environment_codes())

    def check_start(self, frame: types.FrameType) -> bool:
        """Check a function that starts. Return whether later starts of its code need no check."""
        code = frame.f_code
        if is_naming_cell(frame):
            return False

        # Code that is refused depending on its caller returns False: the next caller may be another
        # one.
        if code in self._environment:
            if not _is_nobodys(frame):
                self._fail(f"`{_asker(frame)}` reads the environment")
            return False
        if code in MAKES_SETS:
            if not _is_nobodys(frame):
                self._fail(
                    f"`{_asker(frame)}` makes a set, whose order may be another in each process"
                )
            return False
        module = str(frame.f_globals.get("__name__", ""))
        whose = owner_of(frame)
        # Generated code belongs to the owner of the module that it runs in.
        if whose == "generated":
            whose = "stdlib" if is_installed(module) else "user"

        # Generated code whose source is determined by hashed values.
        if code.co_filename.startswith("<") and _is_made_of_class(frame, module):
            return True
        if code.co_filename.startswith(_CHECKER) and _is_of_contract(frame):
            return False
        problem = self._problem(code, whose, module)
        if problem is not None and _is_aside(frame):
            # The body of a module that is being imported is not part of the trace; a function that
            # it calls may be called by the trace later.
            return False
        if problem is not None:
            self._fail(problem)
        elif whose not in ("user", "stdlib"):
            self.libraries.add((code,), module)
        return True

    def _problem(
        self,
        code: types.CodeType,
        whose: str,
        module: str,
    ) -> str | None:
        """Return why code may read something that was not hashed, or None."""
        if whose == "user" and code in self.followed:
            return self.followed[code]
        if whose == "user":
            return (
                f"`{code.co_name}` ({short(code.co_filename)}:{code.co_firstlineno}) runs, which no"
                " name that was followed leads to"
            )
        if whose not in ("user", "stdlib") and not is_known(module):
            return (
                f"it runs code of `{module}`, a package that has not been checked for a state of"
                " its own"
            )
        return None

    def events_of(self, code: types.CodeType) -> tuple[str, ...]:
        """Watch the calls of code, except of JAX and packages like it, which read clocks and files
        for their own purposes; watch the results of memoised functions.
        """
        if owner(code.co_filename) in CORE:
            return ()
        return ("CALL", "PY_RETURN") if code in self.remembered else ("CALL",)

    def check_call(
        self,
        called: object,
        frame: types.FrameType,
        first: object = UNTOLD,
    ) -> None:
        """Check a call of something other than a Python function."""
        if called is getattr or called is hasattr:
            self._note_lookup(frame, first)
        elif is_view(called) and frame.f_code in self.followed and not is_used_up(frame):
            what = (
                f"hands on the {called.__name__} of a dict, of which `&`, `|`, `-` and `^` make"
                " a set"
            )
            self._fail(f"`{_asker(frame)}` {what}, whose order may be another in each process")
        elif is_barred_call(called) and not _is_nobodys(frame):
            self._fail(
                f"`{_asker(frame)}` calls `{getattr(called, '__name__', called)}`, which gives"
                " something else in another process"
            )

    def note_return(self, value: object) -> None:
        """Note a result of a memoised function."""
        self.traced.note_result(value)

    def on_open(
        self,
        event: str,
        about: tuple[object, ...],
        frame: types.FrameType,
    ) -> None:
        """Note that the trace opens something outside of the process, whose content is in
        no key.
        """
        if not (_opens_for_itself(frame) or _is_aside(frame)):
            self._fail(
                f"`{_user(frame)}` {describe_event(event, about)}, and what that says is not"
                " followed"
            )

    def _note_lookup(self, frame: types.FrameType, first: object) -> None:
        if frame.f_code not in self.followed or self.problem is not None:
            return
        try:
            self._looked_up.note(frame, first)
        except NotDeterministic as unsure:
            self._fail(str(unsure))

    def _fail(self, problem: str) -> None:
        self.problem = self.problem or problem


def _is_made_of_class(frame: types.FrameType, module: str) -> bool:
    """Return whether a tool generated this code from the fields of a class, which are hashed.

    That is `collections` for named tuples, Equinox for flattening, the source text by which
    `dataclasses` defines a method (the method itself is checked when it runs), and the annotation
    of a field, which `typing` evaluates.
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
    """Return whether beartype runs for jitney's contract. Such a check raises or does nothing, and
    both value and type are hashed.
    """
    while frame is not None:
        name = frame.f_code.co_filename
        if owner(name) not in ("stdlib", "generated") and "beartype" not in Path(name).parts:
            return owner(name) == "jitney"
        frame = frame.f_back
    return False


def _environment_codes() -> list[types.CodeType]:
    kind = type(os.environ)
    found = [getattr(getattr(kind, name, None), "__code__", None) for name in ENVIRONMENT]
    return [
        code
        for code in (*found, os.getenv.__code__)
        if code is not None and code.co_filename == _OS
    ]


def _is_of_core(frame: types.FrameType | None) -> bool:
    """Return whether the caller, past the standard library, is JAX or a package like it, or the
    import system.
    """
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith("<frozen importlib"):
            return True
        if owner(name) not in ("stdlib", "generated") and _ON_BEHALF.isdisjoint(Path(name).parts):
            return owner(name) in CORE
        frame = frame.f_back
    return False


def _opens_for_itself(frame: types.FrameType | None) -> bool:
    """Return whether a file is opened by JAX, by jitney for its own data, by the import system, or
    by a library that shows source lines in a message.
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
    """Name the innermost user function on the stack, or else the caller."""
    at: types.FrameType | None = frame
    while at is not None and owner(at.f_code.co_filename) != "user":
        at = at.f_back
    return _asker(frame if at is None else at)


def _imports(frame: types.FrameType | None) -> bool:
    """Return whether this frame runs because an installed module is being imported."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        if owner(frame.f_code.co_filename) == "user":
            return False
        frame = frame.f_back
    return False


def _is_aside(frame: types.FrameType | None) -> bool:
    """Return whether this frame runs outside of the trace proper: in an import or in a listener."""
    return _imports(frame) or _listens(frame)


def _is_nobodys(frame: types.FrameType | None) -> bool:
    """Return whether the caller is JAX or a package like it, or runs outside of the trace
    proper.
    """
    return _is_of_core(frame) or _is_aside(frame)


def _listens(frame: types.FrameType | None) -> bool:
    """Return whether JAX is calling a listener of `jax.monitoring`. A value that the listener
    changes counts as changed by the trace.
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
def watch_thread(
    followed: Codes,
    looked_up: LookedUp,
    traced: TracedCacheEntries,
) -> Generator[TraceMonitor]:
    """Watch the code that this thread runs.

    The garbage collector is off meanwhile: finalisers would run at arbitrary times, caused by
    nobody.

    Raises:
        NotDeterministic: Another tool occupies the profiler or all tool ids.
    """
    ran = TraceMonitor(followed, looked_up, traced)
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        with report_opens(ran.on_open), code_monitor.watch_thread(ran) as watch:
            if watch.is_blind:
                raise NotDeterministic(_BLIND)
            before = _generator_states()
            yield ran

            # Any draw advances the global generators, under whatever name they are called.
            if _generator_states() != before:
                ran.problem = ran.problem or (
                    "it draws random numbers of NumPy's or Python's, which are others in each"
                    " process"
                )
        if watch.is_blind:
            # The trace replaced the profile function, so later code was not seen.
            ran.problem = ran.problem or _BLIND
    finally:
        if was_collecting:
            gc.enable()


def _generator_states() -> tuple[str, object]:
    """States of the global random generators of NumPy and Python."""
    state = np.random.get_state(legacy=False)
    parts = [
        (name, part.tobytes() if isinstance(part, np.ndarray) else part)
        for name, part in state["state"].items()
    ]
    return repr(parts), random.getstate()
