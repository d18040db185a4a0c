"""Contractions, convolutions and transforms: an axis that is summed over gets zeros for padding,
any other axis may keep what it has.

The theorem is that 0 * 0 adds nothing to a sum. Both operands are cleared, since 0 times an
infinity or a NaN in the padding of the other one is a NaN.
"""

from __future__ import annotations

from collections.abc import Iterator

import jax
import numpy as np

from ..._jax.typed import NumPyArray, Values
from ..carriers.folds import Fold
from ..dims import Dim, evaluate, is_ragged
from ..interpreter import Op, PaddedInterpreter
from ..monoids import MONOIDS
from ..rule import Rule, Use, evaluate_unchanged, ragged_dims, refuse, use
from ..typed_jax import lax
from .windows import is_within, length_and_padding, reach, shift_into


def _zero(x: jax.Array) -> NumPyArray:
    return np.zeros((), x.dtype)


# dot_general.


def _dot_uses(op: Op) -> Iterator[Use]:
    (left, right), _ = op.params["dimension_numbers"]
    a, b = op.ins
    of_left = [a[axis] for axis in left]
    of_right = [b[axis] for axis in right]
    dims = ragged_dims(of_left + of_right)
    if dims:
        yield use(op, dims, "contracted", monoid=MONOIDS["add"])


def _dot(walk: PaddedInterpreter, op: Op, values: Values) -> Values:
    (left, right), _ = op.params["dimension_numbers"]
    a, b = values
    a_dims, b_dims = op.ins
    a = walk.keep(a, a_dims, left, _zero(a))
    b = walk.keep(b, b_dims, right, _zero(b))
    return walk.bind(op, [a, b])


# Convolution.


def _conv_uses(op: Op) -> Iterator[Use]:
    lhs, rhs = op.ins
    numbers = op.params["dimension_numbers"]
    kernel = ragged_dims(rhs[axis] for axis in numbers.rhs_spec[2:])
    for (low, _), size, dilation, apart in _windows(op):
        if not is_ragged(low):
            continue
        if is_ragged(size) or apart != 1 or not is_within(low, reach(size, dilation), op.ranges):
            yield refuse(op, low, "pads a convolution in front by its size")

    # Axes of the array: batch, features, space. Of the kernel: new features, features, space.
    batch_axis, feature_axis, *space = numbers.lhs_spec
    new_axis, kernel_axis, *_ = numbers.rhs_spec
    batch, made = ragged_dims([lhs[batch_axis]]), ragged_dims([rhs[new_axis]])
    summed = ragged_dims([lhs[feature_axis], rhs[kernel_axis]])

    # Groups split these axes into equal runs, and the padded size does not split where the true
    # size does.
    of_features = summed + made if op.params["feature_group_count"] != 1 else []
    of_batches = batch + made if op.params["batch_group_count"] != 1 else []
    if of_features or of_batches:
        yield refuse(op, of_features + of_batches, "is in a grouped convolution")
    elif summed:
        yield use(op, summed, "contracted", monoid=MONOIDS["add"])
    spatial = kernel + ragged_dims(lhs[axis] for axis in space)
    if spatial:
        yield use(op, spatial, "mixed", "convolved along it")


def _windows(op: Op) -> Iterator[tuple[tuple[Dim, Dim], Dim, int, int]]:
    """The windows along the spatial axes: for each the padding (low, high), the kernel's size, and
    the dilations of the kernel and of the array.
    """
    numbers = op.params["dimension_numbers"]
    kernel = [op.ins[1][axis] for axis in numbers.rhs_spec[2:]]
    return zip(
        op.params["padding"],
        kernel,
        op.params["rhs_dilation"],
        op.params["lhs_dilation"],
        strict=True,
    )


def _conv(walk: PaddedInterpreter, op: Op, values: Values) -> Values:
    """Convolve with zeros behind the true size, as the convolution's own padding would have there;
    a kernel as long as the axis ends in zeros.
    """
    lhs, rhs = values
    lhs_dims, rhs_dims = op.ins
    # To the bits of plain JAX where nothing is padded, however far the windows reach.
    if all(map(walk.is_full, ragged_dims((*lhs_dims, *rhs_dims)))):
        return walk.bind(op, values, padding=tuple(map(walk.shape, op.params["padding"])))
    numbers = op.params["dimension_numbers"]
    _, *lhs_axes = numbers.lhs_spec
    _, *rhs_axes = numbers.rhs_spec
    lhs = walk.keep(lhs, lhs_dims, lhs_axes, _zero(lhs))
    rhs = walk.keep(rhs, rhs_dims, rhs_axes, _zero(rhs))

    padding: list[tuple[int, int]] = []
    (out_dims,) = op.outs
    for i, ((low, high), size, dilation, _) in enumerate(_windows(op)):
        if not is_ragged(low):
            padding.append((low, evaluate(high, walk.allocated)))
            continue

        # Padding in front by a symbolic amount: XLA takes static amounts only. The array is written
        # into zeros at the true amount, at most `span` (checked in `_conv_uses`), and what the last
        # window does not reach is cut off.
        axis = numbers.lhs_spec[2 + i]
        span = reach(size, dilation)
        stride = op.params["window_strides"][i]
        out_axis = numbers.out_spec[2 + i]
        (windows,) = walk.shape([out_dims[out_axis]])
        length = lhs.shape[axis] + span
        seen, more = length_and_padding(length, windows, stride, span)
        shifted = shift_into(walk, lhs, axis, low, span, _zero(lhs))
        lhs = lax.slice_in_dim(shifted, 0, seen, axis=axis)
        padding.append((0, more))
    return walk.bind(op, [lhs, rhs], padding=tuple(padding))


# Fourier transform.


def _fft_uses(op: Op) -> Iterator[Use]:
    lengths = op.params["fft_lengths"]
    dims = ragged_dims((*op.ins[0][-len(lengths) :], *lengths))
    if dims:
        yield refuse(op, dims, "transforms along it")


RULES: dict[str, Rule] = {
    "dot_general": Rule(_dot_uses, _dot, Fold(MONOIDS["add"])),
    "conv_general_dilated": Rule(
        _conv_uses, _conv, Fold(MONOIDS["add"]), at_once=True, at_size=True
    ),
    "fft": Rule(_fft_uses, evaluate_unchanged),
}
