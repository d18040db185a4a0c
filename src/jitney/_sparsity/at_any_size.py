"""Coloured Jacobians in a program that serves all sizes of a bucket: the colours are data of its
calls.

A trace with symbolic sizes has no sparsity pattern. So the function is rehearsed at some sizes,
which decides the number of passes. At each size that is called, the pattern is read off the
function at that size, as without padding, and its tables are passed to the program. In the symbolic
program the tables are stand-ins: arrays of the bucket's shape computed from the size, which the
witness identifies with these tables. Entries of a table beyond the true size are -1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from .._axes import Refused, is_symbolic, shared_choice
from .._own_time import OWN_TIME
from .colours.colouring import Colouring, scheme_by, scheme_of
from .colours.modes import REVERSE, Mode, PassMode
from .directions import Leaves, Linearized, Shape
from .jacobian_mode import WORTH, JacobianResult, in_place, possible, run_of, shaped
from .pattern import Pattern
from .typed_numpy import np

# So many dense passes cost less than a trace of each size.
_CHEAP = 128
# Out of bounds, so that a scatter with mode="drop" drops what is written there.
_NOWHERE = 2**30


@dataclass(frozen=True)
class _Wish:
    """Jacobian at one size: its pattern, its shapes, and the possible modes."""

    pattern: Pattern
    ins: Sequence[Shape]
    outs: Sequence[Shape]
    ways: tuple[PassMode, ...]


@dataclass(frozen=True)
class _Form:
    """Form of a coloured Jacobian, the same at all sizes.

    Args:
        by: Mode of the coloured directions: of the arguments ("forward") or of the results
            ("reverse").
        count: Number of coloured directions.
        apart: Number of dense rows (or columns) that take single directions of the other mode.
        ins: Shapes of the arguments at the largest size.
        outs: Shapes of the results at the largest size.
        why: Reason for a line of the plan.
    """

    by: PassMode
    count: int
    apart: int
    ins: Sequence[Shape]
    outs: Sequence[Shape]
    why: str

    @property
    def along(self) -> Sequence[Shape]:
        """Shapes of the arrays that coloured directions belong to."""
        return self.ins if self.by == "forward" else self.outs

    @property
    def lines(self) -> Sequence[Shape]:
        """Shapes of the arrays that a direction gives."""
        return self.outs if self.by == "forward" else self.ins


@dataclass(frozen=True)
class _Tables:
    """Colours of one size, in arrays of the shapes of the largest.

    Args:
        colours: Colour of each element of `along`; -1 for none.
        owners: For each direction and each element of `lines`, the element of `along` that the
            entry belongs to; -1 for none.
        apart: Index of each element of `lines` among those that were taken out; -1 for none.
        apart_owners: Like `owners`, for the single directions of the other mode.
    """

    colours: list[Any]
    owners: list[Any]
    apart: list[Any]
    apart_owners: list[Any]


def coloured(
    fn: Callable[[Leaves], Leaves], at: Leaves, mode: Mode, ways: tuple[PassMode, ...]
) -> JacobianResult | None:
    """Jacobian of a function of lists of arrays, in a trace that holds for all sizes of a bucket.

    None if colouring is not chosen.

    Raises:
        Refused: At the size of this trace it takes more passes than were chosen.
    """
    with OWN_TIME.running():
        form = shared_choice(lambda: _wish(fn, at, mode, ways), lambda wishes: _form(wishes, mode))
    if form is None:
        return None
    linearized = Linearized.of(fn, at, forward=form.by == "forward" or form.apart > 0)
    shapes = [tuple(leaf.shape) for leaf in (*at, *linearized.out)]

    # The trace at a known size gets real tables. The symbolic one gets stand-ins of the same
    # shapes.
    symbol = next((dim for shape in shapes for dim in shape if is_symbolic(dim)), None)
    with OWN_TIME.running():
        tables = (
            _tables(form, _wish(fn, at, "coloured", ways))
            if symbol is None
            else _stand_ins(form, symbol)
        )
    return JacobianResult(*_blocks(linearized, form, tables), "coloured", form.why)


def _wish(
    fn: Callable[[Leaves], Leaves], at: Leaves, mode: Mode, ways: tuple[PassMode, ...]
) -> _Wish | None:
    """Pattern and modes at one size; None if dense passes are cheap, or no pattern is found.

    Known floats are not used here: the program of the bucket may decide by them in another way.
    """
    traced, out = jax.make_jaxpr(fn, return_shape=True)(list(at))
    ways, _ = possible(traced, ways)
    shapes = [[tuple(leaf.shape) for leaf in leaves] for leaves in (at, out)]
    sizes = [sum(map(math.prod, leaves)) for leaves in shapes]
    if in_place(traced) or not all(math.prod(shape) for leaves in shapes for shape in leaves):
        return None
    if mode == "auto" and _dense(ways, *sizes) <= _CHEAP:
        return None
    pattern = Linearized.of(run_of(traced), at, forward="forward" in ways).pattern()
    return (
        None if pattern is None or not pattern.count else _Wish(pattern, shapes[0], shapes[1], ways)
    )


def _dense(ways: Sequence[PassMode], taken: int, made: int) -> int:
    """Cost of the dense passes, in forward passes."""
    return min(taken if way == "forward" else REVERSE * made for way in ways)


def _form(wishes: Sequence[_Wish], mode: Mode) -> _Form | None:
    """Choose the number of passes.

    None if dense passes are cheaper, or if the shapes do not tell the sizes apart.
    """
    largest = wishes[0]
    if all((wish.ins, wish.outs) == (largest.ins, largest.outs) for wish in wishes[1:]) or {
        wish.ways for wish in wishes
    } != {largest.ways}:
        return None

    pattern, costs = (
        largest.pattern,
        _dense(largest.ways, largest.pattern.columns, largest.pattern.size),
    )
    limit = WORTH * costs if mode == "auto" else math.inf
    scheme = scheme_of(pattern, largest.ways, limit)
    if scheme is None:
        return None

    apart = len(scheme.apart)
    # The mode is chosen at the largest size; the other sizes are coloured in the same form.
    others = [scheme_by(wish.pattern, scheme.by, apart, math.inf) for wish in wishes[1:]]
    counts = [scheme.count, *(other.count for other in others if other is not None)]
    # If the counts differ among the rehearsed sizes, another size may take one more.
    most = max(counts) + (len(set(counts)) > 1)

    made = Colouring(scheme.by, scheme.colours, most, scheme.apart)
    if made.cost > limit:
        return None

    part = (
        f"{pattern.count} of {pattern.size * pattern.columns} elements are not zero at the largest"
        f" size{shaped(pattern, scheme)}"
    )
    plain = (
        f"{pattern.columns} forward passes or {pattern.size} backward ones, of about {REVERSE} each"
    )
    why = (
        f"{made.text} at each size, which is traced once for its structure: {part}; without that"
        f" {plain}"
    )
    return _Form(scheme.by, most, apart, largest.ins, largest.outs, why)


def _tables(form: _Form, wish: _Wish | None) -> _Tables:
    """Tables of a known size.

    Raises:
        Refused: The pattern at this size takes more passes than were chosen.
    """
    scheme = None if wish is None else scheme_by(wish.pattern, form.by, form.apart, form.count)
    if wish is None or scheme is None:
        raise Refused(
            "",
            f"has a Jacobian of another structure at this size, which takes more than {form.count}"
            " passes",
        )
    forward = form.by == "forward"
    pattern = wish.pattern if forward else wish.pattern.transposed
    along, lines = (wish.ins, wish.outs) if forward else (wish.outs, wish.ins)

    # Positions in arrays of this size, translated to arrays of the largest.
    cross_places, line_places = _places(along, form.along), _places(lines, form.lines)
    apart = np.full(pattern.size, -1)
    apart[scheme.apart] = np.arange(len(scheme.apart))

    # Within one direction no two columns share a row, so each entry has one owner.
    owners = np.full((form.count, sum(map(math.prod, form.lines))), -1)
    apart_owners = np.full((form.apart, sum(map(math.prod, form.along))), -1)
    line, cross = pattern.rows, pattern.indices
    single = apart[line] >= 0
    owners[scheme.colours[cross[~single]], line_places[line[~single]]] = cross_places[
        cross[~single]
    ]
    apart_owners[apart[line[single]], cross_places[cross[single]]] = line_places[line[single]]
    return _Tables(
        _split(_spread(scheme.colours, cross_places, form.along), form.along),
        _split(owners, form.lines),
        _split(_spread(apart, line_places, form.lines), form.lines),
        _split(apart_owners, form.along),
    )


def _places(shapes: Sequence[Shape], largest: Sequence[Shape]) -> Any:
    """Flat positions, in larger arrays, of the elements of arrays that are leading parts of
    them.
    """
    parts: list[Any] = []
    start = 0
    for shape, whole in zip(shapes, largest, strict=True):
        size = math.prod(whole)
        parts.append((start + np.arange(size).reshape(whole)[tuple(map(slice, shape))]).reshape(-1))
        start += size
    return np.concatenate(parts)


def _spread(values: object, places: object, largest: Sequence[Shape]) -> Any:
    whole = np.full(sum(map(math.prod, largest)), -1)
    whole[places] = values
    return whole


def _split(table: Any, shapes: Sequence[Shape]) -> list[Any]:
    """Split a table of flat elements into one table for each array."""
    ends = np.cumsum([0, *map(math.prod, shapes)])
    parts = zip(shapes, ends, ends[1:], strict=False)
    return [
        table[..., start:stop].reshape((*table.shape[:-1], *shape)).astype(np.int32)
        for shape, start, stop in parts
    ]


def _stand_ins(form: _Form, symbol: object) -> _Tables:
    """Arrays computed from the size, in place of tables that the host computes from it."""

    def stand_in(shape: Shape) -> Any:
        counted = jax.lax.iota(np.int32, max(math.prod(shape), 1)).reshape(shape)
        return jax.lax.add(counted, jax.lax.broadcast(jnp.asarray(symbol, np.int32), shape))

    def stand_ins(shapes: Sequence[Shape], *before: int) -> list[Any]:
        return [stand_in((*before, *shape)) for shape in shapes]

    apart = stand_ins(form.lines) if form.apart else []
    return _Tables(
        stand_ins(form.along),
        stand_ins(form.lines, form.count),
        apart,
        stand_ins(form.along, form.apart) if form.apart else [],
    )


# Below: the Jacobian, traced alike at a symbolic size and at a known one.


def _blocks(linearized: Linearized, form: _Form, tables: _Tables) -> tuple[Leaves, list[list[Any]]]:
    forward = form.by == "forward"
    along, across = (linearized.at, linearized.out) if forward else (linearized.out, linearized.at)
    first, second = (
        (linearized.pushed, linearized.pulled)
        if forward
        else (linearized.pulled, linearized.pushed)
    )
    value, stacks = first(list(_directions(tables.colours, along, form.count)), None)
    owners = [_lead(table, stack.shape) for table, stack in zip(tables.owners, stacks, strict=True)]
    others: Leaves = []
    apart_owners: list[Any] = []
    if form.apart:
        others = second(list(_directions(tables.apart, across, form.apart)), None)[1]
        apart_owners = [
            _lead(table, stack.shape)
            for table, stack in zip(tables.apart_owners, others, strict=True)
        ]
    ends, line_ends = (
        np.cumsum([0, *map(math.prod, shapes)]) for shapes in (form.along, form.lines)
    )

    def block(o: int, i: int) -> Any:
        mine, cross = (o, i) if forward else (i, o)
        stack = stacks[mine]
        # Start from the values outside of the pattern, then scatter the entries of the coloured
        # stack and those of the single directions.
        whole = _rest(stack, tuple(along[cross].shape), forward=forward)
        whole = _written(
            whole, stack, owners[mine], form.along[cross], int(ends[cross]), lines_first=forward
        )
        if form.apart:
            other = others[cross].astype(stack.dtype)
            whole = _written(
                whole,
                other,
                apart_owners[cross],
                form.lines[mine],
                int(line_ends[mine]),
                lines_first=not forward,
            )
        return jax.lax.squeeze(whole, (0,))

    return value, [
        [block(o, i) for i in range(len(linearized.at))] for o in range(len(linearized.out))
    ]


def _directions(tables: Sequence[object], leaves: Leaves, count: int) -> Iterator[Any]:
    """Stacks of directions: direction i is the sum of all elements with table entry i."""
    for table, leaf in zip(tables, leaves, strict=True):
        shape = (count, *leaf.shape)
        numbers = jax.lax.broadcasted_iota(np.int32, shape, 0)
        yield jax.lax.eq(
            numbers, jax.lax.broadcast_in_dim(_lead(table, leaf.shape), shape, range(1, len(shape)))
        ).astype(leaf.dtype)


def _lead(table: Any, shape: Sequence[Any]) -> Any:
    """Leading part of a table, in the shape of an array at the size of the trace."""
    return jax.lax.slice(table, (0,) * len(shape), tuple(shape)) if len(shape) else table


def _rest(stack: Any, cross: Sequence[Any], *, forward: bool) -> Any:
    """Values outside of the pattern, as in `compressed.py`: 0, or NaN where a direction is not
    finite.

    The result has one more axis in front.
    """
    odd = jax.lax.reduce_or(~jnp.isfinite(stack), axes=(0,))
    rest = jax.lax.select(
        odd, jax.lax.full_like(odd, np.nan, stack.dtype), jax.lax.full_like(odd, 0, stack.dtype)
    )
    lines = odd.shape
    shape = (1, *lines, *cross) if forward else (1, *cross, *lines)
    first = 1 if forward else 1 + len(cross)
    return jax.lax.broadcast_in_dim(rest, shape, range(first, first + len(lines)))


def _written(
    whole: Any, stack: Any, owners: Any, cross: Shape, start: int, *, lines_first: bool
) -> Any:
    """Scatter the elements of a stack to where their direction and their owner meet.

    Elements without an owner are dropped.
    """
    local = owners - np.int32(start)
    size = math.prod(cross)
    here = (local >= 0) & (local < size)
    of_line = [
        jax.lax.broadcasted_iota(np.int32, stack.shape, axis) for axis in range(1, len(stack.shape))
    ]

    # Unravel the owner into its indices.
    of_cross: list[Any] = []
    stride = size
    for length in cross:
        stride //= length
        of_cross.append(
            jax.lax.rem(
                jax.lax.div(local, jax.lax.full_like(local, stride)),
                jax.lax.full_like(local, length),
            )
        )
    # The extra leading axis has size 1: index 0 writes, `_NOWHERE` drops.
    leading = jax.lax.select(here, jax.lax.full_like(local, 0), jax.lax.full_like(local, _NOWHERE))
    positions = (leading, *of_line, *of_cross) if lines_first else (leading, *of_cross, *of_line)
    return whole.at[positions].set(stack, mode="drop", wrap_negative_indices=False)
