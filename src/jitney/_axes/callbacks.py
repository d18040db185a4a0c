"""What a program does besides its numbers: it prints, or calls back into Python.

Passes over an axis would do that in each chunk, in each pass and on each device. So it is told
apart: what a callback is given has no axis (else it is refused, since it would be given a part),
and so it is either the same in each chunk, and happens once, or it stands in a loop over the axis,
and happens once for each element. Wherever the operation is evaluated again, it is evaluated
without its callbacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._jax.equinox_checks import Insides, is_callback, is_of_check
from .._jax.jaxprs import opened, programs, source_of, unfollowed
from .._jax.primitives import CALLBACKS
from .refusal import Refused
from .typed_jax import lax
from .walk import Op, Walk, blanks


def check_effects(op: Op) -> None:
    """Check that all that an operation does besides its numbers is to call back.

    Raises:
        Refused: It changes a reference in place, or does what nobody knows.
    """
    for eqn in unfollowed([op.eqn]):
        kinds = ", ".join(sorted({type(effect).__name__ for effect in eqn.effects}))
        raise Refused(
            Op(eqn, seen_at=op.place).place,
            f"has an effect that is no callback's: {kinds} (`{eqn.primitive.name}`)",
        )


def demand_no_effects(jaxpr: Any) -> None:
    """Check that a body does nothing besides its numbers, so that it can run on elements that were
    filled in.

    The run-time checks of Equinox are let through: what is filled in repeats an element of the
    data, so that it fails where that fails.

    Raises:
        Refused: It calls back, or does something else, at whatever depth.
    """
    for eqn in Insides().equations(jaxpr):
        if is_callback(eqn) and not is_of_check(eqn):
            raise Refused(
                source_of(eqn),
                f"calls Python (`{eqn.primitive.name}`), which it may do for elements that are"
                " filled in too",
            )
        if any(map(_is_seen_outside, eqn.effects)) and not programs(eqn.params):
            raise Refused(
                source_of(eqn),
                f"has an effect (`{eqn.primitive.name}`), which it may have for elements that are"
                " filled in too",
            )


def _is_seen_outside(effect: Any) -> bool:
    """Not that a reference is made, read or written, which JAX maps only inside the element that
    made it.
    """
    name = type(effect).__name__
    return name not in ("InternalMutableArrayEffect", "ReadEffect", "WriteEffect", "AccumEffect")


def is_ordered(op: Op) -> bool:
    """Whether what an operation does comes after all such things before it. JAX has two such
    effects, without public names.
    """
    return any(type(effect).__name__.startswith("Ordered") for effect in op.eqn.effects)


def answers(op: Op, *, is_used: bool) -> bool:
    """Whether something reads what a callback returns, so that the operation has no numbers without
    it.

    Args:
        op: The operation.
        is_used: Whether something reads its results.
    """
    if op.name in CALLBACKS:
        return is_used and bool(op.eqn.outvars)
    return any(_is_read(program) for program in programs(op.params))


def _is_read(program: Any) -> bool:
    plain, _ = opened(program)
    read = {id(atom) for eqn in plain.eqns for atom in eqn.invars} | {
        id(atom) for atom in plain.outvars
    }
    for eqn in plain.eqns:
        if (
            eqn.effects
            and eqn.primitive.name in CALLBACKS
            and any(id(atom) in read for atom in eqn.outvars)
        ):
            return True
        if any(map(_is_read, programs(eqn.params))):
            return True
    return False


def told(walk: Walk, op: Op, values: Sequence[Any], when: Any) -> list[Any]:
    """The results of an operation whose callbacks are called where `when` is true: known now, or a
    bool of the program.

    Where it is false, the results are the same if nothing reads what the callbacks answer, and
    zeros else.
    """
    if when is True:
        return walk.make(op, values)
    if when is False:
        return walk.muted().make(op, values)

    def loud() -> list[Any]:
        return walk.make(op, values)

    def quiet() -> list[Any]:
        return blanks(op) if answers(op, is_used=True) else walk.muted().make(op, values)

    return list(lax.cond(when, loud, quiet))
