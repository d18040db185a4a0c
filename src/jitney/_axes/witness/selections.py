"""Values as selections of elements of other values, which are composed and compared.

    rev(x[1:]), x of 5 elements   ->   Selection(x, axes=((0, range(4, 0, -1)),), fixed=())

`layout_ops.py` has the move of each operation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .graph import Value

Positions = Any
"""Source position of each element along an axis: a range, or an array of ints."""
Axis = tuple[int | None, Positions]
"""An axis of the operand and the positions along it, or None and the length of a broadcast."""


@dataclass(frozen=True)
class Selection:
    """A value as a selection of elements of another value.

    Args:
        base: The other value.
        axes: For each axis of the value, the axis of the base and the positions along it; or None
            and the number of repetitions of a broadcast.
        fixed: Pairs of an axis of the base that no axis of the value runs along, and the position
            on it.
    """

    base: Value
    axes: tuple[Axis, ...]
    fixed: tuple[tuple[int, int], ...]

    def same_places(self, other: Selection) -> bool:
        """Return whether two views select the same positions, each of its own base."""
        return (
            self.fixed == other.fixed
            and len(self.axes) == len(other.axes)
            and all(map(_is_same_axis, self.axes, other.axes))
        )


def _is_same_axis(a: Axis, b: Axis) -> bool:
    (axis, mine), (other_axis, other) = a, b
    if axis != other_axis or isinstance(mine, range) != isinstance(other, range):
        return False
    if isinstance(mine, (range, int)):
        return mine == other
    return np.array_equal(mine, other)


def plain(positions: object) -> Positions:
    """Normalise positions: a range if they are evenly spaced, else an array."""
    if isinstance(positions, range):
        return positions
    array = np.asarray(positions, np.int64)
    if not len(array):
        return range(0)
    first = int(array[0])
    if len(array) == 1:
        return range(first, first + 1)
    steps = np.diff(array)
    step = int(steps[0])
    if not step or not np.all(steps == step):
        return array
    return range(first, first + step * len(array), step)


def compose_positions(inner: Positions, outer: Positions) -> Positions:
    """Compose two moves: the positions `inner[outer[i]]`."""
    if isinstance(inner, range) and isinstance(outer, range):
        if not len(outer):
            return range(0)
        start = inner[outer[0]]
        if len(outer) == 1:
            return range(start, start + 1)
        step = inner.step * outer.step
        return plain(range(start, start + step * len(outer), step))
    return plain(np.asarray(inner)[np.asarray(outer)])


@dataclass(frozen=True)
class Move:
    """A single move: for each axis of the result, the axis of the operand and the positions, or
    None and the length of a broadcast axis.
    """

    source: Value
    axes: tuple[Axis, ...]
    fixed: tuple[tuple[int, int], ...] = ()


def compose(view: Selection, move: Move) -> Selection:
    """Return a view of the operand of a move, given a view of its result."""
    axes: list[Axis] = []
    fixed = dict(move.fixed)
    for axis, positions in view.axes:
        if axis is None:
            axes.append((None, positions))
            continue
        below, inner = move.axes[axis]
        if below is None:
            axes.append((None, len(positions)))
        else:
            axes.append((below, compose_positions(inner, positions)))

    # A fixed position on a broadcast axis selects nothing in the operand.
    for axis, position in view.fixed:
        below, inner = move.axes[axis]
        if below is not None:
            fixed[below] = int(inner[position])
    return Selection(move.source, tuple(axes), tuple(sorted(fixed.items())))


def normal_form(view: Selection) -> Selection:
    """Turn an axis along which a single position is selected into a fixed one."""
    fixed = dict(view.fixed)
    axes: list[Axis] = []
    for axis, positions in view.axes:
        if axis is not None and len(positions) == 1:
            fixed[axis] = int(positions[0])
            axes.append((None, 1))
        else:
            axes.append((axis, positions))
    return Selection(view.base, tuple(axes), tuple(sorted(fixed.items())))


def whole_axes(value: Value) -> list[Axis]:
    """Return the axes of a value that is selected as a whole."""
    return [(i, range(size)) for i, size in enumerate(value.shape)]
