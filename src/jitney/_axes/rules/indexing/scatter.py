"""Writes at positions: `scatter` and its kin, and `dynamic_update_slice`.

Padding must not be written. Rows of padding are moved out of bounds, where XLA drops them; windows
that end in padding write the identity there, or what the operand has:

    x.at[i].add(u)                     -> rows of `u` beyond the true size go to 2**31 - 1
    dynamic_update_slice(x, u, (i,))   -> the end of `u` is replaced by that part of `x`

A scatter of one window has a barrier before its operand, for the reason in
`xla_faults/clamped_starts.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import jax
import numpy as np

from ...._jax.typed import Values
from ...carriers.positions import ScatterInto
from ...dims import Dim, is_ragged
from ...interpreter import (
    Op,
    PaddedInterpreter,
    ragged_axes,
    to_int32,
)
from ...monoids import MONOIDS, SCATTERS
from ...rule import (
    Rule,
    Use,
    ragged_dims,
    refuse,
    use,
)
from ...typed_jax import jnp, lax
from ...xla_faults.clamped_starts import is_single
from ...xla_faults.overlapping_updates import window_at
from ..reduce import refuse_unordered
from .fixed_windows import (
    Fitted,
    begin,
    fit_window,
    fixed_window_axes,
    make_room,
    shift_up,
    shifted_inside,
)
from .positions import (
    CLIP,
    DROP,
    bound_positions,
    clamp_starts,
    fit_position,
    fit_windows,
    indexed_uses,
    join_columns,
    out_of_bounds,
    shift_in_bounds,
    slice_uses,
    split_columns,
)

_ADDED: dict[tuple[str, bool], Callable[..., jax.Array]] = {
    ("add", False): lax.scatter_add,
    ("add", True): lax.scatter_sub,
    ("mul", False): lax.scatter_mul,
}
_COMBINED: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "add": lax.add,
    "sub": lax.sub,
    "mul": lax.mul,
    "min": lax.min,
    "max": lax.max,
}


def _update_uses(op: Op) -> Iterator[Use]:
    return slice_uses(op, op.ins[1])


def _dynamic_update(
    walk: PaddedInterpreter,
    op: Op,
    values: Values,
) -> Values:
    x, update, *starts = values
    dims, windows, *_ = op.ins
    inside = clamp_starts(walk, dims, windows, starts)
    over = [axis for axis in ragged_axes(windows) if str(windows[axis]) != str(dims[axis])]
    fitted = fit_windows(walk, dims, windows, inside)
    for axis, window in fitted.items():
        update = shift_up(update, window.shift, window.length, axis)

    # The padding of an update that covers a part of the axis lands on valid elements: write back
    # what is there.
    if over:
        old = lax.dynamic_slice(x, inside, update.shape)
        update = _select_inside(walk, windows, update, old, over, fitted)
    # One element is read before it is written.
    if walk.writes_apart and update.size != 1:
        placed, covered = window_at(update, inside, x.shape)
        return [lax.select(covered, placed, x)]
    return [lax.dynamic_update_slice(x, update, inside)]


def _scatter_uses(op: Op) -> Iterator[Use]:
    numbers = op.params["dimension_numbers"]
    _, index_dims, update_dims = op.ins
    length = index_dims[-1]
    if is_ragged(length):
        yield refuse(op, length, "uses it as the length of an index")
    yield from indexed_uses(op, _window_sizes(op), numbers.scatter_dims_to_operand_dims)
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
    mode = mode if mode == CLIP else DROP

    # Rows of padding are dropped below, by a mode that holds for all rows. So the clamping of a
    # CLIP is done here, along axes of fixed size too.
    if mode == CLIP and _row_sizes(op):
        columns = split_columns(indices)
        for i, axis in enumerate(indexed):
            # `bound_positions` clamps the others.
            if not is_ragged(dims[axis]) and not is_ragged(sizes[axis]):
                last = np.int32(dims[axis] - sizes[axis])
                columns[i] = lax.clamp(np.int32(0), columns[i], last)
        indices = lax.concatenate(columns, indices.ndim - 1)

    # Bounds of the true size; then all rows of padding out of bounds.
    indices = bound_positions(walk, indices, dims, sizes, indexed, mode)
    for axis in ragged_axes(index_dims[:-1]):
        if indexed:
            mode = DROP
            inside = walk.inside(index_dims, axis)
            indices = lax.select(inside, indices, out_of_bounds(indices))

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
    applies = op.name not in SCATTERS and op.params.get("update_jaxpr") is not None
    if walk.writes_apart and is_single(indices) and updates.size != 1 and not applies:
        out = _written_apart(op, x, indices, updates, mode)
        for axis in windows:
            out = lax.slice_in_dim(out, 0, shape[axis], axis=axis)
        return [out]
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


def _written_apart(
    op: Op,
    x: jax.Array,
    indices: jax.Array,
    updates: jax.Array,
    mode: object,
) -> jax.Array:
    """The one window of a scatter, written element by element."""
    indexed = op.params["dimension_numbers"].scatter_dims_to_operand_dims
    lengths = [1] * x.ndim
    for axis, along in _update_axes(op).items():
        lengths[axis] = updates.shape[along]
    starts = [jnp.zeros((), np.int32)] * x.ndim
    written = jnp.ones((), np.bool_)
    for axis, column in zip(indexed, split_columns(indices), strict=True):
        start, last = lax.reshape(column, ()), x.shape[axis] - lengths[axis]
        starts[axis] = lax.clamp(np.int32(0), start, np.int32(last))
        if mode != CLIP:
            written &= starts[axis] == start
    window = lax.reshape(lax.convert_element_type(updates, x.dtype), lengths)
    placed, covered = window_at(window, starts, x.shape)
    if op.name in SCATTERS:
        kind = "sub" if "sub" in op.name else SCATTERS[op.name]
        placed = _COMBINED[kind](x, placed)
    return lax.select(covered & written, placed, x)


def cuts_windows(op: Op) -> bool:
    """Return whether a chunk of the updates of a scatter can be written at its place: along each
    window that has the axis there is a position to add to.
    """
    indexed = op.params["dimension_numbers"].scatter_dims_to_operand_dims
    return all(axis in indexed for axis in fixed_window_axes(op.ins[0], _window_sizes(op)))


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
    columns, axes = split_columns(indices), _update_axes(op)
    fitted: dict[int, Fitted] = {}
    for axis, window in windows.items():
        size = op.ins[0][axis]
        if axis in indexed:
            i = indexed.index(axis)
            columns[i], at = fit_position(walk, columns[i], size, window)
        else:
            at = fit_window(walk, np.int32(0), size, window)
        updates = shift_up(updates, at.shift, at.length, axes[axis])
        fitted[axes[axis]] = at
    return join_columns(columns, indices), updates, fitted


def _add_begin(
    walk: PaddedInterpreter,
    indices: jax.Array,
    indexed: Sequence[int],
    windows: Mapping[int, Dim],
) -> jax.Array:
    """Add the position of the chunk to the positions of windows that are cut."""
    columns = split_columns(indices)
    for i, axis in enumerate(indexed):
        if axis in windows:
            columns[i] = shift_in_bounds(columns[i], begin(walk, windows[axis]))
    return join_columns(columns, indices)


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
    old = lax.gather(x, indices, mirrored, windows, mode=CLIP)
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


RULES: dict[str, Rule] = {
    "dynamic_update_slice": Rule(_update_uses, _dynamic_update, at_once=True),
    "scatter": Rule(_scatter_uses, _scatter, at_once=True),
    **{
        name: Rule(
            _scatter_uses, _scatter, ScatterInto(MONOIDS[monoid], cuts_windows), at_once=True
        )
        for name, monoid in SCATTERS.items()
    },
}
