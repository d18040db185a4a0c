"""Newton's method with a line search that backtracks, as one `lax.while_loop` with one call of the equations.

A turn of the loop tries a point, and then either moves there and computes the next step, or halves the step. One loop instead of two: the
equations, which are the largest part of a program, stand in it once, and mapped problems do not wait for each other's line searches.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

ROUNDING = 1e-7  # a step below this that does not help any more is rounding, not failure
CONVERGED, STUCK, LIMIT = 0.0, 1.0, 2.0


class Search(NamedTuple):
    """Where the search stands."""

    point: Any
    step: Any
    kept: Any
    scale: Float[Array, ""]
    norm: Float[Array, ""]
    turns: Float[Array, ""]
    ended: Float[Array, ""]
    status: Float[Array, ""]


def newton(
    evaluate: Callable[[Any], tuple[Float[Array, "..."], Any]],
    direction: Callable[[Float[Array, "..."], Any], Any],
    keep: Callable[[Float[Array, "..."], Any], Any],
    start: Any,
    tolerance: float,
    limit: int = 200,
) -> Search:
    """Search a zero of the residuals.

    Args:
        evaluate: From a point to residuals and what `direction` needs.
        direction: From these to the step.
        keep: From these to what is wanted at the end.
        start: The first point, a pytree of arrays.
        tolerance: The search ends before a step below this, relative to one more than the size of each unknown.
        limit: Evaluations.
    """
    evaluate = jax.jit(evaluate)  # traced once, though its shapes are asked for before
    shapes = jax.eval_shape(evaluate, start)
    kept = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(keep, *shapes))
    zero = jnp.zeros((), jnp.float64)
    first = Search(start, jax.tree.map(jnp.zeros_like, start), kept, zero + 1, zero + jnp.inf, zero, zero, zero + LIMIT)

    def turn(search: Search) -> Search:
        trial = jax.tree.map(lambda point, step: point + search.scale * step, search.point, search.step)
        residual, extra = evaluate(trial)
        norm = jnp.sqrt(jnp.sum(residual * residual))
        better = norm <= (1.0 - 1e-4 * search.scale) * search.norm
        new = (trial, direction(residual, extra), keep(residual, extra))
        point, step, kept = jax.tree.map(lambda a, b: lax.select(lax.broadcast(better, a.shape), a, b), new, search[:3])
        length = largest(step, point)
        scale = jnp.where(better, 1.0, 0.5 * search.scale)
        converged = jnp.where(better, length <= tolerance, length <= ROUNDING)
        stuck = (scale < 1e-9) | ~jnp.isfinite(length) | ~jnp.isfinite(jnp.where(better, norm, search.norm))
        status = jnp.where(converged, CONVERGED, jnp.where(stuck, STUCK, LIMIT))
        norm = jnp.where(better, norm, search.norm)
        return Search(point, step, kept, scale, norm, search.turns + 1, jnp.where(converged | stuck, 1.0, 0.0), status)

    return lax.while_loop(lambda search: (search.ended == 0.0) & (search.turns < limit), turn, first)


def largest(step: Any, point: Any) -> Float[Array, ""]:
    """The longest step of an unknown, relative to one more than its size."""
    ratios = [jnp.max(jnp.abs(a) / (1.0 + jnp.abs(b)), initial=0.0) for a, b in zip(*map(jax.tree.leaves, (step, point)), strict=True)]
    return jnp.max(jnp.stack(ratios))
