"""Errors of run-time type checkers that stand below `@optimize` and see what is traced.

An argument that is annotated `float` is traced, and inside of the trace it is an array. A checker
is known by what it does, whoever wrote it: it wraps the function, and raises before the function
has begun or after it has returned.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
import textwrap
import traceback
from collections.abc import Iterator, Mapping, Sequence
from types import CodeType, FunctionType

from .._contract.contract import Contract
from .._errors import JitneyError, TraceError
from .._jax.trees import Tracer, attribute, tree_flatten
from .._owners import owner, package, short
from .._signature.hints import ContainerHint, Hint, ScalarHint, TreeHint, UnionHint
from .._signature.resolving import innermost

_RULE = (
    "A number that is annotated `float` is traced, so that its values share a program. While a"
    " function is traced that is an array, and not a `float`."
)
_BOTH = 'write `float | Float[Array, ""]` for `float`'
# Words of beartype, jaxtyping and others for a traced number, and for what they want.
_TRACED = r"Tracer\b|Actual value: \w+\[\]"
_FLOAT = r"\b(?:float|complex)\b"


def checker_error(
    error: Exception,
    fn: object,
    contract: Contract,
    arguments: Mapping[str, object],
) -> TraceError | None:
    """Error for a type checker that refuses a traced number; None for other exceptions.

    Args:
        error: Exception that the body has raised while it was traced.
        fn: The decorated function.
        contract: Its signature.
        arguments: What it was called with, by name.
    """
    if isinstance(error, JitneyError):
        return None
    numbers = [
        item.name
        for item in contract.parameters
        if _holds_number(item.hint) and _is_traced(arguments.get(item.name))
    ]
    body = attribute(innermost(fn)[0], "__code__")
    ran = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    wrapper = next((each for each in wrappers(fn) if each in ran), None)
    if wrapper is None or body is None or body in ran:
        return _further_inside(error, contract, numbers)

    decorator = _decorator_of(wrapper, fn)
    who = decorator or f"the type checker around it ({_author(wrapper)}'s)"
    above = "; put the type checker above @optimize, where it sees the number" if decorator else ""
    said = _said(error)
    quoted = [name for name in numbers if re.search(rf"(['\"]){name}\1|\b{name}=", said)]
    refused = quoted if re.search(_FLOAT, said) else []
    if refused:
        static = repr(refused[0]) if len(refused) == 1 else repr(tuple(refused))
        return TraceError(
            contract.where,
            f"{' and '.join(map(repr, refused))} is traced, and {who} takes a `float` alone.",
            _RULE,
            f"{_BOTH}{above}; or say static={static}, which is a program for each value.",
            code="J274",
        )
    if _holds_number(contract.result) and "return" in said and re.search(_TRACED, said):
        return TraceError(
            contract.where,
            f"the result is traced, and {who} takes a `float` alone.",
            _RULE,
            f'annotate the result `Float[Array, ""]`{above}.',
            code="J274",
        )
    return None


def _further_inside(
    error: Exception,
    contract: Contract,
    numbers: Sequence[str],
) -> TraceError | None:
    """Error for a checker of something that the body calls, which got a traced number."""
    *_, (last, _) = traceback.walk_tb(error.__traceback__)
    if owner(last.f_code.co_filename) not in ("library", "generated"):
        return None
    said = _said(error)
    if not re.search(_TRACED, said) or not re.search(_FLOAT, said):
        return None
    users = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if owner(frame.filename) == "user"
    ]
    line = f"{short(users[-1].filename)}:{users[-1].lineno}" if users else "a line"
    static = f"; or say static={numbers[0]!r}, if it comes from there" if numbers else ""
    return TraceError(
        contract.where,
        f"{line} passes on a number that is traced, where {_author(last.f_code)} takes a `float`"
        f" alone: {_short(said)}",
        _RULE,
        f"{_BOTH} in that signature{static}.",
        code="J274",
    )


def _holds_number(hint: Hint) -> bool:
    match hint:
        case ScalarHint():
            return True
        case UnionHint(options=parts) | ContainerHint(items=parts):
            return any(map(_holds_number, parts))
        case TreeHint(leaf=leaf):
            return _holds_number(leaf)
        case _:
            return False


def _is_traced(value: object) -> bool:
    return any(isinstance(leaf, Tracer) for leaf in tree_flatten(value)[0])


def _short(said: str) -> str:
    first = said.partition("\n")[0]
    return first if len(first) <= 100 else f"{first[:97]}..."


def _said(error: Exception) -> str:
    """The message of a checker, without the list of all arguments that jaxtyping puts below."""
    return str(error).strip().partition("\n---")[0]


def wrappers(fn: object) -> Iterator[CodeType]:
    """Code of the functions around the innermost one."""
    while True:
        inner = attribute(fn, "__wrapped__")
        if inner is None:
            return
        code = attribute(fn, "__code__")
        if code is not None:
            yield code
        fn = inner


def _author(wrapper: CodeType) -> str:
    """The package that a wrapper is of, or its file."""
    generated = re.match(r"<@(\w+)\(", wrapper.co_filename)
    return generated[1] if generated else package(wrapper.co_filename) or short(wrapper.co_filename)


def _decorator_of(wrapper: CodeType, fn: object) -> str | None:
    """The line with the decorator that has made a wrapper; None if there is none, as by a hook of
    imports.
    """
    author = _author(wrapper)
    for line, text, decorator in _decorators(innermost(fn)[0]):
        # The wrapper of one that is decorated itself is not the one that it makes.
        code = None if hasattr(decorator, "__wrapped__") else attribute(decorator, "__code__")
        home = str(attribute(decorator, "__module__", "")).partition(".")[0]
        if home == author or (code is not None and code.co_filename == wrapper.co_filename):
            return f"`@{text}` at {line}"
    return None


def _decorators(fn: object) -> Iterator[tuple[str, str, object]]:
    """Decorators in the source of a function: line, text, and the object that the text names."""
    if not isinstance(fn, FunctionType):
        return
    try:
        lines, first = inspect.getsourcelines(fn)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    # No source at hand, or a part of a line.
    except (OSError, TypeError, SyntaxError):
        return
    if not isinstance(tree.body[0], ast.FunctionDef):
        return
    for each in tree.body[0].decorator_list:
        named = each.func if isinstance(each, ast.Call) else each
        found = _looked_up(named, {**fn.__globals__, **inspect.getclosurevars(fn).nonlocals})
        while isinstance(found, functools.partial):
            found = found.func
        line = f"{short(fn.__code__.co_filename)}:{first + each.lineno - 1}"
        yield line, ast.unparse(each), found


def _looked_up(named: ast.expr, names: Mapping[str, object]) -> object:
    if isinstance(named, ast.Name):
        return names.get(named.id)
    if isinstance(named, ast.Attribute):
        return getattr(_looked_up(named.value, names), named.attr, None)
    return None
