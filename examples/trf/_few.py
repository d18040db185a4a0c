"""The Gauss-Newton step of few parameters in a batch, number by number.

In a batch a number is an array with one number a fit, and XLA fuses any expression of those into
one kernel that runs along the fits; an array of k numbers a fit it takes k at a time. One fit runs
as fast without.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ._losses import EPS

FEW = 6  # parameters at most, since all is written out

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


def _dot(a: Numbers, b: Numbers) -> Scalar:
    """Sum of products, of as many as there are of both."""
    return sum((x * y for x, y in zip(a, b, strict=False)), start=jnp.zeros(()))


def _squares(of: Numbers) -> Scalar:
    return _dot(of, of)
