"""Parser and evaluator of sizes that are written as expressions: `2*n+1`, `n**2`, `max(n,3)`,
`{model.width}+1`.

It stands below its three users: contracts evaluate sizes of annotations on ints; padding and chunks
evaluate them on symbolic sizes; and the rules of the axes evaluate the text of JAX's symbolic
dimensions on ints, NumPy ranges and traced scalars. The evaluator is a whitelist over `ast`, never
`eval`.

    read("2*n+1").at({"n": 3})                       ->  7
    names_in("{model.width}+n")                      ->  {"n"}
    fill_braces("{model.width}+n", {"model": model}) ->  "16+n"
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial, reduce
from typing import Any

import jax
import numpy as np
from jax import core
from jax.extend.core import InconclusiveDimensionOperation

_PLAIN = (
    int,
    float,
    str,
    list,
    tuple,
    dict,
    np.integer,
)
_LARGEST_POWER = 64


class Unreadable(Exception):
    """Reason why a size cannot be computed, worded as part of a sentence. It never leaves
    jitney.
    """


@dataclass(frozen=True)
class Expression:
    """Size as written, and its syntax tree."""

    text: str
    tree: ast.expr

    @property
    def names(self) -> frozenset[str]:
        """Axes, or symbols, that the size depends on."""
        nodes = [*ast.walk(self.tree)]
        functions = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
        names = [node for node in nodes if isinstance(node, ast.Name)]
        return frozenset(name.id for name in names if id(name) not in functions)

    def at(self, sizes: Mapping[str, object]) -> Any:
        """Evaluate with a size for each name: an int or a float, an array of ints, a traced scalar,
        a symbolic dimension.

        Raises:
            Unreadable: A name has no size, or an operation is not arithmetic that is exact for such
                sizes.
        """
        value = _compute(self.tree, sizes)
        if isinstance(value, str | list | tuple | dict):
            raise Unreadable(f"`{self.text}` is not a number")
        return value


@lru_cache(maxsize=4096)
def read(text: str) -> Expression:
    """Parse a size in Python's notation.

    Raises:
        Unreadable: It is not an expression.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval")
        return Expression(text, tree.body)
    except (SyntaxError, ValueError) as error:
        raise Unreadable(f"`{text}` is not an expression") from error


def read_dim(dim: object) -> Expression:
    """Parse one of JAX's symbolic dimensions. The grammar in JAX's documentation is that of Python,
    except that `^` is a power.
    """
    return read(str(dim).replace("^", "**"))


def names_in(text: str) -> frozenset[str]:
    """Axes that a size of an annotation depends on; names in braces are arguments, not axes."""
    try:
        return read(re.sub(r"\{[^}]*\}", "0", text)).names
    except Unreadable:
        return frozenset()


def fill_braces(text: str, arguments: Mapping[str, object]) -> str:
    """Replace `{argument.attribute}` in a size by its value, as jaxtyping does with an f-string.

    Raises:
        Unreadable: The braces contain something else than a name, an attribute or an item, or have
            no value.
    """
    if "{" not in text:
        return text

    # Python's own parser of f-strings finds the braces.
    parsed = read("f" + repr(text)).tree
    parts = parsed.values if isinstance(parsed, ast.JoinedStr) else [parsed]
    pieces: list[str] = []

    for part in parts:
        if isinstance(part, ast.Constant):
            pieces.append(str(part.value))
        elif (
            isinstance(part, ast.FormattedValue)
            and part.conversion == -1
            and part.format_spec is None
        ):
            value = _compute(part.value, arguments, attributes=True)
            pieces.append(_size_text(value, ast.unparse(part.value)))
        else:
            raise Unreadable(f"`{text}` has a format that jitney does not read")

    return "".join(pieces)


def is_known(value: object) -> bool:
    """Return whether a size is a plain number, and not a symbol, a range or a traced scalar."""
    return isinstance(value, int | float | np.integer)


def _size_text(value: object, source: str) -> str:
    if isinstance(value, str):
        return value
    if is_known(value):
        return str(value)
    raise Unreadable(f"`{source}` is a {type(value).__name__}, not a number")


def _compute(
    node: ast.expr,
    names: Mapping[str, object],
    *,
    attributes: bool = False,
) -> object:
    def go(inner: ast.expr) -> object:
        return _compute(inner, names, attributes=attributes)

    match node:
        case ast.Constant(value=int() | float() | str() as value):
            return value
        case ast.Name(id=name):
            try:
                return names[name]
            except KeyError:
                raise Unreadable(f"`{name}` has no {'value' if attributes else 'size'}") from None
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            operate = _OPERATORS[type(op)]
            return _apply(node, operate, go(left), go(right))
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _OPERATORS:
            return _apply(node, _OPERATORS[type(op)], go(operand))
        case ast.Tuple(elts=items) | ast.List(elts=items):
            return [go(item) for item in items]
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if (
            name in _CALLS and name not in names
        ):
            return _call(node, name, [go(arg) for arg in args])
        case ast.Attribute(value=value, attr=attr) if attributes and not attr.startswith("__"):
            return _guard(node, lambda: getattr(go(value), attr))
        case ast.Subscript(value=value, slice=index) if attributes:
            return _item(node, go(value), go(index))
        case _:
            raise Unreadable(f"jitney does not read `{ast.unparse(node)}` in a size")


