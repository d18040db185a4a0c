"""What goes on from chunk to chunk of operations that find a few elements of a cut axis: the
largest of it, and those at positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dims import evaluate
from ..low_bits import as_bits, from_bits
from ..monoids import last_in_order
from ..rules import RULES
from ..rules.index import wide
from ..typed_jax import jnp, lax
from ..walk import Op, Walk, ragged, take


def top_begins(op: Op) -> list[Any]:
    """Nothing found yet: the values, their places, and how many of them are there."""
    values, places = (atom.aval for atom in op.eqn.outvars)
    return [
        lax.full(values.shape, last_in_order(values.dtype), values.dtype),
        lax.full(places.shape, 0, places.dtype),
        lax.full((), np.int32(0)),
    ]


def topped(walk: Walk, op: Op, x: Any, state: Sequence[Any], *, back: bool) -> list[Any]:
    """The largest of all chunks until now, in order, and where they are in the whole axis.

    The candidates are those until now and those of the chunk, in the order in which they lie along
    the axis, so that of equal ones the first is found first. What fills up in the beginning stands
    behind all of them.
    """
    values, places, found = state
    axis, k = op.params.get("axis", x.ndim - 1), op.params["k"]
    count = min(k, x.shape[axis])
    _, where = RULES[op.name].pad(walk, op.changed(k=count), [x])
    best = jnp.take_along_axis(as_bits(x), where, axis)
    where = lax.add(
        where,
        lax.full(
            where.shape, lax.convert_element_type(walk.start_of(op.ins[0][axis]), where.dtype)
        ),
    )
    before, here = (as_bits(values), places, found), (best, where, count)
    shape = [k + count if i == axis else size for i, size in enumerate(x.shape)]
    candidates, at = (
        as_bits(lax.full(shape, last_in_order(x.dtype), x.dtype)),
        lax.full(shape, 0, places.dtype),
    )
    begin: Any = np.int32(0)
    # what fills up behind the first is written over by the second
    for value, place, many in (here, before) if back else (before, here):
        candidates = lax.dynamic_update_slice_in_dim(candidates, value, begin, axis)
        at = lax.dynamic_update_slice_in_dim(at, place, begin, axis)
        begin = begin + many
    _, chosen = RULES[op.name].pad(walk, op, [from_bits(candidates, x.dtype)])
    merged = from_bits(jnp.take_along_axis(candidates, chosen, axis), x.dtype)
    return [
        merged,
        jnp.take_along_axis(at, chosen, axis),
        lax.min(lax.add(found, np.int32(count)), np.int32(k)),
    ]


def can_be_picked(op: Op) -> bool:
    """Whether an operation reads elements one by one at places that do not have the axis."""
    if any(map(ragged, op.outs)):
        return False
    return op.name != "gather" or all(
        op.params["slice_sizes"][axis] == 1 for axis in ragged(op.ins[0])
    )


def picked(walk: Walk, op: Op, values: Sequence[Any], state: Any) -> Any:
    """The elements at positions, of those that lie in the chunks until now."""
    (axis,) = ragged(op.ins[0])
    start = walk.start_of(op.ins[0][axis])
    if op.name == "gather":
        return _gathered(walk, op, values, state, start, axis)
    positions, x = (
        _dynamic(walk, op, values, axis)
        if op.name == "dynamic_slice"
        else _static(walk, op, values[0], axis)
    )
    local = positions - start
    count = x.shape[axis]
    part = take(x, local, axis)
    inside = lax.broadcast_in_dim((local >= 0) & (local < count), part.shape, [axis])
    return lax.select(inside, part, state)


def _whole(walk: Walk, op: Op, axis: int) -> Any:
    return jnp.asarray(evaluate(op.ins[0][axis], walk.whole), np.int32)


def _dynamic(walk: Walk, op: Op, values: Sequence[Any], axis: int) -> tuple[Any, Any]:
    """The positions along the cut axis, and what is read along the others."""
    x, *starts = values
    windows = op.params["slice_sizes"]
    begin = lax.clamp(
        np.int32(0), wide(starts[axis]), _whole(walk, op, axis) - np.int32(windows[axis])
    )
    others = [np.int32(0) if i == axis else wide(at) for i, at in enumerate(starts)]
    x = lax.dynamic_slice(
        x, others, [x.shape[axis] if i == axis else size for i, size in enumerate(windows)]
    )
    return begin + jnp.arange(windows[axis], dtype=np.int32), x


def _static(walk: Walk, op: Op, x: Any, axis: int) -> tuple[Any, Any]:
    params = op.params
    strides = params["strides"] or (1,) * x.ndim
    begin = jnp.asarray(evaluate(params["start_indices"][axis], walk.whole), np.int32)
    for i, (low, high, stride) in enumerate(
        zip(params["start_indices"], params["limit_indices"], strides, strict=True)
    ):
        if i != axis:
            x = lax.slice_in_dim(x, low, high, stride, i)
    return begin + jnp.arange(op.outs[0][axis], dtype=np.int32) * np.int32(strides[axis]), x


def _gathered(walk: Walk, op: Op, values: Sequence[Any], state: Any, start: Any, axis: int) -> Any:
    x, indices = values[0], wide(values[1])
    numbers, last = op.params["dimension_numbers"], _whole(walk, op, axis) - 1
    column = numbers.start_index_map.index(axis)
    positions = indices[..., column]
    if op.params["mode"] == lax.GatherScatterMode.FILL_OR_DROP:
        outside = (positions < 0) | (positions > last)
    else:
        positions, outside = (
            lax.clamp(np.int32(0), positions, last),
            jnp.zeros(positions.shape, bool),
        )
    local = positions - start
    # what is outside of all of it is filled in each chunk
    inside = ((local >= 0) & (local < x.shape[axis])) | outside
    local = jnp.where(
        outside, np.int32(np.iinfo(np.int32).max), jnp.clip(local, 0, x.shape[axis] - 1)
    )
    # what is not is clamped, and dropped on the way back
    if op.params["mode"] == lax.GatherScatterMode.PROMISE_IN_BOUNDS:
        given, here = indices[..., column], jnp.clip(last - start, 0, x.shape[axis] - 1)
        x = lax.concatenate([x, lax.dynamic_slice_in_dim(x, here, 1, axis)], axis)
        local = jnp.where(
            given > last,
            np.int32(np.iinfo(np.int32).max),
            jnp.where(given < 0, np.int32(-1), local),
        )
    (part,) = RULES[op.name].pad(walk, op, [x, indices.at[..., column].set(local)])
    batch = [i for i in range(part.ndim) if i not in numbers.offset_dims]
    return jnp.where(lax.broadcast_in_dim(inside, part.shape, batch), part, state)
