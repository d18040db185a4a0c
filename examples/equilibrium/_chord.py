"""The chord method: Newton's method that keeps the Jacobian of an earlier point, and its factors,
until steps help too little.

A turn evaluates the equations alone. Derivatives and factors are computed at the start, where a
turn leaves more than a quarter of the residuals, and where a step does not help; so the method ends
where Newton's does, at the same point.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PyTree

from ._newton import CONVERGED, GOING, ROUNDING, STUCK

SLOW = 0.25  # of the residuals, that a turn may leave
LAST = 1e-13  # a step with an earlier Jacobian after which the search may end
Point = Float[Array, "..."]
Scalar = Float[Array, ""]


class Chord(NamedTuple):
    """Where the search stands. `fresh`: the Jacobian is that of this point."""

    point: Point
    step: Point
    residual: Point
    factors: PyTree
    scale: Scalar
    norm: Scalar
    turns: Scalar
    jacobians: Scalar
    fresh: Array
    ended: Scalar


def chord(
    residual: Callable[[Point], Point],
    factored: Callable[[Point], PyTree],
    direction: Callable[[PyTree, Point], Point],
    start: Point,
    tolerance: float,
    limit: int = 200,
) -> Chord:
    """Search a zero of the residuals.

    Args:
        residual: From a point to residuals.
        factored: From a point to what `direction` needs of the Jacobian there.
        direction: From that and residuals to the step.
        start: The first point.
        tolerance: As of `newton`, for a step with the Jacobian of its own point.
        limit: Evaluations of residuals.
    """
    one, no = jnp.ones((), jnp.float64), jnp.zeros((), bool)
    nothing = jnp.zeros_like(start)
    shapes = jax.eval_shape(factored, start)
    none = jax.tree.map(lambda each: jnp.zeros(each.shape, each.dtype), shapes)
    first = Chord(
        start,
        nothing,
        nothing,
        none,
        one,
        jnp.inf * one,
        0.0 * one,
        0.0 * one,
        no,
        GOING * one,
    )

    def turn(search: Chord) -> Chord:
        trial = search.point + search.scale * search.step
        value = residual(trial)
        norm = jnp.sqrt(jnp.sum(value * value))
        better = norm <= (1.0 - 1e-4 * search.scale) * search.norm
        begins = search.turns == 0.0
        point, value = (
            jnp.where(better | begins, new, old)
            for new, old in ((trial, search.point), (value, search.residual))
        )

        slow = jnp.where(better, norm > SLOW * search.norm, ~search.fresh)
        again = begins | slow
        factors = lax.cond(again, factored, lambda _: search.factors, point)
        fresh = again | (search.fresh & ~better)

        # a step with the Jacobian of its point that does not help is halved
        halved = ~(better | again)
        step = jnp.where(halved, search.step, direction(factors, value))
        scale = jnp.where(halved, 0.5 * search.scale, one)
        norm = jnp.where(better | begins, norm, search.norm)

        length = jnp.max(jnp.abs(step) / (1.0 + jnp.abs(point)))
        stuck = ~((scale > 1e-9) & (length < jnp.inf) & (norm < jnp.inf))
        enough = jnp.where(halved, ROUNDING, jnp.where(fresh, tolerance, LAST))
        ended = jnp.where(stuck, STUCK, jnp.where(length <= enough, CONVERGED, GOING))
        return Chord(
            point,
            step,
            value,
            factors,
            scale,
            norm,
            search.turns + 1.0,
            search.jacobians + again,
            fresh,
            ended * one,
        )

    return lax.while_loop(
        lambda search: (search.ended == GOING) & (search.turns < limit), turn, first
    )
