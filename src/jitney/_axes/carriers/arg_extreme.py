"""The place of the largest or smallest element of a cut axis, `argmax` and `argmin`: its index in
the whole axis, and its value, which the elements of later chunks are compared with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax

from ..interpreter import Op, PaddedInterpreter
from ..monoids import MONOIDS, Monoid, highest
from ..rule import Carrier, Outputs, State, bytes_of
from ..typed_jax import jnp, lax


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

    def step(
        self,
        walk: PaddedInterpreter,
        op: Op,
        values: list[jax.Array],
        state: State,
        *,
        back: bool,
    ) -> tuple[Outputs, State]:
        # Ties go to the first element, and the first NaN wins over all numbers.
        x = values[0]
        (part,) = walk.rules[op.name].pad(walk, op, values)
        (axis,) = op.params["axes"]
        start = walk.start_of(op.ins[0][axis])
        index, best = state
        extreme = jnp.take_along_axis(
            x,
            jnp.expand_dims(part, axis),
            axis,
        )
        extreme = jnp.squeeze(extreme, axis)

        # From the end, a later chunk lies in front of those before it, so it wins ties (and NaNs).
        above, below = (lax.ge, lax.le) if back else (lax.gt, lax.lt)
        better = above(extreme, best) if op.name == "argmax" else below(extreme, best)
        if jnp.issubdtype(extreme.dtype, jnp.inexact):
            better |= jnp.isnan(extreme) & (back | ~jnp.isnan(best))
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
        of_all = jnp.max if self.monoid is MONOIDS["max"] else jnp.min
        extreme = of_all(best, axis=0, keepdims=True)
        is_extreme = best == extreme
        if jnp.issubdtype(best.dtype, jnp.inexact):
            is_extreme |= jnp.isnan(best) & jnp.isnan(extreme)
        candidates = jnp.where(is_extreme, index, highest(index.dtype))
        return [jnp.min(candidates, axis=0), jnp.squeeze(extreme, 0)]
