"""What a rule is: for one operation, what it does along an axis, and how it is carried out where only a leading part is valid."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .._jax.trees import is_a
from .dims import Dim, is_ragged, symbols
from .walk import Op, Walk

Kind = Literal["reduced", "scanned", "sorted", "gathered", "contracted", "mixed"]


@dataclass(frozen=True)
class Use:
    """What one operation does along the axes of some symbols. An operation that treats each element alone has no use.

    Args:
        symbols: Which axes.
        kind: How.
        how: The monoid of a reduction, or what is mixed.
        op: JAX's name of the operation.
        place: The user's line, "fit.py:12 (residual)".
        refused: Why it cannot be carried out on a padded axis; None if it can.
    """

    symbols: frozenset[str]
    kind: Kind
    how: str
    op: str
    place: str
    refused: str | None = None


@dataclass(frozen=True)
class Rule:
    """One operation.

    Args:
        uses: What it does along each axis of symbolic size.
        pad: Its results, from operands of which the leading parts are valid.
    """

    uses: Callable[[Op], Iterable[Use]]
    pad: Callable[[Walk, Op, list[Any]], list[Any]]


def use(op: Op, dims: Dim | Sequence[Dim], kind: Kind, how: str, refused: str | None = None) -> Use:
    """A use of the axes with these sizes."""
    sizes: Sequence[Dim] = dims if is_a(dims, (tuple, list)) else (dims,)
    return Use(frozenset[str]().union(*map(symbols, sizes)), kind, how, op.name, op.place, refused)


def refuse(op: Op, dims: Dim | Sequence[Dim], why: str) -> Use:
    return use(op, dims, "mixed", why, why)


def ragged_dims(dims: Iterable[Dim]) -> list[Dim]:
    return [dim for dim in dims if is_ragged(dim)]


def nothing(op: Op) -> Iterator[Use]:
    """Each element alone."""
    return iter(())


def same(walk: Walk, op: Op, values: list[Any]) -> list[Any]:
    """The operation as it is."""
    return walk.bind(op, values)


POINTWISE = Rule(nothing, same)
