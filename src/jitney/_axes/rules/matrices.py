"""Factorisations and solves of matrices that are longer than what is valid of them.

A square one gets an identity block beside its valid part: what is made of both lies in the same
blocks, and the valid one is that of plain JAX. Rows and columns of zeros change neither
Householder's reflections nor singular values. Batches of matrices are factorised one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..._jax.primitives import FACTORISATIONS
from ..dims import Dim, is_ragged
from ..rule import Rule, Use, ragged_dims, refuse, same, use
from ..typed_jax import jnp, lax
from ..walk import Op, Walk


def _zero(x: Any) -> Any:
    return np.zeros((), x.dtype)


def _matrix_dims(op: Op) -> list[Dim]:
    """The symbolic sizes of the matrices, batches aside."""
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

    return Rule(uses, same)


def _cleared(walk: Walk, x: Any, dims: Sequence[Dim]) -> Any:
    """Matrices with zeros around their valid part."""
    return walk.keep(x, dims, [len(dims) - 2, len(dims) - 1], _zero(x))


def _completed(walk: Walk, x: Any, dims: Sequence[Dim]) -> Any:
    """Square matrices with an identity block behind their valid part."""
    rows, columns = len(dims) - 2, len(dims) - 1
    if not is_ragged(dims[rows]) or walk.is_full(dims[rows]):
        return x
    x = _cleared(walk, x, dims)
    places = [lax.broadcasted_iota(np.int32, x.shape, axis) for axis in (rows, columns)]
    behind = lax.bitwise_and(lax.eq(*places), lax.bitwise_not(walk.inside(dims, rows)))
    return lax.select(behind, lax.full(x.shape, 1, x.dtype), x)


# Cholesky and triangular systems: what is valid comes first, and nothing behind it is read on the
# way.


def _cholesky(walk: Walk, op: Op, values: list[Any]) -> list[Any]:
    if not is_ragged(op.ins[0][-1]):
        return walk.bind(op, values)
    x = _completed(walk, values[0], op.ins[0])
    (factor,) = walk.bind(op, [x])
    return [_defined(factor, jnp.tril(x))]


def _defined(factor: Any, x: Any) -> Any:
    """A factor, or NaNs where infinity has become a pivot beside what is not finite.

    LAPACK makes zeros or NaNs of a column by such a pivot, as the blocks happen to lie in which it
    works, and these follow the size.
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
    """The axis of the right-hand sides along which a system is solved; the other one holds separate
    systems.
    """
    return len(op.ins[1]) - (2 if op.params["left_side"] else 1)


def _triangular_uses(op: Op) -> Iterator[Use]:
    dims = ragged_dims((op.ins[1][_systems(op)],))
    if dims:
        yield use(op, dims, "mixed", "solved along it")


def _triangular(walk: Walk, op: Op, values: list[Any]) -> list[Any]:
    a, b = values
    return walk.bind(
        op, [_completed(walk, a, op.ins[0]), walk.keep(b, op.ins[1], [_systems(op)], _zero(b))]
    )


# LU. The identity block stands in front: its columns choose their own pivots, and rows of it are
# zero in all others. Behind, a column of
# NaNs or zeros would make NaNs of the rows of padding, and a pivot of one of them.


def _lu_uses(op: Op) -> Iterator[Use]:
    rows, columns = op.ins[0][-2:]
    if is_ragged(rows) or is_ragged(columns):
        if str(rows) != str(columns):
            yield refuse(
                op, ragged_dims((rows, columns)), "factorises matrices along it that are not square"
            )
        else:
            yield use(op, rows, "mixed", "factorised along it")


def _lu(walk: Walk, op: Op, values: list[Any]) -> list[Any]:
    (x,), dims = values, op.ins[0]
    rows, columns = len(dims) - 2, len(dims) - 1
    if not is_ragged(dims[rows]) or walk.is_full(dims[rows]):
        return walk.bind(op, values)
    count = walk.count(dims[rows])
    front = lax.sub(np.int32(x.shape[rows]), count)
    x = _moved(_moved(_completed(walk, x, dims), rows, count), columns, count)
    lu, pivots, permutation = walk.bind(op, [x])
    places = [
        lax.sub(_moved(each, rows, front), lax.broadcast(front, each.shape))
        for each in (pivots, permutation)
    ]
    return [_moved(_moved(_defined(lu, x), rows, front), columns, front), *places]


def _moved(x: Any, axis: int, start: Any) -> Any:
    """The elements from `start` on, and behind them those in front of it."""
    twice = lax.concatenate([x, x], axis)
    return lax.dynamic_slice_in_dim(twice, start, x.shape[axis], axis)


def _permutation_uses(op: Op) -> Iterator[Use]:
    dims = ragged_dims((op.ins[0][-1], op.params["permutation_size"]))
    if dims:
        yield use(op, dims, "mixed", "permuted along it")


def _permutation(walk: Walk, op: Op, values: list[Any]) -> list[Any]:
    """A row of padding changes places with itself."""
    (pivots,), dims = values, op.ins[0]
    axis = len(dims) - 1
    if is_ragged(dims[axis]):
        pivots = lax.select(
            walk.inside(dims, axis), pivots, lax.broadcasted_iota(pivots.dtype, pivots.shape, axis)
        )
    return walk.bind(op, [pivots], permutation_size=walk.shape([op.params["permutation_size"]])[0])


# Householder's method: a reflection of zeros is none, and a column of zeros stays one.


def _qr_uses(op: Op) -> Iterator[Use]:
    dims = _matrix_dims(op)
    if dims and op.params.get("pivoting"):
        yield refuse(
            op, dims, "factorises matrices along it with columns in an order that rounding decides"
        )
    elif dims:
        yield use(op, dims, "mixed", "factorised along it, by Householder's method")


def _householder(walk: Walk, op: Op, values: list[Any]) -> list[Any]:
    return walk.bind(op, [_cleared(walk, values[0], op.ins[0])])


def _product(walk: Walk, op: Op, values: list[Any]) -> list[Any]:
    reflectors, scales = values
    return walk.bind(
        op,
        [
            _cleared(walk, reflectors, op.ins[0]),
            walk.keep(scales, op.ins[1], [len(op.ins[1]) - 1], _zero(scales)),
        ],
    )


# Singular values: zeros beside a matrix add nothing but zeros, which are the least of them.


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
