"""Gathers, scatters and dynamic slices: positions are bounded by the true size, and padding is
neither read nor written.

XLA clamps, fills or drops out-of-bounds positions by the size of the array that it sees, which is
the allocated one. So positions beyond the true size are moved to where XLA treats them as plain JAX
treats those. With 5 valid rows of 8 allocated:

    position 6, mode CLIP             -> 4: the last valid row
    position 6, mode FILL_OR_DROP     -> 2**31 - 1: out of bounds of any array
    position 6, PROMISE_IN_BOUNDS     -> 4, as XLA clamps it; in a derivative see
    `_gather_in_bounds`
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import jax
import numpy as np

from ..._jax.typed import Values
from ..dims import Dim, is_ragged
from ..interpreter import Op, PaddedInterpreter, grows, ragged_axes
from ..monoids import MONOIDS, SCATTERS
from ..rule import CarriedState, Rule, Use, ragged_dims, refuse, use
from ..typed_jax import dtypes, lax
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


def to_int32(positions: jax.Array) -> jax.Array:
    """Convert positions to int32, so that they can be compared with a size, which a narrower type
    may not hold. A position beyond int32 is beyond any array, and is clamped.
    """
    dtype, info = positions.dtype, np.iinfo(np.int32)
    if dtype == np.int32:
        return positions
    own = dtypes.iinfo(dtype)
    if own.max > info.max:
        least = np.asarray(max(own.min, info.min), dtype)
        most = np.asarray(info.max, dtype)
        positions = lax.clamp(least, positions, most)
    return lax.convert_element_type(positions, np.int32)


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
    position = to_int32(start)
    last = walk.count(dim) - walk.count(window)
    return lax.clamp(np.int32(0), position, last)


# dynamic_slice, dynamic_update_slice.


def _dynamic_uses(op: Op, windows: Sequence[Dim]) -> Iterator[Use]:
    for dim, window in zip(op.ins[0], windows, strict=True):
        if (is_ragged(dim) or is_ragged(window)) and str(dim) != str(window):
            yield _window_use(op, dim, window, "a window of it")


def _window_use(op: Op, dim: Dim, window: Dim, how: str) -> Use:
    if not _leaves_room(op, dim, window):
        return refuse(op, (dim, window), "takes a window of it that shrinks as it grows")
    return use(op, (dim, window), "gathered", how)


def _slice_uses(op: Op) -> Iterator[Use]:
    return _dynamic_uses(op, op.params["slice_sizes"])


def _dynamic_slice(
    walk: PaddedInterpreter,
    op: Op,
    values: Values,
) -> Values:
    x, *starts = values
    windows = op.params["slice_sizes"]
    inside = _starts(walk, op.ins[0], windows, starts)
    return [lax.dynamic_slice(x, inside, walk.shape(windows))]


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

    # The padding of an update that covers a part of the axis lands on valid elements: write back
    # what is there.
    if over:
        old = lax.dynamic_slice(x, inside, update.shape)
        for axis in over:
            update = lax.select(walk.inside(windows, axis), update, old)
    return [lax.dynamic_update_slice(x, update, inside)]


# gather and scatter.


def _windows(
    op: Op,
    sizes: Sequence[Dim],
    indexed: Sequence[int],
) -> Iterator[Use]:
    """Yield the uses of the operand's axes that positions index."""
    how = "read at positions" if op.name == "gather" else "written at positions"
    for axis in indexed:
        dim, window = op.ins[0][axis], sizes[axis]
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
        last = walk.count(dim) - walk.count(size)
        if mode == _DROP:
            beyond = column > last
            columns[i] = lax.select(beyond, _outside(column), column)
        else:
            columns[i] = lax.clamp(np.int32(0), column, last)
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
    mode = mode if mode == _DROP else _CLIP
    return walk.bind(
        op,
        [x, indices],
        slice_sizes=walk.shape(sizes),
        indices_are_sorted=False,
        unique_indices=False,
        mode=mode,
    )


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


