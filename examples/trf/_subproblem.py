"""The trust-region subproblem: the p that minimises |R p + c|^2 with |p| <= radius, exactly.

Either the Gauss-Newton step is short enough, or p(alpha) = -(R^T R + alpha I)^-1 R^T c has the length of the radius for one alpha > 0.
Newton's method on the secular equation 1 / |p(alpha)| = 1 / radius finds it inside a bracket that it narrows (More, "The
Levenberg-Marquardt algorithm", 1978, section 5). Each alpha is one triangularisation of [R; sqrt(alpha) I], which never squares the
condition number.
"""

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from examples.trf._losses import EPS
from examples.trf._qr import back_substitute, diagonal, eliminated, forward_substitute, product

RTOL = 0.01  # the length of p may miss the radius by this much: MINPACK's and SciPy's choice is 0.1 and 0.01
MAX_STEPS = 10

Scalar = Float[Array, ""]
Vector = Float[Array, "k"]
Matrix = Float[Array, "k k"]
Triangle = Float[Array, "k k+1"]


class Secular(eqx.Module):
    """State of the root search: the last step and its multiplier, the alpha to try next and its bracket, and how many turns are left."""

    p: Vector
    taken: Scalar
    alpha: Scalar
    lower: Scalar
    upper: Scalar
    left: Int[Array, ""]


def solve_subproblem(triangle: Triangle, radius: Scalar, alpha: Scalar, points: Scalar) -> tuple[Vector, Scalar]:
    """Minimise |R p + c|^2 over |p| <= radius.

    Args:
        triangle: [R, c]: the triangle of the scaled Jacobian, and Q^T r.
        radius: Radius of the region, in the scaled parameters.
        alpha: Guess for the multiplier, from the last radius; 0 for none.
        points: Number of residuals, for the rank test.
    Returns:
        The step; its multiplier, 0 for a Gauss-Newton step.
    """
    R, c = triangle[:, :-1], triangle[:, -1]
    inverse = back_substitute(R, jnp.eye(c.size), 1 / diagonal(R))
    newton = -product(inverse, c)
    full_rank = _has_full_rank(R, inverse, points)
    length = jnp.linalg.norm(newton)
    fits = full_rank & (length <= radius)
    upper = jnp.linalg.norm(product(R.T, c)) / radius
    slope = jnp.sum(product(inverse.T, newton) ** 2)  # -|p| d|p| / d alpha at 0
    lower = jnp.where(full_rank, (length - radius) * length / slope, 0.0)
    flat = upper == 0  # a zero gradient shows no way down
    left = jnp.where(fits | flat, 0, MAX_STEPS + 1)
    start = Secular(jnp.where(flat, 0.0, newton), jnp.zeros_like(alpha), alpha, lower, upper, left)
    last = lax.while_loop(lambda state: state.left > 0, lambda state: _newton_step(triangle, radius, state), start)
    return last.p, last.taken


def _has_full_rank(R: Matrix, inverse: Matrix, points: Scalar) -> Bool[Array, ""]:
    """Tell whether the smallest singular value is safely above rounding, by Frobenius bounds for both ends of the spectrum.

    True implies SciPy's test, s_min > eps m s_max; between the two lies a factor of k at most. NaN and inf, from a zero pivot, say no.
    """
    return 1 / jnp.linalg.norm(inverse) > EPS * points * jnp.linalg.norm(R)


def _newton_step(triangle: Triangle, radius: Scalar, state: Secular) -> Secular:
    """Take the next alpha, and improve on it: the turn behind one that was close enough is the last.

    A step of about the length of the radius is scaled to be exactly as long. Where R is singular the step may stay short as alpha goes
    to zero; then it is the shortest of the best steps, and is left as it is.
    """
    alpha = _bracketed(state)
    p, slope = _damped(triangle, alpha)
    length = jnp.linalg.norm(p)
    excess = length - radius
    step = -excess * length / slope  # excess over its derivative
    at_edge = length >= (1 - RTOL) * radius
    return Secular(
        p=jnp.where(at_edge, p * (radius / jnp.where(at_edge, length, 1.0)), p),
        taken=alpha,
        alpha=alpha - (length / radius) * step,
        lower=jnp.maximum(state.lower, alpha - step),
        upper=jnp.where(excess < 0, alpha, state.upper),
        left=jnp.where((jnp.abs(excess) < RTOL * radius) & (state.left > 1), 1, state.left - 1),
    )


def _bracketed(state: Secular) -> Scalar:
    """The next alpha if it is in the bracket, else one that is."""
    inside = (state.alpha > 0) & (state.alpha >= state.lower) & (state.alpha <= state.upper)
    return jnp.where(inside, state.alpha, jnp.maximum(0.001 * state.upper, jnp.sqrt(state.lower * state.upper)))


def _damped(triangle: Triangle, alpha: Scalar) -> tuple[Vector, Scalar]:
    """Levenberg-Marquardt step p for one alpha, and -|p| d|p| / d alpha there: |T^-T p|^2 with the triangle T of the damped matrix."""
    k = triangle.shape[0]
    rows, pivots, inverse = eliminated(jnp.concatenate([triangle.T, jnp.sqrt(alpha) * jnp.eye(k + 1, k)], axis=1))
    p = back_substitute(rows[:, :k], -rows[:, k:], inverse)[:, 0]
    z = forward_substitute(rows[:, :k], p, inverse)
    return p, jnp.sum(pivots * z**2)
