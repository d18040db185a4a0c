"""Derivatives of pooling: of max and min pooling along the named axis too, else for windows along
other axes only, which treat each element of the named axis alone.

`select_and_scatter_add` adds the cotangent of each window to the element that the window selected.
Padding is never that element: it is the identity of the extreme, and stands behind the valid
elements, so that an equal one is selected before it, as before what JAX itself pads with. A window
that is none at exact size has a cotangent of zero.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..._jax.typed import Values
from ..dims import is_ragged
from ..interpreter import Op, PaddedInterpreter, ragged_axes
from ..monoids import MONOIDS, Monoid
from ..rule import Rule, Use, ragged_dims, refuse, use
from .windows import sizes_of_windows

# Size, stride, padding (low, high) and the two dilations of a window of one element.
_ALONE = (1, 1, 0, 0, 1, 1)
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
    return (sizes[axis], strides[axis], *padding[axis], base[axis], window[axis]) == _ALONE


def _uses(op: Op) -> Iterator[Use]:
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


def _evaluate(walk: PaddedInterpreter, op: Op, values: Values) -> Values:
    return walk.bind(op, values, **sizes_of_windows(walk, op))


RULES: dict[str, Rule] = {
    "select_and_gather_add": Rule(_uses, _evaluate, at_once=True, at_size=True),
    "select_and_scatter_add": Rule(_scatter_uses, _scatter, at_once=True, at_size=True),
}
