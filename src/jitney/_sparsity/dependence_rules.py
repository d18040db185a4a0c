"""Transfer function of each primitive: the sparsity patterns of its results from those of its
operands. The rules of products, convolutions and factorisations stand here, those of moves in
`moves.py`, those of reads and writes at positions in `indexing.py`.

Only linear primitives need a rule, since the jaxpr that is followed is that of a derivative:
products of the Jacobian with directions. A primitive without a rule lets every element of its
results depend on all that any operand depends on, which is always sound.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from . import indexing, moves
from .pattern import MaybePattern, Pattern, Rule, Shape, SparsityOp, everything, union
from .typed_numpy import Ints, np


def product(op: SparsityOp) -> list[MaybePattern]:
    """Rule of `dot_general`: an element depends on the contracted line of the varying operand,
    except where the other operand is a known zero.
    """
    sides = [_product(op, side) for side in op.varying]
    return [union(sides)]


def _product(op: SparsityOp, side: int) -> Pattern:
    contract, batch = op.params["dimension_numbers"]
    other = 1 - side

    def matrices(i: int) -> Ints:
        shape = op.shapes[i]
        used = (*contract[i], *batch[i])
        free = [axis for axis in range(len(shape)) if axis not in used]
        groups_of_axes = (batch[i], free, contract[i])
        sizes = [math.prod(shape[axis] for axis in axes) for axes in groups_of_axes]
        order = (*batch[i], *free, *contract[i])
        return op.positions(i).transpose(order).reshape(sizes)

    # Both operands as batches of matrices: (groups, free, contracted).
    mine, theirs = matrices(side), matrices(other)
    groups, free, inner = mine.shape
    their_free = theirs.shape[1]
    count = groups * free * their_free
    known = op.values[other]
    # One term per nonzero of the known operand, if the products can be enumerated.
    if known is not None and mine.size * their_free <= _MANY:
        # Shape (groups, their_free, inner).
        nonzero = np.asarray(known).reshape(-1)[theirs] != 0
        at_group, at_their, at_inner = np.nonzero(nonzero)
        group = at_group[:, None]
        all_free = np.arange(free)
        sources = mine[group, all_free, at_inner[:, None]]

        out_shape = _out_shape(side, groups, free, their_free)
        into = np.arange(count).reshape(out_shape)
        if side == 1:
            into = into.transpose(0, 2, 1)
        targets = into[group, all_free, at_their[:, None]]
        return op.pattern(side).take(sources).merge(targets, count)

    # Otherwise the whole contracted line: merge it into one row, and broadcast that row over the
    # free axes of the other operand.
    lines = np.arange(groups * free)
    rows = np.empty(mine.size, np.int64)
    rows[mine.reshape(-1)] = np.repeat(lines, inner)
    whole = op.pattern(side).merge(rows, groups * free)

    out = np.broadcast_to(
        lines.reshape(groups, free, 1),
        (groups, free, their_free),
    )
    if side == 1:
        out = out.transpose(0, 2, 1)
    return whole.take(out)


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
    batch, feature, *spatial = numbers.lhs_spec
    out_batch, out_feature, *out_spatial = numbers.out_spec
    kernel: list[int] = [op.shapes[1][axis] for axis in numbers.rhs_spec[2:]]
    order = (batch, feature, *spatial)

    # Features are mixed, so merge them: one row per batch element and spatial position.
    places = op.positions(0).transpose(order)
    count, features, *sizes = places.shape
    in_size = math.prod(sizes)
    row_of_place = np.broadcast_to(
        np.arange(count * in_size).reshape(count, 1, *sizes),
        (count, features, *sizes),
    )
    merged = np.empty(places.size, np.int64)
    merged[places.reshape(-1)] = row_of_place.reshape(-1)
    whole = op.pattern(0).merge(merged, count * in_size)

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
        window_start = np.arange(out)[:, None] * stride
        offset = np.arange(k)[None] * apart
        at = window_start + offset - low

        # Positions of the dilated input that hold an element, inside of the padding.
        here = (at >= 0) & (at % wide == 0) & (at // wide < size)
        to, _ = np.nonzero(here)
        along = (at[here] // wide)[None]
        source = (source.reshape(-1)[:, None] * size + along).reshape(-1)
        target = (target.reshape(-1)[:, None] * out + to[None]).reshape(-1)

    # Back to the layout of the result, the same for each of its features.
    out_size = math.prod(outs)
    rows = np.arange(count)[:, None]
    sources = rows * in_size + source[None]
    targets = rows * out_size + target[None]
    windows = whole.take(sources).merge(targets, count * out_size)

    window_of = np.arange(count * out_size).reshape(count, 1, *outs)
    back = np.broadcast_to(window_of, (count, op.out[out_feature], *outs))
    out_order = np.argsort((out_batch, out_feature, *out_spatial))
    return [windows.take(back.transpose(out_order))]


def linear_algebra(op: SparsityOp) -> list[MaybePattern]:
    """Rule of solves and factorisations: a result depends on the matrices at its own batch index
    alone.
    """
    shapes = [op.shapes[i] for i in op.varying]
    rank = max(map(len, op.shapes)) - 2
    lead = shapes[0][:rank]
    if rank < 1 or any(shape[:rank] != lead for shape in [*shapes, *op.outs]):
        return everything(op)

    count = math.prod(lead)
    by_batch: list[Pattern] = []
    for i, shape in zip(op.varying, shapes, strict=True):
        size = math.prod(shape)
        per_matrix = max(math.prod(shape[rank:]), 1)
        batch_of = np.arange(size) // per_matrix
        by_batch.append(op.pattern(i).merge(batch_of, count))
    whole = union(by_batch)

    results: list[MaybePattern] = []
    for shape in op.outs:
        per_matrix = math.prod(shape[rank:])
        batch_of = np.repeat(np.arange(count), per_matrix)
        results.append(whole.take(batch_of))
    return results


def _last(op: SparsityOp, rank: int) -> Sequence[int]:
    return [op.params["axis"] % rank]


_ELEMENTWISE = (
    "add add_any sub neg div convert_element_type copy copy_p real imag conj complex"
    " reduce_precision stop_gradient"
)
_RESHAPES = ("reshape", "squeeze", "expand_dims")
_SCATTERS = ("scatter", "scatter-add", "scatter_add")
_LINEAR_ALGEBRA = "triangular_solve cholesky lu eigh svd qr householder_product tridiagonal_solve"

# A rule sees primitives with at least one operand that varies.
RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_ELEMENTWISE.split(), moves.elementwise),
    "mul": moves.scale,
    "select_n": moves.select,
    "broadcast_in_dim": moves.rearrange(moves.broadcast),
    "slice": moves.rearrange(moves.slice_axes),
    **dict.fromkeys(_RESHAPES, moves.rearrange(moves.reshape)),
    "transpose": moves.rearrange(moves.transpose),
    "rev": moves.rearrange(moves.reverse),
    "concatenate": moves.concatenate,
    "stack": moves.stack,
    "split": moves.split,
    "unstack": moves.unstack,
    "pad": moves.pad,
    "reduce_sum": moves.sum_axes,
    "cumsum": moves.mixing_rule(_last),
    "dot_general": product,
    "conv_general_dilated": convolution,
    "gather": indexing.gather,
    "dynamic_slice": indexing.dynamic_slice,
    "dynamic_update_slice": indexing.dynamic_update_slice,
    **dict.fromkeys(_SCATTERS, indexing.scatter),
    **dict.fromkeys(_LINEAR_ALGEBRA.split(), linear_algebra),
}

READ: Mapping[str, slice] = {
    **dict.fromkeys(("mul", "dot_general"), slice(0, 2)),
    "select_n": slice(0, 1),
    "dynamic_slice": slice(1, None),
    "dynamic_update_slice": slice(2, None),
    **dict.fromkeys(("gather", *_SCATTERS), slice(1, 2)),
}
"""Operands whose values a rule reads, where they are known."""

POSITIONS: Mapping[str, slice] = {
    name: READ[name] for name in ("dynamic_slice", "dynamic_update_slice", "gather", *_SCATTERS)
}
"""Operands that hold the positions at which a primitive reads or writes."""
