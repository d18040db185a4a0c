"""The largest or smallest elements of a cut axis: `argmax`, `argmin` and `top_k`.

Of one element the state is its index in the whole axis, and its value, which the elements of later
chunks are compared with; of `top_k` the values and indices of the k largest so far.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import jax
import numpy as np

from ..interpreter import Op
from ..monoids import Monoid, highest, last_in_order
from ..rule import Carrier, ChunkStep, Outputs, State, bytes_of
from ..typed_jax import jnp, lax
from ..xla_faults.lost_nans import fold
from ..xla_faults.low_bits import as_bits, from_bits


@dataclass(frozen=True)
class ArgExtreme(Carrier):
    """Index and value of the extreme element; the monoid is that of the value."""

    monoid: Monoid

    def state_bytes(self, op: Op) -> int:
        (index,) = op.eqn.outvars
        extreme = index.aval.update(dtype=op.eqn.invars[0].aval.dtype)
        return bytes_of([index.aval, extreme])

    def begin(
        self,
        op: Op,
        initial: Sequence[jax.Array],
        is_first: jax.Array | None = None,
    ) -> State:
        aval = op.eqn.outvars[0].aval
        index = lax.full(aval.shape, 0, aval.dtype)
        return [index, self.monoid.filled(aval.shape, op.eqn.invars[0].aval.dtype)]

    def step(self, chunk: ChunkStep, state: State) -> tuple[Outputs, State]:
        # Ties go to the first element, and the first NaN wins over all numbers.
        x, name = chunk.values[0], chunk.op.name
        (part,) = chunk.evaluate(chunk.values)
        (axis,) = chunk.op.params["axes"]
        start = chunk.start_along(axis)
        index, best = state
        extreme = jnp.take_along_axis(
            x,
            jnp.expand_dims(part, axis),
            axis,
        )
        extreme = jnp.squeeze(extreme, axis)

        # From the end, a later chunk lies in front of those before it, so it wins ties (and NaNs).
        above, below = (lax.ge, lax.le) if chunk.back else (lax.gt, lax.lt)
        better = above(extreme, best) if name == "argmax" else below(extreme, best)
        if jnp.issubdtype(extreme.dtype, jnp.inexact):
            better |= jnp.isnan(extreme) & (chunk.back | ~jnp.isnan(best))
        return [None], [
            lax.select(better, part + lax.convert_element_type(start, part.dtype), index),
            lax.select(better, extreme, best),
        ]

    def merge(self, states: State) -> State:
        """The smallest index among equal extremes, or among NaNs.

        The first device need not have the smallest index: in a stream it may have found its element
        in a later chunk than another device.
        """
        index, best = states
        extreme = jnp.expand_dims(fold(self.monoid, best, (0,)), 0)
        is_extreme = best == extreme
        if jnp.issubdtype(best.dtype, jnp.inexact):
            is_extreme |= jnp.isnan(best) & jnp.isnan(extreme)
        candidates = jnp.where(is_extreme, index, highest(index.dtype))
        return [jnp.min(candidates, axis=0), jnp.squeeze(extreme, 0)]


_SEEN = np.int32


@dataclass(frozen=True)
class TopK(Carrier):
    """The values, their indices, and the number of elements seen, at most k."""

    monoid: None = field(default=None, init=False)
    refused_on_devices: ClassVar[str | None] = "looks for elements of it on all devices"

    def state_bytes(self, op: Op) -> int:
        return super().state_bytes(op) + np.dtype(_SEEN).itemsize

    def begin(
        self,
        op: Op,
        initial: Sequence[jax.Array],
        is_first: jax.Array | None = None,
    ) -> State:
        values, places = (atom.aval for atom in op.eqn.outvars)
        return [
            lax.full(values.shape, last_in_order(values.dtype), values.dtype),
            lax.full(places.shape, 0, places.dtype),
            lax.full((), _SEEN(0)),
        ]

    def step(self, chunk: ChunkStep, state: State) -> tuple[Outputs, State]:
        return [None for _ in chunk.op.outs], _merge(chunk, state)


def _merge(chunk: ChunkStep, state: Sequence[jax.Array]) -> list[jax.Array]:
    """The next state of a `top_k`: the k largest elements of all chunks so far, in descending
    order, and their indices in the whole axis.

    The candidates are the k largest so far and those of this chunk. They are concatenated in the
    order of the axis, since ties go to the first. The initial filler comes behind all of them.
    """
    # top_k(a ++ b) = top_k(top_k(a) ++ top_k(b)): no element outside of the k largest of its part
    # is among the k largest of the whole.
    values, places, seen = state
    op, x = chunk.op, chunk.values[0]
    axis, k = op.params.get("axis", x.ndim - 1), op.params["k"]
    count = min(k, x.shape[axis])

    # The k largest of this chunk, and their indices in the whole axis.
    _, where = chunk.evaluate([x], op.replace_params(k=count))
    best = jnp.take_along_axis(as_bits(x), where, axis)
    start = lax.convert_element_type(chunk.start_along(axis), where.dtype)
    where = lax.add(where, lax.full(where.shape, start))

    before, here = (as_bits(values), places, seen), (best, where, count)
    shape = list(x.shape)
    shape[axis] = k + count
    filler = lax.full(
        shape,
        last_in_order(x.dtype),
        x.dtype,
    )
    candidates = as_bits(filler)
    at = lax.full(shape, 0, places.dtype)
    begin = np.int32(0)
    # Each part is written behind the elements that the part before has really seen, so that the
    # second overwrites the filler behind the first.
    for value, place, many in (here, before) if chunk.back else (before, here):
        candidates = lax.dynamic_update_slice_in_dim(
            candidates,
            value,
            begin,
            axis,
        )
        at = lax.dynamic_update_slice_in_dim(
            at,
            place,
            begin,
            axis,
        )
        begin = begin + many

    # The k largest of the candidates.
    _, chosen = chunk.evaluate([from_bits(candidates, x.dtype)])
    largest = from_bits(jnp.take_along_axis(candidates, chosen, axis), x.dtype)
    indices = jnp.take_along_axis(at, chosen, axis)
    seen = lax.min(lax.add(seen, np.int32(count)), np.int32(k))
    return [largest, indices, seen]
