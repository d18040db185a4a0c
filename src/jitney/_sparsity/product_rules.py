"""Sparsity rules of matrix products, convolutions and factorisations."""

from __future__ import annotations

import math
from typing import Any

from .operation import MaybePattern, Shape, SparsityOp, everything
from .pattern import Pattern, union
from .typed_numpy import np


def product(op: SparsityOp) -> list[MaybePattern]:
    """Rule of `dot_general`: an element depends on the contracted line of the varying operand,
    except where the other operand is a known zero.
    """
    return [union([_product(op, side) for side in op.varying])]


def _product(op: SparsityOp, side: int) -> Pattern:
    contract, batch = op.params["dimension_numbers"]
    other = 1 - side

    def matrices(i: int) -> Any:
        free = [axis for axis in range(len(op.shapes[i])) if axis not in (*contract[i], *batch[i])]
        shape = op.shapes[i]
        sizes = [math.prod(shape[axis] for axis in axes) for axes in (batch[i], free, contract[i])]
        return op.positions(i).transpose((*batch[i], *free, *contract[i])).reshape(sizes)

    # Both operands as batches of matrices: (groups, free, contracted).
    mine, theirs = matrices(side), matrices(other)
    groups, free, inner = mine.shape
    their_free = theirs.shape[1]
    known = op.values[other]
    flat_out = np.arange(groups * free * their_free)
    # One term per nonzero of the known operand, if the products can be enumerated.
    if known is not None and mine.size * their_free <= _MANY:
        # Shape (groups, their_free, inner).
        there = np.asarray(known).reshape(-1)[theirs] != 0
        at_group, at_their, at_inner = np.nonzero(there)
        sources = mine[at_group[:, None], np.arange(free), at_inner[:, None]]
        into = flat_out.reshape(_out_shape(side, groups, free, their_free))
        into = into if side == 0 else into.transpose(0, 2, 1)
        targets = into[at_group[:, None], np.arange(free), at_their[:, None]]
        return op.pattern(side).take(sources).merge(targets, len(flat_out))

    # Otherwise the whole contracted line: merge it into one row, and broadcast that row over the
    # free axes of the other operand.
    rows = np.empty(mine.size, np.int64)
    rows[mine.reshape(-1)] = np.repeat(np.arange(groups * free), inner)
    whole = op.pattern(side).merge(rows, groups * free)
    out = np.broadcast_to(
        np.arange(groups * free).reshape(groups, free, 1), (groups, free, their_free)
    )
    return whole.take(out if side == 0 else out.transpose(0, 2, 1))


_MANY = 1 << 22


def _out_shape(side: int, groups: int, free: int, their_free: int) -> Shape:
    return (groups, free, their_free) if side == 0 else (groups, their_free, free)


def convolution(op: SparsityOp) -> list[MaybePattern]:
    """Rule of convolutions: an element depends on its window of a varying input, and on
    everything if the kernel varies.
    """
    if op.varying != [0]:
        return everything(op)
    numbers = op.params["dimension_numbers"]
    spatial: list[int]
    out_spatial: list[int]
    (batch, feature, *spatial), (out_batch, out_feature, *out_spatial) = (
        numbers.lhs_spec,
        numbers.out_spec,
    )
    kernel: list[int] = [op.shapes[1][axis] for axis in numbers.rhs_spec[2:]]
    order = (batch, feature, *spatial)

    # Features are mixed, so merge them: one row per batch element and spatial position.
    places = op.positions(0).transpose(order)
    count, features, *sizes = places.shape
    merged = np.empty(places.size, np.int64)
    merged[places.reshape(-1)] = np.broadcast_to(
        np.arange(count * math.prod(sizes)).reshape(count, 1, *sizes), (count, features, *sizes)
    ).reshape(-1)
    whole = op.pattern(0).merge(merged, count * math.prod(sizes))

    # Enumerate (source, target) pairs of spatial positions, dimension by dimension.
    outs: list[int] = [op.out[axis] for axis in out_spatial]
    source = np.zeros((1, 1), np.int64)
    target = np.zeros((1, 1), np.int64)
    for k, size, out, stride, (low, _), wide, apart in zip(
        kernel,
        sizes,
        outs,
        op.params["window_strides"],
        op.params["padding"],
        op.params["lhs_dilation"],
        op.params["rhs_dilation"],
        strict=True,
    ):
        at = np.arange(out)[:, None] * stride + np.arange(k)[None] * apart - low
        # Positions of the dilated input that hold an element, inside of the padding.
        here = (at >= 0) & (at % wide == 0) & (at // wide < size)
        to, _ = np.nonzero(here)
        source = (source.reshape(-1)[:, None] * size + (at[here] // wide)[None]).reshape(-1)
        target = (target.reshape(-1)[:, None] * out + to[None]).reshape(-1)

    # Back to the layout of the result, the same for each of its features.
    rows = np.arange(count)[:, None]
    windows = whole.take(rows * math.prod(sizes) + source[None]).merge(
        rows * math.prod(outs) + target[None], count * math.prod(outs)
    )
    shaped = np.arange(count * math.prod(outs)).reshape(count, 1, *outs)
    back = np.broadcast_to(shaped, (count, op.out[out_feature], *outs))
    return [windows.take(back.transpose(np.argsort((out_batch, out_feature, *out_spatial))))]


def linear_algebra(op: SparsityOp) -> list[MaybePattern]:
    """Rule of solves and factorisations: a result depends on the matrices at its own batch index
    alone.
    """
    shapes = [op.shapes[i] for i in op.varying]
    rank = max(len(op.shapes[i]) for i in range(len(op.shapes))) - 2
    lead = shapes[0][:rank]
    if rank < 1 or any(shape[:rank] != lead for shape in [*shapes, *op.outs]):
        return everything(op)
    count = math.prod(lead)
    whole = union(
        [
            op.pattern(i).merge(
                np.arange(math.prod(op.shapes[i])) // max(math.prod(op.shapes[i][rank:]), 1), count
            )
            for i in op.varying
        ]
    )
    return [whole.take(np.repeat(np.arange(count), math.prod(shape[rank:]))) for shape in op.outs]
