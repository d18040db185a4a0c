"""Proof that a body can be padded: the uses of each named axis, collected in one walk over its
jaxpr with symbolic sizes.

The proof is by induction over the equations: each has a rule that keeps the invariant of
`interpreter.py` (valid elements first, and exact), or it is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from .._jax.programs.jaxprs import open_jaxpr
from .._jax.programs.primitives import public_name
from .._jax.typed import AnyJaxpr
from .dims import is_countable
from .interpreter import Op, Ranges, grows, mentions
from .refusal import Refused
from .rule import Use, ragged_dims, refuse
from .rules import RULES
from .rules.control import forward_programs
from .rules.matrices import is_pseudo_inverse
from .xla_faults.overlapping_updates import overlapping_updates


def uses_of(
    jaxpr: AnyJaxpr,
    ranges: Ranges,
    seen_at: str = "",
    overlapping: frozenset[int] | None = None,
) -> Iterator[Use]:
    """Yield the uses of symbolic axes, in the order of the program.

    Args:
        jaxpr: The program.
        ranges: Symbol -> the least and the largest size it stands for.
        seen_at: The user's line of the operation that holds the program, for equations without a
            line of their own.
        overlapping: The `id` of each update that may read what it writes; by default they are
            looked for.
    """
    if overlapping is None:
        overlapping = overlapping_updates(jaxpr)
    for eqn in open_jaxpr(jaxpr)[0].eqns:
        op = Op(eqn, ranges, seen_at)
        if not mentions(op):
            continue
        rule = RULES.get(op.name)
        if rule is None:
            dims = ragged_dims(chain.from_iterable((*op.ins, *op.outs)))
            yield refuse(op, dims, f"`{public_name(op.name)}` has no rule")
            continue

        # Padding needs a valid part that fits into what is allocated, and sizes that int32 holds.
        made = ragged_dims(chain.from_iterable(op.outs))
        for dim in {str(dim): dim for dim in made}.values():
            what = f"makes an array of {dim} elements"
            if not is_countable(dim, ranges):
                yield refuse(op, dim, f"{what}, which 32 bits may not count")
            elif not grows(dim, ranges):
                yield refuse(op, dim, f"{what}, which does not grow with it")
        yield from rule.uses_of(op)
        written = ragged_dims(op.ins[0]) if id(eqn) in overlapping else ()
        if written:
            yield refuse(op, written, "updates an array by a moved part of itself")

        # Inside of `pinv` and `lstsq` an SVD with vectors is allowed: see `rules/matrices.py`.
        signs_cancel = is_pseudo_inverse(op)
        for program in forward_programs(op):
            for each in uses_of(program, ranges, op.place, overlapping):
                if signs_cancel and each.op == "svd":
                    yield replace(each, how="its pseudo-inverse", refused=None)
                else:
                    yield each


def demand(jaxpr: AnyJaxpr, ranges: Ranges) -> tuple[Use, ...]:
    """The uses of a program, none of which is refused.

    Raises:
        Refused: The first use that is.
    """
    uses: list[Use] = []
    # A padded program writes overlapping updates element by element.
    for use in uses_of(jaxpr, ranges, overlapping=frozenset()):
        if use.refused is not None:
            raise Refused(use.place, f"{use.refused} (`{public_name(use.op)}`)")
        uses.append(use)
    return tuple(uses)
