"""Reductions and cumulative operations: the identity of the monoid stands behind what is valid."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .._extent import is_ragged
from .._jax import dtypes
from .._rule import Rule, Use, ragged_dims, refuse, same, use
from .._walk import Op, Walk

Identity = Callable[[Any], Any]


def zero(dtype: Any) -> Any:
    return np.zeros((), dtype)[()]


def one(dtype: Any) -> Any:
    return np.ones((), dtype)[()]


def lowest(dtype: Any) -> Any:
    """What no element is below."""
    if dtype == np.bool_:
        return np.False_
    if dtypes.issubdtype(dtype, np.integer):
        return dtypes.iinfo(dtype).min
    return -np.inf


def highest(dtype: Any) -> Any:
    """What no element is above."""
    if dtype == np.bool_:
        return np.True_
    if dtypes.issubdtype(dtype, np.integer):
        return dtypes.iinfo(dtype).max
    return np.inf


def all_bits(dtype: Any) -> Any:
    return np.True_ if dtype == np.bool_ else np.array(-1).astype(dtype)[()]


MONOIDS: dict[str, tuple[str, Identity]] = {
    "reduce_sum": ("sum", zero),
    "reduce_prod": ("product", one),
    "reduce_max": ("max", lowest),
    "reduce_min": ("min", highest),
    "reduce_and": ("and", all_bits),
    "reduce_or": ("or", zero),
    "reduce_xor": ("xor", zero),
    "argmax": ("argmax", lowest),
    "argmin": ("argmin", highest),
}
_CUMULATIVE: dict[str, tuple[str, Identity]] = {
    "cumsum": ("sum", zero),
    "cumprod": ("product", one),
    "cummax": ("max", lowest),
    "cummin": ("min", highest),
    "cumlogsumexp": ("log-sum-exp", lowest),
}


def _reduction(monoid: str, identity: Identity) -> Rule:
    def uses(op: Op) -> Iterator[Use]:
        dims = ragged_dims(op.ins[0][axis] for axis in op.params["axes"])
        if dims:
            yield use(op, dims, "reduced", monoid)

    def pad(walk: Walk, op: Op, values: list[Any]) -> list[Any]:
        x = values[0]
        return walk.bind(op, [walk.keep(x, op.ins[0], op.params["axes"], identity(x.dtype))])

    return Rule(uses, pad)


def _cumulative(monoid: str, identity: Identity) -> Rule:
    def uses(op: Op) -> Iterator[Use]:
        dims = ragged_dims([op.ins[0][op.params["axis"]]])
        if dims:
            yield use(op, dims, "scanned", f"cumulative {monoid}{', from the end' if op.params['reverse'] else ''}")

    def pad(walk: Walk, op: Op, values: list[Any]) -> list[Any]:
        x = values[0]
        return walk.bind(op, [walk.keep(x, op.ins[0], [op.params["axis"]], identity(x.dtype))])

    return Rule(uses, pad)


def _window_uses(op: Op) -> Iterator[Use]:
    params = op.params
    parts = zip(params["window_dimensions"], params["window_strides"], params["padding"], strict=True)
    for dim, (size, stride, padding) in zip(op.ins[0], parts, strict=True):
        if is_ragged(dim) and (size, stride, *padding) != (1, 1, 0, 0):
            yield refuse(op, dim, "reduces windows along it")


RULES: dict[str, Rule] = {name: _reduction(*monoid) for name, monoid in MONOIDS.items()}
RULES.update({name: _cumulative(*monoid) for name, monoid in _CUMULATIVE.items()})
RULES.update(dict.fromkeys(("reduce_window_sum", "reduce_window_max", "reduce_window_min"), Rule(_window_uses, same)))
