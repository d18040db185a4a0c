"""Sparsity rules of primitives that read or write at computed positions.

They are exact where the positions are known at trace time. Otherwise any position may be meant.
The flat positions are those of XLA's dimension numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from .pattern import MaybePattern, Pattern, Shape, SparsityOp, everything, union
from .typed_numpy import Bools, Ints, np

Spread = TypeVar("Spread", Ints, Bools)


def are_sure(
    shape: Shape,
    starts: object,
    sizes: Sequence[int],
    index_map: Sequence[int],
) -> bool:
    """Return whether every XLA backend reads the same windows of these sizes."""
    return all(
        is_sure(np.asarray(starts)[..., i], shape[axis] - sizes[axis])
        for i, axis in enumerate(index_map)
    )


def gather_positions(
    shape: Shape,
    starts: object,
    out: Shape,
    params: Mapping[str, Any],
) -> Ints:
    """Flat position that each element of a gather's result reads; -1 where it is filled.

    Args:
        shape: Shape of the operand.
        starts: Known start indices.
        out: Shape of the result.
        params: Parameters of the primitive: `dimension_numbers`, `slice_sizes`, `mode`.
    """
    numbers = params["dimension_numbers"]
    batching = numbers.operand_batching_dims
    window = _window(shape, numbers.collapsed_slice_dims, batching)
    axes = _Axes(
        numbers.start_index_map,
        [axis for axis in range(len(out)) if axis not in numbers.offset_dims],
        dict(zip(window, numbers.offset_dims, strict=True)),
        dict(zip(batching, numbers.start_indices_batching_dims, strict=True)),
    )
    fills = "FILL" in str(params["mode"]).upper()
    return _positions(shape, starts, out, params["slice_sizes"], axes, fills=fills)


def scatter_positions(
    shape: Shape,
    starts: object,
    updates: Shape,
    params: Mapping[str, Any],
) -> Ints:
    """Flat position that each element of a scatter's updates goes to; -1 where it is dropped."""
    numbers = params["dimension_numbers"]
    sizes = window_sizes(shape, updates, params)
    batching = numbers.operand_batching_dims
    window = _window(shape, numbers.inserted_window_dims, batching)
    axes = _Axes(
        numbers.scatter_dims_to_operand_dims,
        [axis for axis in range(len(updates)) if axis not in numbers.update_window_dims],
        dict(zip(window, numbers.update_window_dims, strict=True)),
        dict(zip(batching, numbers.scatter_indices_batching_dims, strict=True)),
    )
    fills = "CLIP" not in str(params["mode"]).upper()
    return _positions(shape, starts, updates, sizes, axes, fills=fills)


@dataclass(frozen=True)
class _Axes:
    """Axes of an operand and of an array that is read from it, or written to it.

    Args:
        indexed: Axes of the operand that the start indices are for.
        batch: Axes of the array that number the start indices.
        offsets: Axis of the operand -> axis of the array along which its windows lie.
        batched: Batch axis of the operand -> axis of the start indices.
    """

    indexed: Sequence[int]
    batch: Sequence[int]
    offsets: Mapping[int, int]
    batched: Mapping[int, int]


def _window(
    shape: Shape,
    dropped: Sequence[int],
    batching: Sequence[int],
) -> list[int]:
    """Axes of an operand along which windows have an extent of their own."""
    return [axis for axis in range(len(shape)) if axis not in (*dropped, *batching)]


def is_sure(starts: Ints, last: int) -> bool:
    """Return whether XLA reads the same everywhere for starts that may go up to `last`.

    XLA clamps in the type of the starts, into which `last` may not fit. Where it turns them into
    plain slices it takes unsigned constants beyond the end for negative ones (jax 0.10.2 and
    0.12.0.1: uint8 255 of 100 elements is the last window, or the first).
    """
    kind = np.iinfo(starts.dtype)
    if last > kind.max:
        return False
    is_signed = kind.min < 0
    return is_signed or bool((starts <= last).all())


def window_sizes(
    shape: Shape,
    updates: Shape,
    params: Mapping[str, Any],
) -> list[int]:
    """Extent of each axis that a scatter writes at one index."""
    numbers = params["dimension_numbers"]
    window = _window(shape, numbers.inserted_window_dims, numbers.operand_batching_dims)
    sizes = [1] * len(shape)
    for axis, along in zip(window, numbers.update_window_dims, strict=True):
        sizes[axis] = updates[along]
    return sizes


def _positions(
    shape: Shape,
    starts: object,
    out: Shape,
    sizes: Sequence[int],
    axes: _Axes,
    *,
    fills: bool,
) -> Ints:
    indices: Ints = np.asarray(starts)
    along: list[Ints] = []
    inside: Bools = np.ones((), bool)

    def spread(values: Spread, onto: Sequence[int]) -> Spread:
        aligned = [1] * len(out)
        for axis, size in zip(onto, np.shape(values), strict=True):
            aligned[axis] = size
        return np.reshape(values, aligned)

    # The position along an axis of the operand is the sum of a start, or of a batch index, and an
    # offset in the window.
    for axis, size in enumerate(shape):
        position: Ints = np.zeros((), np.int64)
        if axis in axes.indexed:
            component = list(axes.indexed).index(axis)
            start = indices[..., component].astype(np.int64)
            last = size - sizes[axis]
            # An out-of-bounds window is dropped as a whole if `fills`; otherwise its start is
            # clamped.
            fits: Bools = (start >= 0) & (start <= last)
            inside = inside & spread(fits, axes.batch)
            position = spread(np.clip(start, 0, max(last, 0)), axes.batch)
        elif axis in axes.batched:
            counter = axes.batch[axes.batched[axis]]
            position = spread(np.arange(size), [counter])
        if axis in axes.offsets:
            offset = axes.offsets[axis]
            position = position + spread(np.arange(out[offset]), [offset])
        along.append(np.broadcast_to(position, out))

    flat = np.zeros(out, np.int64)
    for position, size in zip(along, shape, strict=True):
        flat = flat * size + position
    return np.where(inside, flat, -1) if fills else flat


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
