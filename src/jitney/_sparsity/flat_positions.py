"""Flat positions that gather, scatter and dynamic slices read and write, by XLA's dimension
numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .typed_numpy import np

Shape = tuple[int, ...]


def are_sure(shape: Shape, starts: object, sizes: Sequence[int], index_map: Sequence[int]) -> bool:
    """Return whether every XLA backend reads the same windows of these sizes."""
    return all(
        is_sure(np.asarray(starts)[..., i], shape[axis] - sizes[axis])
        for i, axis in enumerate(index_map)
    )


def gathered(shape: Shape, starts: Any, out: Shape, params: Mapping[str, Any]) -> Any:
    """Flat position that each element of a gather's result reads; -1 where it is filled.

    Args:
        shape: Shape of the operand.
        starts: Known start indices.
        out: Shape of the result.
        params: Parameters of the primitive: `dimension_numbers`, `slice_sizes`, `mode`.
    """
    numbers, sizes = params["dimension_numbers"], params["slice_sizes"]
    batch = [axis for axis in range(len(out)) if axis not in numbers.offset_dims]
    window = [
        axis
        for axis in range(len(shape))
        if axis not in (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    ]
    offsets = dict(zip(window, numbers.offset_dims, strict=True))
    batched = dict(
        zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True)
    )
    return _positions(
        shape,
        starts,
        out,
        sizes,
        (numbers.start_index_map, batch, offsets, batched),
        fills="FILL" in str(params["mode"]).upper(),
    )


def scattered(shape: Shape, starts: Any, updates: Shape, params: Mapping[str, Any]) -> Any:
    """Flat position that each element of a scatter's updates goes to; -1 where it is dropped."""
    numbers, sizes = params["dimension_numbers"], window_sizes(shape, updates, params)
    batch = [axis for axis in range(len(updates)) if axis not in numbers.update_window_dims]
    window = [
        axis
        for axis in range(len(shape))
        if axis not in (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    ]
    offsets = dict(zip(window, numbers.update_window_dims, strict=True))
    batched = dict(
        zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True)
    )
    places = (numbers.scatter_dims_to_operand_dims, batch, offsets, batched)
    return _positions(
        shape, starts, updates, sizes, places, fills="CLIP" not in str(params["mode"]).upper()
    )


def is_sure(starts: Any, last: int) -> bool:
    """Return whether XLA reads the same everywhere for starts that may go up to `last`.

    XLA clamps in the type of the starts, into which `last` may not fit. Where it turns them into
    plain slices it takes unsigned constants beyond the end for negative ones (jax 0.10.2 and
    0.12.0.1: uint8 255 of 100 elements is the last window, or the first).
    """
    kind = np.iinfo(starts.dtype)
    return last <= kind.max and (kind.min < 0 or bool((starts <= last).all()))


def window_sizes(shape: Shape, updates: Shape, params: Mapping[str, Any]) -> list[int]:
    """Extent of each axis that a scatter writes at one index."""
    numbers = params["dimension_numbers"]
    window = [
        axis
        for axis in range(len(shape))
        if axis not in (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    ]
    offsets = dict(zip(window, numbers.update_window_dims, strict=True))
    return [updates[offsets[axis]] if axis in offsets else 1 for axis in range(len(shape))]


def _positions(
    shape: Shape, starts: Any, out: Shape, sizes: Sequence[int], places: Any, *, fills: bool
) -> Any:
    index_map, batch, offsets, batched = places
    starts = np.asarray(starts)
    along: list[Any] = []
    inside: Any = True

    def spread(values: object, axes: Sequence[int]) -> Any:
        wanted = [1] * len(out)
        for axis, size in zip(axes, np.shape(values), strict=True):
            wanted[axis] = size
        return np.reshape(values, wanted)

    # The position along an axis of the operand is the sum of a start, or of a batch index, and an
    # offset in the window.
    for axis, size in enumerate(shape):
        position: Any = 0
        if axis in index_map:
            start = starts[..., list(index_map).index(axis)].astype(np.int64)
            last = size - sizes[axis]
            # An out-of-bounds window is dropped as a whole if `fills`; otherwise its start is
            # clamped.
            inside = inside & spread((start >= 0) & (start <= last), batch)
            position = spread(np.clip(start, 0, max(last, 0)), batch)
        elif axis in batched:
            position = spread(np.arange(size), [batch[batched[axis]]])
        if axis in offsets:
            position = position + spread(np.arange(out[offsets[axis]]), [offsets[axis]])
        along.append(np.broadcast_to(position, out))
    flat = np.zeros(out, np.int64)
    for position, size in zip(along, shape, strict=True):
        flat = flat * size + position
    return np.where(inside, flat, -1) if fills else flat
