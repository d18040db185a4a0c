"""Flat positions that gather, scatter and dynamic slices read and write, by XLA's dimension
numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from .typed_numpy import Bools, Ints, np

Shape = tuple[int, ...]
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
