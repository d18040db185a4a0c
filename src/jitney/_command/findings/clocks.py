"""Figures of the program's own that are wrong: seconds between two looks at a clock, with calls in
between whose results nobody waits for.

A call of a compiled function returns before its result is there, so such seconds are those of
handing the work over. It is read off the text of the files whose lines JAX was called from, where
nothing else can be meant: the two looks and all that is between them stand in one block, each call
there is of a function that this file compiles or one that waits for nothing, and nothing asks for a
number. What it misses: looks in several functions, calls of functions that call compiled ones, and
names that are bound in other ways.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..._jax.trees import is_a
from ..._owners import is_users, short

_CLOCKS = ("perf_counter", "time", "monotonic", "perf_counter_ns", "time_ns", "monotonic_ns")
_COMPILERS = ("jit", "filter_jit", "pmap", "optimize")
_IDLE = ("range", "enumerate", "zip", "len", "append")  # calls that wait for no array
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
class Unwaited:
    """One such figure.

    Args:
        where: The lines between which it is taken.
        what: What is wrong with it.
        write: What to write.
    """

    where: str
    what: str
    write: str

    def to_dict(self) -> dict[str, Any]:
        """As data, for JSON."""
        return dict(self.__dict__)

    def __str__(self) -> str:
        return f"{self.where}: {self.what}\n      {self.write}"


def unwaited(events: Sequence[Mapping[str, Any]]) -> tuple[Unwaited, ...]:
    """Those of the program's own files that JAX was called from, by what was recorded."""
    files = dict.fromkeys(
        frame[0] for event in events for frame in event.get("frames", ()) if is_users(frame[0])
    )
    return tuple(found for file in files for found in _in_file(file))


def _in_file(file: str) -> Iterator[Unwaited]:
    try:
        tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    # there is no such file any more, or it is none of Python's
    except (OSError, SyntaxError, ValueError):
        return
    program = _Program(short(file), _compiled(tree), _clocks(tree))
    if program.compiled:
        for node in ast.walk(tree):
            for name in ("body", "orelse", "finalbody"):
                block: Any = getattr(node, name, None)
                if is_a(block, list):
                    yield from program.between(block)
            if isinstance(node, ast.Call):
                yield from program.by_timeit(node)


def _compiled(tree: ast.Module) -> frozenset[str]:
    """Names of what the file compiles. What pads waits for its results."""
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
    """Whether it is `jax.jit`, or what that is given options to: `jitney.optimize(vmap="n")`,
    `partial(jax.jit, ...)`.
    """
    if isinstance(node, ast.Call):
        options = [word.arg for word in node.keywords]
        return "pad" not in options and any(
            map(_compiles, (node.func, *node.args[: _last(node.func) == "partial"]))
        )
    return _last(node) in _COMPILERS


def _clocks(tree: ast.Module) -> frozenset[str]:
    """How the file calls the clocks of `time`: `time.perf_counter`, or by a name of its own."""
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
class _Program:
    """A file: its name, what it compiles, its clocks."""

    file: str
    compiled: frozenset[str]
    clocks: frozenset[str]

    def between(self, block: Sequence[Any]) -> Iterator[Unwaited]:
        """Of the statements of a block, those that are timed without waiting."""
        for i, first in enumerate(block):
            if not (
                isinstance(first, ast.Assign)
                and self._is_clock(first.value)
                and isinstance(first.targets[0], ast.Name)
            ):
                continue
            end = next((j for j in range(i + 1, len(block)) if self._looks(block[j])), None)
            if end is None or not self._subtracts(block[end:], first.targets[0].id):
                continue
            calls = self._unwaited(block[i + 1 : end])
            if calls:
                yield self._told(calls, f"{self.file}:{first.lineno} to {block[end].lineno}")

    def by_timeit(self, node: ast.Call) -> Iterator[Unwaited]:
        """A call of `timeit` with a lambda that waits for nothing."""
        if _last(node.func) in _TIMERS and node.args and isinstance(node.args[0], ast.Lambda):
            calls = self._unwaited([node.args[0].body])
            if calls:
                yield self._told(calls, f"{self.file}:{node.lineno}")

    def _told(self, calls: Sequence[ast.Call], where: str) -> Unwaited:
        names = " and ".join(dict.fromkeys(f"{_last(call.func)}()" for call in calls))
        what = (
            f"wrong: nothing waits for what {names} returns, so these are seconds until it returns,"
            " not until its result is there"
        )
        write = (
            f"jax.block_until_ready({ast.unparse(calls[-1])})  # before the clock is read again; or"
            " jitney.measure"
        )
        return Unwaited(where, what, write)

    def _unwaited(self, nodes: Iterable[ast.AST]) -> list[ast.Call]:
        """The calls of compiled functions; none if anything there may wait."""
        found: list[ast.Call] = []
        for node in (inner for outer in nodes for inner in ast.walk(outer)):
            if isinstance(node, _ASKS):
                return []
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
        """Whether the time since the first look is worked out."""
        nodes = [node for statement in statements for node in ast.walk(statement)]
        return any(
            isinstance(x, ast.BinOp) and isinstance(x.op, ast.Sub) and _last(x.right) == start
            for x in nodes
        )


def _last(node: ast.AST) -> str:
    """The last name of `jax.numpy.sum`."""
    return (
        node.attr
        if isinstance(node, ast.Attribute)
        else node.id
        if isinstance(node, ast.Name)
        else ""
    )
