"""What a rule is: for one operation, what it does along an axis, how it is carried out where only a
leading part is valid, and how the parts are put together where the axis is cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from .._jax.trees import is_a
from .dims import Dim, is_ragged, symbols
from .monoids import MONOIDS, Monoid
from .walk import Op, Walk

Kind = Literal["reduced", "scanned", "sorted", "gathered", "contracted", "mixed"]


@dataclass(frozen=True)
class Use:
    """What one operation does along the axes of some symbols. An operation that treats each element
    alone has no use.

    Args:
        symbols: Which axes.
        kind: How.
        how: The monoid of a reduction, or what is mixed.
        op: JAX's name of the operation.
        place: The user's line, "fit.py:12 (residual)".
        refused: Why it cannot be carried out on a padded axis; None if it can.
        monoid: What puts all elements along the axes together, if that is all that is done with
            them.
    """

    symbols: frozenset[str]
    kind: Kind
    how: str
    op: str
    place: str
    refused: str | None = None
    monoid: Monoid | None = field(default=None, repr=False)

    @property
    def is_sum(self) -> bool:
        """Whether the elements along the axes are added up, and can be."""
        return self.monoid is MONOIDS["add"] and self.refused is None


Way = Literal["folded", "placed", "picked", "topped", "written", "cumulated", "looped"]


@dataclass(frozen=True)
class Across:
    """What goes on from chunk to chunk where the axis along which an operation looks is cut.

    Args:
        way: "folded": the results of the chunks are put together. "placed": where the extreme
            element is, and that element. "picked": the elements at positions that lie in the chunks
            until now. "topped": the largest elements, and where they are. "written": the array into
            which each chunk is written. "cumulated": the last of the results, which the next chunk
            goes on from. "looped": the state of a loop.
        monoid: By which that is put together; None of what is not put together by one.
    """

    way: Way
    monoid: Monoid | None = None


@dataclass(frozen=True)
class Rule:
    """One operation.

    Args:
        uses: What it does along each axis of symbolic size.
        pad: Its results, from operands of which the leading parts are valid; of a chunk too, of
            which that is one.
        across: What goes on from chunk to chunk; None where nothing does, so that what looks along
            the axis cannot be cut.
        at_once: Whether it is done on the whole of what it reads, which is held for it, where it
            cannot be put together of chunks.
        makes: Whether an axis that no operand has is made right in each chunk: alike everywhere,
            counted from where the chunk starts, or by a program inside.
    """

    uses: Callable[[Op], Iterable[Use]]
    pad: Callable[[Walk, Op, list[Any]], list[Any]]
    across: Across | None = None
    at_once: bool = False
    makes: bool = False

    def uses_of(self, op: Op) -> list[Use]:
        """What an operation does along each axis. What makes one of operands that do not have it
        looks along it, since only a rule that says so knows which part of it a chunk is.
        """
        uses = list(self.uses(op))
        if uses or self.makes:
            return uses
        there = {symbol for dims in op.ins for dim in dims for symbol in symbols(dim)}
        made = [
            dim
            for dims in op.outs
            for dim in ragged_dims(dims)
            if not there.issuperset(symbols(dim))
        ]
        return [use(op, made, "gathered", "made of what does not have it")] if made else []


def use(
    op: Op,
    dims: Dim | Sequence[Dim],
    kind: Kind,
    how: str = "",
    *,
    monoid: Monoid | None = None,
    refused: str | None = None,
) -> Use:
    """A use of the axes with these sizes; if nothing else says how, it is by the monoid."""
    sizes: Sequence[Dim] = dims if is_a(dims, (tuple, list)) else (dims,)
    said = how or (monoid.word if monoid is not None else "")
    return Use(
        frozenset[str]().union(*map(symbols, sizes)), kind, said, op.name, op.place, refused, monoid
    )


def refuse(op: Op, dims: Dim | Sequence[Dim], why: str) -> Use:
    return use(op, dims, "mixed", why, refused=why)


def ragged_dims(dims: Iterable[Dim]) -> list[Dim]:
    return [dim for dim in dims if is_ragged(dim)]


def nothing(op: Op) -> Iterator[Use]:
    """Each element alone."""
    return iter(())


def same(walk: Walk, op: Op, values: list[Any]) -> list[Any]:
    """The operation as it is."""
    return walk.bind(op, values)


POINTWISE = Rule(nothing, same)
