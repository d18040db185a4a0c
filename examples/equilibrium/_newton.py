"""Newton's method with a line search that backtracks, as one `lax.while_loop` with one call of the
equations.

A turn of the loop tries a point, and then either moves there and computes the next step, or halves
the step. One loop instead of two: the equations, which are the largest part of a program, stand in
it once, and mapped problems do not wait for each other's line searches.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from ._rolled import taken

ROUNDING = 1e-7  # a step below this that does not help any more is rounding, not failure
# how a search ended; one that was going on reached its limit
CONVERGED, STUCK, GOING = 0.0, 1.0, 2.0


class Search(NamedTuple):
    """Where the search stands."""

    point: Float[Array, "..."]
    step: Float[Array, "..."]
    kept: Float[Array, "..."]
    scale: Float[Array, ""]
    norm: Float[Array, ""]
    turns: Float[Array, ""]
    ended: Float[Array, ""]


def newton(
    evaluate: Callable[[Any], tuple[Float[Array, "..."], Any]],
    direction: Callable[[Float[Array, "..."], Any], Any],
    start: Float[Array, "..."],
    tolerance: float,
    keep: Callable[[Float[Array, "..."], Any], Any],
    limit: int = 200,
) -> Search:
    """Search a zero of the residuals.

    Args:
        evaluate: From a point to residuals and what `direction` needs.
        direction: From these to the step.
        start: The first point.
        tolerance: The search ends before a step below this, relative to one more than the size of
            each unknown.
        keep: From residuals and what `direction` needs to what is wanted at the end.
        limit: Evaluations.
    """
    evaluate = jax.jit(evaluate)  # traced once, though its shapes are asked for before
    kept = jax.eval_shape(lambda point: keep(*evaluate(point)), start)
    one = jnp.ones((), jnp.float64)
    first = Search(
        start,
        jnp.zeros_like(start),
        jnp.zeros(kept.shape, kept.dtype),
        one,
        jnp.inf * one,
        0.0 * one,
        GOING * one,
    )

    def turn(search: Search) -> Search:
        trial = search.point + search.scale * search.step
        residual, extra = evaluate(trial)
        norm = jnp.sqrt(jnp.sum(residual * residual))
        better = norm <= (1.0 - 1e-4 * search.scale) * search.norm
        step = lax.select(
            lax.broadcast(better, trial.shape), direction(residual, extra), search.step
        )
        point = lax.select(lax.broadcast(better, trial.shape), trial, search.point)
        # what the start gives is kept for the message even where it is not finite
        first = better | (search.turns == 0.0)
        kept = lax.select(
            lax.broadcast(first, search.kept.shape), keep(residual, extra), search.kept
        )
        length = jnp.max(jnp.abs(step) / (1.0 + jnp.abs(point)))
        scale, norm = (
            lax.select(better, one, 0.5 * search.scale),
            lax.select(better, norm, search.norm),
        )
        # a step that is not finite, a line search that has got nowhere, or a start that is not
        # finite
        stuck = ~((scale > 1e-9) & (length < jnp.inf) & (norm < jnp.inf))
        converged = length <= lax.select(better, tolerance * one, ROUNDING * one)
        ended = lax.select(stuck, STUCK * one, lax.select(converged, CONVERGED * one, GOING * one))
        return Search(point, step, kept, scale, norm, search.turns + 1.0, ended)

    return lax.while_loop(
        lambda search: (search.ended == GOING) & (search.turns < limit), turn, first
    )


def solve(matrix: Float[Array, "n n"], sides: Float[Array, "n k"]) -> Float[Array, "n k"]:
    """Solve linear systems; `jnp.linalg.solve` without the means for derivatives, which are half of
    what it traces and compiles.
    """
    return lu_solved(*lu(matrix), sides)


def lu(matrix: Float[Array, "n n"]) -> tuple[Float[Array, "n n"], Int[Array, "n"]]:
    """Triangular factors in one matrix, and the order of rows."""
    factors, _, permutation = lax.linalg.lu(matrix)
    return factors, permutation


def lu_solved(
    factors: Float[Array, "n n"], permutation: Int[Array, "n"], sides: Float[Array, "n k"]
) -> Float[Array, "n k"]:
    """Solve with these factors."""
    lower = lax.linalg.triangular_solve(
        factors, taken(sides, permutation), left_side=True, lower=True, unit_diagonal=True
    )
    return lax.linalg.triangular_solve(factors, lower, left_side=True)
