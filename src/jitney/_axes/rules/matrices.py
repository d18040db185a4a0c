"""Factorisations and solves of padded matrices.

A square matrix A is completed to diag(A, I). Cholesky, LU and triangular solves of a block-diagonal
matrix are block-diagonal, and the block of A is the result of plain JAX. For QR and singular values
A is bordered by zeros, which change neither Householder reflections nor non-zero singular values.
Batch axes need no mask, since each matrix is factorised alone.

    cholesky of 5 valid rows, 8 allocated:   A 0   ->   L 0
                                             0 I        0 I
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from ..._jax.primitives import FACTORISATIONS
from ..dims import Dim, is_ragged
from ..interpreter import Op, PaddedInterpreter
from ..rule import Rule, Use, evaluate_unchanged, ragged_dims, refuse, use
from ..typed_jax import jnp, lax


def _zero(x: jax.Array) -> Any:
    return np.zeros((), x.dtype)


def _matrix_dims(op: Op) -> list[Dim]:
    """The symbolic sizes among the last two axes of the operands."""
    return ragged_dims(dim for operand in op.ins for dim in operand[-2:])


def _uses(what: str) -> Any:
    def uses(op: Op) -> Iterator[Use]:
        dims = _matrix_dims(op)
        if dims:
            yield use(op, dims, "mixed", what)

    return uses


def _refusing(why: str) -> Rule:
    def uses(op: Op) -> Iterator[Use]:
        dims = _matrix_dims(op)
        if dims:
            yield refuse(op, dims, why)

    return Rule(uses, evaluate_unchanged)


def _pad_with_zeros(walk: PaddedInterpreter, x: jax.Array, dims: Sequence[Dim]) -> Any:
    """Replace the padding of matrices by zeros."""
    return walk.keep(x, dims, [len(dims) - 2, len(dims) - 1], _zero(x))


def _pad_with_identity(walk: PaddedInterpreter, x: jax.Array, dims: Sequence[Dim]) -> Any:
    """Replace the padding of square matrices so that they are diag(valid part, identity)."""
    rows, columns = len(dims) - 2, len(dims) - 1
    if not is_ragged(dims[rows]) or walk.is_full(dims[rows]):
        return x
    x = _pad_with_zeros(walk, x, dims)
    places = [lax.broadcasted_iota(np.int32, x.shape, axis) for axis in (rows, columns)]
    behind = lax.bitwise_and(lax.eq(*places), lax.bitwise_not(walk.inside(dims, rows)))
    return lax.select(behind, lax.full(x.shape, 1, x.dtype), x)


# Cholesky and triangular systems: diag(A, I) = diag(L, I) diag(L, I)^H, and a substitution runs
# through blocks that do not read each other.


def _cholesky(walk: PaddedInterpreter, op: Op, values: list[jax.Array]) -> list[Any]:
    if not is_ragged(op.ins[0][-1]):
        return walk.bind(op, values)
    x = _pad_with_identity(walk, values[0], op.ins[0])
    (factor,) = walk.bind(op, [x])
    return [_nan_at_infinite_pivot(factor, jnp.tril(x))]


def _nan_at_infinite_pivot(factor: Any, x: jax.Array) -> Any:
    """The factor, or NaNs if a pivot is infinite and another element is not finite.

    LAPACK turns the column of such a pivot into zeros or NaNs depending on the blocks in which it
    works, and its blocks depend on the size: plain JAX and the padded program would differ.
    """
    rows, columns = (
        lax.broadcasted_iota(np.int32, x.shape, axis) for axis in (x.ndim - 2, x.ndim - 1)
    )
    pivots = lax.eq(rows, columns)
    made = jnp.where(rows >= columns, factor, np.zeros((), x.dtype))
    infinite = jnp.any(jnp.isinf(made) & pivots, (-2, -1), keepdims=True)
    others = jnp.any(
        jnp.where(pivots, jnp.isnan(x), ~(jnp.isfinite(x) & jnp.isfinite(made))),
        (-2, -1),
        keepdims=True,
    )
    return jnp.where(infinite & others, np.asarray(np.nan, x.dtype), factor)


def _systems(op: Op) -> int:
    """The axis of the right-hand sides along which systems are solved; the other axis numbers the
    systems.
    """
    return len(op.ins[1]) - (2 if op.params["left_side"] else 1)


def _triangular_uses(op: Op) -> Iterator[Use]:
    dims = ragged_dims((op.ins[1][_systems(op)],))
    if dims:
        yield use(op, dims, "mixed", "solved along it")


def _triangular(walk: PaddedInterpreter, op: Op, values: list[jax.Array]) -> list[Any]:
    a, b = values
    return walk.bind(
        op,
        [_pad_with_identity(walk, a, op.ins[0]), walk.keep(b, op.ins[1], [_systems(op)], _zero(b))],
    )


# LU: the identity block goes in front, diag(I, A). Its columns pivot on themselves, and its rows
# are zero in the columns of A, so elimination leaves A alone. With the identity block behind A, a
# column of zeros or NaNs in A would fill rows of padding with NaNs, and one of these rows could
# become a pivot.


def _lu_uses(op: Op) -> Iterator[Use]:
    rows, columns = op.ins[0][-2:]
    if is_ragged(rows) or is_ragged(columns):
        if str(rows) != str(columns):
            yield refuse(
                op, ragged_dims((rows, columns)), "factorises matrices along it that are not square"
            )
        else:
            yield use(op, rows, "mixed", "factorised along it")


def _lu(walk: PaddedInterpreter, op: Op, values: list[jax.Array]) -> list[Any]:
    (x,), dims = values, op.ins[0]
    rows, columns = len(dims) - 2, len(dims) - 1
    if not is_ragged(dims[rows]) or walk.is_full(dims[rows]):
        return walk.bind(op, values)

    # Rotate rows and columns: diag(A, I) -> diag(I, A). Rotate the factors back; pivots count from
    # the first row of A again.
    count = walk.count(dims[rows])
    front = lax.sub(np.int32(x.shape[rows]), count)
    x = _rotate(_rotate(_pad_with_identity(walk, x, dims), rows, count), columns, count)
    lu, pivots, permutation = walk.bind(op, [x])
    places = [
        lax.sub(_rotate(each, rows, front), lax.broadcast(front, each.shape))
        for each in (pivots, permutation)
    ]
    return [_rotate(_rotate(_nan_at_infinite_pivot(lu, x), rows, front), columns, front), *places]


def _rotate(x: jax.Array, axis: int, start: Any) -> Any:
    """Rotate an axis so that it begins at `start`."""
    twice = lax.concatenate([x, x], axis)
    return lax.dynamic_slice_in_dim(twice, start, x.shape[axis], axis)


def _permutation_uses(op: Op) -> Iterator[Use]:
    dims = ragged_dims((op.ins[0][-1], op.params["permutation_size"]))
    if dims:
        yield use(op, dims, "mixed", "permuted along it")


def _permutation(walk: PaddedInterpreter, op: Op, values: list[jax.Array]) -> list[Any]:
    """Permutation of the pivots, in which a row of padding is swapped with itself."""
    (pivots,), dims = values, op.ins[0]
    axis = len(dims) - 1
    if is_ragged(dims[axis]):
        pivots = lax.select(
            walk.inside(dims, axis), pivots, lax.broadcasted_iota(pivots.dtype, pivots.shape, axis)
        )
    return walk.bind(op, [pivots], permutation_size=walk.shape([op.params["permutation_size"]])[0])


# Householder's method: rows of zeros add nothing to a column's norm and stay zero under each
# reflection; the reflection of a column of zeros is the identity.


def _qr_uses(op: Op) -> Iterator[Use]:
    dims = _matrix_dims(op)
    if dims and op.params.get("pivoting"):
        yield refuse(
            op, dims, "factorises matrices along it with columns in an order that rounding decides"
        )
    elif dims:
        yield use(op, dims, "mixed", "factorised along it, by Householder's method")


def _householder(walk: PaddedInterpreter, op: Op, values: list[jax.Array]) -> list[Any]:
    return walk.bind(op, [_pad_with_zeros(walk, values[0], op.ins[0])])


def _product(walk: PaddedInterpreter, op: Op, values: list[jax.Array]) -> list[Any]:
    reflectors, scales = values
    return walk.bind(
        op,
        [
            _pad_with_zeros(walk, reflectors, op.ins[0]),
            walk.keep(scales, op.ins[1], [len(op.ins[1]) - 1], _zero(scales)),
        ],
    )


# Singular values: a border of zeros adds singular values of zero only, and the values descend, so
# that the new ones come last.


def _svd_uses(op: Op) -> Iterator[Use]:
    dims = _matrix_dims(op)
    if not dims:
        return
    if op.params["compute_uv"]:
        yield refuse(op, dims, "takes singular vectors along it, whose signs change with its size")
    elif op.params["subset_by_index"] is not None:
        yield refuse(op, dims, "takes some of the singular values along it")
    else:
        yield use(op, dims, "mixed", "its singular values")


_OTHERS = {
    "eig": "takes eigenvalues along it, whose order changes with its size",
    "eigh": "takes eigenvectors along it, whose signs change with its size",
    "schur": "takes a Schur form along it, whose signs and order change with its size",
}


RULES: dict[str, Rule] = {
    **dict.fromkeys(
        (*sorted(FACTORISATIONS), "tridiagonal", "tridiagonal_solve"),
        _refusing("factorises matrices along it"),
    ),
    **{name: _refusing(why) for name, why in _OTHERS.items()},
    "cholesky": Rule(_uses("factorised along it"), _cholesky),
    "triangular_solve": Rule(_triangular_uses, _triangular),
    "lu": Rule(_lu_uses, _lu),
    "lu_pivots_to_permutation": Rule(_permutation_uses, _permutation),
    "qr": Rule(_qr_uses, _householder),
    "geqrf": Rule(_uses("factorised along it, by Householder's method"), _householder),
    "householder_product": Rule(_uses("multiplied along it"), _product),
    "svd": Rule(_svd_uses, _householder),
}
