"""Windows whose length is symbolic, of axes whose length is fixed: `pos[:n]`,
`buf.at[:n].set(x)`.

A window that fits at its true length may reach over the end of the axis at its allocated length,
and XLA would move or drop it then. So a window is moved back until it fits, or cut to the whole
axis, and its elements are shifted by as much. With pos[8], n = 5 of 8 allocated:

    pos[2:2 + n]    read  pos[0:8]        then shift down by 2: valid 2, 3, 4, 5, 6
    chunk 1 of 4    read  pos[4:8]        a chunk's window begins where the chunk does

Where several windows are read or written at once, each at a place of its own, room for the
allocated length is made behind the axis instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax
import numpy as np

from ...dims import Dim, is_ragged
from ...interpreter import PaddedInterpreter, take
from ...typed_jax import dtypes, lax


def is_fixed_window(dim: Dim, window: Dim) -> bool:
    """Return whether a window of symbolic length lies in an axis of fixed length."""
    return is_ragged(window) and not is_ragged(dim)


def fixed_window_axes(dims: Sequence[Dim], windows: Sequence[Dim]) -> list[int]:
    """The axes along which a window of symbolic length lies in an axis of fixed length."""
    pairs = zip(dims, windows, strict=True)
    return [axis for axis, pair in enumerate(pairs) if is_fixed_window(*pair)]


@dataclass(frozen=True)
class Fitted:
    """A window that fits into its axis at the allocated length.

    Args:
        length: Its length, that of the axis at most.
        first: Its position.
        shift: The position of the true window's first element in it.
    """

    length: int
    first: jax.Array
    shift: jax.Array


def fit_window(
    walk: PaddedInterpreter,
    start: jax.Array | np.int32,
    dim: int,
    window: Dim,
) -> Fitted:
    """Fit a window into an axis, given the position of the whole window, which lies inside."""
    (allocated,) = walk.shape([window])
    length = min(allocated, dim)
    at = start + begin(walk, window)
    first = lax.clamp(np.int32(0), at, np.int32(dim - length))
    return Fitted(length, first, at - first)


def begin(walk: PaddedInterpreter, window: Dim) -> jax.Array | np.int32:
    """The position of the chunk's part in a window; 0 if nothing is cut."""
    start = walk.start_of(window)
    return np.int32(0) if start is None else start


def last_start(
    walk: PaddedInterpreter,
    dim: Dim,
    window: Dim,
) -> jax.Array:
    """The last position of a window inside of its axis: of the whole window, if only the window is
    symbolic and may be cut.
    """
    if is_fixed_window(dim, window):
        return np.int32(dim) - walk.whole_count(window)
    return walk.count(dim) - walk.count(window)


def shift_down(
    x: jax.Array,
    by: jax.Array,
    size: int,
    axis: int,
) -> jax.Array:
    """The elements of `x` from `by` on, in an axis of a given size; behind the end anything."""
    if dtypes.issubdtype(x.dtype, dtypes.extended):
        return take(x, by + np.arange(size, dtype=np.int32), axis)
    return lax.dynamic_slice_in_dim(_widen(x, 0, size, axis), by, size, axis)


def shift_up(
    x: jax.Array,
    by: jax.Array,
    size: int,
    axis: int,
) -> jax.Array:
    """The elements of `x` from position `by` on of an axis of a given size, which is at most the
    length of `x`; before them anything.
    """
    if dtypes.issubdtype(x.dtype, dtypes.extended):
        return take(x, np.arange(size, dtype=np.int32) - by, axis)
    return lax.dynamic_slice_in_dim(
        _widen(x, size, 0, axis),
        np.int32(size) - by,
        size,
        axis,
    )


def _widen(
    x: jax.Array,
    before: int,
    behind: int,
    axis: int,
) -> jax.Array:
    config = [(0, 0, 0)] * x.ndim
    config[axis] = (before, behind, 0)
    return lax.pad(x, lax.full((), 0, x.dtype), config)


def make_room(
    walk: PaddedInterpreter,
    x: jax.Array,
    windows: Mapping[int, Dim],
) -> jax.Array:
    """Lengthen axes by the allocated length of their windows, so that a window that begins inside
    of an axis fits.
    """
    for axis, window in windows.items():
        (allocated,) = walk.shape([window])
        if dtypes.issubdtype(x.dtype, dtypes.extended):
            x = take(x, np.arange(x.shape[axis] + allocated, dtype=np.int32), axis)
        else:
            x = _widen(x, 0, allocated, axis)
    return x


def shifted_inside(
    walk: PaddedInterpreter,
    shape: Sequence[int],
    axis: int,
    window: Dim,
    shift: jax.Array | np.int32,
) -> jax.Array:
    """Mask of the elements of a fitted window that are those of the true one."""
    positions = lax.broadcasted_iota(np.int32, shape, axis)
    count = walk.count(window)
    low = lax.broadcast(shift, positions.shape)
    high = lax.broadcast(shift + count, positions.shape)
    return lax.bitwise_and(lax.ge(positions, low), lax.lt(positions, high))
