"""The subproblem of few parameters, number by number.

In a batch a number is an array with one number a fit, and XLA fuses any expression of those into
one kernel that runs along the fits; an array of k numbers a fit it takes k at a time. And a batch
waits for the fit with the most steps to the root, so most of them are taken here, on R^T R + alpha
I, each one kernel. The digits that R^T R loses are lost to the guess alone: the step is the
triangle's, and the search goes on there where the guess was not good enough.

One fit runs as fast without, and its program takes less time to compile.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from ._losses import EPS

FEW = 6  # parameters at most, since all is written out
STEPS = 5.0  # of Newton's method

Scalar = Float[Array, ""]
Vector = Float[Array, "k"]
Matrix = Float[Array, "k k"]
Numbers = list[Scalar]


class Newton(NamedTuple):
    """The Gauss-Newton step, and what it says about the multiplier."""

    p: Vector
    full_rank: Bool[Array, ""]
    length: Scalar  # of p
    steepest: Scalar  # length of R^T c
    bend: Scalar  # |R^-T p|, whose square is -|p| d|p| / d alpha at 0


def newton(R: Matrix, c: Vector, points: Scalar) -> Newton:
    """The step -R^-1 c, for so many points."""
    k = c.size
    rows, right = [list(row) for row in R], list(c)
    pivots = list(1 / R.ravel()[:: k + 1])  # divided once, in a kernel of its own
    inverse = _inverse(rows, pivots)
    p = [-_dot(row, right[i:]) for i, row in enumerate(inverse)]
    slope = [_dot([rows[i][j] for i in range(j + 1)], right) for j in range(k)]
    z = [_dot([inverse[i][j - i] for i in range(j + 1)], p) for j in range(k)]
    norms = _squares([rows[i][j] for i in range(k) for j in range(i, k)])
    norms = norms * _squares([one for row in inverse for one in row])
    # NaN and inf, from a zero pivot, say no
    full_rank = norms * (EPS * points) ** 2 < 1
    length, steepest, bend = (jnp.sqrt(_squares(of)) for of in (p, slope, z))
    return Newton(jnp.stack(p), full_rank, length, steepest, bend)


def _inverse(rows: list[Numbers], pivots: Numbers) -> list[Numbers]:
    """Rows of R^-1 from the diagonal on, with 1 over the pivots of R."""
    k = len(rows)
    found: list[Numbers] = [[] for _ in rows]
    for i in reversed(range(k)):
        found[i] = [pivots[i]]
        for j in range(i + 1, k):
            column = [found[n][j - n] for n in range(i + 1, j + 1)]
            found[i].append(-pivots[i] * _dot(rows[i][i + 1 :], column))
    return found


def root(
    R: Matrix, c: Vector, radius: Scalar, alpha: Scalar, ends: tuple[Scalar, Scalar], left: Scalar
) -> Scalar:
    """The multiplier whose step is as long as the radius, as well as R^T R knows it.

    Args:
        R: Triangle of the scaled Jacobian.
        c: Q^T r.
        radius: Radius of the region.
        alpha: Where the search begins.
        ends: Of its bracket.
        left: Above 0 where a root is asked for.
    """
    rows, right, k = [list(row) for row in R], list(c), c.size
    columns = [[rows[i][j] for i in range(j + 1)] for j in range(k)]
    gram = [[_dot(columns[j], columns[i]) for j in range(i + 1)] for i in range(k)]
    slope = [_dot(column, right) for column in columns]

    def unfinished(state: tuple[Scalar, Scalar]) -> Bool[Array, ""]:
        return state[1] > 0

    def turn(state: tuple[Scalar, Scalar]) -> tuple[Scalar, Scalar]:
        alpha = inside(state[0], *ends)
        length, bend = _damped(gram, slope, alpha)
        return alpha + length / radius * (length - radius) * length / bend, state[1] - 1

    return lax.while_loop(unfinished, turn, (alpha, jnp.where(left > 0, STEPS, 0.0)))[0]


def inside(alpha: Scalar, lower: Scalar, upper: Scalar) -> Scalar:
    """This alpha if it is in the bracket, else one that is."""
    within = (alpha > 0) & (alpha >= lower) & (alpha <= upper)
    return jnp.where(within, alpha, jnp.maximum(0.001 * upper, jnp.sqrt(lower * upper)))


def _damped(gram: list[Numbers], slope: Numbers, alpha: Scalar) -> tuple[Scalar, Scalar]:
    """|p| for p = -(R^T R + alpha I)^-1 R^T c, and -|p| d|p| / d alpha: by L D L^T."""
    lower: list[Numbers] = []
    pivots: Numbers = []
    for i, entries in enumerate(gram):
        scaled: Numbers = []
        for j in range(i):
            scaled.append(entries[j] - _dot(scaled, lower[j]))
        row = [one * pivot for one, pivot in zip(scaled, pivots, strict=True)]
        pivots.append(1 / (entries[i] + alpha - _dot(scaled, row)))
        lower.append(row)
    p = [one * pivot for one, pivot in zip(_forward(lower, slope), pivots, strict=True)]
    k = len(p)
    for i in reversed(range(k)):
        p[i] = p[i] - _dot([lower[j][i] for j in range(i + 1, k)], p[i + 1 :])
    z = _forward(lower, p)
    return jnp.sqrt(_squares(p)), _dot([one * one for one in z], pivots)


def _forward(lower: list[Numbers], of: Numbers) -> Numbers:
    """L^-1 times a vector."""
    z: Numbers = []
    for row, value in zip(lower, of, strict=True):
        z.append(value - _dot(row, z))
    return z


def _dot(a: Numbers, b: Numbers) -> Scalar:
    """Sum of products, of as many as there are of both."""
    return sum((x * y for x, y in zip(a, b, strict=False)), start=jnp.zeros(()))


def _squares(of: Numbers) -> Scalar:
    return _dot(of, of)
