"""JAX's symbolic dimensions, as expressions that can be evaluated and bounded.

`str(dim)` is public and documented; the class behind it is not. So a dimension is printed, parsed
once, and evaluated on ints (shapes), NumPy ranges (checks over a whole bucket) or traced scalars
(masks), all by the one evaluator of sizes:

    2*n + 1 at n = 5                   11
    2*n + 1 at n = arange(1, 4)        [3, 5, 7]
    2*n + 1 at n = i32[] tracer        tracer
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from jax import export

from .._extent import Expression, Unreadable, read_dim
from .refusal import Refused

Dim = Any
"""An int, or a symbolic dimension of JAX."""


def is_ragged(dim: Dim) -> bool:
    """Return whether a size depends on a symbol."""
    return not isinstance(dim, (int, np.integer))


@dataclass(frozen=True)
class Extent:
    """A size as an expression over symbols."""

    expression: Expression

    @property
    def symbols(self) -> frozenset[str]:
        return self.expression.names

    def at(self, sizes: Mapping[str, object]) -> Any:
        """The value at given sizes of the symbols: an int, an array of ints, or a traced scalar.

        Raises:
            Refused: The expression has a form that jitney does not know.
        """
        try:
            return self.expression.at(sizes)
        except Unreadable as error:
            raise Refused(
                "", f"makes an array of {self.expression.text} elements: {error}"
            ) from error

    def grows(self, ranges: Mapping[str, tuple[int, int]]) -> bool:
        """Return whether no value exceeds that at the largest sizes, with each symbol in its range.

        Then the valid part of an array fits into what is allocated at the largest sizes.
        """
        least = {symbol: low for symbol, (low, _) in ranges.items()}
        if _is_monotone(self.expression.tree, least):
            return True
        # Not monotone by form: try all sizes in the range, which takes a single symbol.
        if len(self.symbols) != 1:
            return False
        (symbol,) = self.symbols
        low, high = ranges[symbol]
        values = self.at({symbol: np.arange(low, high + 1)})
        largest = values[-1]
        return bool(np.all(values >= 0) and np.all(values <= largest))

    def grows_from_zero(self, ranges: Mapping[str, tuple[int, int]]) -> bool:
        """Return whether `grows` holds, and no value is negative."""
        if not self.grows(ranges):
            return False
        # Without a form that shows it, `grows` has looked at each value.
        least = {symbol: low for symbol, (low, _) in ranges.items()}
        return not _is_monotone(self.expression.tree, least) or self.at(least) >= 0


def extent(dim: Dim) -> Extent:
    """The expression of a symbolic dimension."""
    return Extent(read_dim(dim))


def evaluate(dim: Dim, sizes: Mapping[str, object]) -> Any:
    """The value of a dimension, symbolic or not."""
    return extent(dim).at(sizes) if is_ragged(dim) else int(dim)


def symbols(dim: Dim) -> frozenset[str]:
    return extent(dim).symbols if is_ragged(dim) else frozenset()


def size_per_element(dims: Sequence[Dim]) -> int:
    """The number of elements of an array per element of its symbolic axis."""
    return math.prod(evaluate(dim, dict.fromkeys(symbols(dim), 1)) for dim in dims)


def _is_monotone(node: ast.expr, least: Mapping[str, int]) -> bool:
    """Return whether the form of an expression shows that it does not fall in any symbol, from the
    least sizes on.
    """
    match node:
        case ast.Constant() | ast.Name():
            return True
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _is_monotone(left, least) and _is_monotone(right, least)
        case ast.BinOp(left=left, op=ast.Sub(), right=ast.Constant()):
            return _is_monotone(left, least)
        # A product or a power of terms that do not fall does not fall if no term is negative:
        # (n - 5)*(n - 5) is 16, 9, 4, 1, 0 before it rises.
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _rises_from_zero(left, least) and _rises_from_zero(right, least)
        case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant()):
            return _rises_from_zero(left, least)
        case ast.Call(func=ast.Name(id="max" | "min"), args=args):
            return all(_is_monotone(arg, least) for arg in args)
        case ast.Call(
            func=ast.Name(id="floordiv"),
            args=[first, ast.Constant(value=int() as divisor)],
        ):
            return divisor > 0 and _is_monotone(first, least)
        case _:
            return False


def _rises_from_zero(node: ast.expr, least: Mapping[str, int]) -> bool:
    """Return whether an expression is shown not to fall, and is not negative at the least sizes and
    so nowhere.
    """
    return _is_monotone(node, least) and Expression(ast.unparse(node), node).at(least) >= 0


def is_multiple(dim: Dim, symbol: str) -> bool:
    """Return whether a size is a multiple of a symbol (`n`, `3*n`), so that a chunk of the axis is
    a chunk of the array too.
    """
    match extent(dim).expression.tree:
        case (
            ast.Name(id=name)
            | ast.BinOp(left=ast.Constant(), op=ast.Mult(), right=ast.Name(id=name))
        ):
            return name == symbol
        case _:
            return False


def tree_dims(params: object) -> Iterator[Dim]:
    """Yield symbolic dimensions anywhere in the parameters of an operation, sub-jaxprs aside."""
    if isinstance(params, (tuple, list)):
        for part in params:
            yield from tree_dims(part)
    elif isinstance(params, Mapping):
        for part in params.values():
            yield from tree_dims(part)
    elif is_symbolic(params):
        yield params


def is_symbolic(value: object) -> bool:
    """Return whether a value is one of JAX's symbolic dimensions."""
    return isinstance(value, symbolic_class())


@cache
def symbolic_class() -> type:
    """JAX's class of symbolic dimensions, taken from an instance, since it has no public name.
    Tried on jax 0.10.0, 0.10.2 and 0.12.0.1.
    """
    return type(export.symbolic_shape("d0")[0])


LARGEST = 2**31 - 1
"""The largest size that the device counts: an int32."""


def is_countable(dim: Dim, ranges: Mapping[str, tuple[int, int]]) -> bool:
    """Return whether a size, and each intermediate value of its expression, fits into 32 bits for
    all sizes in the ranges.
    """
    if not is_ragged(dim):
        return True
    most = {symbol: high for symbol, (_, high) in ranges.items()}
    return _magnitude(extent(dim).expression.tree, most) <= LARGEST


def _magnitude(node: ast.expr, most: Mapping[str, int]) -> int:
    """Upper bound of the absolute value of an expression and of its parts."""
    match node:
        case ast.Constant(value=int() as value):
            return abs(value)
        case ast.Name(id=name):
            return most[name]
        case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int() as power)):
            return _magnitude(left, most) ** power
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _magnitude(left, most) * _magnitude(right, most)
        # floordiv, mod, max, min: no larger than their arguments, which have to fit as well.
        case ast.Call(args=args):
            return max(_magnitude(arg, most) for arg in args)
        case _:
            parts = (part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr))
            return sum(_magnitude(part, most) for part in parts)
