"""Gathers, scatters and dynamic slices: positions are bounded by the true size, and padding is
neither read nor written.

XLA clamps, fills or drops out-of-bounds positions by the size of the array that it sees, which is
the allocated one. So positions beyond the true size are moved to where XLA treats them as plain JAX
treats those. With 5 valid rows of 8 allocated:

    position 6, mode CLIP             -> 4: the last valid row
    position 6, mode FILL_OR_DROP     -> 2**31 - 1: out of bounds of any array
    position 6, PROMISE_IN_BOUNDS     -> 4, as XLA clamps it; in a derivative see
    `_gather_in_bounds`

Starts are clamped in the program, and a scatter of one window has a barrier before its operand, for
the reason in `clamped_starts.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import jax
import numpy as np

from ..._jax.typed import Values
from ..carriers.positions import Gather, ScatterInto
from ..clamped_starts import is_single
from ..dims import Dim, is_ragged
from ..interpreter import Op, PaddedInterpreter, grows, ragged_axes, to_int32
from ..monoids import MONOIDS, SCATTERS
from ..rule import Rule, Use, ragged_dims, refuse, use
from ..typed_jax import lax
from .fixed_windows import (
    Fitted,
    begin,
    fit_window,
    fixed_window_axes,
    is_fixed_window,
    last_start,
    make_room,
    shift_down,
    shift_up,
    shifted_inside,
)
from .reduce import refuse_unordered

_DROP = lax.GatherScatterMode.FILL_OR_DROP
_CLIP = lax.GatherScatterMode.CLIP
_ADDED: dict[tuple[str, bool], Callable[..., jax.Array]] = {
    ("add", False): lax.scatter_add,
    ("add", True): lax.scatter_sub,
    ("mul", False): lax.scatter_mul,
}


def _leaves_room(op: Op, dim: Dim, window: Dim) -> bool:
    """Return whether each window that fits into the true size also fits, at the same position, into
    the allocated size.
    """
    return grows(dim - window, op.ranges)


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


# dynamic_slice, dynamic_update_slice.


def _dynamic_uses(op: Op, windows: Sequence[Dim]) -> Iterator[Use]:
    for dim, window in zip(op.ins[0], windows, strict=True):
        if (is_ragged(dim) or is_ragged(window)) and str(dim) != str(window):
            yield _window_use(op, dim, window, "a window of it")


def _window_use(op: Op, dim: Dim, window: Dim, how: str) -> Use:
    if not is_fixed_window(dim, window) and not _leaves_room(op, dim, window):
        return refuse(op, (dim, window), "takes a window of it that shrinks as it grows")
    return use(op, (dim, window), "gathered", how)


def _slice_uses(op: Op) -> Iterator[Use]:
    # A window of a fixed axis begins at one place for all of the elements: each of them is read
    # alone.
    dims, windows = op.ins[0], op.params["slice_sizes"]
    fixed = fixed_window_axes(dims, windows)
    whole = [dims[axis] if axis in fixed else window for axis, window in enumerate(windows)]
    return _dynamic_uses(op, whole)


def _dynamic_slice(
    walk: PaddedInterpreter,
    op: Op,
    values: Values,
) -> Values:
    x, *starts = values
    dims, windows = op.ins[0], op.params["slice_sizes"]
    inside = _starts(walk, dims, windows, starts)
    fitted = _fit_windows(walk, dims, windows, inside)
    x = lax.dynamic_slice(x, inside, _fitted_shape(walk, windows, fitted))
    for axis, window in fitted.items():
        (size,) = walk.shape([windows[axis]])
        x = shift_down(x, window.shift, size, axis)
    return [x]


def _fit_windows(
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


def _fitted_shape(
    walk: PaddedInterpreter,
    windows: Sequence[Dim],
    fitted: Mapping[int, Fitted],
) -> list[int]:
    shape = list(walk.shape(windows))
    for axis, window in fitted.items():
        shape[axis] = window.length
    return shape


def _starts(
    walk: PaddedInterpreter,
    dims: Sequence[Dim],
    windows: Sequence[Dim],
    starts: Sequence[jax.Array],
) -> Values:
    return [
        _clamp_start(walk, start, dim, window)
        for dim, window, start in zip(dims, windows, starts, strict=True)
    ]


def _update_uses(op: Op) -> Iterator[Use]:
    return _dynamic_uses(op, op.ins[1])


def _dynamic_update(
    walk: PaddedInterpreter,
    op: Op,
    values: Values,
) -> Values:
    x, update, *starts = values
    dims, windows, *_ = op.ins
    inside = _starts(walk, dims, windows, starts)
    over = [axis for axis in ragged_axes(windows) if str(windows[axis]) != str(dims[axis])]
    fitted = _fit_windows(walk, dims, windows, inside)
    for axis, window in fitted.items():
        update = shift_up(update, window.shift, window.length, axis)

    # The padding of an update that covers a part of the axis lands on valid elements: write back
    # what is there.
    if over:
        old = lax.dynamic_slice(x, inside, update.shape)
        update = _select_inside(walk, windows, update, old, over, fitted)
    return [lax.dynamic_update_slice(x, update, inside)]


def _inside_windows(
    walk: PaddedInterpreter,
    windows: Sequence[Dim],
    axis: int,
    shape: Sequence[int],
    fitted: Mapping[int, Fitted],
) -> jax.Array:
    """Mask of the valid elements of an update along an axis; `shape` is that of the update."""
    if not fitted:
        return walk.inside(windows, axis)
    shift = fitted[axis].shift if axis in fitted else np.int32(0)
    return shifted_inside(walk, shape, axis, windows[axis], shift)


# gather and scatter.


def _windows(
    op: Op,
    sizes: Sequence[Dim],
    indexed: Sequence[int],
) -> Iterator[Use]:
    """Yield the uses of the operand's axes that positions index."""
    reads = op.name == "gather"
    how = "read at positions" if reads else "written at positions"
    for axis in indexed:
        dim, window = op.ins[0][axis], sizes[axis]
        # See `_slice_uses`.
        if reads and is_fixed_window(dim, window):
            continue
        if is_ragged(dim) or is_ragged(window):
            yield _window_use(op, dim, window, how)


