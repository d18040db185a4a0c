"""Calls of compiled functions at one place of a program, and the arrays in their arguments.

    CallSite           an expression `step(params, row)`: how often, how quick, with which arrays
    ArgumentRecord     `row` over all inspected calls: NumPy's, the same each time, on fewer devices
    ArgumentLifetime   `params` at one call: does its array die when the name is bound anew?

`lines.py` fills them in, and `call_arguments.py` reads them as plain data.
"""

from __future__ import annotations

import inspect
import sys
import weakref
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

from .call_expressions import SourceCall

if TYPE_CHECKING:
    from ..._text.json import Data


# Bytes beyond which the numbers of an array are not compared.
_LARGE = 2**28
# Before Python 3.13, reading `f_locals` of a function keeps the values in it alive.
_READS_LOCALS = sys.version_info >= (3, 13)


@dataclass
class ArgumentRecord:
    """Properties of one argument of a place over all inspected calls.

    Args:
        nbytes: Largest size in bytes.
        shape: Shape at that size.
        dtype: Name of the dtype at the first call.
        numpy: True if it was an array of NumPy at each call.
        last: Weak reference to the array of the last call.
        sum: Checksum of the array's bytes, if it is NumPy's.
        same: True if it was the same array with the same numbers.
        moved: True if it was on fewer devices than another argument.
        target: Sharding of that other argument.
    """

    nbytes: int
    shape: tuple[int, ...]
    dtype: str
    numpy: bool
    last: Any
    sum: int
    same: bool = True
    moved: bool = True
    target: object = None


@dataclass
class CallSite:
    """Call of a compiled function, as an expression in the source of the program.

    Args:
        file: File of the call.
        line: First line of its statement.
        function: Function that contains it.
        name: Name of the compiled function.
        defined: File and line of the compiled function's definition.
        arguments: Names in the call, each with its parameter: a position or a keyword.
        rebound: Arguments whose name the same statement binds to a result.
        until: Last line of the statement.
        times: Number of calls.
        looked: Number of inspected calls.
        over: Variables of a loop in which each call is for itself; empty if there is none.
        mapped: Positions and keywords of the arguments that these variables occur in.
        given: Number of arguments by position.
        quickest: Seconds of the quickest call, as Python waits for it; None if none has ended.
        traced: True if JAX called it, which traces the code around it.
        handed: Properties of each argument.
        doubles: Names of NumPy's float64 among the arguments.
        passed: Arrays of each rebound argument, call by call.
    """

    file: str
    line: int
    function: str
    name: str
    defined: tuple[str, int] | None
    arguments: tuple[tuple[str, str], ...]
    rebound: tuple[str, ...]
    until: int
    over: tuple[str, ...] = ()
    mapped: tuple[str, ...] = ()
    given: int = 0
    times: int = 0
    quickest: float | None = None
    looked: int = 0
    traced: bool = False
    handed: dict[str, ArgumentRecord] = field(default_factory=dict[str, ArgumentRecord])
    doubles: dict[str, None] = field(default_factory=dict[str, None])
    passed: dict[str, list[ArgumentLifetime]] = field(
        default_factory=dict[str, "list[ArgumentLifetime]"]
    )


class ArgumentLifetime:
    """Arrays of an argument at one call; counts those that die when its name is rebound.

    `saved` is the bytes of the dead arrays that have the shape, dtype and sharding of a result.
    """

    def __init__(
        self,
        place: CallSite,
        name: str,
        code: CodeType,
        leaves: list[Any],
        leaves_of: Callable[[object], list[Any]],
    ):
        self._place, self._name, self._code, self._leaves_of = place, name, code, leaves_of
        self._results: Counter[Any] | None = None
        self.alive = len(leaves)
        self.donated = False
        self.saved = 0
        # The callback of a weak reference runs at the moment when the array dies, in the frame that
        # released it.
        self._refs = [
            weakref.ref(leaf, self._death_callback((_kind(leaf), leaf.nbytes))) for leaf in leaves
        ]

    def record_donation(self) -> None:
        """Record, at the end of the call, whether it donated the arrays."""
        self.donated = any(
            leaf is not None and leaf.is_deleted() for leaf in (ref() for ref in self._refs)
        )

    def rest(self) -> None:
        """Drop the weak references, so that their callbacks run no more."""
        self._refs.clear()

    def _death_callback(self, told: tuple[object, int]) -> Callable[[object], None]:
        def gone(_: object) -> None:
            frame = caller()
            # Only a death in the statement's own frame counts: its assignment has released the last
            # reference to the array.
            if (
                frame.f_code is not self._code
                or not self._place.line <= frame.f_lineno <= self._place.until
            ):
                return

            # The name is bound to the result by now. Each result can take over the memory of one
            # dead array.
            if self._results is None:
                value = value_of(frame, self._name)
                self._results = Counter(_kind(leaf) for leaf in self._leaves_of(value))
            self.alive -= 1
            if self._results[told[0]]:
                self._results[told[0]] -= 1
                self.saved += told[1]

        return gone


