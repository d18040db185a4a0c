"""Recorder of what the program's lines do with arrays: reads, and arguments of compiled functions.

It uses Python's `sys.monitoring`, from 3.12 on, and alters nothing of JAX or of the program. Two
kinds of events are recorded: calls in the program's own files, and the starts and ends of the
methods of `jax.Array` that read it (`__float__`, `item`, ...), which are Python functions in jax
0.10.0 to 0.12.0.1. Arguments are read from the names in the call, at the first calls of a place and
then at each power of two.

    x = step(x, row)    {"kind": "call", "name": "step", "times": 100, "handed": [...], ...}
    if float(loss) < e  {"kind": "read", "how": "__float__", "times": 100, "seconds": 0.2, ...}

Not recorded: anything under Python 3.11, or if other tools hold all tool ids; names inside of
functions under Python 3.12; calls and reads that libraries make themselves, as `eqx.filter_jit`
does of the function that it wraps; arguments that are not plain names; reads by C code through the
buffer protocol, except `np.asarray`, its kin, and NumPy's ufuncs with the array first; a place
whose first hundred calls were of other functions.

`launch.py` loads this file by its path, since the program must not find jitney imported: so it and
the files that it imports need nothing but the standard library.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
import time
from collections import Counter
from types import CodeType, FrameType, FunctionType
from typing import TYPE_CHECKING, Any

from ..._host.code_monitor import CodeMonitor, claim
from .call_expressions import ParsedCalls
from .call_sites import (
    ArgumentLifetime,
    CallSite,
    call_data,
    call_site,
    caller,
    inspect_arguments,
    value_of,
)

if TYPE_CHECKING:
    from ..._text.json import Data


_READS = (
    "__float__",
    "__int__",
    "__bool__",
    "__index__",
    "__complex__",
    "__array__",
    "item",
    "tolist",
    "__repr__",
    "__str__",
    "__format__",
)
# NumPy's functions in C that copy an array of JAX to the host.
_COPIES = ("asarray", "array", "ascontiguousarray", "asanyarray", "copyto")
# Calls of other functions after which a place is not watched any more.
_IDLE = 100
# Calls of a place that are all inspected; later ones only at powers of two.
_EACH = 4


class LineRecorder:
    """Recorder of reads and calls; `unseen` is a sentence if nothing can be recorded."""

    def __init__(self) -> None:
        self.unseen = ""
        self._monitor: CodeMonitor | None = None
        self._users: dict[str, bool] = {}
        # By the `id` of a code object: these are slow to hash, and are equal where only their files
        # differ. The monitor keeps them alive, so that an id is not used twice.
        self._places: dict[tuple[int, int], CallSite | None] = {}
        self._idle: Counter[tuple[int, int]] = Counter()
        self._reads: dict[tuple[str, int, str, str], list[float]] = {}
        self._open: dict[int, tuple[CodeType, float, tuple[str, int, str, str] | None]] = {}
        self._calls: dict[int, list[ArgumentLifetime]] = {}
        # Thread -> the place of the compiled function that it calls, since when.
        self._began: dict[int, tuple[CallSite, float]] = {}
        self._source = ParsedCalls()
        self._arrays: tuple[type, ...] = ()
        self._methods: dict[int, str] = {}
        self._jax: Any = None
        self._jitted: Any = None
        self._tree: Any = None

    def begin(self, jax: Any) -> None:
        """Record from now on, in all threads."""
        if not hasattr(sys, "monitoring"):
            self.unseen = (
                "what lines do with arrays, which needs Python 3.12: reads in loops, transfers,"
                " donation, moves between devices, compiles that few calls repay, loops that are"
                " a jax.vmap"
            )
            return
        self._arrays = tuple(
            each for each in jax.Array.__subclasses__() if each.__module__.startswith("jaxlib")
        )
        monitor = claim() if self._arrays else None
        if monitor is None:
            self.unseen = (
                "what lines do with arrays: `sys.monitoring` is taken by other tools, or this JAX"
                " is not known"
            )
            return
        self._monitor = monitor
        self._jax = os.path.dirname(jax.__file__) + os.sep  # noqa: PTH120 - compared with each frame
        self._jitted, self._tree = type(jax.jit(_nothing)), jax.tree.leaves
        methods = [
            (name, method.__code__)
            for kind in self._arrays
            for name, method in ((name, kind.__dict__.get(name)) for name in _READS)
            if isinstance(method, FunctionType)
        ]
        self._methods = {id(code): name for name, code in methods}
        callbacks = {
            "PY_START": self._starts,
            "CALL": self._on_call,
            "PY_RETURN": self._ends,
            "C_RETURN": self._on_return,
            "C_RAISE": self._ends_by_error,
        }
        monitor.begin(callbacks, everywhere=("PY_START",))

        # Reading methods of `jax.Array` have local events, which `_starts` does not disable.
        for _, code in methods:
            monitor.listen(code, "PY_START", "PY_RETURN")

        # Functions that run already have had their start event; their calls are watched from here
        # on.
        frame: FrameType | None = caller()
        while frame is not None:
            self._watch(frame.f_code)
            frame = frame.f_back

    def end(self) -> None:
        """Stop recording, and free the tool id."""
        if self._monitor is not None:
            self._monitor.end()
        for place in self._places.values():
            for passed in (
                () if place is None else (one for each in place.passed.values() for one in each)
            ):
                passed.rest()

    def to_data(self) -> list[Data]:
        """Return the record as plain data: reads by line, calls of compiled functions by place."""
        reads = [
            {
                "kind": "read",
                "how": how,
                "file": file,
                "line": line,
                "function": function,
                "times": int(times),
                "seconds": seconds,
            }
            for (file, line, function, how), (times, seconds) in self._reads.items()
        ]
        return [
            *reads,
            *(
                call_data(place)
                for place in self._places.values()
                if place is not None and not place.traced
            ),
        ]

    def _watch(self, code: CodeType) -> None:
        if self._monitor is not None and self._is_users(code.co_filename):
            self._monitor.listen(code, "CALL")

    def _disable(self) -> object:
        return None if self._monitor is None else self._monitor.disable

    def _is_users(self, file: str) -> bool:
        known = self._users.get(file)
        if known is None:
            path = os.path.realpath(file)
            known = self._users[file] = (
                not file.startswith("<")
                and not path.startswith(_OTHERS)
                and "-packages" + os.sep not in path
            )
        return known

    def _starts(self, code: CodeType, _: int) -> Any:
        name = self._methods.get(id(code))
        # A function starts: watch its calls if it is the user's, and have CPython drop this event
        # for its code, so that later starts cost nothing.
        if name is None:
            self._watch(code)
            return self._disable()
        thread, frame = threading.get_ident(), caller()
        # A read inside of another read belongs to the outer one. An entry whose code is not on the
        # stack any more was left behind by an exception.
        outer = self._open.get(thread)
        if outer is None or not _runs(frame.f_back, outer[0]):
            self._open[thread] = code, time.perf_counter(), self._reader(frame.f_back, name)
        return None

    def _ends(self, code: CodeType, _: int, __: object) -> None:
        self._close(code)

    def _close(self, code: CodeType) -> None:
        thread = threading.get_ident()
        opened = self._open.get(thread)
        if opened is None or opened[0] is not code:
            return
        del self._open[thread]
        if opened[2] is not None:
            row = self._reads.setdefault(opened[2], [0.0, 0.0])
            row[0] += 1
            row[1] += time.perf_counter() - opened[1]

    def _reader(
        self,
        frame: FrameType | None,
        name: str,
    ) -> tuple[str, int, str, str] | None:
        """Return the user's line that reads; None if JAX or jitney reads for purposes of its own.

        `jax.device_get` is the exception: it reads in the user's name.
        """
        while frame is not None:
            code = frame.f_code
            if self._is_users(code.co_filename):
                return code.co_filename, frame.f_lineno, code.co_name, name
            if code.co_filename.startswith((str(self._jax), _JITNEY)):
                if "device_get" not in code.co_name and name != "device_get":
                    return None
                name = "device_get"
            frame = frame.f_back
        return None

    def _on_call(
        self,
        code: CodeType,
        offset: int,
        called: Any,
        first: object,
    ) -> Any:
        if type(called) is self._jitted:
            place = self._count_call(code, offset, called)
            if place is not None:
                self._looks(place, caller())
            counted = self._places[id(code), offset]
            if counted is not None:
                self._began[threading.get_ident()] = counted, time.perf_counter()
        elif type(first) in self._arrays and self._copies(called):
            frame = caller()
            row = code.co_filename, frame.f_lineno, code.co_name, called.__name__
            self._open[threading.get_ident()] = code, time.perf_counter(), row
        else:
            # Most calls are of other functions. CPython drops this event for a place that had a
            # hundred of them.
            at = id(code), offset
            self._idle[at] += 1
            if self._idle[at] >= _IDLE:
                return self._disable()
        return None

    def _copies(self, called: Any) -> bool:
        """Return whether a function of NumPy reads its first argument.

        `np.sum` and its kin do not: they call the array's own method.
        """
        numpy = sys.modules["numpy"]
        known = type(called) is numpy.ufunc or (
            type(called) is type(len) and called.__name__ in _COPIES
        )
        return known and getattr(numpy, called.__name__, None) is called

    def _on_return(
        self,
        code: CodeType,
        _: int,
        called: object,
        __: object,
    ) -> None:
        if type(called) is self._jitted:
            place, began = self._began.pop(threading.get_ident(), (None, 0.0))
            if place is not None:
                took = time.perf_counter() - began
                place.quickest = took if place.quickest is None else min(place.quickest, took)
            for passed in self._calls.pop(threading.get_ident(), ()):
                passed.record_donation()
        else:
            # A function of NumPy in C: its entry in `_open` has the code of its caller.
            self._close(code)

    def _ends_by_error(
        self,
        code: CodeType,
        _: int,
        called: object,
        __: object,
    ) -> None:
        thread = threading.get_ident()
        if type(called) is self._jitted:
            self._calls.pop(thread, None)
            self._began.pop(thread, None)
        elif thread in self._open and self._open[thread][0] is code:
            del self._open[thread]

    def _count_call(
        self,
        code: CodeType,
        offset: int,
        called: object,
    ) -> CallSite | None:
        """Count a call of a place, and return the place if this call is to be inspected."""
        at = id(code), offset
        if at not in self._places:
            call = self._source.at(code, offset)
            self._places[at] = None if call is None else call_site(code, call, called)
        place = self._places[at]
        if place is None:
            return None
        place.times += 1
        # A number is a power of two if it has no bit in common with its predecessor.
        skipped = place.traced or (place.times > _EACH and place.times & (place.times - 1))
        return None if skipped else place

    def _looks(self, place: CallSite, frame: FrameType) -> None:
        place.looked += 1
        place.traced = _under(frame.f_back, str(self._jax))
        values = {name: value_of(frame, name) for name, _ in place.arguments}
        inspect_arguments(place, values, self._arrays)
        passing = list[ArgumentLifetime]()
        for name in place.rebound:
            leaves = self._leaves(values[name])
            if leaves:
                passing.append(ArgumentLifetime(place, name, frame.f_code, leaves, self._leaves))
                place.passed.setdefault(name, []).append(passing[-1])
        self._calls[threading.get_ident()] = passing

    def _leaves(self, value: object) -> list[Any]:
        """Return the arrays in a tree; none if one of them occurs twice."""
        if type(value) not in self._arrays and not isinstance(value, (dict, list, tuple)):
            return []
        leaves = [leaf for leaf in self._tree(value) if type(leaf) in self._arrays]
        return leaves if len({id(leaf) for leaf in leaves}) == len(leaves) else []


def watch_lines(jax: Any) -> LineRecorder:
    """Return a recorder that has begun; the docstring of this file has its limits."""
    lines = LineRecorder()
    lines.begin(jax)
    return lines


def _runs(frame: FrameType | None, code: CodeType) -> bool:
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame is not None


def _under(frame: FrameType | None, folder: str) -> bool:
    while frame is not None and not frame.f_code.co_filename.startswith(folder):
        frame = frame.f_back
    return frame is not None


def _nothing() -> None:
    """Do nothing: an argument for `jax.jit`, whose result has the type of compiled functions."""


_JITNEY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__)))) + os.sep  # noqa: PTH120
_OTHERS = (
    *(
        os.path.realpath(sysconfig.get_path(name)) + os.sep
        for name in ("stdlib", "platstdlib", "purelib", "platlib")
    ),
    _JITNEY,
)
