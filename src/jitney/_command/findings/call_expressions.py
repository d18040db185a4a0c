"""Calls of functions in the source of a program, and the statements and loops around them.

    params, loss = step(params, row)         rebound: params
    kept.append(f(x, w)) in `for x in xs`    loop_variables: x

`lines.py` sees a call by its code object and offset; Python keeps the columns of both ends.
"""

from __future__ import annotations

import ast
import linecache
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import CodeType


@dataclass(frozen=True)
class SourceCall:
    """A call in the source, its statement, and the loop of which that is the whole body."""

    call: ast.Call
    statement: ast.stmt
    loop: ast.For | None

    def arguments(self) -> tuple[tuple[str, str], ...]:
        """Return the names in the call, each with its parameter: a position or a keyword."""
        given = self.call.args
        # `f(*xs, y)`: positions behind a star are unknown.
        if any(isinstance(node, ast.Starred) for node in given):
            return ()
        numbered = enumerate(given)
        names = [(node.id, str(i)) for i, node in numbered if isinstance(node, ast.Name)]
        names += [
            (word.value.id, word.arg)
            for word in self.call.keywords
            if isinstance(word.value, ast.Name) and word.arg
        ]
        return tuple(names)

    def loop_variables(self) -> tuple[str, ...]:
        """Return the variables of a loop in which no call sees the result of another.

        `[f(x, w) for x in xs]`, or a loop of one statement, `kept.append(f(x, w))` or `kept[i] =
        f(x, w)`.
        """
        target: ast.expr | None = None
        reads = _names(self.call)
        kept = self._container()
        if self.loop is not None and kept is not None and kept not in reads:
            target = self.loop.target
        for node in ast.walk(self.statement):
            if (
                isinstance(node, ast.ListComp)
                and node.elt is self.call
                and len(node.generators) == 1
            ):
                (generator,) = node.generators
                target = None if generator.ifs or generator.is_async else generator.target
        if target is None:
            return ()
        return tuple(sorted(_names(target) & reads))

    def _container(self) -> str | None:
        """Return the name of the container that the statement puts the result of the call into."""
        match self.statement:
            case ast.Assign([ast.Subscript(ast.Name(name))], value) if value is self.call:
                return name
            case ast.Expr(ast.Call(ast.Attribute(ast.Name(name), "append"), [value], [])) if (
                value is self.call
            ):
                return name
            case _:
                return None

    def mapped_arguments(self, over: Sequence[str]) -> tuple[str, ...]:
        """Return the positions and keywords of the arguments that these variables occur in."""
        given = [(str(i), node) for i, node in enumerate(self.call.args)]
        given += [(word.arg or "**", word.value) for word in self.call.keywords]
        return tuple(where for where, node in given if not _names(node).isdisjoint(over))

    def rebound_arguments(self) -> tuple[str, ...]:
        """Return the arguments that `x, y = f(x, y, z)` binds anew.

        None unless all arguments are names or constants; names that occur twice are left out.
        """
        call, statement = self.call, self.statement
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


class ParsedCalls:
    """Calls in the files of a program, each of which is parsed once."""

    def __init__(self) -> None:
        self._files: dict[str, dict[tuple[int, ...], SourceCall]] = {}

    def at(self, code: CodeType, offset: int) -> SourceCall | None:
        """Return the call of an instruction; None if the source is not there."""
        file = code.co_filename
        if file not in self._files:
            try:
                tree = ast.parse("".join(linecache.getlines(file)))
            except (SyntaxError, ValueError, RecursionError):
                tree = ast.Module([], [])
            self._files[file] = {_ends(found.call): found for found in _calls(tree)}

        # Offsets are in bytes, and an instruction has two of them.
        first, last, start, end = list(code.co_positions())[offset // 2]
        return self._files[file].get((first or 0, start or 0, last or 0, end or 0))


def _ends(node: ast.Call) -> tuple[int, ...]:
    return node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0


def _calls(tree: ast.Module) -> Iterator[SourceCall]:
    """Yield each call with the innermost statement that contains it, and the loop of which that is
    the whole body.
    """
    waiting: list[tuple[ast.AST, ast.stmt | None, ast.For | None]] = [(tree, None, None)]
    while waiting:
        node, statement, loop = waiting.pop()
        if isinstance(node, ast.Call) and statement is not None:
            yield SourceCall(node, statement, loop)
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.stmt):
                waiting.append((child, statement, loop))
            elif isinstance(node, ast.For) and node.body == [child]:
                waiting.append((child, child, node))
            else:
                waiting.append((child, child, None))


def _names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
