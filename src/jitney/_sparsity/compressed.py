"""Compute a Jacobian from few directions, and write its elements to their places."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp

from .._jax.arrays import bcoo
from .colours.colouring import Colouring
from .directions import AbstractLeaves, Leaves, Linearized, Shape, ends_of
from .pattern import Pattern
from .typed_numpy import Ints, np

Blocks = list[list[object]]
"""Jacobian: for each result a block per argument, an array or a BCOO array."""

# Positions in a program are of 32 bits, unless it computes in float64.
_LARGEST = 2**31 - 1


def blocks_by_colour(
    linearized: Linearized,
    pattern: Pattern,
    scheme: Colouring,
    *,
    as_sparse: bool,
    batch: int | None = None,
) -> tuple[Leaves, Blocks]:
    """Value, and Jacobian by coloured directions: for each result a block per argument."""
    forward = scheme.by == "forward"
    # `along` are the arrays that coloured directions belong to; lines that are dense by themselves
    # take the other mode, with directions of `across`.
    if forward:
        along, across = linearized.at, linearized.out
        first, second = linearized.push_tangents, linearized.pull_cotangents
    else:
        along, across = linearized.out, linearized.at
        first, second = linearized.pull_cotangents, linearized.push_tangents

    # A stack has one entry per colour: the sum of all columns of that colour (rows in reverse).
    value, stacks = first(_by_colour(scheme, along), batch)
    others: Leaves | None = None
    if len(scheme.apart):
        _, others = second(_unit_directions(scheme.apart, across), batch)
    outs, ins = linearized.outs, linearized.ins
    places = _Places(pattern, scheme, outs, ins)

    def block(o: int, i: int) -> object:
        here = places.block(o, i)
        mine, theirs = (o, i) if forward else (i, o)
        # Sources count on from the coloured stack into the stack of single directions.
        stack = stacks[mine]
        sources = [stack]
        if others is not None:
            sources.append(others[theirs].astype(stack.dtype))
        data = _take_elements(sources, here.sources)

        if as_sparse:
            return _sparse(data, here, outs[o], ins[i])
        return _scatter_block(
            data,
            here,
            outs[o],
            ins[i],
            lambda: _elsewhere(stack, forward=forward),
        )

    return value, [[block(o, i) for i in range(len(ins))] for o in range(len(outs))]


@dataclass(frozen=True)
class _Block:
    """Elements of one block: their positions, and the entries of the stacks that they are read
    from.
    """

    rows: Ints
    columns: Ints
    sources: Ints


class _Places:
    """Entry of the stacks that each element of a Jacobian is read from.

    The results of coloured directions come first, then those of single directions.
    """

    def __init__(
        self,
        pattern: Pattern,
        scheme: Colouring,
        outs: Sequence[Shape],
        ins: Sequence[Shape],
    ):
        self.rows = pattern.rows
        self.columns = pattern.indices
        self.forward = scheme.by == "forward"
        self.scheme = scheme
        self.row_ends = ends_of(outs)
        self.column_ends = ends_of(ins)
        lines = pattern.size if self.forward else pattern.columns
        self.apart = np.full(lines, -1)
        self.apart[scheme.apart] = np.arange(len(scheme.apart))

    def block(self, o: int, i: int) -> _Block:
        top, bottom = self.row_ends[o : o + 2]
        left, right = self.column_ends[i : i + 2]
        in_rows = (self.rows >= top) & (self.rows < bottom)
        in_columns = (self.columns >= left) & (self.columns < right)
        here = in_rows & in_columns
        rows, columns = self.rows[here], self.columns[here]

        # Forward, a line is a row and each colour is a set of columns. In reverse it is the other
        # way round.
        if self.forward:
            line, cross = rows, columns
            line_start, line_end = top, bottom
            cross_start, cross_end = left, right
        else:
            line, cross = columns, rows
            line_start, line_end = left, right
            cross_start, cross_end = top, bottom
        width = line_end - line_start
        # A symmetric matrix of one argument: elements may be read at their mirror image.
        if self.scheme.mirrored is not None:
            mirrored = self.scheme.mirrored[here]
            line, cross = np.where(mirrored, cross, line), np.where(mirrored, line, cross)

        # The coloured stack has `count` rows of `width` lines. The single directions follow, one
        # row of cross elements for each line that was taken out.
        single = self.apart[line]
        coloured_size = self.scheme.count * width
        row_of_single = coloured_size + single * (cross_end - cross_start)
        sources = np.where(
            single >= 0,
            row_of_single + cross - cross_start,
            self.scheme.colours[cross] * width + line - line_start,
        )
        return _Block(rows - top, columns - left, sources)


def dense(
    linearized: Linearized,
    by: str,
    *,
    as_sparse: bool,
    batch: int | None = None,
    tried: int | None = None,
) -> tuple[Leaves, Blocks]:
    """Value, and Jacobian by one direction per element of the arguments, or of the results in
    reverse.

    Of `tried` directions there are no blocks: each stack stands in the first that has a part of it.
    """
    forward = by == "forward"
    outs, ins = linearized.outs, linearized.ins
    # The directions themselves are not named: nothing holds them once they have been used.
    if forward:
        axis, ends = -1, ends_of(ins)
        seeds = partial(_basis, linearized.at, ends, tried)
        value, stacks = linearized.push_tangents(seeds(), batch, axis)
    else:
        axis, ends = 0, ends_of(outs)
        seeds = partial(_basis, linearized.out, ends, tried)
        value, stacks = linearized.pull_cotangents(seeds(), batch, axis)

    def block(o: int, i: int) -> object:
        seeded = i if forward else o
        whole = stacks[o] if forward else stacks[i]
        if tried is not None:
            return jnp.zeros(()) if seeded else whole
        if len(ends) > 2:  # more than one array
            start, stop = int(ends[seeded]), int(ends[seeded + 1])
            whole = jax.lax.slice_in_dim(whole, start, stop, axis=axis)
        whole = whole.reshape((*outs[o], *ins[i]))
        if not as_sparse:
            return whole
        return bcoo().fromdense(whole, nse=whole.size)

    return value, [[block(o, i) for i in range(len(ins))] for o in range(len(outs))]


def _basis(
    leaves: AbstractLeaves,
    ends: Ints,
    tried: int | None = None,
) -> Leaves:
    """Stack of unit directions, one per element of all arrays, or `tried` of these, from all over
    them.

    Of a single array it is `jnp.eye`, which XLA knows.
    """
    total = int(ends[-1])
    if tried is not None and tried < total:
        step = total // tried
        return _unit_directions(np.arange(0, step * tried, step), leaves)
    directions: list[jax.Array] = []
    for leaf, start, stop in zip(leaves, ends, ends[1:], strict=False):
        size = int(stop - start)
        unit = jnp.eye(total, size, -int(start), dtype=leaf.dtype)
        directions.append(unit.reshape((total, *leaf.shape)))
    return directions


def _by_colour(scheme: Colouring, leaves: AbstractLeaves) -> Leaves:
    """Stack of directions, each the sum of all elements of one colour."""
    directions: list[jax.Array] = []
    at = 0
    for leaf in leaves:
        size = math.prod(leaf.shape)
        colours = scheme.colours[at : at + size].astype(np.int32)
        numbers = jnp.arange(scheme.count, dtype=np.int32)
        hot = numbers[:, None] == colours
        direction = hot.astype(leaf.dtype)
        directions.append(direction.reshape((scheme.count, *leaf.shape)))
        at += size
    return directions


def _unit_directions(elements: Ints, leaves: AbstractLeaves) -> Leaves:
    """Stack of directions of one element each."""
    directions: list[jax.Array] = []
    at = 0
    for leaf in leaves:
        size = math.prod(leaf.shape)
        # Positions in this leaf; -1 in another one.
        is_here = (elements >= at) & (elements < at + size)
        own = np.where(is_here, elements - at, -1).astype(np.int32)
        hot = own[:, None] == jnp.arange(size, dtype=np.int32)
        direction = hot.astype(leaf.dtype)
        directions.append(direction.reshape((len(elements), *leaf.shape)))
        at += size
    return directions


def _take_elements(stacks: Leaves, at: Ints) -> jax.Array:
    """Elements at flat positions of stacks, which are counted one behind the other."""
    size = sum(stack.size for stack in stacks)
    # All positions come from the pattern, so no bounds check is needed.
    if size <= _LARGEST:
        source = jnp.concatenate([stack.reshape(-1) for stack in stacks])
        is_whole = len(at) == size and np.array_equal(at, np.arange(size))
        if is_whole:
            return source
        return source.at[at.astype(np.int32)].get(mode="promise_in_bounds")

    # A flat position would be cut off at 32 bits: one position for each of two axes instead.
    first = 0
    data = jnp.zeros(len(at), stacks[0].dtype)
    for stack in stacks:
        here = np.flatnonzero((at >= first) & (at < first + stack.size))
        rows = stack.reshape(len(stack), -1)
        width = max(rows.shape[1], 1)
        row, column = np.divmod(at[here] - first, width)

        found = rows.at[row.astype(np.int32), column.astype(np.int32)]
        data = data.at[here].set(
            found.get(mode="promise_in_bounds"),
            unique_indices=True,
            indices_are_sorted=True,
        )
        first += stack.size
    return data


def _sparse(
    data: jax.Array,
    here: _Block,
    out: Shape,
    taken: Shape,
) -> object:
    shape = (*out, *taken)
    flat = here.rows * math.prod(taken) + here.columns
    none = np.zeros((len(flat), 0))
    indices = np.stack(np.unravel_index(flat, shape), -1) if shape else none
    return bcoo()(
        (data, jnp.asarray(indices, np.int32)),
        shape=shape,
        indices_sorted=True,
        unique_indices=True,
    )


def _scatter_block(
    data: jax.Array,
    here: _Block,
    out: Shape,
    taken: Shape,
    elsewhere: Callable[[], jax.Array],
) -> jax.Array:
    shape = (*out, *taken)
    size, wide = math.prod(out), math.prod(taken)
    if len(data) == size * wide:
        return data.reshape(shape)
    # Elements outside of the pattern are 0, or NaN where the pass was not finite.
    outside = elsewhere().astype(data.dtype)
    rest = jnp.broadcast_to(outside, (size, wide))
    if not len(data):
        return rest.reshape(shape)

    # A flat position beyond 32 bits would be cut off.
    if size * wide <= _LARGEST:
        at = (here.rows * wide + here.columns,)
        rest = rest.reshape(-1)
    else:
        at = (here.rows, here.columns)
    at = tuple(positions.astype(np.int32) for positions in at)
    rest = rest.at[at].set(
        data,
        unique_indices=True,
        indices_are_sorted=True,
        mode="promise_in_bounds",
    )
    return rest.reshape(shape)


def _elsewhere(stack: jax.Array, *, forward: bool) -> jax.Array:
    """Values outside of the pattern: 0 or NaN for each row of results, or column of arguments in
    reverse.

    A direction gives a row sums of derivatives on the way times 0 or 1: NaN if one of these is
    infinite or NaN, as in a plain Jacobian. The pattern counts known factors of 0 as no dependence,
    so any direction that gives no finite number may hold such an element.
    """
    finite = jnp.isfinite(stack.reshape(len(stack), -1))
    odd = ~finite.all(axis=0)
    nan = jnp.asarray(np.nan, stack.dtype)
    rest = jnp.where(odd, nan, jnp.zeros((), stack.dtype))
    return rest[:, None] if forward else rest[None]
