"""The trust-region subproblem: the p that minimises |R p + c|^2 with |p| <= radius, exactly.

Either the Gauss-Newton step is short enough, or p(alpha) = -(R^T R + alpha I)^-1 R^T c has the length of the radius for one alpha > 0.
Newton's method on the secular equation 1 / |p(alpha)| = 1 / radius finds it inside a bracket that it narrows (More, "The
Levenberg-Marquardt algorithm", 1978, section 5). Each alpha is one triangularisation of [R; sqrt(alpha) I], which never squares the
condition number.
"""

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from examples.trf._losses import EPS
from examples.trf._qr import back_substitute, forward_substitute, product, triangularise

RTOL = 0.01  # the length of p may miss the radius by this much: MINPACK's and SciPy's choice is 0.1 and 0.01
MAX_STEPS = 10

Scalar = Float[Array, ""]
Vector = Float[Array, "k"]
Matrix = Float[Array, "k k"]


class Secular(eqx.Module):
    """State of the root search: the next alpha, its bracket, and whether the last one was good enough."""

    alpha: Scalar
    lower: Scalar
    upper: Scalar
    steps: Array
    done: Bool[Array, ""]


def solve_subproblem(R: Matrix, c: Vector, radius: Scalar, alpha: Scalar, points: Scalar) -> tuple[Vector, Scalar]:
    """Minimise |R p + c|^2 over |p| <= radius.

    Args:
        R: Triangle of the scaled Jacobian.
        c: Q^T r.
        radius: Radius of the region, in the scaled parameters.
        alpha: Guess for the multiplier, from the last radius; 0 for none.
        points: Number of residuals, for the rank test.
    Returns:
        The step; its multiplier, 0 for a Gauss-Newton step.
    """
    k = R.shape[0]
    solved = back_substitute(R, jnp.concatenate([jnp.eye(k), -c[:, None]], axis=1))
    newton = solved[:, k]
    full_rank = _has_full_rank(R, solved[:, :k], points)
    length = jnp.linalg.norm(newton)
    fits = full_rank & (length <= radius)

    def gauss_newton() -> tuple[Vector, Scalar]:
        return newton, jnp.zeros_like(alpha)

    def damped() -> tuple[Vector, Scalar]:
        upper = jnp.linalg.norm(product(R.T, c)) / radius
        slope = jnp.linalg.norm(forward_substitute(R, newton)) ** 2  # -|p| d|p| / d alpha at 0
        lower = jnp.where(full_rank, (length - radius) * length / slope, 0.0)
        return _search(R, c, radius, Secular(alpha, lower, upper, jnp.zeros((), int), fits | (upper == 0)))

    return lax.cond(fits, gauss_newton, damped)


def _has_full_rank(R: Matrix, inverse: Matrix, points: Scalar) -> Bool[Array, ""]:
    """Tell whether the smallest singular value is safely above rounding, by Frobenius bounds for both ends of the spectrum.

    True implies SciPy's test, s_min > eps m s_max; between the two lies a factor of k at most. NaN and inf, from a zero pivot, say no.
    """
    return 1 / jnp.linalg.norm(inverse) > EPS * points * jnp.linalg.norm(R)


def _damped(R: Matrix, c: Vector, alpha: Scalar) -> tuple[Vector, Matrix]:
    """Levenberg-Marquardt step for one alpha, and the triangle of the damped matrix."""
    k = R.shape[0]
    columns = jnp.concatenate([R, jnp.sqrt(alpha) * jnp.eye(k)]).T
    triangle = triangularise(columns, jnp.concatenate([c, jnp.zeros(k)]))
    return back_substitute(triangle[:, :k], -triangle[:, k:])[:, 0], triangle[:, :k]


def _search(R: Matrix, c: Vector, radius: Scalar, start: Secular) -> tuple[Vector, Scalar]:
    """Find the alpha whose step is as long as the radius, and scale that step to be exactly so.

    Where R is singular the step may stay short as alpha goes to zero; then it is the shortest of the best steps, and is left as it is.
    """

    def unfinished(state: Secular) -> Bool[Array, ""]:
        return ~state.done & (state.steps < MAX_STEPS)

    found = lax.while_loop(unfinished, lambda state: _newton_step(R, c, radius, state), start)
    alpha = _bracketed(found)
    p, _ = _damped(R, c, alpha)
    length = jnp.linalg.norm(p)
    at_edge = length >= (1 - RTOL) * radius
    p = jnp.where(at_edge, p * (radius / jnp.where(at_edge, length, 1.0)), p)
    return jnp.where(start.upper == 0, 0.0, p), alpha  # a zero gradient shows no way down


def _bracketed(state: Secular) -> Scalar:
    """The next alpha if it is in the bracket, else one that is."""
    inside = (state.alpha > 0) & (state.alpha >= state.lower) & (state.alpha <= state.upper)
    return jnp.where(inside, state.alpha, jnp.maximum(0.001 * state.upper, jnp.sqrt(state.lower * state.upper)))


def _newton_step(R: Matrix, c: Vector, radius: Scalar, state: Secular) -> Secular:
    alpha = _bracketed(state)
    p, Ra = _damped(R, c, alpha)
    length = jnp.linalg.norm(p)
    excess = length - radius
    step = -excess * length / jnp.linalg.norm(forward_substitute(Ra, p)) ** 2  # excess over its derivative
    return Secular(
        alpha=alpha - (length / radius) * step,
        lower=jnp.maximum(state.lower, alpha - step),
        upper=jnp.where(excess < 0, alpha, state.upper),
        steps=state.steps + 1,
        done=jnp.abs(excess) < RTOL * radius,
    )
