"""Sparsity rules of primitives that act element by element, move elements, or add them up along
axes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from .pattern import MaybePattern, Pattern, Rule, Shape, SparsityOp, everything, union
from .typed_numpy import Ints, np


def elementwise(op: SparsityOp) -> list[MaybePattern]:
    """Rule of elementwise primitives: each element depends on the same element of the operands.

    Axes of size 1 are stretched.
    """
    operands = [_broadcast_operand(op, i) for i in op.varying]
    return [union(operands)]


def _broadcast_operand(op: SparsityOp, i: int) -> Pattern:
    pattern = op.pattern(i)
    if op.shapes[i] == op.out:
        return pattern
    return pattern.take(np.broadcast_to(op.positions(i), op.out))


def scale(op: SparsityOp) -> list[MaybePattern]:
    """Rule of products: elementwise, but the pattern is empty where the other factor is a known
    zero.

    If the varying factor is infinite there, 0 times infinity is NaN. Then each pass shows it, and
    elements outside of the pattern become NaN.
    """
    (pattern,) = elementwise(op)
    if len(op.varying) > 1 or pattern is None:
        return [pattern]
    other = op.values[1 - op.varying[0]]
    if other is None:
        return [pattern]
    nonzero = np.asarray(other) != 0
    return [pattern.keep(np.broadcast_to(nonzero, op.out))]


def select(op: SparsityOp) -> list[MaybePattern]:
    """Rule of `select_n`: the case that a known predicate takes, or all cases."""
    if op.values[0] is None:
        return elementwise(op)
    which = np.broadcast_to(np.asarray(op.values[0], int), op.out)
    cases: list[Pattern] = []
    for i in op.varying:
        case = _broadcast_operand(op, i)
        cases.append(case.keep(which == i - 1))
    return [union(cases)]


def rearrange(positions: Callable[[SparsityOp], Ints]) -> Rule:
    """Rule of primitives that rearrange one operand.

    `positions` returns the flat source position of each element of the result; -1 for none.
    """
    return lambda op: [op.pattern(0).take(positions(op))]


def broadcast(op: SparsityOp) -> Ints:
    sizes = [1] * len(op.out)
    axes = op.params["broadcast_dimensions"]
    for axis, size in zip(axes, op.shapes[0], strict=True):
        sizes[axis] = size
    aligned = op.positions(0).reshape(sizes)
    return np.broadcast_to(aligned, op.out)


def reshape(op: SparsityOp) -> Ints:
    return op.positions(0)


def transpose(op: SparsityOp) -> Ints:
    return op.positions(0).transpose(op.params["permutation"])


def reverse(op: SparsityOp) -> Ints:
    return np.flip(op.positions(0), op.params["dimensions"])


def slice_axes(op: SparsityOp) -> Ints:
    starts = op.params["start_indices"]
    stops = op.params["limit_indices"]
    strides = op.params["strides"] or (1,) * len(op.out)
    window = tuple(map(slice, starts, stops, strides))
    return op.positions(0)[window]


def concatenate(op: SparsityOp) -> list[MaybePattern]:
    axis = op.params["dimension"]
    return [_assemble(op, lambda parts: np.concatenate(parts, axis))]


def stack(op: SparsityOp) -> list[MaybePattern]:
    axis = op.params["axis"]
    return [_assemble(op, lambda parts: np.stack(parts, axis))]


def _assemble(op: SparsityOp, join: Callable[[list[Ints]], Ints]) -> Pattern:
    """Union over the operands of an assembly: each at its positions, with the others empty."""
    patterns: list[Pattern] = []
    for i in op.varying:
        parts: list[Ints] = []
        for j, shape in enumerate(op.shapes):
            parts.append(op.positions(j) if j == i else np.full(shape, -1))
        patterns.append(op.pattern(i).take(join(parts)))
    return union(patterns)


def split(op: SparsityOp) -> list[MaybePattern]:
    pattern = op.pattern(0)
    positions = op.positions(0)
    stops = np.cumsum(op.params["sizes"])
    axis = op.params["axis"]
    parts = np.split(positions, stops[:-1], axis)
    return [pattern.take(part) for part in parts]


def unstack(op: SparsityOp) -> list[MaybePattern]:
    pattern = op.pattern(0)
    positions = op.positions(0)
    axis = op.params["axis"]
    count = len(op.outs)
    return [pattern.take(np.take(positions, i, axis)) for i in range(count)]


def pad(op: SparsityOp) -> list[MaybePattern]:
    # Negative padding crops, so only source elements that land inside are kept.
    source = op.positions(0)
    shape = op.shapes[0]
    places: list[Ints] = []
    for axis, (low, _, inner) in enumerate(op.params["padding_config"]):
        stride = inner + 1
        at = low + np.arange(shape[axis]) * stride
        is_inside = (at >= 0) & (at < op.out[axis])
        inside = np.flatnonzero(is_inside)
        source = np.take(source, inside, axis)
        places.append(at[inside])
    target = np.full(op.out, -1)
    window = np.ix_(*places)
    target[window] = source

    parts: list[Pattern] = []
    if op.patterns[0] is not None:
        parts.append(op.pattern(0).take(target))
    if op.patterns[1] is not None:
        # Everything else is the padding value.
        padding = np.where(target < 0, 0, -1)
        parts.append(op.pattern(1).take(padding))
    return [union(parts)]


def sum_axes(op: SparsityOp) -> list[MaybePattern]:
    """Rule of sums over axes: rows that are added up are merged."""
    shape = op.shapes[0]
    groups = _groups(shape, op.params["axes"])
    into = np.broadcast_to(groups, shape)
    merged = op.pattern(0).merge(into, math.prod(op.out))
    return [merged]


def _groups(shape: Shape, axes: Sequence[int]) -> Ints:
    """Number of the line along these axes that an element is on, with size 1 along them."""
    sizes = list(shape)
    for axis in axes:
        sizes[axis] = 1
    count = math.prod(sizes)
    return np.arange(count).reshape(sizes)


def mixing_rule(axes: Callable[[SparsityOp, int], Sequence[int]]) -> Rule:
    """Rule of primitives whose elements depend on all others along some axes; results have the
    operand's shape.
    """

    def rule(op: SparsityOp) -> list[MaybePattern]:
        parts: list[Pattern] = []
        for i in op.varying:
            shape = op.shapes[i]
            along = axes(op, len(shape))
            groups = _groups(shape, along)
            # Merge each line along these axes into one row, and let all its elements have that row.
            row_of = np.broadcast_to(groups, shape)
            whole = op.pattern(i).merge(row_of, groups.size)
            if not _agrees(shape, op.out, along):
                return everything(op)
            parts.append(whole.take(np.broadcast_to(groups, op.out)))
        return [union(parts)]

    return rule


def _agrees(shape: Shape, out: Shape, along: Sequence[int]) -> bool:
    """Return whether the shape of a result is that of an operand, except along some axes."""
    if shape[: len(out)] == out:
        return True
    if len(shape) != len(out):
        return False
    sizes = enumerate(zip(shape, out, strict=True))
    return all(size == new for axis, (size, new) in sizes if axis not in along)