def _gather_uses(op: Op) -> Iterator[Use]:
    numbers = op.params["dimension_numbers"]
    length = op.ins[1][-1]
    if is_ragged(length):
        yield refuse(op, length, "uses it as the length of an index")
    yield from _windows(op, op.params["slice_sizes"], numbers.start_index_map)


def _move(
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
    columns = _columns(indices)
    for i, axis in enumerate(indexed):
        dim, size = dims[axis], sizes[axis]
        if not is_ragged(dim) and not is_ragged(size):
            continue
        column = columns[i]
        last = last_start(walk, dim, size)
        if mode == _DROP:
            beyond = column > last
            columns[i] = lax.select(beyond, _outside(column), column)
        else:
            columns[i] = clamp(np.int32(0), column, last)
    return _join_columns(columns, indices)


def _columns(indices: jax.Array) -> Values:
    """The positions along each indexed axis; `_join_columns` undoes it."""
    last = indices.ndim - 1
    return [lax.index_in_dim(indices, i, last) for i in range(indices.shape[-1])]


def _join_columns(columns: Values, indices: jax.Array) -> jax.Array:
    return lax.concatenate(columns, indices.ndim - 1) if columns else indices


def _outside(positions: jax.Array) -> jax.Array:
    """Positions that are out of bounds of any array."""
    largest = np.iinfo(np.int32).max
    return lax.full(positions.shape, largest, np.int32)


def _gather(walk: PaddedInterpreter, op: Op, values: Values) -> Values:
    x, indices = values[0], to_int32(values[1])
    numbers = op.params["dimension_numbers"]
    sizes, mode = op.params["slice_sizes"], op.params["mode"]
    dims, index_dims = op.ins
    if mode not in (_DROP, _CLIP) and not is_ragged(index_dims[-1]):
        moved = _gather_in_bounds(walk, op, x, indices)
        if moved is not None:
            return walk.bind(
                op,
                [*moved],
                slice_sizes=walk.shape(sizes),
                indices_are_sorted=False,
                unique_indices=False,
            )
    indices = _move(walk, indices, dims, sizes, numbers.start_index_map, mode)
    # The promise stays where positions of other axes may break it: see `_gather_in_bounds`.
    keeps = mode == _DROP or not any(is_ragged(dims[axis]) for axis in numbers.start_index_map)
    mode = mode if keeps else _CLIP
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
    columns = _columns(indices)
    for axis, window in windows.items():
        if axis not in indexed:
            at = fit_window(walk, np.int32(0), x.shape[axis], window)
            x = lax.dynamic_slice_in_dim(x, at.first, at.length, axis)
            (size,) = walk.shape([window])
            x = shift_down(x, at.shift, size, axis)
        elif is_single(indices):
            i = indexed.index(axis)
            columns[i], shifts[axis] = _fit_position(walk, columns[i], x.shape[axis], window)
        else:
            i = indexed.index(axis)
            columns[i] = _add_inside(columns[i], begin(walk, window))
            x = make_room(walk, x, {axis: window})

    shape = _fitted_shape(walk, sizes, shifts)
    (out,) = walk.bind(
        op,
        [x, _join_columns(columns, indices)],
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


def _fit_position(
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


def _add_inside(column: jax.Array, offset: jax.Array | np.int32) -> jax.Array:
    """Add to positions, but for those that are out of bounds of any array."""
    largest = np.iinfo(np.int32).max
    outside = (column < 0) | (column == largest)
    return lax.select(outside, column, column + offset)


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
    columns = _columns(indices)
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
    return x, _join_columns(columns, indices)


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
    moved = lax.select(positions > last, _outside(positions), positions)
    return longer, moved


def _window_sizes(op: Op) -> list[Dim]:
    """The size of an update's window along each axis of the operand."""
    numbers = op.params["dimension_numbers"]
    outside = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    dims, _, updates = op.ins
    windows = iter([updates[axis] for axis in numbers.update_window_dims])
    return [1 if axis in outside else next(windows) for axis in range(len(dims))]


def _partial_axes(op: Op) -> list[int]:
    """The symbolic axes of the updates that cover only a part of the operand's axis, so that their
    padding would land on valid elements.
    """
    numbers = op.params["dimension_numbers"]
    outside = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    dims, _, updates = op.ins
    covered = [dim for axis, dim in enumerate(dims) if axis not in outside]
    pairs = zip(numbers.update_window_dims, covered, strict=True)
    return [
        axis for axis, dim in pairs if is_ragged(updates[axis]) and str(updates[axis]) != str(dim)
    ]


def _row_sizes(op: Op) -> list[Dim]:
    """The symbolic sizes of the axes that number the updates."""
    return ragged_dims(op.ins[1][:-1])


def _rows(op: Op) -> list[Dim]:
    """The sizes of the axes that number the windows that are written to one operand."""
    batching = op.params["dimension_numbers"].scatter_indices_batching_dims
    return [dim for axis, dim in enumerate(op.ins[1][:-1]) if axis not in batching]


def _scatter_uses(op: Op) -> Iterator[Use]:
    numbers = op.params["dimension_numbers"]
    _, index_dims, update_dims = op.ins
    length = index_dims[-1]
    if is_ragged(length):
        yield refuse(op, length, "uses it as the length of an index")
    yield from _windows(op, _window_sizes(op), numbers.scatter_dims_to_operand_dims)
    several = _rows(op)
    rows = ragged_dims(several)
    # Along a batching axis each row is written into its own row of the operand: not a use of it.
    if rows:
        if not numbers.scatter_dims_to_operand_dims:
            yield refuse(op, rows, "writes every row of it to one place")
        elif op.name not in SCATTERS:
            yield use(op, rows, "gathered", "scattered")
        else:
            monoid = MONOIDS[SCATTERS[op.name]]
            reduced = use(op, rows, "reduced", monoid=monoid)
            yield from refuse_unordered(op, rows, monoid) or [reduced]

    partly = [update_dims[axis] for axis in _partial_axes(op)]
    if partly and op.name not in SCATTERS and any(is_ragged(dim) or dim != 1 for dim in several):
        yield refuse(op, partly, "writes several windows of it over each other")
    # Padding that is written as it is there would be the function of it.
    if partly and op.name not in SCATTERS and op.params.get("update_jaxpr") is not None:
        yield refuse(op, partly, "applies a function to a part of an array that ends with it")


def _scatter(walk: PaddedInterpreter, op: Op, values: Values) -> Values:
    x, indices, updates = values
    indices = to_int32(indices)
    dims, index_dims, _ = op.ins
    numbers, mode = op.params["dimension_numbers"], op.params["mode"]
    indexed = numbers.scatter_dims_to_operand_dims
    sizes = _window_sizes(op)

    # XLA drops an update out of bounds also where the mode promises that there is none.
    mode = mode if mode == _CLIP else _DROP

    # Rows of padding are dropped below, by a mode that holds for all rows. So the clamping of a
    # CLIP is done here, along axes of fixed size too.
    if mode == _CLIP and _row_sizes(op):
        columns = _columns(indices)
        for i, axis in enumerate(indexed):
            # `_move` clamps the others.
            if not is_ragged(dims[axis]) and not is_ragged(sizes[axis]):
                last = np.int32(dims[axis] - sizes[axis])
                columns[i] = lax.clamp(np.int32(0), columns[i], last)
        indices = lax.concatenate(columns, indices.ndim - 1)

    # Bounds of the true size; then all rows of padding out of bounds.
    indices = _move(walk, indices, dims, sizes, indexed, mode)
    for axis in ragged_axes(index_dims[:-1]):
        if indexed:
            mode = _DROP
            inside = walk.inside(index_dims, axis)
            indices = lax.select(inside, indices, _outside(indices))

    # Windows of fixed axes: fitted if there is one, else with room behind the axes.
    windows = {axis: sizes[axis] for axis in fixed_window_axes(dims, sizes)}
    shape = x.shape
    fitted: dict[int, Fitted] = {}
    if windows and is_single(indices):
        indices, updates, fitted = _fit_update(walk, op, indices, updates, windows)
    elif windows:
        indices = _add_begin(walk, indices, indexed, windows)
        x = make_room(walk, x, windows)

    partly = _partial_axes(op)
    if partly:
        updates = _neutralise_padding(walk, op, x, indices, updates, partly, fitted)
    if is_single(indices):
        x = lax.optimization_barrier(x)

    # A chunked run accumulates in a wider type than the equation has; the equation's `update_jaxpr`
    # is of the narrow type, so the primitive is not bound with its own parameters.
    if x.dtype != op.eqn.invars[0].aval.dtype:
        scatter = _ADDED[SCATTERS[op.name], "sub" in op.name]
        out = scatter(x, indices, updates, numbers, mode=mode)
    else:
        # Moved positions may coincide, so `unique_indices` still holds only for a single window of
        # each operand.
        alone = all(dim == 1 for dim in _rows(op))
        (out,) = walk.bind(
            op,
            [x, indices, updates],
            indices_are_sorted=False,
            unique_indices=op.params["unique_indices"] and alone,
            mode=mode,
        )
    for axis in windows:
        out = lax.slice_in_dim(out, 0, shape[axis], axis=axis)
    return [out]


def cuts_windows(op: Op) -> bool:
    """Return whether a chunk of the updates of a scatter can be written at its place: along each
    window that has the axis there is a position to add to.
    """
    indexed = op.params["dimension_numbers"].scatter_dims_to_operand_dims
    return all(axis in indexed for axis in fixed_window_axes(op.ins[0], _window_sizes(op)))


def _update_axes(op: Op) -> dict[int, int]:
    """Axis of the operand -> the axis of the updates that runs along it."""
    numbers = op.params["dimension_numbers"]
    outside = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    covered = [axis for axis in range(len(op.ins[0])) if axis not in outside]
    return dict(zip(covered, numbers.update_window_dims, strict=True))


def _fit_update(
    walk: PaddedInterpreter,
    op: Op,
    indices: jax.Array,
    updates: jax.Array,
    windows: Mapping[int, Dim],
) -> tuple[jax.Array, jax.Array, dict[int, Fitted]]:
    """Fit the one window of a scatter into fixed axes.

    Returns:
        Its position; the updates, shifted; and where the true window begins in these, by their
        axes.
    """
    indexed = list(op.params["dimension_numbers"].scatter_dims_to_operand_dims)
    columns, axes = _columns(indices), _update_axes(op)
    fitted: dict[int, Fitted] = {}
    for axis, window in windows.items():
        size = op.ins[0][axis]
        if axis in indexed:
            i = indexed.index(axis)
            columns[i], at = _fit_position(walk, columns[i], size, window)
        else:
            at = fit_window(walk, np.int32(0), size, window)
        updates = shift_up(updates, at.shift, at.length, axes[axis])
        fitted[axes[axis]] = at
    return _join_columns(columns, indices), updates, fitted


def _add_begin(
    walk: PaddedInterpreter,
    indices: jax.Array,
    indexed: Sequence[int],
    windows: Mapping[int, Dim],
) -> jax.Array:
    """Add the position of the chunk to the positions of windows that are cut."""
    columns = _columns(indices)
    for i, axis in enumerate(indexed):
        if axis in windows:
            columns[i] = _add_inside(columns[i], begin(walk, windows[axis]))
    return _join_columns(columns, indices)


def _neutralise_padding(
    walk: PaddedInterpreter,
    op: Op,
    x: jax.Array,
    indices: jax.Array,
    updates: jax.Array,
    partly: Sequence[int],
    fitted: Mapping[int, Fitted],
) -> jax.Array:
    """Replace the padding of updates by values that change nothing where they land: the identity,
    or in a plain scatter the values that the operand has there.
    """
    dims = op.ins[2]
    if op.name in SCATTERS:
        monoid = MONOIDS[SCATTERS[op.name]]
        identity = monoid.identity(updates.dtype)
        if not fitted:
            return walk.keep(updates, dims, partly, identity)
        old = lax.full(updates.shape, identity, updates.dtype)
        return _select_inside(walk, dims, updates, old, partly, fitted)

    # The gather that reads the very windows that the scatter writes.
    numbers = op.params["dimension_numbers"]
    mirrored = lax.GatherDimensionNumbers(
        offset_dims=numbers.update_window_dims,
        collapsed_slice_dims=numbers.inserted_window_dims,
        start_index_map=numbers.scatter_dims_to_operand_dims,
        operand_batching_dims=numbers.operand_batching_dims,
        start_indices_batching_dims=numbers.scatter_indices_batching_dims,
    )
    windows = [1] * len(x.shape)
    for axis, along in _update_axes(op).items():
        windows[axis] = updates.shape[along]
    old = lax.gather(x, indices, mirrored, windows, mode=_CLIP)
    return _select_inside(walk, dims, updates, old, partly, fitted)


def _select_inside(
    walk: PaddedInterpreter,
    dims: Sequence[Dim],
    updates: jax.Array,
    old: jax.Array,
    partly: Sequence[int],
    fitted: Mapping[int, Fitted],
) -> jax.Array:
    """The valid elements of updates, and others elsewhere."""
    for axis in partly:
        inside = _inside_windows(walk, dims, axis, updates.shape, fitted)
        updates = lax.select(inside, updates, old)
    return updates


RULES: dict[str, Rule] = {
    "dynamic_slice": Rule(_slice_uses, _dynamic_slice, Gather(), at_once=True, makes=True),
    "dynamic_update_slice": Rule(_update_uses, _dynamic_update, at_once=True),
    "gather": Rule(_gather_uses, _gather, Gather(), at_once=True, makes=True),
    "scatter": Rule(_scatter_uses, _scatter, at_once=True),
    **{
        name: Rule(
            _scatter_uses, _scatter, ScatterInto(MONOIDS[monoid], cuts_windows), at_once=True
        )
        for name, monoid in SCATTERS.items()
    },
}
