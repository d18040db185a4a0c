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

import jax
import jax.numpy as jnp

from .._axes import Refused, is_symbolic, shared_choice
from .._host.own_time import OWN_TIME
from .._jax.typed import Array
from .colours.colouring import Colouring, scheme_by, scheme_of
from .colours.modes import REVERSE, Mode, PassMode
from .compressed import Blocks
from .directions import AbstractLeaves, Leaves, Linearized, Shape, ends_of
from .jacobian_mode import WORTH, JacobianResult, in_place, possible, run_of, shape_text
from .pattern import Pattern
from .typed_numpy import Ints, np

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
    def direction_shapes(self) -> Sequence[Shape]:
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
        colours: Colour of each element of `direction_shapes`; -1 for none.
        owners: For each direction and each element of `lines`, the element of
            `direction_shapes` that the entry belongs to; -1 for none.
        apart: Index of each element of `lines` among those that were taken out; -1 for none.
        apart_owners: Like `owners`, for the single directions of the other mode.
    """

    colours: list[Array]
    owners: list[Array]
    apart: list[Array]
    apart_owners: list[Array]


def coloured_jacobian(
    fn: Callable[[Leaves], Leaves],
    at: Leaves,
    mode: Mode,
    ways: tuple[PassMode, ...],
) -> JacobianResult | None:
    """Jacobian of a function of lists of arrays, in a trace that holds for all sizes of a bucket.

    None if colouring is not chosen.

    Raises:
        Refused: At the size of this trace it takes more passes than were chosen.
    """
    with OWN_TIME.running():
        form = shared_choice(
            lambda: _wish(fn, at, mode, ways),
            lambda wishes: _form(wishes, mode),
        )
    if form is None:
        return None
    forward = form.by == "forward" or form.apart > 0
    linearized = Linearized.of(fn, at, forward=forward)

    # The trace at a known size gets real tables. The symbolic one gets stand-ins of the same
    # shapes.
    shapes = [tuple(leaf.shape) for leaf in (*at, *linearized.out)]
    symbol = next((dim for shape in shapes for dim in shape if is_symbolic(dim)), None)
    with OWN_TIME.running():
        if symbol is None:
            tables = _tables(form, _wish(fn, at, "coloured", ways))
        else:
            tables = _stand_ins(form, symbol)
    value, blocks = _blocks(linearized, form, tables)
    return JacobianResult(value, blocks, "coloured", form.why)


def _wish(
    fn: Callable[[Leaves], Leaves],
    at: Leaves,
    mode: Mode,
    ways: tuple[PassMode, ...],
) -> _Wish | None:
    """Pattern and modes at one size; None if dense passes are cheap, or no pattern is found.

    Known floats are not used here: the program of the bucket may decide by them in another way.
    """
    traced, out = jax.make_jaxpr(fn, return_shape=True)(list(at))
    ways, _ = possible(traced, ways)
    ins = [tuple(leaf.shape) for leaf in at]
    outs = [tuple(leaf.shape) for leaf in out]
    if in_place(traced) or not all(math.prod(shape) for shape in (*ins, *outs)):
        return None

    if mode == "auto" and _dense(ways, _size(ins), _size(outs)) <= _CHEAP:
        return None
    linearized = Linearized.of(run_of(traced), at, forward="forward" in ways)
    pattern = linearized.pattern()
    if pattern is None or not pattern.count:
        return None
    return _Wish(pattern, ins, outs, ways)


def _size(shapes: Sequence[Shape]) -> int:
    """Number of elements of arrays of these shapes."""
    return sum(map(math.prod, shapes))


def _dense(ways: Sequence[PassMode], taken: int, made: int) -> int:
    """Cost of the dense passes, in forward passes."""
    costs: dict[PassMode, int] = {
        "forward": taken,
        "reverse": REVERSE * made,
    }
    return min(costs[way] for way in ways)


def _form(wishes: Sequence[_Wish], mode: Mode) -> _Form | None:
    """Choose the number of passes.

    None if dense passes are cheaper, or if the shapes do not tell the sizes apart.
    """
    largest, *smaller = wishes
    shapes = (largest.ins, largest.outs)
    if all((wish.ins, wish.outs) == shapes for wish in smaller):
        return None
    if any(wish.ways != largest.ways for wish in smaller):
        return None

    pattern = largest.pattern
    costs = _dense(largest.ways, pattern.columns, pattern.size)
    limit = WORTH * costs if mode == "auto" else math.inf
    scheme = scheme_of(pattern, largest.ways, limit)
    if scheme is None:
        return None

    apart = len(scheme.apart)
    # The mode is chosen at the largest size; the other sizes are coloured in the same form.
    counts = [scheme.count]
    for wish in smaller:
        other = scheme_by(wish.pattern, scheme.by, apart, math.inf)
        if other is not None:
            counts.append(other.count)
    # If the counts differ among the rehearsed sizes, another size may take one more.
    differ = len(set(counts)) > 1
    most = max(counts) + differ

    chosen = Colouring(scheme.by, scheme.colours, most, scheme.apart)
    if chosen.cost > limit:
        return None

    part = (
        f"{pattern.count} of {pattern.size * pattern.columns} elements are not zero at the largest"
        f" size{shape_text(pattern, scheme)}"
    )
    plain = (
        f"{pattern.columns} forward passes or {pattern.size} backward ones, of about {REVERSE} each"
    )
    why = (
        f"{chosen.text} at each size, which is traced once for its structure: {part}; without that"
        f" {plain}"
    )
    return _Form(scheme.by, most, apart, largest.ins, largest.outs, why)


def _tables(form: _Form, wish: _Wish | None) -> _Tables:
    """Tables of a known size.

    Raises:
        Refused: The pattern at this size takes more passes than were chosen.
    """
    scheme: Colouring | None = None
    if wish is not None:
        scheme = scheme_by(wish.pattern, form.by, form.apart, form.count)
    if wish is None or scheme is None:
        raise Refused(
            "",
            f"has a Jacobian of another structure at this size, which takes more than {form.count}"
            " passes",
        )
    if form.by == "forward":
        pattern = wish.pattern
        along, lines = wish.ins, wish.outs
    else:
        pattern = wish.pattern.transpose
        along, lines = wish.outs, wish.ins

    # Positions in arrays of this size, translated to arrays of the largest.
    cross_places = _places(along, form.direction_shapes)
    line_places = _places(lines, form.lines)
    apart = np.full(pattern.size, -1)
    apart[scheme.apart] = np.arange(len(scheme.apart))

    # Within one direction no two columns share a row, so each entry has one owner.
    owners = np.full((form.count, _size(form.lines)), -1)
    apart_owners = np.full((form.apart, _size(form.direction_shapes)), -1)
    line, cross = pattern.rows, pattern.indices
    is_single = apart[line] >= 0
    coloured_line, coloured_cross = line[~is_single], cross[~is_single]
    directions = scheme.colours[coloured_cross]
    owners[directions, line_places[coloured_line]] = cross_places[coloured_cross]

    single_line, single_cross = line[is_single], cross[is_single]
    directions = apart[single_line]
    apart_owners[directions, cross_places[single_cross]] = line_places[single_line]

    colours = _scatter_values(scheme.colours, cross_places, form.direction_shapes)
    taken_out = _scatter_values(apart, line_places, form.lines)
    return _Tables(
        _split(colours, form.direction_shapes),
        _split(owners, form.lines),
        _split(taken_out, form.lines),
        _split(apart_owners, form.direction_shapes),
    )


def _places(shapes: Sequence[Shape], largest: Sequence[Shape]) -> Ints:
    """Flat positions, in larger arrays, of the elements of arrays that are leading parts of
    them.
    """
    parts: list[Ints] = []
    start = 0
    for shape, whole in zip(shapes, largest, strict=True):
        size = math.prod(whole)
        positions = start + np.arange(size).reshape(whole)
        leading = tuple(map(slice, shape))
        parts.append(positions[leading].reshape(-1))
        start += size
    return np.concatenate(parts)


def _scatter_values(values: Ints, places: Ints, largest: Sequence[Shape]) -> Ints:
    whole = np.full(_size(largest), -1)
    whole[places] = values
    return whole


def _split(table: Ints, shapes: Sequence[Shape]) -> list[Array]:
    """Split a table of flat elements into one table for each array."""
    before = table.shape[:-1]
    tables: list[Array] = []
    start = 0
    for shape in shapes:
        stop = start + math.prod(shape)
        part = table[..., start:stop].reshape((*before, *shape))
        tables.append(part.astype(np.int32))
        start = stop
    return tables


def _stand_ins(form: _Form, symbol: object) -> _Tables:
    """Arrays computed from the size, in place of tables that the host computes from it."""

    def stand_in(shape: Shape) -> Array:
        size = max(math.prod(shape), 1)
        # The symbol makes it an array of the size: a plain `iota` would be the same at all sizes.
        counted = jax.lax.iota(np.int32, size).reshape(shape)
        number = jnp.asarray(symbol, np.int32)
        return jax.lax.add(counted, jax.lax.broadcast(number, shape))

    def stand_ins(shapes: Sequence[Shape], *before: int) -> list[Array]:
        return [stand_in((*before, *shape)) for shape in shapes]

    apart = stand_ins(form.lines) if form.apart else []
    colours = stand_ins(form.direction_shapes)
    owners = stand_ins(form.lines, form.count)
    apart_owners = stand_ins(form.direction_shapes, form.apart) if form.apart else []
    return _Tables(colours, owners, apart, apart_owners)


# Below: the Jacobian, traced alike at a symbolic size and at a known one.


def _blocks(
    linearized: Linearized,
    form: _Form,
    tables: _Tables,
) -> tuple[Leaves, Blocks]:
    forward = form.by == "forward"
    if forward:
        along, across = linearized.at, linearized.out
        first, second = linearized.push_tangents, linearized.pull_cotangents
    else:
        along, across = linearized.out, linearized.at
        first, second = linearized.pull_cotangents, linearized.push_tangents

    coloured_directions = list(_directions(tables.colours, along, form.count))
    value, stacks = first(coloured_directions, None)
    owners = _leads(tables.owners, stacks)
    others: Leaves = []
    apart_owners: list[Array] = []
    if form.apart:
        single_directions = list(_directions(tables.apart, across, form.apart))
        _, others = second(single_directions, None)
        apart_owners = _leads(tables.apart_owners, others)
    ends = ends_of(form.direction_shapes)
    line_ends = ends_of(form.lines)

    def block(o: int, i: int) -> object:
        mine, cross = (o, i) if forward else (i, o)
        stack = stacks[mine]
        # Start from the values outside of the pattern, then scatter the entries of the coloured
        # stack and those of the single directions.
        whole = _rest(stack, tuple(along[cross].shape), forward=forward)
        whole = _scatter_stack(
            whole,
            stack,
            owners[mine],
            form.direction_shapes[cross],
            int(ends[cross]),
            lines_first=forward,
        )
        if form.apart:
            other = others[cross].astype(stack.dtype)
            whole = _scatter_stack(
                whole,
                other,
                apart_owners[cross],
                form.lines[mine],
                int(line_ends[mine]),
                lines_first=not forward,
            )
        return jax.lax.squeeze(whole, (0,))

    rows = range(len(linearized.out))
    columns = range(len(linearized.at))
    return value, [[block(o, i) for i in columns] for o in rows]


def _leads(tables: Sequence[Array], stacks: Leaves) -> list[Array]:
    return [_lead(table, stack.shape) for table, stack in zip(tables, stacks, strict=True)]


def _directions(
    tables: Sequence[Array],
    leaves: AbstractLeaves,
    count: int,
) -> Iterator[jax.Array]:
    """Stacks of directions: direction i is the sum of all elements with table entry i."""
    for table, leaf in zip(tables, leaves, strict=True):
        shape = (count, *leaf.shape)
        numbers = jax.lax.broadcasted_iota(np.int32, shape, 0)
        entries = _lead(table, leaf.shape)
        axes = range(1, len(shape))
        of_directions = jax.lax.broadcast_in_dim(entries, shape, axes)
        yield jax.lax.eq(numbers, of_directions).astype(leaf.dtype)


def _lead(table: Array, shape: Shape) -> Array:
    """Leading part of a table, in the shape of an array at the size of the trace."""
    if not len(shape):
        return table
    origin = (0,) * len(shape)
    return jax.lax.slice(table, origin, tuple(shape))


def _rest(stack: jax.Array, cross: Shape, *, forward: bool) -> jax.Array:
    """Values outside of the pattern, as in `compressed.py`: 0, or NaN where a direction is not
    finite.

    The result has one more axis in front.
    """
    odd = jax.lax.reduce_or(~jnp.isfinite(stack), axes=(0,))
    nan = jax.lax.full_like(odd, np.nan, stack.dtype)
    zero = jax.lax.full_like(odd, 0, stack.dtype)
    rest = jax.lax.select(odd, nan, zero)

    lines = odd.shape
    if forward:
        shape = (1, *lines, *cross)
        first = 1
    else:
        shape = (1, *cross, *lines)
        first = 1 + len(cross)
    axes = range(first, first + len(lines))
    return jax.lax.broadcast_in_dim(rest, shape, axes)


def _scatter_stack(
    whole: jax.Array,
    stack: jax.Array,
    owners: Array,
    cross: Shape,
    start: int,
    *,
    lines_first: bool,
) -> jax.Array:
    """Scatter the elements of a stack to where their direction and their owner meet.

    Elements without an owner are dropped.
    """
    local = owners - np.int32(start)
    size = math.prod(cross)
    here = (local >= 0) & (local < size)
    line_axes = range(1, len(stack.shape))
    of_line = [jax.lax.broadcasted_iota(np.int32, stack.shape, axis) for axis in line_axes]

    # Unravel the owner into its indices.
    of_cross: list[jax.Array] = []
    stride = size
    for length in cross:
        stride //= length
        outer = jax.lax.div(local, jax.lax.full_like(local, stride))
        index = jax.lax.rem(outer, jax.lax.full_like(local, length))
        of_cross.append(index)
    # The extra leading axis has size 1: index 0 writes, `_NOWHERE` drops.
    writes = jax.lax.full_like(local, 0)
    drops = jax.lax.full_like(local, _NOWHERE)
    leading = jax.lax.select(here, writes, drops)

    inner = (*of_line, *of_cross) if lines_first else (*of_cross, *of_line)
    places = whole.at[(leading, *inner)]
    return places.set(stack, mode="drop", wrap_negative_indices=False)
