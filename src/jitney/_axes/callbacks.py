"""Side effects of a program: prints, and calls back into Python.

Chunked evaluation would repeat a callback in each chunk, in each pass and on each device. A
callback whose operands have the cut axis is refused, since it would see a part of them. Any other
one either has the same operands in each chunk, and is called once, or stands in a loop over the
axis, and is called once per element. Where its operation is evaluated again, it is muted:

    jax.debug.print("{}", sum(x))          once, when the pass is over
    scan over n with a print in its body   once per element, in the pass that its token ends
"""

from __future__ import annotations

from collections.abc import Sequence

import jax

from .._jax.equinox_checks import Insides, is_callback, is_of_check
from .._jax.programs.jaxprs import effectful_equations, open_jaxpr, programs, source_of
from .._jax.programs.primitives import CALLBACKS
from .._jax.typed import AnyJaxpr
from .interpreter import Op, PaddedInterpreter, zero_results
from .refusal import Refused
from .typed_jax import lax


def check_effects(op: Op) -> None:
    """Check that callbacks are the only side effects of an operation.

    Raises:
        Refused: It changes a reference in place, or has another effect.
    """
    for eqn in effectful_equations([op.eqn]):
        kinds = ", ".join(sorted({type(effect).__name__ for effect in eqn.effects}))
        raise Refused(
            Op(eqn, seen_at=op.place).place,
            f"has an effect that is not a callback's: {kinds} (`{eqn.primitive.name}`)",
        )


def demand_no_effects(jaxpr: AnyJaxpr) -> None:
    """Check that a body has no side effects, so that it can run on elements of padding.

    The run-time checks of Equinox are allowed: padding repeats an element of the data, so that a
    check fails on it only if it fails on the data.

    Raises:
        Refused: It calls back, or has another effect, in a sub-jaxpr of any depth.
    """
    effect = find_effect(jaxpr)
    if effect is not None:
        place, what = effect
        verb = "do" if what.startswith("calls") else "have"
        raise Refused(place, f"{what}, which it may {verb} for elements that are filled in too")


def find_effect(jaxpr: object) -> tuple[str, str] | None:
    """Return the user's line of the first side effect of a program, at any depth, and its
    description as a predicate; None if there is none. Run-time checks of Equinox are left out.
    """
    for eqn in Insides().equations(jaxpr):
        name = eqn.primitive.name
        if is_callback(eqn) and not is_of_check(eqn):
            return source_of(eqn), f"calls Python (`{name}`)"
        if any(map(_is_seen_outside, eqn.effects)) and not programs(eqn.params):
            return source_of(eqn), f"has an effect (`{name}`)"
    return None


def _is_seen_outside(effect: object) -> bool:
    """Return whether an effect is visible outside of the body. Making, reading and writing a
    reference is not: JAX maps a reference only inside of the element that made it.
    """
    name = type(effect).__name__
    return name not in ("InternalMutableArrayEffect", "ReadEffect", "WriteEffect", "AccumEffect")


def is_ordered(op: Op) -> bool:
    """Return whether an operation's callbacks are ordered: JAX has two such effects, without public
    names.
    """
    return any(type(effect).__name__.startswith("Ordered") for effect in op.eqn.effects)


def callback_result_is_read(op: Op, *, is_used: bool) -> bool:
    """Return whether the result of a callback is read, so that the operation cannot be evaluated
    without it.

    Args:
        op: The operation.
        is_used: Whether an equation outside reads the operation's results.
    """
    if op.name in CALLBACKS:
        return is_used and bool(op.eqn.outvars)
    return any(_is_read(program) for program in programs(op.params))


def _is_read(program: AnyJaxpr) -> bool:
    plain, _ = open_jaxpr(program)
    read = {id(atom) for atom in plain.outvars}
    for eqn in plain.eqns:
        read.update(map(id, eqn.invars))
    for eqn in plain.eqns:
        calls_back = eqn.effects and eqn.primitive.name in CALLBACKS
        if calls_back and not read.isdisjoint(map(id, eqn.outvars)):
            return True
        if any(map(_is_read, programs(eqn.params))):
            return True
    return False


def run_with_callbacks(
    walk: PaddedInterpreter,
    op: Op,
    values: Sequence[jax.Array],
    when: object,
) -> list[jax.Array]:
    """Evaluate an operation, with its callbacks if `when` is true: a bool, or a scalar of the
    program.

    If it is false, the results are the same where no equation reads what the callbacks return, and
    zeros otherwise.
    """
    if when is True:
        return walk.make(op, values)
    if when is False:
        return walk.without_callbacks().make(op, values)

    # A `cond`, since a `select` would evaluate both and call back in any case.
    def loud() -> list[jax.Array]:
        return walk.make(op, values)

    def quiet() -> list[jax.Array]:
        if callback_result_is_read(op, is_used=True):
            return zero_results(op)
        return walk.without_callbacks().make(op, values)

    return list(lax.cond(when, loud, quiet))
