"""Queries about an operation along the cut axis: its uses of the axis, and the state that it
carries from chunk to chunk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..._jax.programs.primitives import public_name
from ..interpreter import Op, mentions
from ..refusal import Refused
from ..rule import Carrier, Use
from ..rules import RULES
from ..rules.control import forward_programs
from ..uses import uses_of


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


def is_made_at_size(use: Use) -> bool:
    """Return whether an operation with this use of the axis is what plain JAX makes of it, where
    it is evaluated on whole operands.
    """
    rule = RULES.get(use.op)
    return rule is not None and (use.refused is None or rule.at_size)


def describe_use(op: Op, use: Use) -> str:
    """Describe a use of the axis by an operation, or inside of it, as a part of a sentence."""
    what = use.refused or use.how
    name = public_name(op.name)
    if use.op == op.name:
        return f"looks along it: {what} (`{name}`)"
    return f"looks along it inside `{name}`: {what}"


def carrier_of(op: Op) -> Carrier | None:
    """The state that an operation carries from chunk to chunk; None if it carries none."""
    rule = RULES.get(op.name)
    return None if rule is None else rule.carrier


def can_be_cut(op: Op, uses: Sequence[Use]) -> bool:
    """Return whether an operation's uses of the axis can be accumulated over chunks, or carried
    from chunk to chunk.
    """
    carrier = carrier_of(op)
    if carrier is None or any(use.refused for use in uses):
        return False
    return carrier.can_be_cut(op, uses)


def direction_of(op: Op) -> bool | None:
    """The direction of an operation along the axis: True from the end, False from the front, None
    if either will do.
    """
    carrier = carrier_of(op)
    return None if carrier is None else carrier.direction(op)


def is_along(op: Op) -> bool:
    """Return whether an operation is a loop over the axis."""
    carrier = carrier_of(op)
    return carrier is not None and carrier.runs_along(op)


def accumulates(op: Op) -> bool:
    """Return whether an operation accumulates one value over all chunks.

    Other operations may return values without the axis as well, such as the counter of a loop over
    another axis. No use of the axis enters them, so they are the same in each chunk, and are
    computed again there.
    """
    carrier = carrier_of(op)
    return carrier is not None and carrier.accumulates(op)


def emits(op: Op) -> bool:
    """Return whether an operation is a prefix scan along the axis, such as `cumsum`."""
    carrier = carrier_of(op)
    return carrier is not None and carrier.emits(op)
