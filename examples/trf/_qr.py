"""Reduce m rows to k: the triangle of [J r] by modified Gram-Schmidt.

Gram-Schmidt in its modified form is Householder's method applied to the same matrix with k rows of zeros on top (Bjorck, BIT 7, 1967;
Bjorck and Paige, SIAM J. Matrix Anal. Appl. 13, 1992). So the triangle is backward stable column by column, and with the residual taken
along as one more column so is the least-squares solution, at any condition number. What Gram-Schmidt loses is the orthogonality of Q, and
nothing here uses Q. It needs products and sums along the rows alone, so XLA fuses it, vectorises it and maps it over fits.
"""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

# From here on columns are kept apart: slices of one (k, m) array that no longer fits the cache cost more than they save. Measured with
# four columns on two cores: 16 against 22 us at 10,000 rows, 148 against 124 us at 50,000, 12 against 4 ms at 1,000,000.
LONG = 32768
# Up to here the time goes into starting kernels, beyond it into sums.
SHORT = 32
# Beyond, an unrolled loop over columns costs too much to compile, and LAPACK's blocked Householder is the better method.
WIDE = 16

Rows = list[Float[Array, "..."]]


def triangularise(columns: Float[Array, "k m"], rhs: Float[Array, "m"]) -> Float[Array, "k k+1"]:
    """Factor J = Q R and give R and Q^T r.

    Args:
        columns: Columns of J, one a row.
        rhs: The vector r.
    Returns:
        R, upper triangular, and Q^T r as one more column. A zero column of J, or one that depends on those before it, leaves a
        (nearly) zero row.
    """
    k, m = columns.shape
    if k > WIDE:
        return jnp.linalg.qr(jnp.concatenate([columns, rhs[None]]).T, mode="r")[:k]
    rows, _ = _by_column([*columns, rhs]) if m >= LONG else _by_row(jnp.concatenate([columns, rhs[None]]))
    inverse = 1 / jnp.sqrt(jnp.stack([row[0] for row in rows]))
    triangle = jnp.stack([jnp.pad(row, (j, 0)) for j, row in enumerate(rows)])
    return triangle * jnp.where(jnp.isinf(inverse), 0.0, inverse)[:, None]


def eliminated(matrix: Float[Array, "k+1 m"]) -> tuple[Rows, Float[Array, "k"], Float[Array, "k"]]:
    """The same of few rows and without a root: each row of [R, Q^T r] times its pivot; the squares of the pivots; 1 over these."""
    k = matrix.shape[0] - 1
    if k > WIDE:
        triangle = jnp.linalg.qr(matrix.T, mode="r")[:k]
        pivots = diagonal(triangle)
        return upper_rows(triangle * pivots[:, None]), pivots**2, _inverse(pivots**2)
    rows, inverses = _by_row(matrix)
    return rows, jnp.stack([row[0] for row in rows]), jnp.stack(inverses)


def upper_rows(matrix: Float[Array, "k n"]) -> Rows:
    """The rows of an upper triangle, each from its diagonal on."""
    return [row[j:] for j, row in enumerate(matrix)]


def diagonal(matrix: Float[Array, "k n"]) -> Float[Array, "k"]:
    """The diagonal, n >= k, as one strided slice: `jnp.diag` gathers."""
    k, n = matrix.shape
    return matrix.ravel()[: k * n : n + 1][:k]


def _by_row(rest: Float[Array, "k+1 m"]) -> tuple[Rows, list[Float[Array, ""]]]:
    """Products of each column with those behind it, which then lose their part along it; and 1 over its square."""
    rows, inverses = [], []
    for _ in range(rest.shape[0] - 1):
        products = product(rest, rest[0])
        rows.append(products)
        inverses.append(_inverse(products[0]))
        rest = rest[1:] - (products[1:] * inverses[-1])[:, None] * rest[0]
    return rows, inverses


def _by_column(rest: list[Float[Array, "m"]]) -> tuple[Rows, list[Float[Array, ""]]]:
    """The same of columns that are kept apart."""
    rows, inverses = [], []
    for _ in range(len(rest) - 1):
        first, *rest = rest
        products = [first @ first, *(first @ column for column in rest)]
        rows.append(jnp.stack(products))
        inverses.append(_inverse(products[0]))
        rest = [column - (product * inverses[-1]) * first for column, product in zip(rest, products[1:], strict=True)]
    return rows, inverses


def _inverse(pivot: Array) -> Array:
    """1 / pivot, with 0 for a zero pivot; NaN stays NaN."""
    zero = pivot == 0
    return jnp.where(zero, 0.0, 1 / jnp.where(zero, 1.0, pivot))


def back_substitute(rows: Rows, B: Sequence[Array] | np.ndarray, inverse: Float[Array, "k"]) -> Float[Array, "k n"]:
    """Solve R X = B for the upper triangle of these rows, with 1 over its pivots; where that is inf, X has inf or NaN."""
    k = len(rows)
    if k > WIDE:
        return solve_triangular(_square(rows), jnp.stack([*map(jnp.asarray, B)]))
    solved: list[Array] = []  # last row first
    for i in reversed(range(k)):
        known = sum((rows[i][j - i] * row for j, row in zip(range(k - 1, i, -1), solved, strict=True)), start=jnp.zeros(()))
        solved.append((B[i] - known) * inverse[i])
    return jnp.stack(solved[::-1])


def forward_substitute(rows: Rows, b: Float[Array, "k"], inverse: Float[Array, "k"]) -> Float[Array, "k"]:
    """Solve R^T x = b likewise."""
    k = len(rows)
    if k > WIDE:
        return solve_triangular(_square(rows), b, trans=1)
    solved: list[Array] = []
    for i in range(k):
        known = sum((rows[j][i - j] * x for j, x in enumerate(solved)), start=jnp.zeros(()))
        solved.append((b[i] - known) * inverse[i])
    return jnp.stack(solved)


def _square(rows: Rows) -> Float[Array, "k k"]:
    return jnp.stack([jnp.pad(row[: len(rows) - i], (i, 0)) for i, row in enumerate(rows)])


def product(A: Float[Array, "k n"], v: Float[Array, "n"]) -> Float[Array, "k"]:
    """A v; for short rows written out, since XLA fuses a sum with its neighbours and a `dot` with nothing."""
    return jnp.sum(A * v, axis=1) if v.size <= SHORT else A @ v
