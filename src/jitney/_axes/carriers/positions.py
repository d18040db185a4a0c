"""Elements at given positions of a cut axis: read by `slice`, `dynamic_slice` and `gather`, and
written by `x.at[i].add(updates)`, an array that each chunk of the updates is scattered into.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import jax
import numpy as np

from ..dims import evaluate
from ..interpreter import Op, ragged_axes, take, to_int32
from ..monoids import to_dtype
from ..rule import Carrier, ChunkStep, Outputs, State, T, Use
from ..typed_jax import jnp, lax
from .folds import Accumulating


@dataclass(frozen=True)
class Gather(Carrier):
    """The elements, as far as the chunks so far hold them."""

    monoid: None = field(default=None, init=False)
    reads_few: ClassVar[bool] = True
    refused_on_devices: ClassVar[str | None] = "looks for elements of it on all devices"

    def can_be_cut(self, op: Op, uses: Sequence[Use]) -> bool:
        # It reads single elements along the axis, and its result does not have the axis.
        if any(map(ragged_axes, op.outs)):
            return False
        if op.name != "gather":
            return True
        sizes = op.params["slice_sizes"]
        return all(sizes[axis] == 1 for axis in ragged_axes(op.ins[0]))

    def begin(
        self,
        op: Op,
        initial: Sequence[jax.Array],
        is_first: jax.Array | None = None,
    ) -> State:
        aval = op.eqn.outvars[0].aval
        return [lax.full(aval.shape, 0, aval.dtype)]

    def step(self, chunk: ChunkStep, state: State) -> tuple[Outputs, State]:
        return [None], [_read_positions(chunk, state[0])]


def _read_positions(chunk: ChunkStep, state: jax.Array) -> jax.Array:
    """The next state of a read at positions: this chunk's elements where a position lies in it, the
    state elsewhere.
    """
    (axis,) = ragged_axes(chunk.op.ins[0])
    start = chunk.start_along(axis)
    if chunk.op.name == "gather":
        return _gather_chunk(chunk, state, start, axis)
    read = _dynamic if chunk.op.name == "dynamic_slice" else _static
    positions, x = read(chunk, axis)
    local = positions - start
    part = take(x, local, axis)
    inside = (local >= 0) & (local < x.shape[axis])
    inside = lax.broadcast_in_dim(inside, part.shape, [axis])
    return lax.select(inside, part, state)


def _dynamic(chunk: ChunkStep, axis: int) -> tuple[jax.Array, jax.Array]:
    """Positions along the cut axis, and the operand sliced along the other axes."""
    x, *starts = chunk.values
    windows = chunk.op.params["slice_sizes"]
    count = windows[axis]
    begin = to_int32(starts[axis])
    begin = lax.clamp(
        np.int32(0),
        begin,
        chunk.whole_size(axis) - np.int32(count),
    )

    others = [np.int32(0) if i == axis else to_int32(at) for i, at in enumerate(starts)]
    sizes = list(windows)
    sizes[axis] = x.shape[axis]
    x = lax.dynamic_slice(x, others, sizes)
    return begin + jnp.arange(count, dtype=np.int32), x


def _static(chunk: ChunkStep, axis: int) -> tuple[jax.Array, jax.Array]:
    op, x = chunk.op, chunk.values[0]
    starts, limits = op.params["start_indices"], op.params["limit_indices"]
    strides = op.params["strides"] or (1,) * x.ndim
    begin = jnp.asarray(evaluate(starts[axis], chunk.walk.whole), np.int32)
    for i, (low, high, stride) in enumerate(zip(starts, limits, strides, strict=True)):
        if i != axis:
            x = lax.slice_in_dim(
                x,
                low,
                high,
                stride,
                i,
            )
    count = op.outs[0][axis]
    steps = jnp.arange(count, dtype=np.int32) * np.int32(strides[axis])
    return begin + steps, x


def _gather_chunk(
    chunk: ChunkStep,
    state: jax.Array,
    start: jax.Array,
    axis: int,
) -> jax.Array:
    op = chunk.op
    x, indices = chunk.values[0], to_int32(chunk.values[1])
    mode, numbers = op.params["mode"], op.params["dimension_numbers"]
    # Bounds are those of the whole axis, not of the chunk.
    last = chunk.whole_size(axis) - 1
    column = numbers.start_index_map.index(axis)
    positions = indices[..., column]
    if mode == lax.GatherScatterMode.FILL_OR_DROP:
        outside = (positions < 0) | (positions > last)
    else:
        positions = lax.clamp(np.int32(0), positions, last)
        outside = jnp.zeros(positions.shape, bool)

    # A position outside of the whole axis reads the fill value, in each chunk alike.
    out_of_bounds = np.int32(np.iinfo(np.int32).max)
    local = positions - start
    inside = ((local >= 0) & (local < x.shape[axis])) | outside
    local = jnp.where(
        outside,
        out_of_bounds,
        jnp.clip(local, 0, x.shape[axis] - 1),
    )

    # A position that breaks the promise of the mode is clamped by XLA, and its cotangent dropped in
    # the transpose (see `rules/indexing/gather.py`). Positions above go to a copy of the last
    # element behind the chunk, out of bounds; negative ones stay negative.
    if mode == lax.GatherScatterMode.PROMISE_IN_BOUNDS:
        promised = indices[..., column]
        here = jnp.clip(
            last - start,
            0,
            x.shape[axis] - 1,
        )
        x = lax.concatenate([x, lax.dynamic_slice_in_dim(x, here, 1, axis)], axis)
        is_above = promised > last
        local = jnp.where(
            promised < 0,
            np.int32(-1),
            local,
        )
        local = jnp.where(is_above, out_of_bounds, local)
    (part,) = chunk.evaluate([x, indices.at[..., column].set(local)])
    batch = [i for i in range(part.ndim) if i not in numbers.offset_dims]
    return jnp.where(
        lax.broadcast_in_dim(inside, part.shape, batch),
        part,
        state,
    )


@dataclass(frozen=True)
class ScatterInto(Accumulating):
    """The array, with the updates of all chunks so far.

    Args:
        cuts_windows: Returns whether a chunk of the updates can be written at its place.
    """

    cuts_windows: Callable[[Op], bool] = field(compare=False)
    is_combined: ClassVar[bool] = True

    def can_be_cut(self, op: Op, uses: Sequence[Use]) -> bool:
        return not ragged_axes(op.ins[0]) and self.cuts_windows(op)

    def accumulates(self, op: Op) -> bool:
        # An operand with the axis: each row is written into its own row, or it could not be cut.
        return not ragged_axes(op.ins[0]) and super().accumulates(op)

    def initial(self, op: Op, operands: Sequence[T]) -> list[T]:
        return list(operands[:1])

    def begin(
        self,
        op: Op,
        initial: Sequence[jax.Array],
        is_first: jax.Array | None = None,
    ) -> State:
        (wide,) = self.accumulators(op)
        x = to_dtype(jnp.asarray(initial[0]), wide)
        if is_first is None:
            return [x]
        # The other devices begin from the identity, so that the operand is counted once.
        return [jnp.where(is_first, x, self.monoid.filled(x.shape, x.dtype))]

    def step(self, chunk: ChunkStep, state: State) -> tuple[Outputs, State]:
        (x,), (_, indices, updates) = state, chunk.values
        return [None], chunk.evaluate([x, indices, to_dtype(updates, x.dtype)])
