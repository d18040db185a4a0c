"""Sparsity rules of primitives that read or write at computed positions.

They are exact where the positions are known at trace time. Otherwise any position may be meant.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from .flat_positions import are_sure, gather_positions, is_sure, scatter_positions, window_sizes
from .operation import MaybePattern, Shape, SparsityOp, everything
from .pattern import Pattern, union
from .typed_numpy import Ints, np


def gather(op: SparsityOp) -> list[MaybePattern]:
    """Rule of `gather`: known start indices give exact positions."""
    if op.varying != [0]:
        return everything(op)
    pattern, shape = op.pattern(0), op.shapes[0]
    params = dict(op.params)
    sizes: Shape = params["slice_sizes"]
    indexed: Sequence[int] = params["dimension_numbers"].start_index_map
    starts = op.values[1]
    if starts is not None and not are_sure(shape, starts, sizes, indexed):
        starts = None

    # Unknown start indices: merge all positions along the indexed axes into one, and read that.
    if starts is None:
        pattern, shape = _merge_axes(pattern, shape, indexed)
        params["slice_sizes"] = tuple(map(min, zip(sizes, shape, strict=True)))
        if params["slice_sizes"] != tuple(sizes):
            return everything(op)
        starts = np.zeros(op.shapes[1], int)
    positions = gather_positions(shape, starts, op.out, params)
    return [pattern.take(positions)]


def _merge_axes(
    pattern: Pattern,
    shape: Shape,
    axes: Sequence[int],
) -> tuple[Pattern, Shape]:
    """Merge all positions along some axes into one."""
    merged = tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    groups = np.arange(math.prod(merged)).reshape(merged)
    group_of = np.broadcast_to(groups, shape)
    return pattern.merge(group_of, groups.size), merged


def dynamic_slice(op: SparsityOp) -> list[MaybePattern]:
    if op.varying != [0]:
        return everything(op)
    shape = op.shapes[0]
    starts = _sure(op.values[1:], shape, op.out)
    unknown = [
        axis for axis, start in enumerate(starts) if start is None and op.out[axis] != shape[axis]
    ]
    pattern, sizes = _merge_axes(op.pattern(0), shape, unknown)

    # Flat positions that are read, in row-major order. XLA clamps a start so that the slice fits.
    at = np.zeros((), np.int64)
    for axis, (size, out, start) in enumerate(zip(sizes, op.out, starts, strict=True)):
        if axis in unknown:
            along = np.zeros(out, int)
        else:
            along = _clamp_start(start, size - out) + np.arange(out)
        at = at[..., None] * size + along
    return [pattern.take(at)]


def _sure(
    starts: Sequence[object],
    shape: Shape,
    window: Shape,
) -> list[Ints | None]:
    """Starts that are known, and that every XLA backend reads alike; None for the others."""
    sure: list[Ints | None] = []
    for value, size, extent in zip(starts, shape, window, strict=True):
        start: Ints | None = None if value is None else np.asarray(value)
        if start is not None and not is_sure(start, size - extent):
            start = None
        sure.append(start)
    return sure


def _clamp_start(start: Ints | None, last: int) -> int:
    """Start of a window as XLA clamps it; 0 if it is not known, for a window of the whole axis."""
    if start is None:
        return 0
    return min(max(int(start), 0), last)


def dynamic_update_slice(op: SparsityOp) -> list[MaybePattern]:
    if any(i > 1 for i in op.varying):
        return everything(op)
    shape, window = op.shapes[0], op.shapes[1]
    starts = _sure(op.values[2:], shape, window)
    known = all(
        start is not None or size == extent
        for start, size, extent in zip(starts, shape, window, strict=True)
    )

    # For each element of the result, the element of the update that overwrites it; -1 for none.
    target = np.full(shape, -1)
    if known:
        written: list[slice] = []
        for start, size, extent in zip(starts, shape, window, strict=True):
            first = _clamp_start(start, size - extent)
            written.append(slice(first, first + extent))
        target[tuple(written)] = op.positions(1)

    parts: list[Pattern] = []
    if op.patterns[0] is not None:
        parts.append(op.pattern(0).keep(target < 0))
    if op.patterns[1] is not None:
        update = op.pattern(1)
        if known:
            parts.append(update.take(target))
        else:
            # At an unknown start any element may come from any element of the update.
            into_one = np.zeros(math.prod(window), int)
            from_one = np.zeros(math.prod(shape), int)
            parts.append(update.merge(into_one, 1).take(from_one))
    return [union(parts)]


def scatter(op: SparsityOp) -> list[MaybePattern]:
    """Rule of scatters: updates go to known indices, and a plain scatter drops what it
    overwrites.
    """
    starts = op.values[1]
    if starts is None or op.patterns[1] is not None:
        return everything(op)
    shape, _, updates = op.shapes
    sizes = window_sizes(shape, updates, op.params)
    indexed = op.params["dimension_numbers"].scatter_dims_to_operand_dims
    if not are_sure(shape, starts, sizes, indexed):
        return everything(op)

    at = scatter_positions(shape, starts, updates, op.params).reshape(-1)
    size = math.prod(op.out)
    # `scatter` replaces elements, so their old dependence goes. `scatter-add` keeps both.
    parts: list[Pattern] = []
    if op.patterns[0] is not None:
        stays = np.ones(size, bool)
        if op.name == "scatter":
            stays[at[at >= 0]] = False
        parts.append(op.pattern(0).keep(stays))
    if op.patterns[2] is not None:
        written = op.pattern(2).keep(at >= 0)
        parts.append(written.merge(np.maximum(at, 0), size))
    return [union(parts)]
