"""Wrong timings in the program's code: nobody waits for the results of the calls that are timed.

A call of a compiled function returns before its result is computed, so such seconds are those of
dispatch. Timings are found in the source of the files whose lines JAX was called from, and only
where the code allows no other reading: both clock readings and all statements between them are in
one block, each call there is of a function that this file compiles or of one that waits for no
array, and nothing needs a value. Not found: clock readings in several functions, calls of functions
that call compiled ones, and names that are bound in other ways.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..._owners import is_users, short
from ..._text.json import Data, Record

_CLOCKS = ("perf_counter", "time", "monotonic", "perf_counter_ns", "time_ns", "monotonic_ns")
_COMPILERS = ("jit", "filter_jit", "pmap", "optimize")
# Calls that wait for no array.
_IDLE = ("range", "enumerate", "zip", "len", "append")
# Syntax that may read the value of an array, and so wait for it.
_ASKS = (
    ast.If,
    ast.IfExp,
    ast.While,
    ast.Assert,
    ast.FormattedValue,
    ast.With,
    ast.Await,
    ast.Try,
    ast.Compare,
    ast.BoolOp,
)
_TIMERS = ("timeit", "repeat", "Timer")


@dataclass(frozen=True)
class WrongTiming:
    """Timing that does not wait for the result.

    Args:
        where: The lines between which it is taken.
        what: The fault, in words.
        write: Code to write instead.
    """

    where: str
    what: str
    write: str

    def to_dict(self) -> Data:
        """Return the fields as a dict, for JSON."""
        return dict(self.__dict__)

    def __str__(self) -> str:
        return f"{self.where}: {self.what}\n      {self.write}"


def wrong_timings(events: Sequence[Record]) -> tuple[WrongTiming, ...]:
    """Return the wrong timings in those of the program's own files that JAX was called from.

    Args:
        events: Events of the run, whose stack frames name the files.
    """
    files = dict.fromkeys(
        frame[0] for event in events for frame in event.get("frames", ()) if is_users(frame[0])
    )
    return tuple(found for file in files for found in _in_file(file))


def _in_file(file: str) -> Iterator[WrongTiming]:
    try:
        tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    # The file is gone, or is not Python source.
    except (OSError, SyntaxError, ValueError):
        return
    program = _SourceFile(short(file), _compiled_names(tree), _clocks(tree))
    if program.compiled:
        for node in ast.walk(tree):
            for name in ("body", "orelse", "finalbody"):
                block = getattr(node, name, None)
                if isinstance(block, list):
                    yield from program.between(block)
            if isinstance(node, ast.Call):
                yield from program.by_timeit(node)


def _compiled_names(tree: ast.Module) -> frozenset[str]:
    """Return the names of the functions that a file compiles.

    Functions with `pad=` are left out, since a padded call waits for its results.
    """
    found = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and any(
            map(_compiles, node.decorator_list)
        ):
            found.add(node.name)
        elif (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Call)
            and _compiles(node.value.func)
        ):
            found.update(target.id for target in node.targets if isinstance(target, ast.Name))
    return frozenset(found)


def _compiles(node: ast.expr) -> bool:
    """Return whether an expression is `jax.jit` or its kin, or such a function with options.

    Examples are `jitney.optimize(vmap="n")` and `partial(jax.jit, ...)`.
    """
    if isinstance(node, ast.Call):
        # `optimize(...)` compiles if its function does, and `partial(jax.jit, ...)` if its first
        # argument does.
        options = [word.arg for word in node.keywords]
        return "pad" not in options and any(
            map(_compiles, (node.func, *node.args[: _last(node.func) == "partial"]))
        )
    return _last(node) in _COMPILERS


def _clocks(tree: ast.Module) -> frozenset[str]:
    """Return the names of the clocks of `time` in a file: `time.perf_counter`, or aliases."""
    found = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(
                f"{each.asname or each.name}.{clock}"
                for each in node.names
                if each.name == "time"
                for clock in _CLOCKS
            )
        elif isinstance(node, ast.ImportFrom) and node.module == "time":
            found.update(each.asname or each.name for each in node.names if each.name in _CLOCKS)
    return frozenset(found)


@dataclass(frozen=True)
class _SourceFile:
    """Source file: its name, the names that it compiles, and the names of its clocks."""

    file: str
    compiled: frozenset[str]
    clocks: frozenset[str]

    def between(self, block: Sequence[Any]) -> Iterator[WrongTiming]:
        """Yield the timings in the statements of a block that do not wait."""
        for i, first in enumerate(block):
            # The pattern: `start = clock()`, statements, another `clock()`, and a minus `start`.
            if not (
                isinstance(first, ast.Assign)
                and self._is_clock(first.value)
                and isinstance(first.targets[0], ast.Name)
            ):
                continue
            later = range(i + 1, len(block))
            end = next((j for j in later if self._looks(block[j])), None)
            if end is None or not self._subtracts(block[end:], first.targets[0].id):
                continue
            calls = self._unwaited_calls(block[i + 1 : end])
            if calls:
                yield self._wrong_timing(
                    calls, f"{self.file}:{first.lineno} to {block[end].lineno}"
                )

    def by_timeit(self, node: ast.Call) -> Iterator[WrongTiming]:
        """Yield the call if it is one of `timeit` with a lambda that waits for nothing."""
        if _last(node.func) in _TIMERS and node.args and isinstance(node.args[0], ast.Lambda):
            calls = self._unwaited_calls([node.args[0].body])
            if calls:
                yield self._wrong_timing(calls, f"{self.file}:{node.lineno}")

    def _wrong_timing(self, calls: Sequence[ast.Call], where: str) -> WrongTiming:
        names = " and ".join(dict.fromkeys(f"{_last(call.func)}()" for call in calls))
        what = (
            f"wrong: nothing waits for what {names} returns, so these are seconds until it returns,"
            " not until its result is there"
        )
        write = (
            f"jax.block_until_ready({ast.unparse(calls[-1])})  # before the clock is read again; or"
            " jitney.measure"
        )
        return WrongTiming(where, what, write)

    def _unwaited_calls(self, nodes: Iterable[ast.AST]) -> list[ast.Call]:
        """Return the calls of compiled functions; none if anything in the nodes may wait."""
        found: list[ast.Call] = []
        for node in (inner for outer in nodes for inner in ast.walk(outer)):
            if isinstance(node, _ASKS):
                return []
            # A loop over anything else may iterate over an array, which reads it.
            if isinstance(node, ast.For) and not (
                isinstance(node.iter, ast.Call) and _last(node.iter.func) in _IDLE
            ):
                return []
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in self.compiled
            ):
                found.append(node)
            elif isinstance(node, ast.Call) and _last(node.func) not in _IDLE:
                return []
        return found

    def _is_clock(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and ast.unparse(node.func) in self.clocks

    def _looks(self, statement: ast.AST) -> bool:
        return any(map(self._is_clock, ast.walk(statement)))

    def _subtracts(self, statements: Sequence[ast.AST], start: str) -> bool:
        """Return whether a statement subtracts the first clock reading."""
        nodes = [node for statement in statements for node in ast.walk(statement)]
        return any(
            isinstance(x, ast.BinOp) and isinstance(x.op, ast.Sub) and _last(x.right) == start
            for x in nodes
        )


def _last(node: ast.AST) -> str:
    """Return the last name of a dotted expression, `sum` of `jax.numpy.sum`."""
    return (
        node.attr
        if isinstance(node, ast.Attribute)
        else node.id
        if isinstance(node, ast.Name)
        else ""
    )
