"""Reads at positions: `gather` and `dynamic_slice`.

    x[i]                    -> its positions are bounded by the true size (`positions.py`)
    dynamic_slice(x, i, 3)  -> so is its start
    x[i], differentiated    -> positions above the last go to a copy of it behind the array

Windows of an axis that chunks cut are fitted into it (`fixed_windows.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

import jax
import numpy as np

from ...._jax.typed import Values
from ...carriers.positions import Gather
from ...dims import is_ragged
from ...interpreter import Op, PaddedInterpreter, to_int32
from ...rule import Rule, Use, refuse
from ...typed_jax import lax
from ...xla_faults.clamped_starts import is_single
from .fixed_windows import (
    Fitted,
    begin,
    fit_window,
    fixed_window_axes,
    is_fixed_window,
    make_room,
    shift_down,
)
from .positions import (
    CLIP,
    DROP,
    bound_positions,
    clamp_starts,
    fit_position,
    fit_windows,
    fitted_shape,
    indexed_uses,
    join_columns,
    out_of_bounds,
    shift_in_bounds,
    slice_uses,
    split_columns,
)


def _dynamic_slice_uses(op: Op) -> Iterator[Use]:
    # A window of a fixed axis begins at one place for all of the elements: each of them is read
    # alone.
    dims, windows = op.ins[0], op.params["slice_sizes"]
    fixed = fixed_window_axes(dims, windows)
    whole = [dims[axis] if axis in fixed else window for axis, window in enumerate(windows)]
    return slice_uses(op, whole)


def _dynamic_slice(
    walk: PaddedInterpreter,
    op: Op,
    values: Values,
) -> Values:
    x, *starts = values
    dims, windows = op.ins[0], op.params["slice_sizes"]
    inside = clamp_starts(walk, dims, windows, starts)
    fitted = fit_windows(walk, dims, windows, inside)
    x = lax.dynamic_slice(x, inside, fitted_shape(walk, windows, fitted))
    for axis, window in fitted.items():
        (size,) = walk.shape([windows[axis]])
        x = shift_down(x, window.shift, size, axis)
    return [x]


def _gather_uses(op: Op) -> Iterator[Use]:
    numbers = op.params["dimension_numbers"]
    length = op.ins[1][-1]
    if is_ragged(length):
        yield refuse(op, length, "uses it as the length of an index")
    yield from indexed_uses(op, op.params["slice_sizes"], numbers.start_index_map)


def _gather(
    walk: PaddedInterpreter,
    op: Op,
    values: Values,
) -> Values:
    x, indices = values[0], to_int32(values[1])
    numbers = op.params["dimension_numbers"]
    sizes, mode = op.params["slice_sizes"], op.params["mode"]
    dims, index_dims = op.ins
    if mode not in (DROP, CLIP) and not is_ragged(index_dims[-1]):
        moved = _gather_in_bounds(walk, op, x, indices)
        if moved is not None:
            return walk.bind(
                op,
                [*moved],
                slice_sizes=walk.shape(sizes),
                indices_are_sorted=False,
                unique_indices=False,
            )
    indices = bound_positions(
        walk,
        indices,
        dims,
        sizes,
        numbers.start_index_map,
        mode,
    )
    # The promise stays where positions of other axes may break it: see `_gather_in_bounds`.
    keeps = mode == DROP or not any(is_ragged(dims[axis]) for axis in numbers.start_index_map)
    mode = mode if keeps else CLIP
    if fixed_window_axes(dims, sizes):
        return [_gather_windows(walk, op, x, indices, mode)]
    return walk.bind(
        op,
        [x, indices],
        slice_sizes=walk.shape(sizes),
        indices_are_sorted=False,
        unique_indices=False,
        mode=mode,
    )


def _gather_windows(
    walk: PaddedInterpreter,
    op: Op,
    x: jax.Array,
    indices: jax.Array,
    mode: object,
) -> jax.Array:
    """Gather windows of fixed axes; the positions are those of whole windows, inside of the axes or
    out of bounds of any array.
    """
    numbers, sizes = op.params["dimension_numbers"], op.params["slice_sizes"]
    indexed = list(numbers.start_index_map)

    # An axis that no position indexes is read from its start.
    windows = {axis: sizes[axis] for axis in fixed_window_axes(op.ins[0], sizes)}
    shifts: dict[int, Fitted] = {}
    columns = split_columns(indices)
    for axis, window in windows.items():
        if axis not in indexed:
            at = fit_window(walk, np.int32(0), x.shape[axis], window)
            x = lax.dynamic_slice_in_dim(
                x,
                at.first,
                at.length,
                axis,
            )
            (size,) = walk.shape([window])
            x = shift_down(x, at.shift, size, axis)
        elif is_single(indices):
            i = indexed.index(axis)
            columns[i], shifts[axis] = fit_position(walk, columns[i], x.shape[axis], window)
        else:
            i = indexed.index(axis)
            columns[i] = shift_in_bounds(columns[i], begin(walk, window))
            x = make_room(walk, x, {axis: window})

    shape = fitted_shape(walk, sizes, shifts)
    (out,) = walk.bind(
        op,
        [x, join_columns(columns, indices)],
        slice_sizes=tuple(shape),
        indices_are_sorted=False,
        unique_indices=False,
        mode=mode,
    )
    gone = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    left = [axis for axis in range(len(sizes)) if axis not in gone]
    for axis, window in shifts.items():
        (size,) = walk.shape([sizes[axis]])
        out = shift_down(out, window.shift, size, numbers.offset_dims[left.index(axis)])
    return out


def _gather_in_bounds(
    walk: PaddedInterpreter,
    op: Op,
    x: jax.Array,
    indices: jax.Array,
) -> tuple[jax.Array, jax.Array] | None:
    """An array and positions for a gather that promises positions in bounds; None where clamping
    them is enough, since the gather is not differentiated.

    XLA clamps a position that breaks the promise, but the transpose, a scatter, drops it. Clamping
    such a position here would send its cotangent to the last element. So the mode stays, and both
    are left to XLA.
    """
    dims, sizes = op.ins[0], op.params["slice_sizes"]
    columns = split_columns(indices)
    for i, axis in enumerate(op.params["dimension_numbers"].start_index_map):
        dim, size = dims[axis], sizes[axis]
        if is_fixed_window(dim, size):
            return None
        if walk.is_full(dim) or not is_ragged(dim):
            continue
        if not walk.is_differentiated or is_ragged(size):
            return None
        last = walk.count(dim) - np.int32(size)
        x, columns[i] = _append_window(x, columns[i], last, axis, size)
    return x, join_columns(columns, indices)


def _append_window(
    x: jax.Array,
    positions: jax.Array,
    last: jax.Array,
    axis: int,
    size: int,
) -> tuple[jax.Array, jax.Array]:
    """Append a copy of the window at `last` to an array, and move positions above `last` out of
    bounds: XLA clamps them to that copy, and drops them in the transpose.
    """
    window = lax.dynamic_slice_in_dim(x, last, size, axis)
    longer = lax.concatenate([x, window], axis)
    moved = lax.select(positions > last, out_of_bounds(positions), positions)
    return longer, moved


RULES: dict[str, Rule] = {
    "dynamic_slice": Rule(_dynamic_slice_uses, _dynamic_slice, Gather(), at_once=True, makes=True),
    "gather": Rule(_gather_uses, _gather, Gather(), at_once=True, makes=True),
}
