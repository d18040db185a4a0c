"""Sparsity rules of primitives that read or write at computed positions.

They are exact where the positions are known at trace time. Otherwise any position may be meant.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .flat_positions import are_sure, gathered, is_sure, scattered, window_sizes
from .operation import MaybePattern, Shape, SparsityOp, everything
from .pattern import Pattern, union
from .typed_numpy import np


def gather(op: SparsityOp) -> list[MaybePattern]:
    """Rule of `gather`: known start indices give exact positions."""
    if op.varying != [0]:
        return everything(op)
    pattern, shape, starts = op.pattern(0), op.shapes[0], op.values[1]
    params = dict(op.params)
    if starts is not None and not are_sure(
        shape, starts, params["slice_sizes"], params["dimension_numbers"].start_index_map
    ):
        starts = None
    # Unknown start indices: merge all positions along the indexed axes into one, and read that.
    if starts is None:
        pattern, shape = _blurred(pattern, shape, op.params["dimension_numbers"].start_index_map)
        params["slice_sizes"] = tuple(
            min(a, b) for a, b in zip(op.params["slice_sizes"], shape, strict=True)
        )
        if params["slice_sizes"] != tuple(op.params["slice_sizes"]):
            return everything(op)
        starts = np.zeros(op.shapes[1], int)
    return [pattern.take(gathered(shape, starts, op.out, params))]


def _blurred(pattern: Pattern, shape: Shape, axes: Sequence[int]) -> tuple[Pattern, Shape]:
    """Merge all positions along some axes into one."""
    kept = tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    groups = np.arange(math.prod(kept)).reshape(kept)
    return pattern.merge(np.broadcast_to(groups, shape), groups.size), kept


def dynamic_slice(op: SparsityOp) -> list[MaybePattern]:
    if op.varying != [0]:
        return everything(op)
    pattern, shape = op.pattern(0), op.shapes[0]
    starts = _sure(op.values[1:], shape, op.out)
    unknown = [
        axis for axis, start in enumerate(starts) if start is None and op.out[axis] != shape[axis]
    ]
    pattern, kept = _blurred(pattern, shape, unknown)

    # Flat positions that are read, in row-major order. XLA clamps a start so that the slice fits.
    at = np.zeros((), np.int64)
    for axis, (size, out) in enumerate(zip(kept, op.out, strict=True)):
        first = 0 if starts[axis] is None else _clipped(starts[axis], size - out)
        along = np.zeros(out, int) if axis in unknown else first + np.arange(out)
        at = at[..., None] * size + along
    return [pattern.take(at)]


def _sure(starts: Sequence[object], shape: Shape, window: Shape) -> list[Any]:
    return [
        None if start is None or not is_sure(start, a - b) else start
        for start, a, b in zip(starts, shape, window, strict=True)
    ]


def _clipped(start: Any, last: int) -> int:
    return min(max(int(start), 0), last)


def dynamic_update_slice(op: SparsityOp) -> list[MaybePattern]:
    if any(i > 1 for i in op.varying):
        return everything(op)
    shape, window = op.shapes[0], op.shapes[1]
    starts = _sure(op.values[2:], shape, window)
    known = all(
        start is not None or a == b for start, a, b in zip(starts, shape, window, strict=True)
    )

    parts: list[Pattern] = []
    # For each element of the result, the element of the update that overwrites it; -1 for none.
    target = np.full(shape, -1)
    if known:
        first = [
            0 if start is None else _clipped(start, a - b)
            for start, a, b in zip(starts, shape, window, strict=True)
        ]
        target[tuple(slice(at, at + size) for at, size in zip(first, window, strict=True))] = (
            op.positions(1)
        )

    if op.patterns[0] is not None:
        parts.append(op.pattern(0).keep(target < 0))
    if op.patterns[1] is not None:
        # At an unknown start any element may come from any element of the update.
        anywhere = (
            op.pattern(1)
            .merge(np.zeros(math.prod(window), int), 1)
            .take(np.zeros(math.prod(shape), int))
            if not known
            else None
        )
        parts.append(anywhere or op.pattern(1).take(target))
    return [union(parts)]


def scatter(op: SparsityOp) -> list[MaybePattern]:
    """Rule of scatters: updates go to known indices, and a plain scatter drops what it
    overwrites.
    """
    if op.values[1] is None or op.patterns[1] is not None:
        return everything(op)
    sizes = window_sizes(op.shapes[0], op.shapes[2], op.params)
    if not are_sure(
        op.shapes[0],
        op.values[1],
        sizes,
        op.params["dimension_numbers"].scatter_dims_to_operand_dims,
    ):
        return everything(op)
    at = scattered(op.shapes[0], op.values[1], op.shapes[2], op.params).reshape(-1)
    size = math.prod(op.out)
    # `scatter` replaces elements, so their old dependence goes. `scatter-add` keeps both.
    parts: list[Pattern] = []
    if op.patterns[0] is not None:
        kept = np.ones(size, bool)
        if op.name == "scatter":
            kept[at[at >= 0]] = False
        parts.append(op.pattern(0).keep(kept))
    if op.patterns[2] is not None:
        parts.append(op.pattern(2).keep(at >= 0).merge(np.maximum(at, 0), size))
    return [union(parts)]
