"""What one operation does along the axis that is cut: where it looks, and what of it goes on from
chunk to chunk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..._jax.jaxprs import scan_parts
from ..._jax.primitives import spelled
from ..callbacks import is_ordered
from ..dims import is_ragged
from ..monoids import Monoid
from ..refusal import Refused
from ..rule import Use, Way
from ..rules import RULES
from ..rules.control import inner
from ..uses import uses_of
from ..walk import Op, mentions, ragged
from .picks import can_be_picked


def uses_along(op: Op) -> Iterator[Use]:
    """Where an operation looks along the axis, itself or in a program that it holds."""
    if not mentions(op):
        return
    rule = RULES.get(op.name)
    if rule is None:
        yield Use(
            frozenset(), "mixed", f"`{spelled(op.name)}`, which has no rule,", op.name, op.place
        )
        return
    yield from rule.uses_of(op)
    for program in inner(op):
        yield from uses_of(program, op.ranges, op.place)


def checked_uses(op: Op) -> tuple[Use, ...]:
    """Where a loop, a branch or a solve over another axis looks along this one.

    Raises:
        Refused: It does so in a way that cannot be cut.
    """
    uses = tuple(uses_along(op))
    refused = next((use for use in uses if use.refused), None)
    if refused is not None:
        raise Refused(refused.place, looks_along(op, refused))
    return uses


def looks_along(op: Op, use: Use) -> str:
    """What an operation, or one inside of it, does along the axis, as a part of a sentence."""
    what = use.refused or use.how
    return (
        f"looks along it: {what} (`{spelled(op.name)}`)"
        if use.op == op.name
        else f"looks along it inside `{spelled(op.name)}`: {what}"
    )


def can_be_cut(op: Op, uses: Sequence[Use]) -> bool:
    """Whether what an operation does along the axis can be accumulated, or carried from chunk to
    chunk.
    """
    if any(use.refused for use in uses):
        return False
    way = way_of(op)
    if way == "written":
        return not ragged(op.ins[0])
    if way == "picked":
        return can_be_picked(op)
    if way == "looped":
        return is_along(op) and len(uses) == 1  # none inside its body
    if way == "folded":
        # a convolution sums over features, and looks around along space
        return all(use.monoid is not None for use in uses)
    return way is not None


def way_of(op: Op) -> Way | None:
    """What of an operation goes on from chunk to chunk; None where nothing does."""
    rule = RULES.get(op.name)
    return None if rule is None or rule.across is None else rule.across.way


def way_along(op: Op) -> bool | None:
    """Whether an operation goes from the end, if it goes one way along the axis."""
    if is_cumulated(op):
        return bool(op.params["reverse"])
    if is_along(op) and (carried(op, list(op.eqn.invars)) or is_ordered(op)):
        return bool(op.params["reverse"])
    return None


def is_along(op: Op) -> bool:
    """Whether an operation is a loop over the axis."""
    return way_of(op) == "looped" and is_ragged(op.params["length"])


def is_cumulated(op: Op) -> bool:
    """Whether each result of an operation along the axis is of all elements before it."""
    return way_of(op) == "cumulated" and is_ragged(op.ins[0][op.params["axis"]])


def accumulates(op: Op) -> bool:
    """Whether an operation of the axis makes one value of all of it together.

    Others make values without the axis beside those with it, such as the counter of a loop over
    another axis. Since nothing looks along the axis to make them, they are the same in each chunk,
    and are made anew there.
    """
    way = way_of(op)
    if way == "looped":
        return is_along(op)
    # its rows are each written alone, else it cannot be cut
    if way == "written" and ragged(op.ins[0]):
        return False
    return way in ("folded", "placed", "picked", "topped", "written") and any(map(ragged, op.ins))


def monoid_of(op: Op) -> Monoid:
    """What puts the parts of an operation that accumulates together."""
    across = RULES[op.name].across
    if across is None or across.monoid is None:
        raise AssertionError(f"`{op.name}` accumulates by no monoid")
    return across.monoid


def carried(op: Op, values: list[Any]) -> list[Any]:
    """The state that a loop over the axis starts with."""
    return scan_parts(op.eqn, values)[1]