def call_site(code: CodeType, found: SourceCall, called: object) -> CallSite:
    """Return the place of a call of a compiled function, with nothing recorded yet."""
    function: Any = getattr(called, "__wrapped__", None)
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    inner = getattr(function, "__code__", None)

    over = found.loop_variables()
    readable = _READS_LOCALS or code.co_name == "<module>"
    first, last = found.statement.lineno, found.statement.end_lineno
    return CallSite(
        code.co_filename,
        first,
        code.co_name,
        getattr(called, "__name__", "a function"),
        None if inner is None else (str(inner.co_filename), int(inner.co_firstlineno)),
        found.arguments() if readable else (),
        found.rebound_arguments() if readable else (),
        last or first,
        over,
        found.mapped_arguments(over),
        len(found.call.args),
    )


def inspect_arguments(
    place: CallSite,
    values: Data,
    array_types: tuple[type, ...],
) -> None:
    """Update the records of the arguments of a place by their values at one call."""
    numpy = sys.modules["numpy"]
    arrays = {
        name: value
        for name, value in values.items()
        if type(value) in array_types and not value.is_deleted()
    }
    # The argument on the most devices: JAX moves the others to its devices.
    wide = max(arrays.values(), key=lambda value: len(value.sharding.device_set), default=None)
    most = 1 if wide is None else len(wide.sharding.device_set)
    for name, value in values.items():
        if isinstance(value, (numpy.ndarray, numpy.float64)) and value.dtype == numpy.float64:
            place.doubles[name] = None
        is_numpy = type(value) is numpy.ndarray and not value.dtype.hasobject
        before = place.handed.get(name)
        if name not in arrays and not is_numpy:
            if before is not None:
                before.same = before.numpy = False
            continue
        moved = not is_numpy and len(value.sharding.device_set) < most
        sum_ = _sum(value) if is_numpy else 0
        if before is None:
            # An argument that is an array only later was not the same array at each call.
            target = wide.sharding if moved and wide is not None else None
            first = place.looked == 1
            last, shape = weakref.ref(value), tuple(value.shape)
            place.handed[name] = ArgumentRecord(
                value.nbytes,
                shape,
                str(value.dtype),
                is_numpy and first,
                last,
                sum_,
                same=first,
                moved=moved,
                target=target,
            )
            continue

        if value.nbytes > before.nbytes:
            before.nbytes, before.shape = value.nbytes, tuple(value.shape)
        before.same = (
            before.same and before.last() is value and before.sum == sum_ and value.nbytes <= _LARGE
        )
        before.numpy = before.numpy and is_numpy
        before.moved = before.moved and moved
        before.last = weakref.ref(value)


def call_data(place: CallSite) -> Data:
    """Return the record of a place as plain data."""
    shared = {
        "kind": "call",
        "name": place.name,
        "file": place.file,
        "line": place.line,
        "function": place.function,
        "times": place.times,
        "looked": place.looked,
        "defined": place.defined,
        "arguments": place.arguments,
        "over": place.over,
        "mapped": place.mapped,
        "given": place.given,
        "quickest": place.quickest,
    }
    handed = [
        {
            "name": name,
            **{key: value for key, value in vars(each).items() if key not in ("last", "sum")},
        }
        for name, each in place.handed.items()
    ]
    passed = [
        {
            "name": name,
            "calls": len(each),
            "donated": any(one.donated for one in each),
            "dead": [one.alive == 0 for one in each],
            "saved": min(one.saved for one in each[1:]) if each[1:] else 0,
        }
        for name, each in place.passed.items()
    ]
    return {**shared, "handed": handed, "passed": passed, "doubles": list(place.doubles)}


_current: Any = inspect.currentframe


def caller() -> FrameType:
    """Return the frame of the caller of the function that calls this one.

    A name for the own frame would keep it alive, and with it the arrays of the frames above.
    """
    return _current().f_back.f_back


def value_of(frame: FrameType, name: str) -> Any:
    """Return the value of a name in a frame; None if it is unknown."""
    code = frame.f_code
    # A local name that is unbound now must not be looked up among the globals.
    if name in code.co_varnames or name in code.co_cellvars or name in code.co_freevars:
        return frame.f_locals.get(name)
    return (
        frame.f_locals.get(name, frame.f_globals.get(name))
        if code.co_name == "<module>"
        else frame.f_globals.get(name)
    )


def _kind(leaf: Any) -> Any:
    return leaf.shape, leaf.dtype, leaf.sharding


def _sum(array: Any) -> int:
    return zlib.crc32(array.tobytes()) if array.nbytes <= _LARGE else 0
