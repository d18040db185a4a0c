"""Window reductions along an axis: padding is replaced by the identity element, so that a window
that reaches over the end reduces its valid elements alone. And the derivatives of pooling.

A custom reducer is allowed if it is one of the monoids and its init value is the identity. With
another init value, XLA's specification pads windows with that value, and XLA for CPUs leaves it
out.

Of max and min pooling the derivative is padded along the named axis too, else for windows along
other axes only, which treat each element of the named axis alone. `select_and_scatter_add` adds the
cotangent of each window to the element that the window selected. Padding is never that element: it
is the identity of the extreme, and stands behind the valid elements, so that an equal one is
selected before it, as before what JAX itself pads with. A window that is none at exact size has a
cotangent of zero.
"""

from __future__ import annotations

from collections.abc import Iterator

import jax
import numpy as np

from ..._jax.typed import Values
from ..dims import Dim, evaluate, is_ragged, symbols
from ..interpreter import Op, PaddedInterpreter, Ranges, ragged_axes
from ..monoids import MONOIDS, Monoid
from ..rule import Rule, Use, ragged_dims, refuse, use
from ..typed_jax import lax
from ..xla_faults.lost_nans import EXTREMES, has_nan, with_nans
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


def reach(size: Dim, dilation: int) -> Dim:
    """Extent of a dilated window, from its first to its last element."""
    return (size - 1) * dilation + 1


def is_within(low: Dim, most: Dim, ranges: Ranges) -> bool:
    """Return whether a size is from 0 to `most` at each size of the axis in its range."""
    if not is_ragged(low):
        return True
    names = symbols(low) | symbols(most)
    if len(names) != 1:
        return False
    (name,) = names
    least, largest = ranges[name]
    sizes = {name: np.arange(least, largest + 1)}
    values = evaluate(low, sizes)
    return bool(np.all(values >= 0) and np.all(values <= evaluate(most, sizes)))


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
    changed = op.replace_params(padding=tuple(padding))
    return _with_nans(walk, changed, [x, *init], monoid)


def _with_nans(
    walk: PaddedInterpreter,
    op: Op,
    values: Values,
    monoid: Monoid,
) -> Values:
    """Evaluate windows. An extreme is NaN where its window has one (`xla_faults/lost_nans.py`)."""
    (out,) = walk.bind(op, values)
    x = values[0]
    if monoid not in EXTREMES or not has_nan(x.dtype):
        return [out]
    names = ("base_dilation", "window_dilation")
    counts = lax.reduce_window(
        lax.convert_element_type(lax.ne(x, x), np.int32),
        np.int32(0),
        lax.add,
        *(op.params[name] for name in _PARAMETERS[:3]),
        *(op.params.get(name) for name in names),
    )
    return [with_nans(out, lax.gt(counts, lax.full(counts.shape, np.int32(0))))]


def sizes_of_windows(walk: PaddedInterpreter, op: Op) -> dict[str, object]:
    """The sizes, strides and padding of windows, as numbers."""
    sizes = {name: walk.shape(op.params[name]) for name in _PARAMETERS[:2]}
    padding = tuple(map(walk.shape, op.params["padding"]))
    return {**sizes, "padding": padding}


# Size, stride, padding (low, high) and the two dilations of a window of one element.
_ONE_ELEMENT = (1, 1, 0, 0, 1, 1)
_EXTREMES = {"ge": MONOIDS["max"], "le": MONOIDS["min"]}


def is_alone(op: Op, axis: int) -> bool:
    """Return whether each window along an axis consists of one element."""
    params = op.params
    sizes, strides, padding = (
        params[name] for name in ("window_dimensions", "window_strides", "padding")
    )
    ones = (1,) * len(sizes)
    base = params.get("base_dilation") or ones
    window = params.get("window_dilation") or ones
    return (sizes[axis], strides[axis], *padding[axis], base[axis], window[axis]) == _ONE_ELEMENT


def _gather_uses(op: Op) -> Iterator[Use]:
    for axis, dim in enumerate(op.ins[0]):
        if is_ragged(dim) and not is_alone(op, axis):
            yield refuse(op, dim, "reduces windows along it")


def _extreme(op: Op) -> Monoid | None:
    """The extreme that windows select; None for another, or where they begin by the size."""
    params = op.params
    sizes = (*params["window_dimensions"], *params["window_strides"])
    first = [low for low, _ in params["padding"]]
    if any(map(is_ragged, (*sizes, *first))):
        return None
    return _EXTREMES.get(params["select_prim"].name)


def _scatter_uses(op: Op) -> Iterator[Use]:
    monoid = _extreme(op)
    for axis, dim in enumerate(op.ins[1]):
        if not is_ragged(dim) or is_alone(op, axis):
            continue
        if monoid is None:
            yield refuse(op, dim, "reduces windows along it")
        else:
            yield use(op, [dim], "mixed", f"derivative of the {monoid.word} of windows along it")


def _scatter(walk: PaddedInterpreter, op: Op, values: Values) -> Values:
    changed = sizes_of_windows(walk, op)
    monoid = _extreme(op)
    if monoid is None or all(map(walk.is_full, ragged_dims(op.ins[1]))):
        return walk.bind(op, values, **changed)
    cotangents, x = values
    zero = np.zeros((), cotangents.dtype)
    cotangents = walk.keep(
        cotangents,
        op.ins[0],
        ragged_axes(op.ins[0]),
        zero,
    )
    x = walk.keep(
        x,
        op.ins[1],
        ragged_axes(op.ins[1]),
        monoid.identity(x.dtype),
    )
    return walk.bind(op, [cotangents, x], **changed)


def _gather(walk: PaddedInterpreter, op: Op, values: Values) -> Values:
    return walk.bind(op, values, **sizes_of_windows(walk, op))


_OF_POOLING = {
    "select_and_gather_add": Rule(_gather_uses, _gather, at_once=True, at_size=True),
    "select_and_scatter_add": Rule(_scatter_uses, _scatter, at_once=True, at_size=True),
}


RULES: dict[str, Rule] = {
    **dict.fromkeys(
        (*_BEGINS_WITH, "reduce_window"), Rule(_uses, _pad, at_once=True, at_size=True)
    ),
    **_OF_POOLING,
}
