"""Static arguments that take many values: each value compiles a program of its own.

JAX 0.10.2 reports which argument differs; 0.12 reports no difference between static arguments.
There a function that is compiled repeatedly for equal shapes has its static arguments read from its
decorator in the source, and the text mentions that JAX does not report it.
"""

from __future__ import annotations

import ast
import linecache
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from ..._errors import shortlist
from ..._owners import short
from ..jax_log import CompileRecord
from .change import ProposedChange

# Values from which on a static argument counts as varying.
_VALUES = 5


def statics(compiled: Sequence[CompileRecord]) -> Iterator[ProposedChange]:
    """Yield a change for each function whose static arguments vary."""
    groups: dict[tuple[str, int, str], list[CompileRecord]] = defaultdict(list)
    for each in compiled:
        if each.cause is not None and each.code_owner == "user":
            groups[each.cause.file, each.cause.line, each.name].append(each)
    for (file, line, name), programs in groups.items():
        declared = _declared_parameters(file, line)
        # The first program of any value was needed; the others could share it.
        again = [
            each for i, each in enumerate(programs) if _by_static(each, programs[:i], declared)
        ]
        if len(again) < _VALUES - 1 or declared is None:
            continue
        said = {
            _argument(detail, declared[0])
            for each in again
            for detail in (each.cause.details if each.cause else ())
        } - {None}
        names = sorted(str(each) for each in said) or declared[1]
        quoted = shortlist([f"`{each}`" for each in names])
        unsaid = "" if said else ", which are its static arguments; JAX does not say which varies"
        yield ProposedChange(
            sum(each.seconds for each in again),
            at_most=True,
            what=(
                f"{name} was compiled {len(again) + 1} times for equal shapes, a program for each"
                f" value of {quoted}{unsaid}"
            ),
            where=f"{short(file)}:{line}",
            write=(
                f"of a number: leave {quoted} out of the static arguments, and pass"
                f" jnp.asarray({names[0]}), with jax.lax.fori_loop where it counts iterations; what"
                " sizes an array, or is not a number, stays static, and should take few values"
            ),
        )


def _by_static(
    each: CompileRecord,
    before: Sequence[CompileRecord],
    declared: Any,
) -> bool:
    """Return whether a static value caused a program.

    True if JAX reports it, or if JAX knows of no difference and an earlier program had equal
    shapes.
    """
    if each.cause is None or declared is None or not declared[1]:
        return False
    if each.cause.why == "another static value":
        return True
    return (
        each.cause.why == "unknown"
        and each.shapes is not None
        and any(other.shapes == each.shapes for other in before)
    )


def _declared_parameters(file: str, line: int) -> tuple[list[str], list[str]] | None:
    """Return the parameters of the function on a line, and those that `jit` has as static."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return None
    for node in ast.walk(tree):
        # JAX reports `co_firstlineno`, the line of the first decorator.
        first = (
            None
            if not isinstance(node, ast.FunctionDef)
            else min([node.lineno, *(each.lineno for each in node.decorator_list)])
        )
        if isinstance(node, ast.FunctionDef) and line in (first, node.lineno):
            parameters = [
                each.arg
                for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            ]
            calls = [*node.decorator_list, *_wraps(tree, node.name)]
            return parameters, list(
                dict.fromkeys(name for call in calls for name in _static(call, parameters))
            )
    return None


def _wraps(tree: ast.Module, name: str) -> Iterator[ast.Call]:
    """Yield the calls that take the function as their first argument, `jax.jit(f, ...)`."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and node.args
            and isinstance(node.args[0], ast.Name)
            and node.args[0].id == name
        ):
            yield node


def _static(call: ast.expr, parameters: Sequence[str]) -> Iterator[str]:
    if not isinstance(call, ast.Call):
        return
    for word in call.keywords:
        if word.arg not in ("static_argnames", "static_argnums"):
            continue
        try:
            value = ast.literal_eval(word.value)
        except ValueError:
            continue
        for each in value if isinstance(value, (tuple, list, set)) else [value]:
            if isinstance(each, str):
                yield each
            elif isinstance(each, int) and -len(parameters) <= each < len(parameters):
                yield parameters[each]


def _argument(detail: str, parameters: Sequence[str]) -> str | None:
    """Return the parameter that a detail names.

    `static value at [1]['steps'], now ...` is a keyword, `static value at [0][1], ...` a position.
    """
    if word := re.match(r"static value at \[1\]\['(\w+)'\],", detail):
        return word[1]
    position = re.match(r"static value at \[0\]\[(\d+)\],", detail)
    return parameters[int(position[1])] if position and int(position[1]) < len(parameters) else None