def _scatter_uses(op: Op) -> Iterator[Use]:
    numbers = op.params["dimension_numbers"]
    _, index_dims, update_dims = op.ins
    length = index_dims[-1]
    if is_ragged(length):
        yield refuse(op, length, "uses it as the length of an index")
    yield from _windows(op, _window_sizes(op), numbers.scatter_dims_to_operand_dims)
    rows = ragged_dims(
        dim
        for axis, dim in enumerate(index_dims[:-1])
        if axis not in numbers.scatter_indices_batching_dims
    )
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
    if (
        partly
        and op.name not in SCATTERS
        and any(is_ragged(dim) or dim != 1 for dim in index_dims[:-1])
    ):
        yield refuse(op, partly, "writes several windows of it over each other")


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
        shape = walk.shape(dims)
        columns = _columns(indices)
        for i, axis in enumerate(indexed):
            if not is_ragged(dims[axis]):
                (window,) = walk.shape([sizes[axis]])
                last = lax.sub(walk.count(shape[axis]), walk.count(window))
                columns[i] = lax.clamp(np.int32(0), columns[i], last)
        indices = lax.concatenate(columns, indices.ndim - 1)

    # Bounds of the true size; then all rows of padding out of bounds.
    indices = _move(walk, indices, dims, sizes, indexed, mode)
    for axis in ragged_axes(index_dims[:-1]):
        if indexed:
            mode = _DROP
            inside = walk.inside(index_dims, axis)
            indices = lax.select(inside, indices, _outside(indices))

    partly = _partial_axes(op)
    if partly:
        updates = _neutralise_padding(walk, op, x, indices, updates, partly, sizes)

    # A chunked run accumulates in a wider type than the equation has; the equation's `update_jaxpr`
    # is of the narrow type, so the primitive is not bound with its own parameters.
    if x.dtype != op.eqn.invars[0].aval.dtype:
        scatter = _ADDED[SCATTERS[op.name], "sub" in op.name]
        return [scatter(x, indices, updates, numbers, mode=mode)]

    # Moved positions may coincide, so `unique_indices` still holds only for a single window.
    alone = all(dim == 1 for dim in index_dims[:-1])
    unique = op.params["unique_indices"] and alone
    return walk.bind(
        op,
        [x, indices, updates],
        indices_are_sorted=False,
        unique_indices=unique,
        mode=mode,
    )


def _neutralise_padding(
    walk: PaddedInterpreter,
    op: Op,
    x: jax.Array,
    indices: jax.Array,
    updates: jax.Array,
    partly: Sequence[int],
    sizes: Sequence[Dim],
) -> jax.Array:
    """Replace the padding of updates by values that change nothing where they land: the identity,
    or in a plain scatter the values that the operand has there.
    """
    dims = op.ins[2]
    if op.name in SCATTERS:
        monoid = MONOIDS[SCATTERS[op.name]]
        identity = monoid.identity(updates.dtype)
        return walk.keep(updates, dims, partly, identity)

    # The gather that reads the very windows that the scatter writes.
    numbers = op.params["dimension_numbers"]
    mirrored = lax.GatherDimensionNumbers(
        offset_dims=numbers.update_window_dims,
        collapsed_slice_dims=numbers.inserted_window_dims,
        start_index_map=numbers.scatter_dims_to_operand_dims,
        operand_batching_dims=numbers.operand_batching_dims,
        start_indices_batching_dims=numbers.scatter_indices_batching_dims,
    )
    old = lax.gather(x, indices, mirrored, walk.shape(sizes), mode=_CLIP)
    for axis in partly:
        updates = lax.select(walk.inside(dims, axis), updates, old)
    return updates


RULES: dict[str, Rule] = {
    "dynamic_slice": Rule(_slice_uses, _dynamic_slice, CarriedState("picked"), at_once=True),
    "dynamic_update_slice": Rule(_update_uses, _dynamic_update, at_once=True),
    "gather": Rule(_gather_uses, _gather, CarriedState("picked"), at_once=True),
    "scatter": Rule(_scatter_uses, _scatter, at_once=True),
    **{
        name: Rule(_scatter_uses, _scatter, CarriedState("written", MONOIDS[monoid]), at_once=True)
        for name, monoid in SCATTERS.items()
    },
}
