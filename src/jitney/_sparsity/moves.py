"""Sparsity rules of primitives that act element by element, move elements, or add them up along
axes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from .operation import MaybePattern, Rule, SparsityOp, everything
from .pattern import Pattern, union
from .typed_numpy import np


def elementwise(op: SparsityOp) -> list[MaybePattern]:
    """Rule of elementwise primitives: each element depends on the same element of the operands.

    Axes of size 1 are stretched.
    """
    return [union([_stretched(op, i) for i in op.varying])]


def _stretched(op: SparsityOp, i: int) -> Pattern:
    return (
        op.pattern(i)
        if op.shapes[i] == op.out
        else op.pattern(i).take(np.broadcast_to(op.positions(i), op.out))
    )


def scaled(op: SparsityOp) -> list[MaybePattern]:
    """Rule of products: elementwise, but the pattern is empty where the other factor is a known
    zero.

    If the varying factor is infinite there, 0 times infinity is NaN. Then each pass shows it, and
    elements outside of the pattern become NaN.
    """
    (pattern,) = elementwise(op)
    if len(op.varying) == 1 and pattern is not None:
        other = op.values[1 - op.varying[0]]
        if other is not None:
            return [pattern.keep(np.broadcast_to(np.asarray(other) != 0, op.out))]
    return [pattern]


def selected(op: SparsityOp) -> list[MaybePattern]:
    """Rule of `select_n`: the case that a known predicate takes, or all cases."""
    which = op.values[0]
    if which is None:
        return elementwise(op)
    which = np.broadcast_to(np.asarray(which, int), op.out)
    return [union([_stretched(op, i).keep(which == i - 1) for i in op.varying])]


def moved(positions: Callable[[SparsityOp], object]) -> Rule:
    """Rule of primitives that rearrange one operand.

    `positions` returns the flat source position of each element of the result; -1 for none.
    """
    return lambda op: [op.pattern(0).take(positions(op))]


def broadcast(op: SparsityOp) -> Any:
    sizes = [1] * len(op.out)
    for axis, size in zip(op.params["broadcast_dimensions"], op.shapes[0], strict=True):
        sizes[axis] = size
    return np.broadcast_to(op.positions(0).reshape(sizes), op.out)


def sliced(op: SparsityOp) -> Any:
    steps = op.params["strides"] or (1,) * len(op.out)
    return op.positions(0)[
        tuple(map(slice, op.params["start_indices"], op.params["limit_indices"], steps))
    ]


def concatenated(op: SparsityOp) -> list[MaybePattern]:
    return [_assembled(op, lambda parts: np.concatenate(parts, op.params["dimension"]))]


def stack(op: SparsityOp) -> list[MaybePattern]:
    return [_assembled(op, lambda parts: np.stack(parts, op.params["axis"]))]


def _assembled(op: SparsityOp, join: Callable[[list[Any]], object]) -> Pattern:
    """Union over the operands of an assembly: each at its positions, with the others empty."""
    patterns: list[Pattern] = []
    for i in op.varying:
        parts = [
            op.positions(j) if j == i else np.full(shape, -1) for j, shape in enumerate(op.shapes)
        ]
        patterns.append(op.pattern(i).take(join(parts)))
    return union(patterns)


def split(op: SparsityOp) -> list[MaybePattern]:
    axis = op.params["axis"]
    parts = np.split(op.positions(0), np.cumsum(op.params["sizes"])[:-1], axis)
    return [op.pattern(0).take(part) for part in parts]


def unstack(op: SparsityOp) -> list[MaybePattern]:
    axis = op.params["axis"]
    return [op.pattern(0).take(np.take(op.positions(0), i, axis)) for i in range(len(op.outs))]


def padded(op: SparsityOp) -> list[MaybePattern]:
    # Negative padding crops, so only source elements that land inside are kept.
    target = np.full(op.out, -1)
    source = op.positions(0)
    for axis, (low, _, inner) in enumerate(op.params["padding_config"]):
        at = low + np.arange(op.shapes[0][axis]) * (inner + 1)
        source = np.take(source, np.flatnonzero((at >= 0) & (at < op.out[axis])), axis)
    places: list[Any] = []
    for axis, (low, _, inner) in enumerate(op.params["padding_config"]):
        at = low + np.arange(op.shapes[0][axis]) * (inner + 1)
        places.append(at[(at >= 0) & (at < op.out[axis])])
    target[np.ix_(*places)] = source
    parts = [op.pattern(0).take(target)] if op.patterns[0] is not None else []
    if op.patterns[1] is not None:
        # Everything else is the padding value.
        parts.append(op.pattern(1).take(np.where(target < 0, 0, -1)))
    return [union(parts)]


def summed(op: SparsityOp) -> list[MaybePattern]:
    """Rule of sums over axes: rows that are added up are merged."""
    kept = [1 if axis in op.params["axes"] else size for axis, size in enumerate(op.shapes[0])]
    into = np.broadcast_to(np.arange(math.prod(kept)).reshape(kept), op.shapes[0])
    return [op.pattern(0).merge(into, math.prod(op.out))]


def mixed(axes: Callable[[SparsityOp, int], Sequence[int]]) -> Rule:
    """Rule of primitives whose elements depend on all others along some axes; results have the
    operand's shape.
    """

    def rule(op: SparsityOp) -> list[MaybePattern]:
        parts: list[Pattern] = []
        for i in op.varying:
            shape, along = op.shapes[i], axes(op, len(op.shapes[i]))
            kept = [1 if axis in along else size for axis, size in enumerate(shape)]
            groups = np.arange(math.prod(kept)).reshape(kept)
            # Merge each line along these axes into one row, and let all its elements have that row.
            whole = op.pattern(i).merge(np.broadcast_to(groups, shape), groups.size)
            if shape[: len(op.out)] != op.out and (
                len(shape) != len(op.out)
                or any(
                    a != b
                    for axis, (a, b) in enumerate(zip(shape, op.out, strict=True))
                    if axis not in along
                )
            ):
                return everything(op)
            parts.append(whole.take(np.broadcast_to(groups, op.out)))
        return [union(parts)]

    return rule
