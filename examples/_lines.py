"""Lines of code of a side of a comparison."""

import ast
import inspect
import re
from collections.abc import Iterator
from types import ModuleType


def code_lines(source: str) -> int:
    """Lines that are neither blank nor comments, docstrings or imports."""
    left_out = set[int]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Import, ast.ImportFrom)) or (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        ):
            left_out.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return sum(
        number not in left_out and not re.fullmatch(r"\s*(#.*)?", line)
        for number, line in enumerate(source.splitlines(), 1)
    )


def lines_of(module: ModuleType, *names: str) -> int:
    """Lines of code of these functions and constants of a module.

    Raises:
        LookupError: The module has no such name at its top.
    """
    source = inspect.getsource(module)
    wanted, lines = set(names), 0
    for node in ast.parse(source).body:
        found = wanted.intersection(_named(node))
        if found:
            wanted -= found
            lines += code_lines(_text(source, node))
    if wanted:
        raise LookupError(f"{module.__name__} has no {', '.join(sorted(wanted))} at its top.")
    return lines


def _named(node: ast.stmt) -> Iterator[str]:
    """Names that a statement gives to something."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        yield node.name
    if isinstance(node, ast.Assign):
        yield from (each.id for each in node.targets if isinstance(each, ast.Name))


def _text(source: str, node: ast.stmt) -> str:
    """A statement as it is written, its decorators included."""
    above = node.decorator_list if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else []
    first = min([node.lineno, *(each.lineno for each in above)])
    return "\n".join(source.splitlines()[first - 1 : node.end_lineno])
