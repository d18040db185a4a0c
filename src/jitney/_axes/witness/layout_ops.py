"""Normal form of operations that only move elements: a view of the value that they move from.

JAX moves elements by other primitives where a size is a symbol: a slice becomes a gather, the last
element a dynamic slice at a computed position, and the gradient of a slice a scatter into zeros
instead of a pad with zeros. Their effect is the same: along each axis, element i of the result is
element p(i) of the operand. So chains of moves are composed (`selections.py`), and positions are
compared instead of operations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..._jax.typed import Array
from ..typed_jax import dtypes, lax
from .graph import Value, at
from .selections import (
    Axis,
    Move,
    Positions,
    Selection,
    compose,
    compose_positions,
    normal_form,
    plain,
    whole_axes,
)

_DROP = lax.GatherScatterMode.FILL_OR_DROP
Known = Callable[[Value], Array]
"""Evaluator of values that depend on constants and sizes alone."""


def source_view(value: Value, known: Known) -> Selection:
    """The value as a view of the nearest value below it that no move makes."""
    whole = Selection(value, tuple(whole_axes(value)), ())
    return _peel_moves(whole, known)


def _peel_moves(view: Selection, known: Known) -> Selection:
    view = normal_form(view)
    while (move := _move(view.base, known)) is not None:
        view = normal_form(compose(view, move))
    return view


def _move(value: Value, known: Known) -> Move | None:
    """The move of an operation that only moves elements; None for any other operation."""
    if value.name in _SAME:
        x = value.reads[value.index]
        if x.dtype == value.dtype and x.shape == value.shape:
            return Move(x, tuple(whole_axes(value)))
    move = _MOVES.get(value.name)
    if move is not None:
        return move(value, known)
    # An embedding that leaves no zero is a permutation.
    embedded = zero_embedding(value, known)
    if embedded is None or not embedded.is_everything:
        return None
    updates = embedded.updates
    return Move(updates.base, updates.axes, updates.fixed)


_SAME = (
    "copy",
    "copy_p",
    "stop_gradient",
    "convert_element_type",
    "optimization_barrier",
    "reshard",
    "sharding_constraint",
)


def _reshape(value: Value, known: Known) -> Move | None:
    """The move of a reshape that only adds and drops axes of size 1; None for other reshapes."""
    x = value.reads[0]
    old = [size for size in x.shape if size != 1]
    new = [size for size in value.shape if size != 1]
    if value.name == "reshape" and (old != new or value.params.get("dimensions") is not None):
        return None

    left: list[Axis] = []
    fixed: list[tuple[int, int]] = []
    for i, size in enumerate(x.shape):
        if size == 1:
            fixed.append((i, 0))
        else:
            left.append((i, range(size)))

    axes: list[Axis] = [(None, size) for size in value.shape]
    new_axes = [i for i, size in enumerate(value.shape) if size != 1]
    for i, axis in zip(new_axes, left, strict=True):
        axes[i] = axis
    return Move(x, tuple(axes), tuple(fixed))


def _broadcast(value: Value, known: Known) -> Move | None:
    x = value.reads[0]
    axes: list[Axis] = [(None, size) for size in value.shape]
    fixed: list[tuple[int, int]] = []
    for below, axis in enumerate(value.params["broadcast_dimensions"]):
        if x.shape[below] == 1:
            fixed.append((below, 0))
        else:
            axes[axis] = (below, range(x.shape[below]))
    return Move(x, tuple(axes), tuple(fixed))


def _transpose(value: Value, known: Known) -> Move | None:
    whole = whole_axes(value.reads[0])
    order: Sequence[int] = value.params["permutation"]
    return Move(value.reads[0], tuple(whole[axis] for axis in order))


def _rev(value: Value, known: Known) -> Move | None:
    axes = whole_axes(value)
    turned: Sequence[int] = value.params["dimensions"]
    for axis in turned:
        forward = range(value.shape[axis])
        axes[axis] = (axis, forward[::-1])
    return Move(value.reads[0], tuple(axes))


def _slice(value: Value, known: Known) -> Move | None:
    starts = at(value.params["start_indices"], value.scope)
    strides = value.params["strides"] or (1,) * len(starts)
    steps = at(strides, value.scope)
    axes: list[Axis] = []
    for i, (start, step, size) in enumerate(zip(starts, steps, value.shape, strict=True)):
        # One step past the last element; `limit_indices` may lie before it.
        behind = start + step * size
        axes.append((i, range(start, behind, step)))
    return Move(value.reads[0], tuple(axes))


def _split(value: Value, known: Known) -> Move | None:
    axis: int = value.params["axis"]
    sizes = at(value.params["sizes"], value.scope)
    axes = whole_axes(value)
    start = sum(sizes[: value.index])
    axes[axis] = (axis, range(start, start + value.shape[axis]))
    return Move(value.reads[0], tuple(axes))


def _dynamic_slice(value: Value, known: Known) -> Move | None:
    x, *starts = value.reads
    if not all(start.is_known for start in starts):
        return None
    axes = _slices(x, value.shape, starts, known)
    return Move(x, tuple(axes))


def _slices(
    x: Value,
    windows: Sequence[int],
    starts: Sequence[Value],
    known: Known,
) -> list[Axis]:
    """The positions of a dynamic slice along each axis."""
    axes: list[Axis] = []
    triples = zip(x.shape, windows, starts, strict=True)
    for i, (size, window, start) in enumerate(triples):
        # Starts are clamped so that the window fits, as XLA does.
        first = max(int(known(start)), 0)
        first = min(first, size - window)
        axes.append((i, range(first, first + window)))
    return axes


def _gather(value: Value, known: Known) -> Move | None:
    x, indices = value.reads
    numbers = value.params["dimension_numbers"]
    if not indices.is_known or numbers.operand_batching_dims:
        return None
    sizes = at(value.params["slice_sizes"], value.scope)
    mode = value.params["mode"]
    indexed = numbers.start_index_map
    places = _separate_positions(known(indices), x.shape, sizes, indexed, mode)
    if places is None:
        return None
    starts, along = places

    # An offset axis runs along the operand from its one start; a batch axis follows the positions
    # of the collapsed axis that vary along it.
    batch = [axis for axis in range(len(value.shape)) if axis not in numbers.offset_dims]
    axes: list[Axis] = [(None, size) for size in value.shape]
    fixed: dict[int, int] = {}
    windows = iter(numbers.offset_dims)
    for axis, size in enumerate(sizes):
        positions = starts.get(axis, range(1))
        first, runs = int(positions[0]), along.get(axis)
        if axis not in numbers.collapsed_slice_dims:
            # Each index has a window of its own: not a view.
            if runs is not None:
                return None
            axes[next(windows)] = (axis, range(first, first + size))
        elif runs is None:
            fixed[axis] = first
        else:
            axes[batch[runs]] = (axis, positions)
    return Move(x, tuple(axes), tuple(sorted(fixed.items())))


def _separate_positions(
    indices: Array,
    shape: Sequence[int],
    sizes: Sequence[int],
    indexed: Sequence[int],
    mode: object,
) -> tuple[dict[int, Positions], dict[int, int | None]] | None:
    """Separate the positions of a gather or scatter by axis: the positions along each indexed axis,
    and the axis of the indices along which they vary. None if one varies along several, or two
    along the same, or one is out of bounds in a mode that drops.
    """
    starts: dict[int, Positions] = {}
    along: dict[int, int | None] = {}
    for column, axis in enumerate(indexed):
        here = np.asarray(indices[..., column]).astype(np.int64)
        last = shape[axis] - sizes[axis]
        if not here.size:
            return None
        is_beyond = here.min() < 0 or here.max() > last
        if mode == _DROP and is_beyond:
            return None
        here = np.clip(here, 0, last)

        # The axes of the indices along which these positions vary: at most one, and not shared.
        runs = [
            i
            for i, size in enumerate(here.shape)
            if size > 1 and not np.all(here == here.take([0], i))
        ]
        if len(runs) > 1 or (runs and runs[0] in along.values()):
            return None
        along_it = [slice(None) if i in runs else 0 for i in range(here.ndim)]
        line = here[tuple(along_it)]
        starts[axis] = plain(np.atleast_1d(line))
        along[axis] = runs[0] if runs else None
    return starts, along


_MOVES: dict[str, Callable[[Value, Known], Move | None]] = {
    "reshape": _reshape,
    "squeeze": _reshape,
    "expand_dims": _reshape,
    "broadcast_in_dim": _broadcast,
    "transpose": _transpose,
    "rev": _rev,
    "slice": _slice,
    "split": _split,
    "dynamic_slice": _dynamic_slice,
    "gather": _gather,
}


@dataclass(frozen=True)
class Embedded:
    """Zeros, with the elements of another value written to distinct positions.

    Args:
        updates: The other value, as a view with the axes of the result.
        places: For each axis, the positions that its elements are written to, in rising order.
        shape: Shape of the result.
    """

    updates: Selection
    places: tuple[Positions, ...]
    shape: tuple[int, ...]

    @property
    def is_everything(self) -> bool:
        """True if each element of the result is written."""
        return all(
            isinstance(place, range) and place == range(size)
            for place, size in zip(self.places, self.shape, strict=True)
        )


def zero_embedding(value: Value, known: Known) -> Embedded | None:
    """The normal form of an operation that writes into zeros; None for any other operation."""
    put = None
    if value.name == "pad":
        put = _pad(value, known)
    elif value.name in ("scatter-add", "scatter_add"):
        put = _scatter_add(value, known)
    elif value.name == "dynamic_update_slice":
        put = _dynamic_update_slice(value, known)
    if put is None:
        return None

    # `targets` has, for each axis, the axis of the updates or None, and the positions written to.
    # They are sorted, so that equal embeddings are equal as data.
    updates, targets = put
    axes: list[Axis] = []
    places: list[Positions] = []
    for axis, target in targets:
        order = _rising(target)
        places.append(compose_positions(target, order))
        axes.append((None, 1) if axis is None else (axis, order))
    fixed = set(range(len(updates.shape))) - {axis for axis, _ in axes}
    ones = [(axis, 0) for axis in sorted(fixed)]
    view = Selection(updates, tuple(axes), tuple(ones))
    return Embedded(_peel_moves(view, known), tuple(places), value.shape)


def is_whole_scatter(value: Value, known: Known) -> bool:
    """Return whether a scatter writes one window, which is all of the operand."""
    if not value.name.startswith("scatter"):
        return False
    operand, indices, updates = value.reads
    windows = value.params["dimension_numbers"].update_window_dims
    return (
        updates.shape == operand.shape
        and len(windows) == len(operand.shape)
        and indices.is_known
        and not np.any(known(indices))
    )


def _rising(positions: Positions) -> Positions:
    """The permutation that sorts positions."""
    if isinstance(positions, range):
        order = range(len(positions))
        return order if positions.step > 0 else order[::-1]
    return plain(np.argsort(np.asarray(positions), kind="stable"))


Targets = tuple[Value, list[Axis]]
"""The updates, and for each axis of the result the axis of the updates that runs along it, or None,
and the positions written to.
"""


def _is_zero(value: Value, known: Known) -> bool:
    base = source_view(value, known).base
    return (
        base.const is not None
        and not dtypes.issubdtype(base.dtype, dtypes.extended)
        and not np.any(np.asarray(base.const))
    )


def _pad(value: Value, known: Known) -> Targets | None:
    x, filler = value.reads
    config = [at(part, value.scope) for part in value.params["padding_config"]]
    # Negative padding cuts elements off.
    cuts = any(low < 0 or high < 0 for low, high, _ in config)
    if not _is_zero(filler, known) or cuts:
        return None
    axes: list[Axis] = []
    for i, (size, (low, _, inside)) in enumerate(zip(x.shape, config, strict=True)):
        step = inside + 1
        axes.append((i, range(low, low + step * size, step)))
    return x, axes


def _dynamic_update_slice(value: Value, known: Known) -> Targets | None:
    x, updates, *starts = value.reads
    if not all(start.is_known for start in starts):
        return None
    if not _is_zero(x, known):
        return None
    return updates, _slices(x, updates.shape, starts, known)


def _scatter_add(value: Value, known: Known) -> Targets | None:
    x, indices, updates = value.reads
    numbers = value.params["dimension_numbers"]
    if not indices.is_known or numbers.operand_batching_dims or not _is_zero(x, known):
        return None
    axes, inserted = range(len(x.shape)), numbers.inserted_window_dims
    inside: Sequence[int] = numbers.update_window_dims
    kept_axes = [axis for axis in axes if axis not in inserted]
    windows = dict(zip(kept_axes, inside, strict=True))
    sizes = [1 if axis in inserted else updates.shape[windows[axis]] for axis in axes]

    indexed = numbers.scatter_dims_to_operand_dims
    places = _separate_positions(known(indices), x.shape, sizes, indexed, _DROP)
    if places is None:
        return None
    starts, along = places
    batch = [axis for axis in range(len(updates.shape)) if axis not in inside]
    used = {axis for axis in along.values() if axis is not None}
    # Several updates of one element: a sum, not a move.
    if any(updates.shape[axis] != 1 for i, axis in enumerate(batch) if i not in used):
        return None
    out: list[Axis] = []
    for axis, size in enumerate(sizes):
        positions, runs = starts.get(axis, range(1)), along.get(axis)
        if axis in windows:
            if runs is not None:
                return None
            first = int(positions[0])
            out.append((windows[axis], range(first, first + size)))
        else:
            if len(np.unique(np.asarray(positions))) != len(positions):
                return None
            out.append((None if runs is None else batch[runs], positions))
    return updates, out
