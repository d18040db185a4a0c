"""Recorder of what the program's lines do with arrays: reads, and arguments of compiled functions.

It uses Python's `sys.monitoring`, from 3.12 on, and alters nothing of JAX or of the program. Two
kinds of events are recorded: calls in the program's own files, and the starts and ends of the
methods of `jax.Array` that read it (`__float__`, `item`, ...), which are Python functions in jax
0.10.0 to 0.12.0.1. Arguments are read from the names in the call, at the first calls of a place and
then at each power of two.

    x = step(x, row)    {"kind": "call", "name": "step", "times": 100, "handed": [...], ...}
    if float(loss) < e  {"kind": "read", "how": "__float__", "times": 100, "seconds": 0.2, ...}

Not recorded: anything under Python 3.11, or if other tools hold both tool ids; names inside of
functions under Python 3.12; calls and reads that libraries make themselves, as `eqx.filter_jit`
does of the function that it wraps; arguments that are not plain names; reads by C code through the
buffer protocol, except `np.asarray`, its kin, and NumPy's ufuncs with the array first; a place
whose first hundred calls were of other functions.

`launch.py` loads this file by its path, since the program must not find jitney imported: so it
imports nothing but the standard library.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import os
import sys
import sysconfig
import threading
import time
import weakref
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import CodeType, FrameType, FunctionType
from typing import TYPE_CHECKING, Any

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
# Bytes beyond which the numbers of an array are not compared.
_LARGE = 2**28
# Calls of a place that are all inspected; later ones only at powers of two.
_EACH = 4
# Tool ids without a predefined use in CPython.
_TOOLS = (4, 3)
_current: Any = inspect.currentframe
_Node = tuple[ast.Call, ast.stmt, "ast.For | None"]
"""A call in the source, its statement, and the loop of which that is the whole body."""
# Before Python 3.13, reading `f_locals` of a function keeps the values in it alive.
_LOCALS = sys.version_info >= (3, 13)


@dataclass
class _ArgumentRecord:
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
class _CallSite:
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
    handed: dict[str, _ArgumentRecord] = field(default_factory=dict[str, _ArgumentRecord])
    doubles: dict[str, None] = field(default_factory=dict[str, None])
    passed: dict[str, list[_ArgumentLifetime]] = field(
        default_factory=dict[str, "list[_ArgumentLifetime]"]
    )


class _ArgumentLifetime:
    """Arrays of an argument at one call; counts those that die when its name is rebound.

    `saved` is the bytes of the dead arrays that have the shape, dtype and sharding of a result.
    """

    def __init__(
        self,
        place: _CallSite,
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
            frame = _caller()
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
                value = _value(frame, self._name)
                self._results = Counter(_kind(leaf) for leaf in self._leaves_of(value))
            self.alive -= 1
            if self._results[told[0]]:
                self._results[told[0]] -= 1
                self.saved += told[1]

        return gone


class LineRecorder:
    """Recorder of reads and calls; `unseen` is a sentence if nothing can be recorded."""

    def __init__(self) -> None:
        self.unseen = ""
        self._tool: int | None = None
        self._users: dict[str, bool] = {}
        # By `id`: code objects are slow to hash, and are equal where only their files differ. The
        # values keep them alive, so that an id is not used twice.
        self._codes: dict[int, CodeType] = {}
        self._places: dict[tuple[int, int], _CallSite | None] = {}
        self._idle: Counter[tuple[int, int]] = Counter()
        self._reads: dict[tuple[str, int, str, str], list[float]] = {}
        self._open: dict[int, tuple[CodeType, float, tuple[str, int, str, str] | None]] = {}
        self._calls: dict[int, list[_ArgumentLifetime]] = {}
        # Thread -> the place of the compiled function that it calls, since when.
        self._began: dict[int, tuple[_CallSite, float]] = {}
        self._parsed: dict[str, dict[tuple[int, int, int, int], _Node]] = {}
        self._arrays: tuple[type, ...] = ()
        self._methods: dict[int, str] = {}
        self._jax: Any = None
        self._jitted: Any = None
        self._tree: Any = None

    def begin(self, jax: Any) -> None:
        """Record from now on, in all threads."""
        monitoring = getattr(sys, "monitoring", None)
        if monitoring is None:
            self.unseen = (
                "what lines do with arrays, which needs Python 3.12: reads in loops, transfers,"
                " donation, moves between devices, compiles that few calls repay, loops that are"
                " a jax.vmap"
            )
            return
        self._tool = next((tool for tool in _TOOLS if monitoring.get_tool(tool) is None), None)
        self._arrays = tuple(
            each for each in jax.Array.__subclasses__() if each.__module__.startswith("jaxlib")
        )
        if self._tool is None or not self._arrays:
            self._tool = None
            self.unseen = (
                "what lines do with arrays: `sys.monitoring` is taken by other tools, or this JAX"
                " is not known"
            )
            return
        self._jax = os.path.dirname(jax.__file__) + os.sep  # noqa: PTH120 - compared with each frame
        self._jitted, self._tree = type(jax.jit(_nothing)), jax.tree.leaves
        events, tool = monitoring.events, self._tool
        monitoring.use_tool_id(tool, "jitney run")
        for event, callback in (
            (events.PY_START, self._starts),
            (events.CALL, self._on_call),
            (events.PY_RETURN, self._ends),
            (events.C_RETURN, self._on_return),
            (events.C_RAISE, self._ends_by_error),
        ):
            monitoring.register_callback(tool, event, callback)

        # Reading methods of `jax.Array` have local events, which `_starts` does not disable.
        for kind in self._arrays:
            for name in _READS:
                method = kind.__dict__.get(name)
                if isinstance(method, FunctionType):
                    self._methods[id(method.__code__)] = name
                    self._codes[id(method.__code__)] = method.__code__
                    monitoring.set_local_events(
                        tool, method.__code__, events.PY_START | events.PY_RETURN
                    )

        # Functions that run already have had their start event; their calls are watched from here
        # on.
        frame: FrameType | None = _caller()
        while frame is not None:
            self._watch(frame.f_code)
            frame = frame.f_back
        monitoring.set_events(tool, events.PY_START)

    def end(self) -> None:
        """Stop recording, and free the tool id."""
        monitoring: Any = getattr(sys, "monitoring", None)
        if self._tool is not None:
            for code in self._codes.values():
                monitoring.set_local_events(self._tool, code, 0)
            monitoring.set_events(self._tool, 0)
            monitoring.free_tool_id(self._tool)
            self._tool = None
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
                _call_data(place)
                for place in self._places.values()
                if place is not None and not place.traced
            ),
        ]

    def _watch(self, code: CodeType) -> None:
        if self._is_users(code.co_filename):
            monitoring: Any = getattr(sys, "monitoring", None)
            self._codes[id(code)] = code
            monitoring.set_local_events(self._tool, code, monitoring.events.CALL)

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
            return _disable()
        thread, frame = threading.get_ident(), _caller()
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
                self._looks(place, _caller())
            counted = self._places[id(code), offset]
            if counted is not None:
                self._began[threading.get_ident()] = counted, time.perf_counter()
        elif type(first) in self._arrays and self._copies(called):
            frame = _caller()
            row = code.co_filename, frame.f_lineno, code.co_name, called.__name__
            self._open[threading.get_ident()] = code, time.perf_counter(), row
        else:
            # Most calls are of other functions. CPython drops this event for a place that had a
            # hundred of them.
            at = id(code), offset
            self._idle[at] += 1
            if self._idle[at] >= _IDLE:
                return _disable()
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
    ) -> _CallSite | None:
        """Count a call of a place, and return the place if this call is to be inspected."""
        at = id(code), offset
        if at not in self._places:
            self._places[at] = self._place(code, offset, called)
        place = self._places[at]
        if place is None:
            return None
        place.times += 1
        # A number is a power of two if it has no bit in common with its predecessor.
        skipped = place.traced or (place.times > _EACH and place.times & (place.times - 1))
        return None if skipped else place

    def _looks(self, place: _CallSite, frame: FrameType) -> None:
        place.looked += 1
        place.traced = _under(frame.f_back, str(self._jax))
        values = {name: _value(frame, name) for name, _ in place.arguments}
        self._look(place, values)
        passing = list[_ArgumentLifetime]()
        for name in place.rebound:
            leaves = self._leaves(values[name])
            if leaves:
                passing.append(_ArgumentLifetime(place, name, frame.f_code, leaves, self._leaves))
                place.passed.setdefault(name, []).append(passing[-1])
        self._calls[threading.get_ident()] = passing

    def _leaves(self, value: object) -> list[Any]:
        """Return the arrays in a tree; none if one of them occurs twice."""
        if type(value) not in self._arrays and not isinstance(value, (dict, list, tuple)):
            return []
        leaves = [leaf for leaf in self._tree(value) if type(leaf) in self._arrays]
        return leaves if len({id(leaf) for leaf in leaves}) == len(leaves) else []

    def _look(self, place: _CallSite, values: Data) -> None:
        numpy = sys.modules["numpy"]
        arrays = {
            name: value
            for name, value in values.items()
            if type(value) in self._arrays and not value.is_deleted()
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
                place.handed[name] = _ArgumentRecord(
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
                before.same
                and before.last() is value
                and before.sum == sum_
                and value.nbytes <= _LARGE
            )
            before.numpy = before.numpy and is_numpy
            before.moved = before.moved and moved
            before.last = weakref.ref(value)

    def _place(
        self,
        code: CodeType,
        offset: int,
        called: object,
    ) -> _CallSite | None:
        # Offsets are in bytes, and an instruction has two of them.
        first, last, start, end = list(code.co_positions())[offset // 2]
        found = self._nodes(code.co_filename).get((first or 0, start or 0, last or 0, end or 0))
        if found is None:
            return None
        call, statement, loop = found
        arguments = [
            (node.id, str(i)) for i, node in enumerate(call.args) if isinstance(node, ast.Name)
        ]
        arguments += [
            (word.value.id, word.arg)
            for word in call.keywords
            if isinstance(word.value, ast.Name) and word.arg
        ]
        # `f(*xs, y)`: positions behind a star are unknown.
        if any(isinstance(node, ast.Starred) for node in call.args):
            arguments = []

        function: Any = getattr(called, "__wrapped__", None)
        while hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        inner = getattr(function, "__code__", None)

        over = _loop_variables(call, statement, loop)
        readable = _LOCALS or code.co_name == "<module>"
        name = getattr(called, "__name__", "a function")
        defined = None if inner is None else (str(inner.co_filename), int(inner.co_firstlineno))
        return _CallSite(
            code.co_filename,
            statement.lineno,
            code.co_name,
            name,
            defined,
            tuple(arguments) if readable else (),
            _rebound(call, statement) if readable else (),
            statement.end_lineno or statement.lineno,
            over,
            _mapped_arguments(call, over),
            len(call.args),
        )

    def _nodes(self, file: str) -> dict[tuple[int, int, int, int], _Node]:
        if file not in self._parsed:
            try:
                tree = ast.parse("".join(linecache.getlines(file)))
            except (SyntaxError, ValueError, RecursionError):
                tree = ast.Module([], [])
            self._parsed[file] = {
                (call.lineno, call.col_offset, call.end_lineno or 0, call.end_col_offset or 0): (
                    call,
                    statement,
                    loop,
                )
                for call, statement, loop in _calls(tree)
            }
        return self._parsed[file]


def watch_lines(jax: Any) -> LineRecorder:
    """Return a recorder that has begun; the docstring of this file has its limits."""
    lines = LineRecorder()
    lines.begin(jax)
    return lines


def _calls(tree: ast.Module) -> Iterator[_Node]:
    """Yield each call with the innermost statement that contains it, and the loop of which that is
    the whole body.
    """
    waiting: list[tuple[ast.AST, ast.stmt | None, ast.For | None]] = [(tree, None, None)]
    while waiting:
        node, statement, loop = waiting.pop()
        if isinstance(node, ast.Call) and statement is not None:
            yield node, statement, loop
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.stmt):
                waiting.append((child, statement, loop))
            elif isinstance(node, ast.For) and node.body == [child]:
                waiting.append((child, child, node))
            else:
                waiting.append((child, child, None))


def _loop_variables(
    call: ast.Call,
    statement: ast.stmt,
    loop: ast.For | None,
) -> tuple[str, ...]:
    """Return the variables of a loop in which no call sees the result of another.

    `[f(x, w) for x in xs]`, or a loop of one statement, `kept.append(f(x, w))` or `kept[i] = f(x,
    w)`.
    """
    target: ast.expr | None = None
    reads = _names(call)
    kept = _kept_in(statement, call)
    if loop is not None and kept is not None and kept not in reads:
        target = loop.target
    for node in ast.walk(statement):
        if isinstance(node, ast.ListComp) and node.elt is call and len(node.generators) == 1:
            (generator,) = node.generators
            target = None if generator.ifs or generator.is_async else generator.target
    if target is None:
        return ()
    return tuple(sorted(_names(target) & reads))


def _kept_in(statement: ast.stmt, call: ast.Call) -> str | None:
    """Return the name of the container that a statement puts the result of a call into."""
    match statement:
        case ast.Assign([ast.Subscript(ast.Name(name))], value) if value is call:
            return name
        case ast.Expr(ast.Call(ast.Attribute(ast.Name(name), "append"), [value], [])) if (
            value is call
        ):
            return name
        case _:
            return None


def _mapped_arguments(call: ast.Call, over: Sequence[str]) -> tuple[str, ...]:
    """Return the positions and keywords of the arguments that these variables occur in."""
    given = [(str(i), node) for i, node in enumerate(call.args)]
    given += [(word.arg or "**", word.value) for word in call.keywords]
    return tuple(where for where, node in given if not _names(node).isdisjoint(over))


def _names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _rebound(call: ast.Call, statement: ast.stmt) -> tuple[str, ...]:
    """Return the arguments that `x, y = f(x, y, z)` binds anew.

    None unless all arguments are names or constants; names that occur twice are left out.
    """
    if (
        not isinstance(statement, ast.Assign)
        or statement.value is not call
        or len(statement.targets) != 1
    ):
        return ()
    values = [*call.args, *(word.value for word in call.keywords)]
    if not all(isinstance(node, (ast.Name, ast.Constant)) for node in values) or any(
        word.arg is None for word in call.keywords
    ):
        return ()
    names = Counter(node.id for node in values if isinstance(node, ast.Name))
    target = statement.targets[0]
    bound = [
        each.id
        for each in (target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target])
        if isinstance(each, ast.Name)
    ]
    return tuple(name for name in bound if names[name] == 1)


def _call_data(place: _CallSite) -> Data:
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


def _caller() -> FrameType:
    """Return the frame of the caller of the function that calls this one.

    A name for the own frame would keep it alive, and with it the arrays of the frames above.
    """
    return _current().f_back.f_back


def _value(frame: FrameType, name: str) -> Any:
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


def _disable() -> Any:
    monitoring: Any = getattr(sys, "monitoring", None)
    return monitoring.DISABLE


_JITNEY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__)))) + os.sep  # noqa: PTH120
_OTHERS = (
    *(
        os.path.realpath(sysconfig.get_path(name)) + os.sep
        for name in ("stdlib", "platstdlib", "purelib", "platlib")
    ),
    _JITNEY,
)
