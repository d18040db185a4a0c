"""Reduce m rows to k: the triangle of [J r] by modified Gram-Schmidt.

Gram-Schmidt in its modified form is Householder's method applied to the same matrix with k rows of
zeros on top (Bjorck, BIT 7, 1967; Bjorck and Paige, SIAM J. Matrix Anal. Appl. 13, 1992). So the
triangle is backward stable column by column, and with the residual taken along as one more column
so is the least-squares solution, at any condition number. What Gram-Schmidt loses is the
orthogonality of Q, and nothing here uses Q. It needs products and sums along the rows alone, so XLA
fuses it, vectorises it and maps it over fits.
"""

from collections.abc import Iterable, Sequence

import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

# From here on columns are kept apart: slices of one (k, m) array that no longer fits the cache cost
# more than they save. Measured with
# four columns on two cores: 16 against 22 us at 10,000 rows, 148 against 124 us at 50,000, 12
# against 4 ms at 1,000,000.
LONG = 32768
# Up to here the time goes into starting kernels, beyond it into sums.
SHORT = 32
# Beyond, an unrolled loop over columns costs too much to compile, and LAPACK's blocked Householder
# is the better method.
WIDE = 16

Rows = list[Float[Array, "..."]]  # of an upper triangle, each from its diagonal on
Scalars = list[Float[Array, ""]]


def triangularise(columns: Float[Array, "k m"], rhs: Float[Array, "m"]) -> Float[Array, "k k+1"]:
    """Factor J = Q R and give R and Q^T r.

    Args:
        columns: Columns of J, one a row.
        rhs: The vector r.
    Returns:
        R, upper triangular, and Q^T r as one more column. A zero column of J, or one that depends
        on those before it, leaves a (nearly) zero row.
    """
    k, m = columns.shape
    if k > WIDE:
        return jnp.linalg.qr(jnp.concatenate([columns, rhs[None]]).T, mode="r")[:k]
    rows, _ = (
        _by_column([*columns, rhs]) if m >= LONG else _by_row(jnp.concatenate([columns, rhs[None]]))
    )
    inverse = 1 / jnp.sqrt(_pivots(rows))
    triangle = jnp.stack([jnp.pad(row, (j, 0)) for j, row in enumerate(rows)])
    return triangle * jnp.where(jnp.isinf(inverse), 0.0, inverse)[:, None]


def solved(matrix: Float[Array, "k+1 m"]) -> tuple[Float[Array, "k"], Float[Array, "k"]]:
    """Minimise |J p + r| where the rows of a matrix are the columns of [J r], few of them long: p,
    and the squares of R^-T p.

    The triangle is left with each row times its pivot, so that no roots are taken, and all that is
    divided by is what the elimination has divided by: for XLA each division is a kernel of its own.
    """
    k = matrix.shape[0] - 1
    if k > WIDE:
        triangle = triangularise(matrix[:k], matrix[k])
        p = solve_triangular(triangle[:, :k], -triangle[:, k])
        return p, solve_triangular(triangle[:, :k], p, trans=1) ** 2
    rows, inverses = _by_row(matrix)
    p = _substituted(rows, [-row[-1] for row in rows], inverses)
    z: Scalars = []
    for i, inverse in enumerate(inverses):
        z.append((p[i] - _sum(rows[j][i - j] * value for j, value in enumerate(z))) * inverse)
    return p, _pivots(rows) * jnp.stack(z) ** 2


def _pivots(rows: Rows) -> Float[Array, "k"]:
    """The squares of the pivots, while the rows are times their pivots."""
    return jnp.stack([row[0] for row in rows])


def _by_row(rest: Float[Array, "k+1 m"]) -> tuple[Rows, Scalars]:
    """Products of each column with those behind it, which then lose their part along it; and 1 over
    its square.
    """
    rows, inverses = [], []
    for _ in range(rest.shape[0] - 1):
        products = product(rest, rest[0])
        rows.append(products)
        inverses.append(reciprocal(products[0]))
        rest = rest[1:] - (products[1:] * inverses[-1])[:, None] * rest[0]
    return rows, inverses


def _by_column(rest: list[Float[Array, "m"]]) -> tuple[Rows, Scalars]:
    """The same of columns that are kept apart."""
    rows, inverses = [], []
    for _ in range(len(rest) - 1):
        first, *rest = rest
        products = [first @ first, *(first @ column for column in rest)]
        rows.append(jnp.stack(products))
        inverses.append(reciprocal(products[0]))
        rest = [
            column - (product * inverses[-1]) * first
            for column, product in zip(rest, products[1:], strict=True)
        ]
    return rows, inverses


def reciprocal(pivot: Array) -> Array:
    """1 / pivot, with 0 for a zero pivot; NaN stays NaN."""
    zero = pivot == 0
    return jnp.where(zero, 0.0, 1 / jnp.where(zero, 1.0, pivot))


def back_substitute(R: Float[Array, "k k"], B: Float[Array, "k n"]) -> Float[Array, "k n"]:
    """Solve R X = B for upper triangular R; a zero pivot gives inf or NaN."""
    k = R.shape[0]
    if k > WIDE:
        return solve_triangular(R, B)
    inverses = 1 / R.ravel()[:: k + 1]  # not by `jnp.diag`, which gathers
    return _substituted([row[i:] for i, row in enumerate(R)], B, list(inverses))


def _substituted(
    rows: Rows, B: Sequence[Float[Array, "*n"]] | Float[Array, "k *n"], inverses: Scalars
) -> Float[Array, "k *n"]:
    """The same with 1 over each pivot, which is multiplied by."""
    k = len(rows)
    lines: list[Array] = []  # last first
    for i in reversed(range(k)):
        known = _sum(
            rows[i][j - i] * line for j, line in zip(range(k - 1, i, -1), lines, strict=True)
        )
        lines.append((B[i] - known) * inverses[i])
    return jnp.stack(lines[::-1])


def _sum(terms: Iterable[Array]) -> Array:
    return sum(terms, start=jnp.zeros(()))


def product(A: Float[Array, "k n"], v: Float[Array, "n"]) -> Float[Array, "k"]:
    """A v; for short rows written out, since XLA fuses a sum with its neighbours and a `dot` with
    nothing.
    """
    return jnp.sum(A * v, axis=1) if v.size <= SHORT else A @ v
