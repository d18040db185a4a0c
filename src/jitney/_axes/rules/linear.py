"""Contractions, convolutions and transforms: an axis that is summed over gets zeros for padding,
any other axis may keep what it has.

The theorem is that 0 * 0 adds nothing to a sum. Both operands of a contraction are cleared, since 0
times an infinity or a NaN in the padding of the other one is a NaN.

In a convolution features are summed over as in a contraction, and along a padded axis zeros stand
behind the true size, as the convolution's own padding would there. An element meets others than its
own, so a zero may meet an infinity, and their product is a NaN that exact size does not have:

    padded kernel   its last zeros meet values behind the true windows
    derivative      JAX transposes the convolution of a tangent, and the zeros of the padded
                    cotangent meet values behind the true windows, or the kernel

If any value that they may meet is not finite, the windows are cut out of the array first, and
cleared (`convolution_windows.py`). If these values are tangents themselves, that is always done.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import jax
import numpy as np

from ..._jax.typed import Values
from ..carriers.folds import Fold
from ..dims import evaluate, is_ragged
from ..interpreter import Op, PaddedInterpreter, zero_of
from ..monoids import MONOIDS
from ..refusal import Refused
from ..rule import Rule, Use, evaluate_unchanged, ragged_dims, refuse, use
from ..typed_jax import jnp, lax
from .convolution_windows import (
    ConvolvedAxis,
    CutOut,
    ends_finite,
    spatial_axes,
    tap_by_tap,
    window_by_window,
)
from .windows import is_within, length_and_padding, reach, shift_into

# dot_general.


def _dot_uses(op: Op) -> Iterator[Use]:
    (left, right), _ = op.params["dimension_numbers"]
    a, b = op.ins
    of_left = [a[axis] for axis in left]
    of_right = [b[axis] for axis in right]
    dims = ragged_dims(of_left + of_right)
    if dims:
        yield use(op, dims, "contracted", monoid=MONOIDS["add"])


def _dot(
    walk: PaddedInterpreter,
    op: Op,
    values: Values,
) -> Values:
    (left, right), _ = op.params["dimension_numbers"]
    a, b = values
    a_dims, b_dims = op.ins
    a = walk.keep(a, a_dims, left, zero_of(a))
    b = walk.keep(b, b_dims, right, zero_of(b))
    return walk.bind(op, [a, b])


# Fourier transform.


def _fft_uses(op: Op) -> Iterator[Use]:
    lengths = op.params["fft_lengths"]
    dims = ragged_dims((*op.ins[0][-len(lengths) :], *lengths))
    if dims:
        yield refuse(op, dims, "transforms along it")


_OF_PRODUCTS = {
    "dot_general": Rule(_dot_uses, _dot, Fold(MONOIDS["add"])),
    "fft": Rule(_fft_uses, evaluate_unchanged),
}


_MOST_WINDOWS = 1024
"""Windows, or elements of the kernel, that are evaluated one after the other. The gradient for a
kernel of 7 x 7 takes 49 windows.
"""


def _uses(op: Op) -> Iterator[Use]:
    lhs, rhs = op.ins
    numbers = op.params["dimension_numbers"]
    along = spatial_axes(op)
    for part in along:
        span = reach(part.size, part.dilation)
        if is_ragged(part.low) and (part.apart != 1 or not is_within(part.low, span, op.ranges)):
            yield refuse(op, part.low, "pads a convolution in front by its size")
    beyond = [part for part in along if part.behind_kernel(op.ranges)]
    largest = {name: most for name, (_, most) in op.ranges.items()}
    if min(_windows(beyond), _taps(beyond, largest)) > _MOST_WINDOWS:
        sizes = ragged_dims(part.size for part in beyond)
        yield refuse(op, sizes, "convolves other values with a kernel of its size")

    # Axes of the array: batch, features, space. Of the kernel: new features, features, space.
    batch_axis, feature_axis, *space = numbers.lhs_spec
    new_axis, kernel_axis, *_ = numbers.rhs_spec
    batch = ragged_dims([lhs[batch_axis]])
    made = ragged_dims([rhs[new_axis]])
    features = [lhs[feature_axis], rhs[kernel_axis]]
    summed = ragged_dims(features)

    # Groups split these axes into equal runs, and the padded size does not split where the true
    # size does.
    of_features = summed + made if op.params["feature_group_count"] != 1 else []
    of_batches = batch + made if op.params["batch_group_count"] != 1 else []
    if of_features or of_batches:
        yield refuse(op, of_features + of_batches, "is in a grouped convolution")
    elif summed:
        yield use(op, summed, "contracted", monoid=MONOIDS["add"])
    kernel = ragged_dims(part.size for part in along)
    spatial = kernel + ragged_dims(lhs[axis] for axis in space)
    if spatial:
        yield use(op, spatial, "mixed", "convolved along it")


def _pad(
    walk: PaddedInterpreter,
    op: Op,
    values: Values,
) -> Values:
    lhs, rhs = values
    lhs_dims, rhs_dims = op.ins
    # To the bits of plain JAX where nothing is padded, however far the windows reach.
    if all(map(walk.is_full, ragged_dims((*lhs_dims, *rhs_dims)))):
        exact = map(walk.shape, op.params["padding"])
        return walk.bind(op, values, padding=tuple(exact))
    numbers = op.params["dimension_numbers"]
    lhs = walk.keep(lhs, lhs_dims, numbers.lhs_spec[1:], zero_of(lhs))
    rhs = walk.keep(rhs, rhs_dims, numbers.rhs_spec[1:], zero_of(rhs))

    along = spatial_axes(op)
    moved = lhs
    padding: list[tuple[int, int]] = []
    for i, part in enumerate(along):
        if is_ragged(part.low):
            moved, more = _shifted(walk, moved, numbers.lhs_spec[2 + i], part)
            padding.append((0, more))
        else:
            padding.append((part.low, evaluate(part.high, walk.allocated)))
    ends, cut_out = _met(walk, op)
    if not ends or not jnp.issubdtype(lhs.dtype, np.inexact):
        return walk.bind(op, [moved, rhs], padding=tuple(padding))
    given = [moved, rhs]
    finite = _are_finite(walk, op, [lhs, rhs], ends)
    if finite is None:
        return [cut_out(walk, op, given, [*ends], padding)]
    is_finite = jnp.stack(finite).all()
    # Zeros where the result is not used: JAX transposes it with a cotangent of zeros.
    moved = jnp.where(is_finite, moved, zero_of(lhs))
    (out,) = walk.bind(op, [moved, rhs], padding=tuple(padding))

    def slow() -> jax.Array:
        return cut_out(walk, op, given, [*ends], padding)

    return [lax.cond(is_finite, lambda: out, slow)]


def _are_finite(
    walk: PaddedInterpreter,
    op: Op,
    operands: Sequence[jax.Array],
    ends: Mapping[int, int],
) -> list[jax.Array] | None:
    """Scalars that are all true if no zero meets an infinity; None if that depends on tangents: JAX
    transposes what is made of them, and so it may be asked of other values alone.
    """
    lhs, rhs = operands
    along = spatial_axes(op)
    if not walk.may_be_linear(op.eqn.invars[0]):
        axes = op.params["dimension_numbers"].lhs_spec[2:]
        return [ends_finite(walk, lhs, axes[i], along[i].length, met) for i, met in ends.items()]
    met = [along[i].size for i in ends]
    if walk.may_be_linear(op.eqn.invars[1]) or any(map(is_ragged, met)):
        return None
    # Zeros of the cotangent meet the kernel.
    return [jnp.isfinite(rhs).all()]


def _met(walk: PaddedInterpreter, op: Op) -> tuple[dict[int, int], CutOut]:
    """The spatial axes along which zeros may meet values, with the number of these values at the
    end of the array; and the evaluation that does not let them meet.

    Raises:
        Refused: No evaluation does so.
    """
    along = spatial_axes(op)
    ranges = {name: (0, size) for name, size in walk.allocated.items()}
    is_backward = any(map(walk.may_be_linear, op.eqn.invars))
    backward = False
    ends: dict[int, int] = {}
    for i, part in enumerate(along):
        kernel = part.behind_kernel(ranges)
        results = part.behind_results(ranges) if is_backward else 0
        backward = backward or results > 0
        if kernel or results:
            ends[i] = max(kernel, results)
    parts = [along[i] for i in ends]
    windows = _windows(parts)
    taps = _taps(parts, walk.allocated)
    if not backward and windows <= min(taps, _MOST_WINDOWS):
        return ends, window_by_window
    if taps <= _MOST_WINDOWS:
        return ends, tap_by_tap
    if backward:
        raise Refused("", "has a derivative by a kernel of its size")
    # `_uses` has proven for its range that no value is met.
    return {}, tap_by_tap


def _windows(parts: Sequence[ConvolvedAxis]) -> float:
    """The number of windows; infinite where it is symbolic."""
    return math.prod(math.inf if is_ragged(part.count) else part.count for part in parts)


def _taps(
    parts: Sequence[ConvolvedAxis],
    allocated: Mapping[str, int],
) -> int:
    """The number of elements of a padded kernel along these axes."""
    return math.prod(evaluate(part.size, allocated) for part in parts)


def _shifted(
    walk: PaddedInterpreter,
    lhs: jax.Array,
    axis: int,
    part: ConvolvedAxis,
) -> tuple[jax.Array, int]:
    """Pad the array in front by a symbolic amount; XLA takes static amounts only. It is written
    into zeros at the true amount, at most the reach of a window (checked in `_uses` at each size; a
    kernel with the axis reaches no less where it is padded), and what the last window does not
    reach is cut off.

    Returns:
        The array, and the zeros that the windows need behind it.
    """
    span = evaluate(reach(part.size, part.dilation), walk.allocated)
    windows = evaluate(part.count, walk.allocated)
    length = lhs.shape[axis] + span
    seen, more = length_and_padding(length, windows, part.stride, span)
    shifted = shift_into(walk, lhs, axis, part.low, span, zero_of(lhs))
    return lax.slice_in_dim(shifted, 0, seen, axis=axis), more


RULES: dict[str, Rule] = {
    **_OF_PRODUCTS,
    "conv_general_dilated": Rule(_uses, _pad, Fold(MONOIDS["add"]), at_once=True, at_size=True),
}
