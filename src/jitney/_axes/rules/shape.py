"""Operations that move elements without reading their values: some leave the valid part in front,
for the others the rule moves it there.

Each rule keeps the invariant of `interpreter.py`: the valid elements come first along each ragged
axis.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import jax
import numpy as np

from ..._jax.typed import Values
from ..carriers.positions import Gather
from ..dims import Dim, evaluate, extent, is_countable, is_ragged, is_symbolic, symbols
from ..interpreter import Op, PaddedInterpreter, Ranges, ragged_axes, take
from ..refusal import Refused
from ..rule import (
    POINTWISE,
    Rule,
    Use,
    evaluate_unchanged,
    no_uses,
    ragged_dims,
    refuse,
    use,
)
from ..typed_jax import jnp, lax
from .indexing.fixed_windows import begin, fit_window, is_fixed_window, shift_down

# Broadcast, iota and sizes.


def _broadcast(walk: PaddedInterpreter, op: Op, values: Values) -> Values:
    shape = walk.shape(op.params["shape"])
    return walk.bind(op, values[:1], shape=shape)


def _iota(walk: PaddedInterpreter, op: Op, values: Values) -> Values:
    axis = op.params["dimension"]
    start = walk.start_of(op.outs[0][axis])
    shape = walk.shape(op.params["shape"])
    if start is None:
        return walk.bind(op, [], shape=shape)
    positions = lax.broadcasted_iota(np.int32, shape, axis)
    begins = lax.full(shape, lax.convert_element_type(start, np.int32))
    whole = lax.add(positions, begins)
    # Add in int32 and convert last: a low float type would round the start, the positions and their
    # sum.
    (out,) = op.eqn.outvars
    return [lax.convert_element_type(whole, out.aval.dtype)]


def _empty(walk: PaddedInterpreter, op: Op, values: Values) -> Values:
    shape = walk.shape(op.params["shape"])
    return walk.bind(op, values, shape=shape)


def _size_as_value(
    walk: PaddedInterpreter,
    op: Op,
    values: Values,
) -> Values:
    (out,) = op.eqn.outvars
    size = evaluate(op.params["dim"], walk.whole)
    value = jnp.asarray(size, np.int32)
    return [lax.convert_element_type(value, out.aval.dtype)]


NUMBER_OF_SIZE = "number_of_size"
"""The placeholder of a value that Python computes from the sizes: `symbolic/number_of_size.py`."""


def _uses_of_number(op: Op) -> Iterator[Use]:
    dims = ragged_dims(op.outs[0])
    if dims:
        yield use(op, dims, "gathered", "an array that Python computes")


def _number(walk: PaddedInterpreter, op: Op, values: Values) -> Values:
    """Never reached where the number is known, which takes the place of its equation."""
    raise Refused(op.place, "has a number of the size that no trace at a known size shows")


# Reshape: axes are merged or split in groups of equal product, in row-major order. Where the
# symbolic axis is the slowest of its group, the padding stays last: (n, 3) -> (3 n). But (3, n) ->
# (3 n) would put some of it behind each of the three rows, so its elements are gathered.

Group = tuple[list[Dim], list[Dim]]
"""Axes before and after a reshape, with equal products of their sizes."""


def _groups(before: Sequence[Dim], after: Sequence[Dim]) -> list[Group] | None:
    """Factor a reshape into the shortest runs of axes with equal products, axes of size 1 left out;
    None if the shapes do not factor.
    """
    left = [dim for dim in before if is_ragged(dim) or dim != 1]
    right = [dim for dim in after if is_ragged(dim) or dim != 1]
    out: list[Group] = []
    i = j = 0
    while i < len(left) and j < len(right):
        a, b = [left[i]], [right[j]]
        i, j = i + 1, j + 1
        while not _is_equal(_product(a), _product(b)):
            # Symbolic products are not ordered, so both are compared at sizes larger than any fixed
            # one: the side with the smaller product needs another axis.
            if _probe(a) < _probe(b) and i < len(left):
                a.append(left[i])
                i += 1
            elif j < len(right):
                b.append(right[j])
                j += 1
            elif i < len(left):
                a.append(left[i])
                i += 1
            else:
                return None
        out.append((a, b))
    return out if i == len(left) and j == len(right) else None


def _product(dims: Sequence[Dim]) -> Dim:
    out: Dim = 1
    for dim in dims:
        out = out * dim
    return out


def _is_equal(a: Dim, b: Dim) -> bool:
    difference = a - b
    return not is_symbolic(difference) and difference == 0


class _Large(dict[str, int]):
    """Mapping of every symbol to a large size that depends on its name."""

    def __missing__(self, symbol: str) -> int:
        return 1_000_003 + 2 * sum(map(ord, symbol))


def _probe(dims: Sequence[Dim]) -> int:
    return _product([evaluate(dim, _Large()) for dim in dims])


def _leading(group: Group) -> bool:
    before, after = group
    if len(before) == len(after) == 1:
        return True
    return not any(map(is_ragged, before[1:] + after[1:]))


def _reshape_uses(op: Op) -> Iterator[Use]:
    before, after = op.ins[0], op.outs[0]
    groups = _groups(before, after)
    if op.params.get("dimensions") is not None or groups is None:
        dims = ragged_dims((*before, *after))
        yield refuse(op, dims, "reshapes it in a way that is not understood")
        return
    for group in groups:
        if _leading(group):
            continue
        before, after = group
        dims = ragged_dims(before + after)
        if is_countable(_product(before), op.ranges):
            yield use(op, dims, "gathered", "interleaved with another axis")
        else:
            yield refuse(op, dims, "interleaves it with more elements than 32 bits count")


def _reshape(walk: PaddedInterpreter, op: Op, values: Values) -> Values:
    (x,) = values
    before, after = op.ins[0], op.outs[0]
    shape = walk.shape(after)
    groups = _groups(before, after)
    if groups is None or all(map(_leading, groups)) or _is_full(walk, before):
        return [lax.reshape(x, shape, op.params.get("dimensions"))]
    x = lax.reshape(x, [_product(walk.shape(dims)) for dims, _ in groups])
    for axis, group in enumerate(groups):
        if not _leading(group):
            x = take(x, _interleaved(walk, group), axis)
    return [lax.reshape(x, shape)]


def _is_full(walk: PaddedInterpreter, dims: Sequence[Dim]) -> bool:
    return all(map(walk.is_full, ragged_dims(dims)))


def _interleaved(walk: PaddedInterpreter, group: Group) -> jax.Array:
    """Where the elements of a reshaped group of axes stand, among all that are allocated before.

    An element has the same number at exact size before and after. At 2 of 4 valid columns:

        a b - -   ->   a b c d - - - -   reads   0 1 4 5 ...
        c d - -
    """
    before, after = group
    shape = walk.shape(after)
    number = jnp.zeros(shape, np.int32)
    for axis, dim in enumerate(after):
        position = lax.broadcasted_iota(np.int32, shape, axis)
        number = number * walk.count(dim) + position
    place = jnp.zeros(shape, np.int32)
    step = 1
    # From the last axis on: what is left is the number among the axes in front.
    for dim in reversed(before[1:]):
        count = lax.max(walk.count(dim), np.int32(1))
        place = place + lax.rem(number, count) * np.int32(step)
        number = lax.div(number, count)
        step *= evaluate(dim, walk.allocated)
    place = place + number * np.int32(step)
    return lax.reshape(place, (_product(shape),))


# Reverse, concatenate, pad, slice: elements change places along the axis.


def _rev_uses(op: Op) -> Iterator[Use]:
    dims = ragged_dims(op.ins[0][axis] for axis in op.params["dimensions"])
    if dims:
        yield use(op, dims, "gathered", "reversed")


def _rev(walk: PaddedInterpreter, op: Op, values: Values) -> Values:
    (x,), dims = values, op.ins[0]
    reversed_axes = op.params["dimensions"]
    fixed = tuple(axis for axis in reversed_axes if not is_ragged(dims[axis]))
    if fixed:
        x = lax.rev(x, fixed)
    for axis in reversed_axes:
        if not is_ragged(dims[axis]):
            continue
        if walk.is_full(dims[axis]):
            x = lax.rev(x, (axis,))
        else:
            last = walk.count(dims[axis]) - 1
            steps = jnp.arange(x.shape[axis], dtype=np.int32)
            x = take(x, last - steps, axis)
    return [x]


def _concatenate_uses(op: Op) -> Iterator[Use]:
    axis = op.params["dimension"]
    dims = ragged_dims(part[axis] for part in op.ins)
    if dims:
        yield use(op, dims, "gathered", "concatenated")


def _concatenate(walk: PaddedInterpreter, op: Op, values: Values) -> Values:
    """Concatenate by writing each part over the padding of the one before it."""
    axis = op.params["dimension"]
    if not any(is_ragged(part[axis]) for part in op.ins[:-1]):
        return walk.bind(op, values)

    # `dynamic_update_slice` clamps a start that leaves no room. It never does so here: the valid
    # parts before are no longer than what is allocated for them.
    shape = walk.shape(op.outs[0])
    out = lax.full(shape, 0, values[0].dtype)
    at = np.int32(0)
    for part, dims in zip(values, op.ins, strict=True):
        out = lax.dynamic_update_slice_in_dim(out, part, at, axis)
        at = at + walk.count(dims[axis])
    return [out]


def _is_empty(dims: Sequence[Dim]) -> bool:
    return any(not is_ragged(dim) and dim == 0 for dim in dims)


def _pad_uses(op: Op) -> Iterator[Use]:
    dims = op.ins[0]
    if _is_empty(dims):
        return
    for dim, (low, high, interior) in zip(dims, op.params["padding_config"], strict=True):
        if is_ragged(interior) or (is_ragged(low) and not _is_in_front(low, op.ranges)):
            yield refuse(op, (dim, low, interior), "pads it by an amount that depends on its size")
            continue
        sizes = (dim, low, high)
        if any(map(is_ragged, sizes)) and (low, high, interior) != (0, 0, 0):
            yield use(op, sizes, "gathered", "padded")


def _is_in_front(low: Dim, ranges: Ranges) -> bool:
    """Return whether the low padding is never negative, and largest at the largest size."""
    own = {symbol: ranges[symbol] for symbol in symbols(low)}
    return extent(low).grows_from_zero(own)


def _pad(walk: PaddedInterpreter, op: Op, values: Values) -> Values:
    x, filler = values
    dims, out_dims = op.ins[0], op.outs[0]
    config = op.params["padding_config"]
    if _is_empty(dims):
        return [lax.broadcast(filler, walk.shape(out_dims))]
    for axis in ragged_axes(dims):
        if config[axis] != (0, 0, 0):
            inside = walk.inside(dims, axis)
            filled = lax.broadcast(filler, x.shape)
            x = lax.select(inside, x, filled)

    # `lax.pad` takes static amounts: high ones as of the allocated size, since more filler behind
    # is padding; low ones that are symbolic by a shift to a computed position.
    fixed: list[tuple[int, int, int]] = []
    for low, high, interior in config:
        static = 0 if is_ragged(low) else low
        fixed.append((static, evaluate(high, walk.allocated), interior))
    x = lax.pad(x, filler, tuple(fixed))

    for axis, (low, _, _) in enumerate(config):
        if is_ragged(low):
            (size,) = walk.shape([out_dims[axis]])
            x = _place_at(x, axis, walk.count(low), size, filler)
    return [x]


def _place_at(
    x: jax.Array,
    axis: int,
    at: jax.Array,
    size: int,
    filler: jax.Array,
) -> jax.Array:
    """Place `x` at a position along an axis of a given size, with a filler around it."""
    # Longer by `x` than the result, or `dynamic_update_slice` would clamp the position; what
    # reaches over the end is cut off.
    shape = list(x.shape)
    shape[axis] += size
    starts: list[object] = [np.int32(0)] * x.ndim
    starts[axis] = at
    room = lax.full(shape, filler, x.dtype)
    placed = lax.dynamic_update_slice(room, x, starts)
    return lax.slice_in_dim(placed, 0, size, axis=axis)


def _slice_uses(op: Op) -> Iterator[Use]:
    dims, params = op.ins[0], op.params
    strides = params["strides"] or (1,) * len(dims)
    axes = zip(dims, params["start_indices"], params["limit_indices"], strides, strict=True)
    for dim, start, limit, stride in axes:
        if not any(map(is_ragged, (dim, start, limit))):
            continue
        if is_ragged(stride):
            yield refuse(op, (dim, stride), "strides over it by its size")
            continue
        # Each element is read alone, as in a gather: see `rules/indexing/gather.py`.
        if is_fixed_window(dim, limit) and not is_ragged(start):
            continue
        from_start = not is_ragged(start) and start == 0
        is_whole = from_start and stride == 1 and str(limit) == str(dim)
        if not is_whole:
            yield use(op, (dim, start, limit), "gathered", "sliced")


def _slice(walk: PaddedInterpreter, op: Op, values: Values) -> Values:
    (x,) = values
    strides = op.params["strides"] or (1,) * x.ndim
    axes = zip(op.params["start_indices"], strides, strict=True)
    for axis, (start, stride) in enumerate(axes):
        window = op.outs[0][axis]
        (size,) = walk.shape([window])
        if is_fixed_window(op.ins[0][axis], window) and not is_ragged(start):
            x = _slice_window(walk, x, start, stride, window, axis)
        elif is_ragged(start):
            steps = jnp.arange(size, dtype=np.int32) * np.int32(stride)
            x = take(x, walk.count(start) + steps, axis)
        elif start != 0 or stride != 1 or size != x.shape[axis]:
            behind = start
            if size:
                last = start + (size - 1) * stride
                behind = min(last + 1, x.shape[axis])
            x = lax.slice_in_dim(x, start, behind, stride, axis)
    return [x]


def _slice_window(
    walk: PaddedInterpreter,
    x: jax.Array,
    start: int,
    stride: int,
    window: Dim,
    axis: int,
) -> jax.Array:
    """A slice of symbolic length of an axis of fixed length."""
    (size,) = walk.shape([window])
    if stride == 1:
        at = fit_window(walk, np.int32(start), x.shape[axis], window)
        x = lax.dynamic_slice_in_dim(x, at.first, at.length, axis)
        return shift_down(x, at.shift, size, axis)
    numbers = begin(walk, window) + jnp.arange(size, dtype=np.int32)
    return take(x, np.int32(start) + numbers * np.int32(stride), axis)


def _split_uses(op: Op) -> Iterator[Use]:
    dims = ragged_dims(op.params["sizes"])
    if dims and len(op.params["sizes"]) > 1:
        yield use(op, dims, "gathered", "split")


def _split(walk: PaddedInterpreter, op: Op, values: Values) -> Values:
    (x,) = values
    axis, sizes = op.params["axis"], op.params["sizes"]
    if len(sizes) == 1:
        return [x]
    # Only another axis is symbolic: XLA's slices are views, where gathers are copies.
    if not any(map(is_ragged, sizes)):
        return walk.bind(op, values)
    out: Values = []
    at = np.int32(0)
    for size in sizes:
        (length,) = walk.shape([size])
        steps = jnp.arange(length, dtype=np.int32)
        out.append(take(x, at + steps, axis))
        at = at + walk.count(size)
    return out


def _unstack_uses(op: Op) -> Iterator[Use]:
    dim = op.ins[0][op.params["axis"]]
    if is_ragged(dim):
        yield refuse(op, dim, "takes it apart")


def _tile_uses(op: Op) -> Iterator[Use]:
    axes = zip(op.ins[0], op.params["reps"], strict=True)
    dims = [dim for dim, times in axes if is_ragged(dim) and str(times) != "1"]
    if dims:
        yield use(op, dims, "gathered", "repeated")


def _tile(walk: PaddedInterpreter, op: Op, values: Values) -> Values:
    (x,) = values
    for axis, times in enumerate(op.params["reps"]):
        if str(times) != "1":
            size = evaluate(op.outs[0][axis], walk.allocated)
            positions = jnp.arange(size, dtype=np.int32)
            count = walk.count(op.ins[0][axis])
            period = lax.broadcast(count, positions.shape)
            x = take(x, lax.rem(positions, period), axis)
    return [x]


RULES: dict[str, Rule] = {
    "broadcast_in_dim": Rule(no_uses, _broadcast, makes=True),
    "iota": Rule(no_uses, _iota, makes=True),
    "empty": Rule(no_uses, _empty, makes=True),
    "dim_as_value": Rule(no_uses, _size_as_value),
    NUMBER_OF_SIZE: Rule(_uses_of_number, _number),
    "reshape": Rule(_reshape_uses, _reshape, at_once=True, at_size=True),
    "squeeze": POINTWISE,
    "expand_dims": POINTWISE,
    "transpose": POINTWISE,
    "rev": Rule(_rev_uses, _rev, at_once=True),
    "concatenate": Rule(_concatenate_uses, _concatenate, at_once=True),
    "pad": Rule(_pad_uses, _pad, at_once=True),
    "slice": Rule(_slice_uses, _slice, Gather(), at_once=True, makes=True),
    "split": Rule(_split_uses, _split, at_once=True),
    "stack": POINTWISE,
    "unstack": Rule(_unstack_uses, evaluate_unchanged),
    "tile": Rule(_tile_uses, _tile, at_once=True, makes=True),
}
