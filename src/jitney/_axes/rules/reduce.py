"""Reductions and cumulative operations: the identity of the monoid stands behind what is valid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..dims import Dim, evaluate, is_ragged
from ..monoids import CUMULATIVE, MONOIDS, PLACES, REDUCTIONS, Monoid, is_ordered
from ..rule import Across, Rule, Use, Way, ragged_dims, refuse, same, use
from ..typed_jax import dtypes
from ..walk import Op, Walk


def unordered(op: Op, dims: Sequence[Dim], monoid: Monoid) -> list[Use]:
    """The refusal of an extreme that depends on the order in which XLA finds it."""
    dtype = op.eqn.invars[0].aval.dtype
    if monoid not in (MONOIDS["max"], MONOIDS["min"]) or is_ordered(dtype):
        return []
    return [refuse(op, dims, f"looks for an extreme of {dtype} numbers, whose NaNs XLA drops or keeps by the order it goes in")]


def uncounted(op: Op, dims: Sequence[Dim]) -> list[Use]:
    """The refusal of a place in a type that cannot count the axis: of equal elements XLA finds the one whose place, wrapped, is first."""
    dtype = op.params.get("index_dtype")
    most = {symbol: high for symbol, (_, high) in op.ranges.items()}
    if dtype is None or all(evaluate(dim, most) - 1 <= dtypes.iinfo(dtype).max for dim in dims):
        return []
    return [refuse(op, dims, f"gives places along it as {dtype}, which cannot count them")]


def _reduction(monoid: Monoid, word: str = "", way: Way = "folded") -> Rule:
    own = monoid if way == "folded" else None  # the place of the largest is not the largest

    def uses(op: Op) -> Iterator[Use]:
        dims = ragged_dims(op.ins[0][axis] for axis in op.params["axes"])
        if dims:
            yield from unordered(op, dims, monoid) or uncounted(op, dims) or [use(op, dims, "reduced", word, monoid=own)]

    def pad(walk: Walk, op: Op, values: list[Any]) -> list[Any]:
        x = values[0]
        return walk.bind(op, [walk.keep(x, op.ins[0], op.params["axes"], monoid.identity(x.dtype))])

    return Rule(uses, pad, Across(way, monoid))


def _cumulative(monoid: Monoid) -> Rule:
    def uses(op: Op) -> Iterator[Use]:
        dims = ragged_dims([op.ins[0][op.params["axis"]]])
        if dims:
            yield from unordered(op, dims, monoid) or [
                use(op, dims, "scanned", f"cumulative {monoid.word}{', from the end' if op.params['reverse'] else ''}")
            ]

    def pad(walk: Walk, op: Op, values: list[Any]) -> list[Any]:
        x = values[0]
        return walk.bind(op, [walk.keep(x, op.ins[0], [op.params["axis"]], monoid.identity(x.dtype))])

    return Rule(uses, pad, Across("cumulated", monoid))


def _window_uses(op: Op) -> Iterator[Use]:
    params = op.params
    parts = zip(params["window_dimensions"], params["window_strides"], params["padding"], strict=True)
    for dim, (size, stride, padding) in zip(op.ins[0], parts, strict=True):
        if is_ragged(dim) and (size, stride, *padding) != (1, 1, 0, 0):
            yield refuse(op, dim, "reduces windows along it")


RULES: dict[str, Rule] = {
    **{name: _reduction(MONOIDS[monoid]) for name, monoid in REDUCTIONS.items()},
    **{name: _reduction(MONOIDS[monoid], name, "placed") for name, monoid in PLACES.items()},
    **{name: _cumulative(MONOIDS[monoid]) for name, monoid in CUMULATIVE.items()},
    **dict.fromkeys(("reduce_window_sum", "reduce_window_max", "reduce_window_min"), Rule(_window_uses, same)),
}
