"""Products, convolutions, factorisations and transforms: zeros behind what is valid where an axis is summed over, anything elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..._jax.primitives import FACTORISATIONS
from ..dims import is_ragged
from ..monoids import MONOIDS
from ..rule import Across, Rule, Use, ragged_dims, refuse, same, use
from ..walk import Op, Walk


def _zero(x: Any) -> Any:
    return np.zeros((), x.dtype)


# dot_general.


def _dot_uses(op: Op) -> Iterator[Use]:
    (left, right), _ = op.params["dimension_numbers"]
    dims = ragged_dims([*(op.ins[0][axis] for axis in left), *(op.ins[1][axis] for axis in right)])
    if dims:
        yield use(op, dims, "contracted", monoid=MONOIDS["add"])


def _dot(walk: Walk, op: Op, values: list[Any]) -> list[Any]:
    (left, right), _ = op.params["dimension_numbers"]
    a, b = values
    a = walk.keep(a, op.ins[0], left, _zero(a))
    b = walk.keep(b, op.ins[1], right, _zero(b))
    return walk.bind(op, [a, b])


# Convolution.


def _conv_uses(op: Op) -> Iterator[Use]:
    lhs, rhs = op.ins
    numbers = op.params["dimension_numbers"]
    grouped = op.params["feature_group_count"] != 1 or op.params["batch_group_count"] != 1
    kernel = ragged_dims(rhs[axis] for axis in numbers.rhs_spec[2:])
    features = ragged_dims([lhs[numbers.lhs_spec[1]], rhs[numbers.rhs_spec[1]], rhs[numbers.rhs_spec[0]]])
    batch = ragged_dims([lhs[numbers.lhs_spec[0]]])
    window = [part for pair in op.params["padding"] for part in pair]
    if kernel:
        yield refuse(op, kernel, "is the kernel of a convolution along it")
    if any(map(is_ragged, window)):
        yield refuse(op, ragged_dims(window), "pads a convolution by its size")
    if grouped and (features or batch):
        yield refuse(op, features + batch, "is in a grouped convolution")
    elif is_ragged(lhs[numbers.lhs_spec[1]]):
        yield use(op, lhs[numbers.lhs_spec[1]], "contracted", monoid=MONOIDS["add"])
    spatial = ragged_dims(lhs[axis] for axis in numbers.lhs_spec[2:])
    if spatial:
        yield use(op, spatial, "mixed", "convolved along it")


def _conv(walk: Walk, op: Op, values: list[Any]) -> list[Any]:
    """Zeros behind the true size are what a convolution's own padding would be."""
    lhs, rhs = values
    numbers = op.params["dimension_numbers"]
    lhs = walk.keep(lhs, op.ins[0], numbers.lhs_spec[1:], _zero(lhs))
    rhs = walk.keep(rhs, op.ins[1], [numbers.rhs_spec[1]], _zero(rhs))
    return walk.bind(op, [lhs, rhs])


# Factorisations and solves, over batches of matrices.


def _matrix_uses(op: Op) -> Iterator[Use]:
    dims = ragged_dims(dim for operand in op.ins for dim in operand[-2:])
    if dims:
        yield refuse(op, dims, "factorises matrices along it")


def _vector_uses(op: Op) -> Iterator[Use]:
    dims = ragged_dims(dim for operand in op.ins for dim in operand[-1:])
    if dims:
        yield refuse(op, dims, "works on vectors along it")


def _triangular_uses(op: Op) -> Iterator[Use]:
    a, b = op.ins
    rows = b[-2] if op.params["left_side"] else b[-1]  # the other axis of `b` holds separate systems
    dims = ragged_dims((*a[-2:], rows))
    if dims:
        yield refuse(op, dims, "solves systems along it")


def _qr_uses(op: Op) -> Iterator[Use]:
    *_, rows, columns = op.ins[0]
    if is_ragged(columns) or op.params["full_matrices"] or op.params.get("pivoting"):
        yield from _matrix_uses(op)
    elif is_ragged(rows):
        yield use(op, rows, "mixed", "factorised along it, by Householder's method")


def _qr(walk: Walk, op: Op, values: list[Any]) -> list[Any]:
    """Rows of zeros below a matrix change neither R nor the rows of Q above."""
    (x,) = values
    return walk.bind(op, [walk.keep(x, op.ins[0], [len(op.ins[0]) - 2], _zero(x))])


# Fourier transform.


def _fft_uses(op: Op) -> Iterator[Use]:
    count = len(op.params["fft_lengths"])
    dims = ragged_dims((*op.ins[0][-count:], *op.params["fft_lengths"]))
    if dims:
        yield refuse(op, dims, "transforms along it")


RULES: dict[str, Rule] = {
    "dot_general": Rule(_dot_uses, _dot, Across("folded", MONOIDS["add"])),
    "conv_general_dilated": Rule(_conv_uses, _conv),
    **dict.fromkeys((*sorted(FACTORISATIONS), "tridiagonal"), Rule(_matrix_uses, same)),
    "qr": Rule(_qr_uses, _qr),
    "triangular_solve": Rule(_triangular_uses, same),
    "tridiagonal_solve": Rule(_matrix_uses, same),
    "lu_pivots_to_permutation": Rule(_vector_uses, same),
    "fft": Rule(_fft_uses, same),
}
