"""Compute a Jacobian from few directions, and write its elements to their places."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from .._jax.sparse_arrays import bcoo
from .colours.colouring import Colouring
from .directions import Leaves, Linearized, Shape
from .pattern import Pattern
from .typed_numpy import np

# Positions in a program are of 32 bits, unless it computes in float64.
_LARGEST = 2**31 - 1


def compressed(
    linearized: Linearized,
    pattern: Pattern,
    scheme: Colouring,
    *,
    as_sparse: bool,
    batch: int | None = None,
) -> tuple[Leaves, list[list[Any]]]:
    """Value, and Jacobian by coloured directions: for each result a block per argument."""
    forward = scheme.by == "forward"
    # `along` are the arrays that coloured directions belong to; lines that are dense by themselves
    # take the other mode, with directions of `across`.
    along, across = (linearized.at, linearized.out) if forward else (linearized.out, linearized.at)
    first, second = (
        (linearized.pushed, linearized.pulled)
        if forward
        else (linearized.pulled, linearized.pushed)
    )

    # A stack has one entry per colour: the sum of all columns of that colour (rows in reverse).
    value, stacks = first(_by_colour(scheme, along), batch)
    others = second(_one_by_one(scheme.apart, across), batch)[1] if len(scheme.apart) else None
    places = _Places(pattern, scheme, linearized.outs, linearized.ins)

    def block(o: int, i: int) -> Any:
        here = places.block(o, i)
        mine, theirs = (o, i) if forward else (i, o)
        # Sources count on from the coloured stack into the stack of single directions.
        stack = stacks[mine]
        data = _taken(
            [stack] if others is None else [stack, others[theirs].astype(stack.dtype)],
            here.sources,
        )
        if as_sparse:
            return _sparse(data, here, linearized.outs[o], linearized.ins[i])
        return _placed(
            data,
            here,
            linearized.outs[o],
            linearized.ins[i],
            lambda: _elsewhere(stacks[mine], forward=forward),
        )

    return value, [
        [block(o, i) for i in range(len(linearized.ins))] for o in range(len(linearized.outs))
    ]


@dataclass(frozen=True)
class _Block:
    """Elements of one block: their positions, and the entries of the stacks that they are read
    from.
    """

    rows: Any
    columns: Any
    sources: Any


class _Places:
    """Entry of the stacks that each element of a Jacobian is read from.

    The results of coloured directions come first, then those of single directions.
    """

    def __init__(
        self, pattern: Pattern, scheme: Colouring, outs: Sequence[Shape], ins: Sequence[Shape]
    ):
        self.rows, self.columns = pattern.rows, pattern.indices
        self.forward, self.scheme = scheme.by == "forward", scheme
        self.row_ends, self.column_ends = (
            np.cumsum([0, *map(math.prod, shapes)]) for shapes in (outs, ins)
        )
        self.apart = np.full(pattern.size if self.forward else pattern.columns, -1)
        self.apart[scheme.apart] = np.arange(len(scheme.apart))

    def block(self, o: int, i: int) -> _Block:
        (top, bottom), (left, right) = self.row_ends[o : o + 2], self.column_ends[i : i + 2]
        here = (
            (self.rows >= top)
            & (self.rows < bottom)
            & (self.columns >= left)
            & (self.columns < right)
        )
        rows, columns = self.rows[here], self.columns[here]
        # Forward, a line is a row and each colour is a set of columns. In reverse it is the other
        # way round.
        line, cross = (rows, columns) if self.forward else (columns, rows)
        (line_start, line_end), (cross_start, cross_end) = (
            ((top, bottom), (left, right)) if self.forward else ((left, right), (top, bottom))
        )
        width = line_end - line_start
        # A symmetric matrix of one argument: elements may be read at their mirror image.
        if self.scheme.mirrored is not None:
            mirrored = self.scheme.mirrored[here]
            line, cross = np.where(mirrored, cross, line), np.where(mirrored, line, cross)
        # The coloured stack has `count` rows of `width` lines. The single directions follow, one
        # row of cross elements for each line that was taken out.
        single = self.apart[line]
        sources = np.where(
            single >= 0,
            self.scheme.count * width + single * (cross_end - cross_start) + cross - cross_start,
            self.scheme.colours[cross] * width + line - line_start,
        )
        return _Block(rows - top, columns - left, sources)


def dense(
    linearized: Linearized, by: str, *, as_sparse: bool, batch: int | None = None
) -> tuple[Leaves, list[list[Any]]]:
    """Value, and Jacobian by one direction per element of the arguments, or of the results in
    reverse.
    """
    forward = by == "forward"
    along, run = (
        (linearized.at, linearized.pushed) if forward else (linearized.out, linearized.pulled)
    )
    ends = np.cumsum([0, *(math.prod(leaf.shape) for leaf in along)])
    value, stacks = run(_basis(along, ends), batch, -1 if forward else 0)

    def block(o: int, out: Shape, i: int, taken: Shape) -> Any:
        a, whole = (i, stacks[o]) if forward else (o, stacks[i])
        if len(along) > 1:
            whole = jax.lax.slice_in_dim(
                whole, int(ends[a]), int(ends[a + 1]), axis=-1 if forward else 0
            )
        whole = whole.reshape((*out, *taken))
        return bcoo().fromdense(whole, nse=whole.size) if as_sparse else whole

    return value, [
        [block(o, out, i, taken) for i, taken in enumerate(linearized.ins)]
        for o, out in enumerate(linearized.outs)
    ]


def _basis(leaves: Leaves, ends: Any) -> list[Any]:
    """Stack of unit directions, one per element of all arrays.

    Of a single array it is `jnp.eye`, which XLA knows.
    """
    total = int(ends[-1])
    return [
        jnp.eye(total, int(stop - start), -int(start), dtype=leaf.dtype).reshape(
            (total, *leaf.shape)
        )
        for leaf, start, stop in zip(leaves, ends, ends[1:], strict=False)
    ]


def _by_colour(scheme: Colouring, leaves: Leaves) -> list[Any]:
    """Stack of directions, each the sum of all elements of one colour."""
    directions: list[Any] = []
    at = 0
    for leaf in leaves:
        size = math.prod(leaf.shape)
        colours = scheme.colours[at : at + size].astype(np.int32)
        hot = jnp.arange(scheme.count, dtype=np.int32)[:, None] == colours
        directions.append(hot.astype(leaf.dtype).reshape((scheme.count, *leaf.shape)))
        at += size
    return directions


def _one_by_one(elements: Any, leaves: Leaves) -> list[Any]:
    """Stack of directions of one element each."""
    directions: list[Any] = []
    at = 0
    for leaf in leaves:
        size = math.prod(leaf.shape)
        # Positions in this leaf; -1 in another one.
        own = np.where((elements >= at) & (elements < at + size), elements - at, -1)
        hot = own.astype(np.int32)[:, None] == jnp.arange(size, dtype=np.int32)
        directions.append(hot.astype(leaf.dtype).reshape((len(elements), *leaf.shape)))
        at += size
    return directions


def _taken(stacks: Sequence[Any], at: Any) -> Any:
    """Elements at flat positions of stacks, which are counted one behind the other."""
    size = sum(stack.size for stack in stacks)
    # All positions come from the pattern, so no bounds check is needed.
    if size <= _LARGEST:
        source = jnp.concatenate([stack.reshape(-1) for stack in stacks])
        if len(at) == size and np.array_equal(at, np.arange(len(at))):
            return source
        return source.at[at.astype(np.int32)].get(mode="promise_in_bounds")

    # A flat position would be cut off at 32 bits: one position for each of two axes instead.
    first = 0
    data = jnp.zeros(len(at), stacks[0].dtype)
    for stack in stacks:
        here = np.flatnonzero((at >= first) & (at < first + stack.size))
        rows = stack.reshape(len(stack), -1)
        row, column = np.divmod(at[here] - first, max(rows.shape[1], 1))
        found = rows.at[row.astype(np.int32), column.astype(np.int32)]
        data = data.at[here].set(
            found.get(mode="promise_in_bounds"), unique_indices=True, indices_are_sorted=True
        )
        first += stack.size
    return data


def _sparse(data: object, here: _Block, out: Shape, taken: Shape) -> Any:
    shape = (*out, *taken)
    flat = here.rows * math.prod(taken) + here.columns
    indices = np.stack(np.unravel_index(flat, shape), -1) if shape else np.zeros((len(flat), 0))
    return bcoo()(
        (data, jnp.asarray(indices, np.int32)),
        shape=shape,
        indices_sorted=True,
        unique_indices=True,
    )


def _placed(data: Any, here: _Block, out: Shape, taken: Shape, elsewhere: Callable[[], Any]) -> Any:
    shape, size, wide = (*out, *taken), math.prod(out), math.prod(taken)
    if len(data) == size * wide:
        return data.reshape(shape)
    # Elements outside of the pattern are 0, or NaN where the pass was not finite.
    rest = jnp.broadcast_to(elsewhere().astype(data.dtype), (size, wide))
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
        data, unique_indices=True, indices_are_sorted=True, mode="promise_in_bounds"
    )
    return rest.reshape(shape)


def _elsewhere(stack: Any, *, forward: bool) -> Any:
    """Values outside of the pattern: 0 or NaN for each row of results, or column of arguments in
    reverse.

    A direction gives a row sums of derivatives on the way times 0 or 1: NaN if one of these is
    infinite or NaN, as in a plain Jacobian. The pattern counts known factors of 0 as no dependence,
    so any direction that gives no finite number may hold such an element.
    """
    odd = ~jnp.isfinite(stack.reshape(len(stack), -1)).all(axis=0)
    rest = jnp.where(odd, jnp.asarray(np.nan, stack.dtype), jnp.zeros((), stack.dtype))
    return rest[:, None] if forward else rest[None]
