"""Operations that move elements without reading their values: some leave the valid part in front,
for the others the rule moves it there.

Each rule keeps the invariant of `walk.py`: the valid elements come first along each ragged axis.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from ..dims import Dim, evaluate, extent, is_ragged, is_symbolic, symbols
from ..interpreter import Op, PaddedInterpreter, Ranges, ragged_axes, take
from ..rule import (
    POINTWISE,
    CarriedState,
    Rule,
    Use,
    evaluate_unchanged,
    no_uses,
    ragged_dims,
    refuse,
    use,
)
from ..typed_jax import jnp, lax

# Broadcast, iota and sizes.


def _broadcast(walk: PaddedInterpreter, op: Op, values: list[jax.Array]) -> list[Any]:
    return walk.bind(op, values[:1], shape=walk.shape(op.params["shape"]))


def _iota(walk: PaddedInterpreter, op: Op, values: list[jax.Array]) -> list[Any]:
    start = walk.start_of(op.outs[0][op.params["dimension"]])
    if start is None:
        return walk.bind(op, [], shape=walk.shape(op.params["shape"]))
    positions = lax.broadcasted_iota(
        np.int32, walk.shape(op.params["shape"]), op.params["dimension"]
    )
    whole = lax.add(positions, lax.full(positions.shape, lax.convert_element_type(start, np.int32)))
    # Add in int32 and convert last: a low float type would round the start, the positions and their
    # sum.
    return [lax.convert_element_type(whole, op.eqn.outvars[0].aval.dtype)]


def _empty(walk: PaddedInterpreter, op: Op, values: list[jax.Array]) -> list[Any]:
    return walk.bind(op, values, shape=walk.shape(op.params["shape"]))


def _size_as_value(walk: PaddedInterpreter, op: Op, values: list[jax.Array]) -> list[Any]:
    value = jnp.asarray(evaluate(op.params["dim"], walk.whole), np.int32)
    return [lax.convert_element_type(value, op.eqn.outvars[0].aval.dtype)]


# Reshape: axes are merged or split in groups of equal product, in row-major order. The symbolic
# axis must be the slowest of its group: (n, 3) -> (3 n) leaves the padding last, (3, n) -> (3 n)
# puts some of it behind each of the three rows.


def _groups(
    before: Sequence[Dim], after: Sequence[Dim]
) -> list[tuple[list[Dim], list[Dim]]] | None:
    """Factor a reshape into the shortest runs of axes with equal products, axes of size 1 left out;
    None if the shapes do not factor.
    """
    left = [dim for dim in before if is_ragged(dim) or dim != 1]
    right = [dim for dim in after if is_ragged(dim) or dim != 1]
    out: list[tuple[list[Dim], list[Dim]]] = []
    i = j = 0
    while i < len(left) and j < len(right):
        a, b = [left[i]], [right[j]]
        i, j = i + 1, j + 1
        while not _same(_product(a), _product(b)):
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


def _product(dims: Sequence[Dim]) -> Any:
    out: Any = 1
    for dim in dims:
        out = out * dim
    return out


def _same(a: Any, b: Any) -> bool:
    difference = a - b
    return not is_symbolic(difference) and difference == 0


class _Large(dict[str, int]):
    """Mapping of every symbol to a large size that depends on its name."""

    def __missing__(self, symbol: str) -> int:
        return 1_000_003 + 2 * sum(map(ord, symbol))


def _probe(dims: Sequence[Dim]) -> int:
    return _product([evaluate(dim, _Large()) for dim in dims])


def _leading(group: tuple[list[Dim], list[Dim]]) -> bool:
    before, after = group
    return len(before) == len(after) == 1 or not any(
        is_ragged(dim) for dims in group for dim in dims[1:]
    )


def _reshape_uses(op: Op) -> Iterator[Use]:
    before, after = op.ins[0], op.outs[0]
    groups = _groups(before, after)
    if op.params.get("dimensions") is not None or groups is None:
        yield refuse(
            op, ragged_dims((*before, *after)), "reshapes it in a way that is not understood"
        )
        return
    for group in groups:
        if not _leading(group):
            yield refuse(
                op,
                ragged_dims(group[0] + group[1]),
                "interleaves it with another axis in a reshape",
            )


def _reshape(walk: PaddedInterpreter, op: Op, values: list[jax.Array]) -> list[Any]:
    return [lax.reshape(values[0], walk.shape(op.outs[0]))]


# Reverse, concatenate, pad, slice: elements change places along the axis.


def _rev_uses(op: Op) -> Iterator[Use]:
    dims = ragged_dims(op.ins[0][axis] for axis in op.params["dimensions"])
    if dims:
        yield use(op, dims, "gathered", "reversed")


def _rev(walk: PaddedInterpreter, op: Op, values: list[jax.Array]) -> list[Any]:
    (x,), dims = values, op.ins[0]
    fixed = tuple(axis for axis in op.params["dimensions"] if not is_ragged(dims[axis]))
    x = lax.rev(x, fixed) if fixed else x
    for axis in op.params["dimensions"]:
        if is_ragged(dims[axis]) and walk.is_full(dims[axis]):
            x = lax.rev(x, (axis,))
        elif is_ragged(dims[axis]):
            x = take(
                x, walk.count(dims[axis]) - 1 - jnp.arange(x.shape[axis], dtype=np.int32), axis
            )
    return [x]


def _concatenate_uses(op: Op) -> Iterator[Use]:
    axis = op.params["dimension"]
    dims = ragged_dims(part[axis] for part in op.ins)
    if dims:
        yield use(op, dims, "gathered", "concatenated")


def _concatenate(walk: PaddedInterpreter, op: Op, values: list[jax.Array]) -> list[Any]:
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
    if _is_empty(op.ins[0]):
        return
    for axis, (low, high, interior) in enumerate(op.params["padding_config"]):
        dim = op.ins[0][axis]
        if is_ragged(interior) or (is_ragged(low) and not _is_in_front(low, op.ranges)):
            yield refuse(op, (dim, low, interior), "pads it by an amount that depends on its size")
        elif any(map(is_ragged, (dim, low, high))) and (low, high, interior) != (0, 0, 0):
            yield use(op, (dim, low, high), "gathered", "padded")


def _is_in_front(low: Dim, ranges: Ranges) -> bool:
    """Return whether the low padding is never negative, and largest at the largest size."""
    return extent(low).grows_from_zero({symbol: ranges[symbol] for symbol in symbols(low)})


def _pad(walk: PaddedInterpreter, op: Op, values: list[jax.Array]) -> list[Any]:
    x, filler = values
    dims, config = op.ins[0], op.params["padding_config"]
    if _is_empty(dims):
        return [lax.broadcast(filler, walk.shape(op.outs[0]))]
    for axis in ragged_axes(dims):
        if config[axis] != (0, 0, 0):
            x = lax.select(walk.inside(dims, axis), x, lax.broadcast(filler, x.shape))

    # `lax.pad` takes static amounts: high ones as of the allocated size, since more filler behind
    # is padding; low ones that are symbolic by a shift to a computed position.
    fixed = tuple(
        (0 if is_ragged(low) else low, evaluate(high, walk.allocated), interior)
        for low, high, interior in config
    )
    x = lax.pad(x, filler, fixed)
    for axis, (low, _, _) in enumerate(config):
        if is_ragged(low):
            x = _behind(x, axis, walk.count(low), walk.shape([op.outs[0][axis]])[0], filler)
    return [x]


def _behind(x: jax.Array, axis: int, at: Any, size: int, filler: Any) -> Any:
    """Place `x` at a position along an axis of a given size, with a filler around it."""
    # Longer by `x` than the result, or `dynamic_update_slice` would clamp the position; what
    # reaches over the end is cut off.
    room = lax.full(
        [size + x.shape[i] if i == axis else x.shape[i] for i in range(x.ndim)], filler, x.dtype
    )
    placed = lax.dynamic_update_slice(
        room, x, [at if i == axis else np.int32(0) for i in range(x.ndim)]
    )
    return lax.slice_in_dim(placed, 0, size, axis=axis)


def _slice_uses(op: Op) -> Iterator[Use]:
    strides = op.params["strides"] or (1,) * len(op.ins[0])
    for dim, start, limit, stride in zip(
        op.ins[0], op.params["start_indices"], op.params["limit_indices"], strides, strict=True
    ):
        if any(map(is_ragged, (dim, start, limit))):
            if is_ragged(stride):
                yield refuse(op, (dim, stride), "strides over it by its size")
            elif not (
                not is_ragged(start) and start == 0 and stride == 1 and str(limit) == str(dim)
            ):
                yield use(op, (dim, start, limit), "gathered", "sliced")


def _slice(walk: PaddedInterpreter, op: Op, values: list[jax.Array]) -> list[Any]:
    (x,) = values
    strides = op.params["strides"] or (1,) * x.ndim
    for axis, (start, stride) in enumerate(zip(op.params["start_indices"], strides, strict=True)):
        size = evaluate(op.outs[0][axis], walk.allocated)
        if is_ragged(start):
            x = take(
                x, walk.count(start) + jnp.arange(size, dtype=np.int32) * np.int32(stride), axis
            )
        elif start != 0 or stride != 1 or size != x.shape[axis]:
            x = lax.slice_in_dim(
                x,
                start,
                min(start + (size - 1) * stride + 1, x.shape[axis]) if size else start,
                stride,
                axis,
            )
    return [x]


def _split_uses(op: Op) -> Iterator[Use]:
    dims = ragged_dims(op.params["sizes"])
    if dims and len(op.params["sizes"]) > 1:
        yield use(op, dims, "gathered", "split")


def _split(walk: PaddedInterpreter, op: Op, values: list[jax.Array]) -> list[Any]:
    (x,), axis, sizes = values, op.params["axis"], op.params["sizes"]
    if len(sizes) == 1:
        return [x]
    # Only another axis is symbolic: XLA's slices are views, where gathers are copies.
    if not any(map(is_ragged, sizes)):
        return walk.bind(op, values)
    out: list[Any] = []
    at = np.int32(0)
    for size in sizes:
        out.append(take(x, at + jnp.arange(evaluate(size, walk.allocated), dtype=np.int32), axis))
        at = at + walk.count(size)
    return out


def _unstack_uses(op: Op) -> Iterator[Use]:
    dim = op.ins[0][op.params["axis"]]
    if is_ragged(dim):
        yield refuse(op, dim, "takes it apart")


def _tile_uses(op: Op) -> Iterator[Use]:
    dims = [
        dim
        for dim, times in zip(op.ins[0], op.params["reps"], strict=True)
        if is_ragged(dim) and str(times) != "1"
    ]
    if dims:
        yield use(op, dims, "gathered", "repeated")


def _tile(walk: PaddedInterpreter, op: Op, values: list[jax.Array]) -> list[Any]:
    (x,) = values
    for axis, times in enumerate(op.params["reps"]):
        if str(times) != "1":
            positions = jnp.arange(evaluate(op.outs[0][axis], walk.allocated), dtype=np.int32)
            x = take(
                x,
                lax.rem(positions, lax.broadcast(walk.count(op.ins[0][axis]), positions.shape)),
                axis,
            )
    return [x]


RULES: dict[str, Rule] = {
    "broadcast_in_dim": Rule(no_uses, _broadcast, makes=True),
    "iota": Rule(no_uses, _iota, makes=True),
    "empty": Rule(no_uses, _empty, makes=True),
    "dim_as_value": Rule(no_uses, _size_as_value),
    "reshape": Rule(_reshape_uses, _reshape),
    "squeeze": POINTWISE,
    "expand_dims": POINTWISE,
    "transpose": POINTWISE,
    "rev": Rule(_rev_uses, _rev, at_once=True),
    "concatenate": Rule(_concatenate_uses, _concatenate, at_once=True),
    "pad": Rule(_pad_uses, _pad, at_once=True),
    "slice": Rule(_slice_uses, _slice, CarriedState("picked"), at_once=True),
    "split": Rule(_split_uses, _split, at_once=True),
    "stack": POINTWISE,
    "unstack": Rule(_unstack_uses, evaluate_unchanged),
    "tile": Rule(_tile_uses, _tile, at_once=True, makes=True),
}
