"""Positions of gathers, scatters and dynamic slices: they are bounded by the true size, and padding
is neither read (`gather.py`) nor written (`scatter.py`).

XLA clamps, fills or drops out-of-bounds positions by the size of the array that it sees, which is
the allocated one. So positions beyond the true size are moved to where XLA treats them as plain JAX
treats those. With 5 valid rows of 8 allocated:

    position 6, mode CLIP             -> 4: the last valid row
    position 6, mode FILL_OR_DROP     -> 2**31 - 1: out of bounds of any array
    position 6, PROMISE_IN_BOUNDS     -> 4, as XLA clamps it; in a derivative see
    `gather.py`

Starts are clamped in the program, for the reason in `xla_faults/clamped_starts.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import jax
import numpy as np

from ...._jax.typed import Values
from ...dims import Dim, is_ragged
from ...interpreter import (
    Op,
    PaddedInterpreter,
    grows,
    to_int32,
)
from ...rule import Use, refuse, use
from ...typed_jax import lax
from .fixed_windows import (
    Fitted,
    fit_window,
    fixed_window_axes,
    is_fixed_window,
    last_start,
)

DROP = lax.GatherScatterMode.FILL_OR_DROP


CLIP = lax.GatherScatterMode.CLIP


def clamp(least: np.int32, positions: jax.Array, most: jax.Array) -> jax.Array:
    """`lax.clamp`, which `jax.vmap` cannot map over `most` alone (jax 0.10.2, 0.12.0): the true
    sizes of rows are mapped, and the positions need not be.
    """
    positions = jax.numpy.asarray(positions)
    most = lax.broadcast(lax.convert_element_type(most, positions.dtype), positions.shape)
    return lax.min(lax.max(positions, lax.full_like(positions, least)), most)


def _clamp_start(
    walk: PaddedInterpreter,
    start: jax.Array,
    dim: Dim,
    window: Dim,
) -> jax.Array:
    """Clamp a start so that the window lies inside the true size, as XLA clamps it by the size that
    it sees.

    Starts along axes of fixed size are clamped too: JAX's functions count a negative start from the
    end, and did so already when this program was traced.
    """
    return clamp(np.int32(0), to_int32(start), last_start(walk, dim, window))


def clamp_starts(
    walk: PaddedInterpreter,
    dims: Sequence[Dim],
    windows: Sequence[Dim],
    starts: Sequence[jax.Array],
) -> Values:
    return [
        _clamp_start(walk, start, dim, window)
        for dim, window, start in zip(dims, windows, starts, strict=True)
    ]


def _leaves_room(op: Op, dim: Dim, window: Dim) -> bool:
    """Return whether each window that fits into the true size also fits, at the same position, into
    the allocated size.
    """
    return grows(dim - window, op.ranges)


def window_use(op: Op, dim: Dim, window: Dim, how: str) -> Use:
    if not is_fixed_window(dim, window) and not _leaves_room(op, dim, window):
        return refuse(op, (dim, window), "takes a window of it that shrinks as it grows")
    return use(op, (dim, window), "gathered", how)


# dynamic_slice, dynamic_update_slice.


def slice_uses(op: Op, windows: Sequence[Dim]) -> Iterator[Use]:
    for dim, window in zip(op.ins[0], windows, strict=True):
        if (is_ragged(dim) or is_ragged(window)) and str(dim) != str(window):
            yield window_use(op, dim, window, "a window of it")


# gather and scatter.


def indexed_uses(
    op: Op,
    sizes: Sequence[Dim],
    indexed: Sequence[int],
) -> Iterator[Use]:
    """Yield the uses of the operand's axes that positions index."""
    reads = op.name == "gather"
    how = "read at positions" if reads else "written at positions"
    for axis in indexed:
        dim, window = op.ins[0][axis], sizes[axis]
        # See `_dynamic_slice_uses`.
        if reads and is_fixed_window(dim, window):
            continue
        if is_ragged(dim) or is_ragged(window):
            yield window_use(op, dim, window, how)


def bound_positions(
    walk: PaddedInterpreter,
    indices: jax.Array,
    dims: Sequence[Dim],
    sizes: Sequence[Dim],
    indexed: Sequence[int],
    mode: object,
) -> jax.Array:
    """Clamp positions to the true size, or move those beyond it out of bounds of the allocated
    array, depending on the mode.
    """
    columns = split_columns(indices)
    for i, axis in enumerate(indexed):
        dim, size = dims[axis], sizes[axis]
        if not is_ragged(dim) and not is_ragged(size):
            continue
        column = columns[i]
        last = last_start(walk, dim, size)
        if mode == DROP:
            beyond = column > last
            columns[i] = lax.select(beyond, out_of_bounds(column), column)
        else:
            columns[i] = clamp(np.int32(0), column, last)
    return join_columns(columns, indices)


def out_of_bounds(positions: jax.Array) -> jax.Array:
    """Positions that are out of bounds of any array."""
    largest = np.iinfo(np.int32).max
    return lax.full(positions.shape, largest, np.int32)


def split_columns(indices: jax.Array) -> Values:
    """The positions along each indexed axis; `join_columns` undoes it."""
    last = indices.ndim - 1
    return [lax.index_in_dim(indices, i, last) for i in range(indices.shape[-1])]


def join_columns(columns: Values, indices: jax.Array) -> jax.Array:
    return lax.concatenate(columns, indices.ndim - 1) if columns else indices


def shift_in_bounds(column: jax.Array, offset: jax.Array | np.int32) -> jax.Array:
    """Add to positions, but for those that are out of bounds of any array."""
    largest = np.iinfo(np.int32).max
    outside = (column < 0) | (column == largest)
    return lax.select(outside, column, column + offset)


def fit_windows(
    walk: PaddedInterpreter,
    dims: Sequence[Dim],
    windows: Sequence[Dim],
    starts: Values,
) -> dict[int, Fitted]:
    """Fit the windows of fixed axes, and put their positions into `starts`."""
    fitted: dict[int, Fitted] = {}
    for axis in fixed_window_axes(dims, windows):
        fitted[axis] = fit_window(walk, starts[axis], dims[axis], windows[axis])
        starts[axis] = fitted[axis].first
    return fitted


def fit_position(
    walk: PaddedInterpreter,
    column: jax.Array,
    dim: int,
    window: Dim,
) -> tuple[jax.Array, Fitted]:
    """Fit the one window of a gather or scatter into a fixed axis, and return its new position; a
    position out of bounds of any array stays.
    """
    start = lax.reshape(column, ())
    outside = (start < 0) | (start > dim)
    at = fit_window(
        walk,
        lax.select(outside, np.int32(0), start),
        dim,
        window,
    )
    first = lax.select(outside, start, at.first)
    return lax.reshape(first, column.shape), at


def fitted_shape(
    walk: PaddedInterpreter,
    windows: Sequence[Dim],
    fitted: Mapping[int, Fitted],
) -> list[int]:
    shape = list(walk.shape(windows))
    for axis, window in fitted.items():
        shape[axis] = window.length
    return shape
