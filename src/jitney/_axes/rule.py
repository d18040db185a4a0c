"""The `Rule` of an operation: its uses of an axis, its evaluation on padded arrays, and the state
that it carries from chunk to chunk where the axis is cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal

import jax

from .dims import Dim, is_ragged, symbols
from .interpreter import Op, PaddedInterpreter
from .monoids import MONOIDS, Monoid

Kind = Literal["reduced", "scanned", "sorted", "gathered", "contracted", "mixed"]


@dataclass(frozen=True)
class Use:
    """A dependence of an operation on elements at other positions of an axis. An elementwise
    operation has no use.

    Args:
        symbols: The axes, by the symbols of their sizes.
        kind: Class of the dependence.
        how: Its description for people: the monoid of a reduction, or what is mixed.
        op: JAX's name of the operation.
        place: The user's line, "fit.py:12 (residual)".
        refused: Why it cannot be carried out on a padded axis; None if it can.
        monoid: The monoid that reduces the elements along the axes, if nothing else is done with
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
        """True if the elements along the axes are summed, and no rule refuses that."""
        return self.monoid is MONOIDS["add"] and self.refused is None


CarryKind = Literal["folded", "placed", "picked", "topped", "written", "cumulated", "looped"]


@dataclass(frozen=True)
class CarriedState:
    """The state that an operation carries from chunk to chunk where its axis is cut.

    Args:
        way: "folded": the fold of the chunks' results. "placed": index and value of the extreme
            element (argmax). "picked": the elements at given positions, as far as the chunks so far
            hold them. "topped": the largest elements and their indices (`top_k`). "written": the
            array that each chunk is scattered into. "cumulated": the last result of a prefix scan,
            from which the next chunk goes on. "looped": the carry of a loop along the axis.
        monoid: The monoid that combines states; None if there is none.
    """

    way: CarryKind
    monoid: Monoid | None = None


@dataclass(frozen=True)
class Rule:
    """The rule of a primitive.

    Args:
        uses: Yields the uses of each axis of symbolic size.
        pad: Evaluates the operation on operands whose leading parts are valid, so that the leading
            parts of the results are; a chunk is such an operand as well.
        carried_state: The state from chunk to chunk; None if there is none, so that an operation
            with a use of the axis has no chunked form.
        at_once: True if the operation may run on materialised operands, where it has no chunked
            form.
        makes: True if a new axis, which no operand has, comes out right in each chunk: the elements
            are equal, are counted from the start of the chunk, or come from a sub-jaxpr.
    """

    uses: Callable[[Op], Iterable[Use]]
    pad: Callable[[PaddedInterpreter, Op, list[Any]], list[jax.Array]]
    carried_state: CarriedState | None = None
    at_once: bool = False
    makes: bool = False

    def uses_of(self, op: Op) -> list[Use]:
        """The uses of an operation along each axis. An operation that makes an axis which no
        operand has counts as a use of it, unless `makes` is set.
        """
        # A chunk has a part of the new axis. Only a rule with `makes` knows which part that is.
        uses = list(self.uses(op))
        if uses or self.makes:
            return uses
        of_operands: set[str] = set()
        for dim in chain.from_iterable(op.ins):
            of_operands |= symbols(dim)
        results = ragged_dims(chain.from_iterable(op.outs))
        new = [dim for dim in results if not of_operands.issuperset(symbols(dim))]
        return [use(op, new, "gathered", "made of what does not have it")] if new else []


def use(
    op: Op,
    dims: Dim | Sequence[Dim],
    kind: Kind,
    how: str = "",
    *,
    monoid: Monoid | None = None,
    refused: str | None = None,
) -> Use:
    """Make a `Use` of the axes with these sizes; `how` defaults to the name of the monoid."""
    sizes: Sequence[Dim] = dims if isinstance(dims, (tuple, list)) else (dims,)
    of_sizes = frozenset[str]().union(*map(symbols, sizes))
    if not how and monoid is not None:
        how = monoid.word
    return Use(
        of_sizes,
        kind,
        how,
        op.name,
        op.place,
        refused,
        monoid,
    )


def refuse(
    op: Op,
    dims: Dim | Sequence[Dim],
    why: str,
) -> Use:
    return use(
        op,
        dims,
        "mixed",
        why,
        refused=why,
    )


def ragged_dims(dims: Iterable[Dim]) -> list[Dim]:
    return [dim for dim in dims if is_ragged(dim)]


def no_uses(op: Op) -> Iterator[Use]:
    """No uses: each element is treated alone."""
    return iter(())


def evaluate_unchanged(
    walk: PaddedInterpreter,
    op: Op,
    values: list[jax.Array],
) -> list[jax.Array]:
    """Evaluate the operation unchanged, on padded operands."""
    return walk.bind(op, values)


POINTWISE = Rule(no_uses, evaluate_unchanged)
