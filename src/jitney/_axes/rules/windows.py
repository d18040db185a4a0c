"""Window reductions along an axis: padding is replaced by the identity element, so that a window
that reaches over the end reduces its valid elements alone.

A custom reducer is allowed if it is one of the monoids and its init value is the identity. With
another init value, XLA's specification pads windows with that value, and XLA for CPUs leaves it
out.
"""

from __future__ import annotations

from collections.abc import Iterator

import jax
import numpy as np

from ..._jax.typed import Values
from ..dims import Dim, evaluate, extent, is_ragged, symbols
from ..interpreter import Op, PaddedInterpreter, Ranges
from ..monoids import MONOIDS, Monoid
from ..rule import Rule, Use, ragged_dims, refuse, use
from ..typed_jax import lax
from .reduce import monoid_of_program, refuse_unordered, starts_from_identity

_BEGINS_WITH = {
    "reduce_window_sum": MONOIDS["add"],
    "reduce_window_max": MONOIDS["max"],
    "reduce_window_min": MONOIDS["min"],
}


_PARAMETERS = (
    "window_dimensions",
    "window_strides",
    "padding",
    "base_dilation",
    "window_dilation",
)


def reach(size: int, dilation: int) -> int:
    """Extent of a dilated window, from its first to its last element."""
    return (size - 1) * dilation + 1


def is_within(low: Dim, most: int, ranges: Ranges) -> bool:
    """Return whether a size is from 0 to `most` at each size of the axis in its range."""
    if not is_ragged(low):
        return True
    names = symbols(low)
    if len(names) != 1:
        return False
    (name,) = names
    least, largest = ranges[name]
    sizes = np.arange(least, largest + 1)
    values = np.asarray(extent(low).at({name: sizes}))
    return bool(np.all(values >= 0) and np.all(values <= most))


def shift_into(
    walk: PaddedInterpreter,
    x: jax.Array,
    axis: int,
    low: Dim,
    room: int,
    filler: object,
) -> jax.Array:
    """Shift `x` by the true value of `low`, at most `room`, in an array of `room` more elements;
    the filler stands in front and behind.
    """
    shape = list(x.shape)
    shape[axis] += room
    starts: list[object] = [np.int32(0)] * x.ndim
    starts[axis] = walk.count(low)
    filled = lax.full(shape, filler, x.dtype)
    return lax.dynamic_update_slice(filled, x, starts)


def length_and_padding(
    size: int,
    windows: int,
    stride: int,
    span: int,
) -> tuple[int, int]:
    """The number of leading elements that the windows read of an array, and the high padding that
    they need in addition.
    """
    needed = (windows - 1) * stride + span if windows else 0
    return min(size, needed), max(needed - size, 0)


Part = tuple[int, Dim, Dim, Dim, tuple[Dim, Dim], int, int]


def _parts(op: Op) -> Iterator[Part]:
    """Yield each axis: its position and size, and the window's size, stride, padding (low, high),
    base dilation and window dilation.
    """
    params = op.params
    ones = (1,) * len(op.ins[0])
    columns = [ones if params.get(name) is None else params[name] for name in _PARAMETERS]
    for axis, part in enumerate(zip(op.ins[0], *columns, strict=True)):
        yield (axis, *part)


def _monoid(op: Op) -> Monoid | None:
    """The monoid that reduces a window; None if it is not known, or the init value is not its
    identity.
    """
    if op.name in _BEGINS_WITH:
        return _BEGINS_WITH[op.name]
    if len(op.eqn.outvars) != 1:
        return None
    monoid = monoid_of_program(op.params["jaxpr"])
    if monoid is None or not starts_from_identity(op, monoid):
        return None
    return monoid


def _uses(op: Op) -> Iterator[Use]:
    for _, dim, size, stride, padding, apart, dilation in _parts(op):
        sized = ragged_dims((dim, size, stride, *padding))
        part = (size, stride, *padding, apart)
        alone = not is_ragged(size) and part == (1, 1, 0, 0, 1)
        if not sized or alone:
            continue

        low, monoid = padding[0], _monoid(op)
        if is_ragged(size) or is_ragged(stride):
            yield refuse(op, sized, "reduces windows whose size depends on it")
        elif is_ragged(low) and (
            apart != 1 or not is_within(low, reach(size, dilation), op.ranges)
        ):
            yield refuse(op, sized, "pads windows in front by its size")
        elif monoid is None:
            yield refuse(op, sized, "reduces windows along it by no known sum, product or extreme")
        else:
            mixed = use(op, sized, "mixed", f"{monoid.word} of windows along it")
            yield from refuse_unordered(op, sized, monoid) or [mixed]


def _pad(walk: PaddedInterpreter, op: Op, values: Values) -> Values:
    x, *init = values
    # To the bits of plain JAX where nothing is padded, whatever the windows are.
    if all(map(walk.is_full, ragged_dims(op.ins[0]))):
        return walk.bind(op, values, **sizes_of_windows(walk, op))
    monoid = _monoid(op)

    # Windows along other axes only, or `_uses` would have refused it.
    if monoid is None:
        return walk.bind(op, values)

    first = monoid.identity(x.dtype)
    out_dims = op.outs[0]
    padding: list[tuple[int, int]] = []
    for axis, dim, size, stride, (low, high), _, dilation in _parts(op):
        if is_ragged(dim):
            x = walk.keep(x, op.ins[0], [axis], first)
        if not is_ragged(low):
            padding.append((low, evaluate(high, walk.allocated)))
            continue

        # Low padding by a symbolic amount, as in a convolution (`linear.py`): shift the array into
        # identities, and cut off what the last window does not read.
        span = reach(size, dilation)
        (windows,) = walk.shape([out_dims[axis]])
        length = x.shape[axis] + span
        seen, more = length_and_padding(length, windows, stride, span)
        shifted = shift_into(walk, x, axis, low, span, first)
        x = lax.slice_in_dim(shifted, 0, seen, axis=axis)
        padding.append((0, more))
    return walk.bind(op, [x, *init], padding=tuple(padding))


def sizes_of_windows(walk: PaddedInterpreter, op: Op) -> dict[str, object]:
    """The sizes, strides and padding of windows, as numbers."""
    sizes = {name: walk.shape(op.params[name]) for name in _PARAMETERS[:2]}
    padding = tuple(map(walk.shape, op.params["padding"]))
    return {**sizes, "padding": padding}


RULES: dict[str, Rule] = dict.fromkeys(
    (*_BEGINS_WITH, "reduce_window"), Rule(_uses, _pad, at_once=True, at_size=True)
)
