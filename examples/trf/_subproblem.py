"""The trust-region subproblem: the p that minimises |R p + c|^2 with |p| <= radius, exactly.

Either the Gauss-Newton step is short enough, or p(alpha) = -(R^T R + alpha I)^-1 R^T c has the
length of the radius for one alpha > 0. Newton's method on the secular equation 1 / |p(alpha)| = 1 /
radius finds it inside a bracket that it narrows (More, "The Levenberg-Marquardt algorithm", 1978,
section 5). Each alpha is one triangularisation of [R; sqrt(alpha) I], which never squares the
condition number.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float

from ._few import Newton, damped, newton
from ._losses import EPS
from ._qr import back_substitute, product, solved

# the length of p may miss the radius by this much: MINPACK's and SciPy's choice is 0.1 and 0.01
RTOL = 0.01
MAX_STEPS = 10

Scalar = Float[Array, ""]
Vector = Float[Array, "k"]
Matrix = Float[Array, "k k"]
Damped = tuple[Vector, Scalar, Scalar]


class Secular(NamedTuple):
    """Numbers of the root search. In its loop they are one array, since XLA compiles a kernel for
    each array that a turn makes.
    """

    taken: Scalar  # the last alpha
    stretch: Scalar  # what the step that it gave is to be multiplied by
    alpha: Scalar  # to try next
    root: Scalar  # of that
    lower: Scalar  # ends of its bracket
    upper: Scalar
    left: Scalar  # turns that are left
    radius: Scalar  # which stays, and is here so that no kernel takes it out for the loop


def solve_subproblem(
    R: Matrix, c: Vector, radius: Scalar, alpha: Scalar, points: Scalar, few: bool = False
) -> tuple[Vector, Scalar]:
    """Minimise |R p + c|^2 over |p| <= radius.

    Args:
        R: Triangle of the scaled Jacobian.
        c: Q^T r.
        radius: Radius of the region, in the scaled parameters.
        alpha: Guess for the multiplier, from the last radius; 0 for none.
        points: Number of residuals, for the rank test.
        few: Take it number by number, see `_few.py`.
    Returns:
        The step; its multiplier, 0 for a Gauss-Newton step.
    """
    p, full_rank, length, steepest, bend = (newton if few else _newton)(R, c, points)
    fits = full_rank & (length <= radius)
    upper, lower = _ratios([steepest, (length - radius) * length], [radius, bend**2])
    lower = jnp.where(full_rank, lower, 0.0)
    flat = upper == 0  # a zero gradient shows no way down
    left = jnp.where(fits | flat, 0.0, MAX_STEPS + 1.0)
    start = jnp.stack(
        _bracketed(jnp.zeros_like(alpha), jnp.ones_like(alpha), alpha, lower, upper, left, radius)
    )
    triangle = jnp.concatenate([R, c[:, None]], axis=1)

    def turn(state: tuple[Vector, Array]) -> tuple[Vector, Array]:
        found = Secular(*state[1])
        step = (damped if few else _damped)(triangle, found.root)
        p, after = _newton_step(step, found)
        return p, jnp.stack(after)

    p, last = lax.while_loop(lambda state: Secular(*state[1]).left > 0, turn, (p, start))
    found = Secular(*last)
    return jnp.where(flat, 0.0, p * found.stretch), found.taken


def _newton(R: Matrix, c: Vector, points: Scalar) -> Newton:
    """The Gauss-Newton step of more parameters."""
    inverse = back_substitute(R, jnp.asarray(np.eye(c.size)))
    p = product(inverse, -c)
    norms, lengths = _lengths([R, inverse], [p, product(R.T, c), product(inverse.T, p)])
    return Newton(p, _has_full_rank(*norms, points), *lengths)


def _lengths(matrices: list[Matrix], vectors: list[Vector]) -> tuple[list[Scalar], list[Scalar]]:
    """Frobenius norms and lengths, by one sum."""
    size = matrices[0].size
    rows = [matrix.ravel() for matrix in matrices] + [
        jnp.pad(vector, (0, size - vector.size)) for vector in vectors
    ]
    lengths = list(jnp.sqrt(jnp.sum(jnp.stack(rows) ** 2, axis=1)))
    return lengths[: len(matrices)], lengths[len(matrices) :]


def _ratios(of: list[Scalar], by: list[Scalar]) -> list[Scalar]:
    """Quotients, by one division: for XLA each is a kernel of its own."""
    return list(jnp.stack(of) / jnp.stack(by))


def _has_full_rank(norm: Scalar, inverse: Scalar, points: Scalar) -> Bool[Array, ""]:
    """Tell whether the smallest singular value is safely above rounding, by Frobenius bounds for
    both ends of the spectrum.

    True implies SciPy's test, s_min > eps m s_max; between the two lies a factor of k at most. NaN
    and inf, from a zero pivot, say no.
    """
    return 1 / inverse > EPS * points * norm


def _newton_step(step: Damped, state: Secular) -> tuple[Vector, Secular]:
    """Take the next alpha, with the step that it gives, and improve on it: the turn behind one that
    was close enough is the last.

    A step of about the length of the radius is to be stretched to be exactly as long. Where R is
    singular the step may stay short as alpha goes to zero; then it is the shortest of the best
    steps, and is left as it is.
    """
    p, length, bend = step
    radius = state.radius
    ratio, change, stretch = _ratios(
        [length, (radius - length) * length, radius],  # what it lacks over its derivative
        [radius, bend**2, length],
    )
    stretch = jnp.where(ratio >= 1 - RTOL, stretch, 1.0)
    lower = jnp.maximum(state.lower, state.alpha - change)
    upper = jnp.where(ratio < 1, state.alpha, state.upper)
    left = jnp.where((jnp.abs(ratio - 1) < RTOL) & (state.left > 1), 1.0, state.left - 1)
    alpha = state.alpha - ratio * change
    return p, _bracketed(state.alpha, stretch, alpha, lower, upper, left, radius)


def _bracketed(
    taken: Scalar,
    stretch: Scalar,
    alpha: Scalar,
    lower: Scalar,
    upper: Scalar,
    left: Scalar,
    radius: Scalar,
) -> Secular:
    """Go on with this alpha if it is in the bracket, else with one that is."""
    inside = (alpha > 0) & (alpha >= lower) & (alpha <= upper)
    alpha = jnp.where(inside, alpha, jnp.maximum(0.001 * upper, jnp.sqrt(lower * upper)))
    return Secular(taken, stretch, alpha, jnp.sqrt(alpha), lower, upper, left, radius)


def _damped(triangle: Float[Array, "k k+1"], root: Scalar) -> Damped:
    """Levenberg-Marquardt step p for alpha = root^2, |p|, and |T^-T p| with the triangle T of the
    damped matrix.
    """
    k = triangle.shape[0]
    p, squares = solved(jnp.concatenate([triangle.T, root * np.eye(k + 1, k)], axis=1))
    length, bend = jnp.sqrt(jnp.sum(jnp.stack([p**2, squares]), axis=1))
    return p, length, bend