def _apply(
    node: ast.expr,
    op: Callable[..., object],
    *values: object,
) -> object:
    _demand_numbers(node, values)
    if op is operator.pow:
        return _power(node, *values)
    if op is operator.truediv and not all(map(is_known, values)):
        raise Unreadable(
            f"`{ast.unparse(node)}` is a division with `/`; of a size that is not known yet only"
            " `//` is one"
        )
    return _guard(node, lambda: op(*values))


def _demand_numbers(node: ast.expr, values: Sequence[object]) -> None:
    """Check the operands. A size that is not known yet admits no fractions, since fractions would
    be 32-bit numbers on the device.
    """
    known = all(map(is_known, values))
    for value in values:
        if isinstance(value, str | list | tuple | dict) or not (
            is_known(value) or hasattr(value, "__add__")
        ):
            raise Unreadable(f"`{ast.unparse(node)}` is not made of numbers")
        if isinstance(value, float) and not known:
            raise Unreadable(f"`{ast.unparse(node)}` has a fraction")


def _power(node: ast.expr, base: Any, power: Any) -> object:
    if not is_known(power):
        raise Unreadable(f"the power in `{ast.unparse(node)}` is not known yet")
    # The power is the number of factors in the product below.
    if abs(power) > _LARGEST_POWER:
        raise Unreadable(f"`{ast.unparse(node)}` has too large a power")
    if is_known(base):
        return _guard(node, lambda: operator.pow(base, power))
    if power < 0:
        raise Unreadable(f"`{ast.unparse(node)}` has a power below 0")
    # A product works for every kind of size.
    return reduce(operator.mul, [base] * int(power), 1)


def _extreme(name: str, a: Any, b: Any) -> object:
    if is_known(a) and is_known(b):
        return min(a, b) if name == "min" else max(a, b)
    module, function = core, f"{name}_dim"
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        module, function = np, f"{name}imum"
    elif isinstance(a, jax.Array) or isinstance(b, jax.Array):
        module, function = jax.numpy, f"{name}imum"
    return getattr(module, function)(a, b)


def _identity(a: object) -> object:
    """Identity. Symbolic dimensions have no unary `+`."""
    return a


def _absolute(a: Any) -> object:
    return _extreme("max", a, -a)


_OPERATORS: Mapping[type[ast.AST], Callable[..., object]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
    ast.UAdd: _identity,
}
# Functions of plain values.
_CALLS: Mapping[str, Callable[..., object]] = {
    "min": min,
    "max": max,
    "abs": abs,
    "len": len,
    "sum": sum,
    "int": int,
    "round": round,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
}
# Functions of sizes that are not known yet, which are whole numbers.
_OPEN_CALLS: Mapping[str, Callable[..., object]] = {
    "min": lambda *args: reduce(partial(_extreme, "min"), args),
    "max": lambda *args: reduce(partial(_extreme, "max"), args),
    "abs": _absolute,
    "sum": lambda *args: reduce(operator.add, args),
    "int": _identity,
    "round": _identity,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
}


def _call(
    node: ast.expr,
    name: str,
    args: list[object],
) -> object:
    # `min((a, b))` is the same as `min(a, b)`.
    flat = args
    if len(args) == 1 and isinstance(args[0], list | tuple):
        flat = [*args[0]]
    if name == "len" or all(isinstance(arg, _PLAIN) for arg in flat):
        return _guard(node, lambda: _CALLS[name](*args))
    _demand_numbers(node, flat)
    return _guard(node, lambda: _OPEN_CALLS[name](*flat))


def _item(node: ast.expr, value: object, index: Any) -> object:
    if not isinstance(value, tuple | list | Mapping):
        raise Unreadable(f"`{ast.unparse(node)}` is not an item of a tuple, list or dict")
    return _guard(node, lambda: value[index])


def _guard(node: ast.expr, compute: Callable[[], object]) -> object:
    try:
        return compute()
    except (
        ArithmeticError,
        AttributeError,
        InconclusiveDimensionOperation,
        LookupError,
        TypeError,
        ValueError,
    ) as error:
        raise Unreadable(f"`{ast.unparse(node)}` fails: {error}") from error


AUTO = "auto"
"""As much as is available."""
_UNITS = {
    "": 1,
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
    "TIB": 2**40,
}


def parsed_bytes(value: object) -> int | str | None:
    """Number of bytes from a user's value, or "auto"; None if it is neither."""
    if isinstance(value, str) and value == AUTO:
        return AUTO
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    size = read_bytes(str(value))
    if size is None or size <= 0:
        return None
    return int(size)


def read_bytes(text: str) -> float | None:
    """Number of bytes from a text with an optional unit; None if it cannot be read."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    if match is None:
        return None
    unit = match[2].upper()
    return float(match[1]) * _UNITS[unit] if unit in _UNITS else None
