"""Loop state of operations that select a few elements of a cut axis: `top_k`, and reads at
positions (`slice`, `dynamic_slice`, `gather`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from ..dims import evaluate
from ..interpreter import Op, PaddedInterpreter, ragged_axes, take
from ..low_bits import as_bits, from_bits
from ..monoids import last_in_order
from ..rules import RULES
from ..rules.index import to_int32
from ..typed_jax import jnp, lax


def top_begins(op: Op) -> list[Any]:
    """The initial state of a `top_k`: values, their indices, and the number of elements seen, at
    most k.
    """
    values, places = (atom.aval for atom in op.eqn.outvars)
    return [
        lax.full(values.shape, last_in_order(values.dtype), values.dtype),
        lax.full(places.shape, 0, places.dtype),
        lax.full((), np.int32(0)),
    ]


def merge_top_k(
    walk: PaddedInterpreter, op: Op, x: jax.Array, state: Sequence[Any], *, back: bool
) -> list[Any]:
    """The next state of a `top_k`: the k largest elements of all chunks so far, in descending
    order, and their indices in the whole axis.

    The candidates are the k largest so far and those of this chunk. They are concatenated in the
    order of the axis, since ties go to the first. The initial filler comes behind all of them.
    """
    # top_k(a ++ b) = top_k(top_k(a) ++ top_k(b)): no element outside of the k largest of its part
    # is among the k largest of the whole.
    values, places, found = state
    axis, k = op.params.get("axis", x.ndim - 1), op.params["k"]
    count = min(k, x.shape[axis])

    # The k largest of this chunk, and their indices in the whole axis.
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
    begin = np.int32(0)
    # Each part is written behind the elements that the part before has really seen, so that the
    # second overwrites the filler behind the first.
    for value, place, many in (here, before) if back else (before, here):
        candidates = lax.dynamic_update_slice_in_dim(candidates, value, begin, axis)
        at = lax.dynamic_update_slice_in_dim(at, place, begin, axis)
        begin = begin + many

    # The k largest of the candidates.
    _, chosen = RULES[op.name].pad(walk, op, [from_bits(candidates, x.dtype)])
    merged = from_bits(jnp.take_along_axis(candidates, chosen, axis), x.dtype)
    return [
        merged,
        jnp.take_along_axis(at, chosen, axis),
        lax.min(lax.add(found, np.int32(count)), np.int32(k)),
    ]


def can_be_picked(op: Op) -> bool:
    """Return whether an operation reads single elements along the axis, and its result does not
    have the axis.
    """
    if any(map(ragged_axes, op.outs)):
        return False
    return op.name != "gather" or all(
        op.params["slice_sizes"][axis] == 1 for axis in ragged_axes(op.ins[0])
    )


def read_positions(walk: PaddedInterpreter, op: Op, values: Sequence[object], state: object) -> Any:
    """The next state of a read at positions: this chunk's elements where a position lies in it, the
    state elsewhere.
    """
    (axis,) = ragged_axes(op.ins[0])
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


def _whole(walk: PaddedInterpreter, op: Op, axis: int) -> Any:
    return jnp.asarray(evaluate(op.ins[0][axis], walk.whole), np.int32)


def _dynamic(walk: PaddedInterpreter, op: Op, values: Sequence[Any], axis: int) -> tuple[Any, Any]:
    """Positions along the cut axis, and the operand sliced along the other axes."""
    x, *starts = values
    windows = op.params["slice_sizes"]
    begin = lax.clamp(
        np.int32(0), to_int32(starts[axis]), _whole(walk, op, axis) - np.int32(windows[axis])
    )
    others = [np.int32(0) if i == axis else to_int32(at) for i, at in enumerate(starts)]
    x = lax.dynamic_slice(
        x, others, [x.shape[axis] if i == axis else size for i, size in enumerate(windows)]
    )
    return begin + jnp.arange(windows[axis], dtype=np.int32), x


def _static(walk: PaddedInterpreter, op: Op, x: Any, axis: int) -> tuple[Any, Any]:
    params = op.params
    strides = params["strides"] or (1,) * x.ndim
    begin = jnp.asarray(evaluate(params["start_indices"][axis], walk.whole), np.int32)
    for i, (low, high, stride) in enumerate(
        zip(params["start_indices"], params["limit_indices"], strides, strict=True)
    ):
        if i != axis:
            x = lax.slice_in_dim(x, low, high, stride, i)
    return begin + jnp.arange(op.outs[0][axis], dtype=np.int32) * np.int32(strides[axis]), x


def _gathered(
    walk: PaddedInterpreter, op: Op, values: Sequence[Any], state: Any, start: Any, axis: int
) -> Any:
    x, indices = values[0], to_int32(values[1])
    # Bounds are those of the whole axis, not of the chunk.
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

    # A position outside of the whole axis reads the fill value, in each chunk alike.
    local = positions - start
    inside = ((local >= 0) & (local < x.shape[axis])) | outside
    local = jnp.where(
        outside, np.int32(np.iinfo(np.int32).max), jnp.clip(local, 0, x.shape[axis] - 1)
    )

    # A position that breaks the promise of the mode is clamped by XLA, and its cotangent dropped in
    # the transpose (see `rules/index.py`). Positions above go to a copy of the last element behind
    # the chunk, out of bounds; negative ones stay negative.
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
