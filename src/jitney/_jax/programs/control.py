"""Loops and branches of a jaxpr bound anew, around programs that an interpreter evaluates.

An interpreter gives what evaluates each program, and the values that the new loop carries beside
the carry of the old one: a flag, the number of the iteration. Where these values lie, the options
of the loop, the types of its carry and a condition of each element of a batch are the same for all.

Not here: the search for a NaN (`_diagnosis/nonfinite/loops.py`), which runs a loop from any
iteration to any other, and so binds a loop of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import jax
import jax.numpy as jnp

from ..typed import AnyJaxpr, Array, JaxprEqn, Values
from .jaxprs import open_jaxpr, scan_parts, while_parts

S = TypeVar("S")
Parts = tuple[Sequence[Array], Sequence[Array], Sequence[Array]]
"""Operands of a loop: constants (of the condition), carry (constants of the body) and rows
(carry)."""
Evaluate = Callable[..., Sequence[Array]]
"""Function from the arguments of a program to its results."""
Turn = Callable[[tuple[S, Values], Values], tuple[tuple[S, Values], Values]]
"""Body of a scan, from carry and row to the new carry and what is stacked."""


def rebuild(
    eqn: JaxprEqn,
    operands: Sequence[Array],
    run: Callable[[AnyJaxpr, Values], Sequence[Array]],
) -> Values:
    """Bind a scan, while or cond anew, with `run(program, arguments)` in place of each of its
    programs.
    """

    def evaluate(program: AnyJaxpr) -> Evaluate:
        return lambda *values: run(program, [*values])

    params = eqn.params
    if eqn.primitive.name == "scan":
        return rebuild_scan(eqn, operands, evaluate(params["jaxpr"]))
    if eqn.primitive.name == "while":
        condition, body = params["cond_jaxpr"], params["body_jaxpr"]
        return rebuild_while(eqn, operands, evaluate(condition), evaluate(body))
    return rebuild_cond(operands, [evaluate(branch) for branch in params["branches"]])


def rebuild_cond(operands: Sequence[Array], branches: Sequence[Evaluate]) -> Values:
    """Bind a branch anew; its first operand is the index of the branch."""
    index, *arguments = operands
    return list(jax.lax.switch(index, branches, *arguments))


def rebuild_scan(
    eqn: JaxprEqn,
    operands: Sequence[Array],
    body: Evaluate,
    length: int | None = None,
    wrap: Callable[[Turn[tuple[()]]], Turn[tuple[()]]] | None = None,
) -> Values:
    """Bind a scan anew.

    Args:
        eqn: The scan.
        operands: Its operands.
        body: Evaluates its program.
        length: The number of iterations, where it is not that of the equation.
        wrap: A transform of the new body, such as `jax.checkpoint`.
    """

    def plain(_: tuple[()], *values: jax.Array) -> tuple[tuple[()], Sequence[Array]]:
        return (), body(*values)

    return scan_beside((), eqn, scan_parts(eqn, [*operands]), plain, length, wrap)[1]


def scan_beside(
    beside: S,
    eqn: JaxprEqn,
    parts: Parts,
    body: Callable[..., tuple[S, Sequence[Array]]],
    length: int | None = None,
    wrap: Callable[[Turn[S]], Turn[S]] | None = None,
) -> tuple[S, Values]:
    """Bind a scan anew, with values beside its carry: return their last ones, and the results.

    Args:
        beside: The values to begin with.
        eqn: The scan.
        parts: Its operands; `body` may do without some of them.
        body: From what is beside and the arguments of the program to what is beside next and the
            results of the program.
        length: As in `rebuild_scan`.
        wrap: As in `rebuild_scan`.
    """
    fixed, carry, rows = parts
    count = len(carry)

    def turn(state: tuple[S, Values], row: Values) -> tuple[tuple[S, Values], Values]:
        beside, held = state
        beside, out = body(beside, *fixed, *held, *row)
        return (beside, restore_weak_types(out[:count], held)), [*map(jnp.asarray, out[count:])]

    (beside, last), ys = jax.lax.scan(
        turn if wrap is None else wrap(turn),
        (beside, [jnp.asarray(x) for x in carry]),
        [*map(jnp.asarray, rows)],
        length=eqn.params["length"] if length is None else length,
        reverse=eqn.params["reverse"],
        unroll=eqn.params["unroll"],
    )
    return beside, [*last, *ys]


def rebuild_while(
    eqn: JaxprEqn,
    operands: Sequence[Array],
    condition: Evaluate,
    body: Evaluate,
) -> Values:
    """Bind a while loop anew."""

    def goes_on(_: tuple[()], *values: jax.Array) -> Array:
        return condition(*values)[0]

    def plain(_: tuple[()], *values: jax.Array) -> tuple[tuple[()], Sequence[Array]]:
        return (), body(*values)

    return while_beside((), eqn, while_parts(eqn, [*operands]), goes_on, plain)[1]


def while_beside(
    beside: S,
    eqn: JaxprEqn,
    parts: Parts,
    condition: Callable[..., Array],
    body: Callable[..., tuple[S, Sequence[Array]]],
) -> tuple[S, Values]:
    """Bind a while loop anew, with values beside its carry: return their last ones, and the
    results.

    Args:
        beside: The values to begin with.
        eqn: The loop.
        parts: Its operands; the programs may do without some of them.
        condition: From what is beside and the arguments of the condition to its result.
        body: From what is beside and the arguments of the body to what is beside next and the
            results of the body.
    """
    outside, inside, carry = parts
    is_mapped = bool(open_jaxpr(eqn.params["cond_jaxpr"])[0].outvars[0].aval.shape)

    def goes_on(state: tuple[S, Values]) -> jax.Array:
        beside, held = state
        return any_goes_on(condition(beside, *outside, *held))

    def turn(state: tuple[S, Values]) -> tuple[S, Values]:
        before, held = state
        beside, out = body(before, *inside, *held)
        new = restore_weak_types(out, held)
        # Elements that are finished keep their carry while others go on. JAX does so when it lowers
        # a `while` with a batched condition; the new condition is a scalar.
        if is_mapped:
            new = freeze_finished(condition(before, *outside, *held), new, held)
        return beside, new

    return jax.lax.while_loop(goes_on, turn, (beside, [jnp.asarray(x) for x in carry]))


def any_goes_on(condition: Array) -> jax.Array:
    """Return whether a loop goes on: with a batched condition, while one element does."""
    axes = tuple(range(len(jax.typeof(condition).shape)))
    return jax.lax.reduce_or(condition, axes) if axes else jnp.asarray(condition)


def freeze_finished(
    condition: Array,
    new: Sequence[Array],
    old: Sequence[Array],
) -> Values:
    """Keep the carry of those elements of a batched loop that have ended."""
    axes = tuple(range(len(jax.typeof(condition).shape)))
    if not axes:
        return [*map(jnp.asarray, new)]
    carry: Values = []
    for x, y in zip(new, old, strict=True):
        goes_on = jax.lax.broadcast_in_dim(condition, x.shape, axes)
        carry.append(jax.lax.select(goes_on, x, y))
    return carry


def restore_weak_types(new: Sequence[Array], old: Sequence[Array]) -> Values:
    """Give a carry the weak types that the loop started with; evaluation equation by equation can
    change them, and JAX requires a carry to keep its type.
    """
    values: Values = []
    for x, was in zip(map(jnp.asarray, new), old, strict=True):
        keeps = x.weak_type == jnp.asarray(was).weak_type
        values.append(x if keeps else jax.lax.convert_element_type(x, was.dtype))
    return values
