"""Names of axes that a function's own annotations have, read off its source.

def misfit(t: Float[Array, "points"], y: Float[Array, "points 3"]):

-> {"t": ("points",), "y": ("points", "3")}
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator, Mapping


def annotated_axes(file: str, line: int, name: str) -> Mapping[str, tuple[str, ...]]:
    """Return the dimensions of each parameter with a jaxtyping annotation.

    Args:
        file: File of the function; one that cannot be read or parsed has no annotations.
        line: Line of its `def`, or of its first decorator.
        name: Name of the function.
    """
    try:
        module = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return {}
    for node in ast.walk(module):
        if (
            isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            and node.name == name
            and line in (node.lineno, *(each.lineno for each in node.decorator_list))
        ):
            return dict(_dims(node.args))
    return {}


def _dims(parameters: ast.arguments) -> Iterator[tuple[str, tuple[str, ...]]]:
    for each in (*parameters.posonlyargs, *parameters.args, *parameters.kwonlyargs):
        match each.annotation:
            case ast.Subscript(slice=ast.Tuple(elts=[_, ast.Constant(value=str(text))])):
                yield each.arg, tuple(text.split())
            case _:
                pass
