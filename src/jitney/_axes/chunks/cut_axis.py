"""Queries about an operation along the cut axis: its uses of the axis, and the state that it
carries from chunk to chunk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from ..._jax.programs.jaxprs import scan_parts
from ..._jax.programs.primitives import public_name
from ..callbacks import is_ordered
from ..dims import is_ragged
from ..interpreter import Op, mentions, ragged_axes
from ..monoids import Monoid
from ..refusal import Refused
from ..rule import CarryKind, Use
from ..rules import RULES
from ..rules.control import forward_programs
from ..rules.index import cuts_windows
from ..uses import uses_of
from .picks import can_be_picked

T = TypeVar("T")


def refusal(op: Op, what: str) -> Refused:
    """The refusal of an operation, with its line and its name: `what` is a part of a sentence."""
    return Refused(op.place, f"{what} (`{public_name(op.name)}`)")


def uses_along(op: Op) -> Iterator[Use]:
    """Yield the uses of the axis in an operation, and in the sub-jaxprs that it holds."""
    if not mentions(op):
        return
    rule = RULES.get(op.name)
    if rule is None:
        how = f"`{public_name(op.name)}`, which has no rule,"
        yield Use(frozenset(), "mixed", how, op.name, op.place)
        return
    yield from rule.uses_of(op)
    for program in forward_programs(op):
        yield from uses_of(program, op.ranges, op.place)


def checked_uses(op: Op) -> tuple[Use, ...]:
    """The uses of the axis in a loop, branch or solve that does not run along the axis.

    Raises:
        Refused: One of them is refused by its rule.
    """
    uses = tuple(uses_along(op))
    refused = next((use for use in uses if use.refused), None)
    if refused is not None:
        raise Refused(refused.place, describe_use(op, refused))
    return uses


def describe_use(op: Op, use: Use) -> str:
    """Describe a use of the axis by an operation, or inside of it, as a part of a sentence."""
    what = use.refused or use.how
    name = public_name(op.name)
    if use.op == op.name:
        return f"looks along it: {what} (`{name}`)"
    return f"looks along it inside `{name}`: {what}"


def can_be_cut(op: Op, uses: Sequence[Use]) -> bool:
    """Return whether an operation's uses of the axis can be accumulated over chunks, or carried
    from chunk to chunk.
    """
    if any(use.refused for use in uses):
        return False
    way = carry_kind(op)
    if way == "written":
        return not ragged_axes(op.ins[0]) and cuts_windows(op)
    if way == "picked":
        return can_be_picked(op)
    # The one use is the loop itself: its body must have none.
    if way == "looped":
        return is_along(op) and len(uses) == 1
    # A convolution may have two uses: a sum over features, which folds, and windows along space,
    # which have no monoid.
    if way == "folded":
        return all(use.monoid is not None for use in uses)
    return way is not None


def carry_kind(op: Op) -> CarryKind | None:
    """The kind of state that an operation carries from chunk to chunk; None if it carries none."""
    rule = RULES.get(op.name)
    if rule is None or rule.carried_state is None:
        return None
    return rule.carried_state.way


def direction_of(op: Op) -> bool | None:
    """The direction of an operation along the axis: True from the end, False from the front, None
    if either will do.
    """
    if is_cumulated(op):
        return bool(op.params["reverse"])
    if is_along(op) and (initial_carry(op, list(op.eqn.invars)) or is_ordered(op)):
        return bool(op.params["reverse"])
    return None


def is_along(op: Op) -> bool:
    """Return whether an operation is a loop over the axis."""
    return carry_kind(op) == "looped" and is_ragged(op.params["length"])


def is_cumulated(op: Op) -> bool:
    """Return whether an operation is a prefix scan along the axis, such as `cumsum`."""
    return carry_kind(op) == "cumulated" and is_ragged(op.ins[0][op.params["axis"]])


def accumulates(op: Op) -> bool:
    """Return whether an operation accumulates one value over all chunks.

    Other operations may return values without the axis as well, such as the counter of a loop over
    another axis. No use of the axis enters them, so they are the same in each chunk, and are
    computed again there.
    """
    way = carry_kind(op)
    if way == "looped":
        return is_along(op)
    # An operand with the axis: each row is written into its own row, or it could not be cut.
    if way == "written" and ragged_axes(op.ins[0]):
        return False
    if way not in ("folded", "placed", "picked", "topped", "written"):
        return False
    return any(map(ragged_axes, op.ins))


def monoid_of(op: Op) -> Monoid:
    """The monoid that combines the partial results of an operation that accumulates."""
    across = RULES[op.name].carried_state
    if across is None or across.monoid is None:
        raise AssertionError(f"`{op.name}` accumulates by no monoid")
    return across.monoid


def initial_carry(op: Op, values: list[T]) -> list[T]:
    """The operands, among `values`, that are the initial carry of a loop over the axis."""
    return scan_parts(op.eqn, values)[1]
