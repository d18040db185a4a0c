"""Results that a monoid combines: a reduction accumulates over the chunks, and a prefix scan goes
on from the last result of the chunk before.

    reduce_sum    state: the sum so far            a chunk: its sum, added
    cumsum        state: the last prefix so far    a chunk: its prefixes, each with that added
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import jax

from ..._jax.typed import DType
from ..dims import is_ragged, size_per_element
from ..interpreter import Op
from ..monoids import Monoid, to_dtype
from ..rule import Carrier, ChunkStep, Outputs, State, Use
from ..typed_jax import jnp, lax

# They take the dtype of their result as a parameter, so that operands need no conversion.
_PRODUCTS = ("dot_general", "conv_general_dilated")


@dataclass(frozen=True)
class Accumulating(Carrier):
    """A state in the dtype that the monoid accumulates in, rounded to the program's at the end."""

    monoid: Monoid

    def accumulators(self, op: Op) -> list[DType]:
        return [self.monoid.accumulator(op.eqn.outvars[0].aval.dtype)]

    def state_bytes(self, op: Op) -> int:
        (dtype,) = self.accumulators(op)
        return size_per_element(op.outs[0]) * dtype.itemsize

    def identity(self, op: Op, shape: Sequence[int]) -> jax.Array:
        """The identity of the monoid, in the dtype that it accumulates in."""
        (dtype,) = self.accumulators(op)
        return self.monoid.filled(shape, dtype)

    def wide_result(self, chunk: ChunkStep) -> jax.Array:
        """The result for one chunk in the accumulator's dtype, not yet rounded to the program's."""
        op, values = chunk.op, chunk.values
        (wide,) = self.accumulators(op)
        if wide == op.eqn.outvars[0].aval.dtype:
            return chunk.evaluate(values)[0]
        if op.name not in _PRODUCTS:
            return chunk.evaluate([to_dtype(x, wide) for x in values])[0]
        product = op.replace_params(preferred_element_type=wide)
        return to_dtype(chunk.evaluate(values, product)[0], wide)


@dataclass(frozen=True)
class Fold(Accumulating):
    """The results of the chunks, combined by the monoid."""

    is_combined: ClassVar[bool] = True

    def can_be_cut(self, op: Op, uses: Sequence[Use]) -> bool:
        # A convolution may have two uses: a sum over features, which folds, and windows along
        # space, which have no monoid.
        return all(use.monoid is not None for use in uses)

    def begin(
        self,
        op: Op,
        initial: Sequence[jax.Array],
        is_first: jax.Array | None = None,
    ) -> State:
        return [self.identity(op, op.outs[0])]

    def step(self, chunk: ChunkStep, state: State) -> tuple[Outputs, State]:
        part = self.wide_result(chunk)
        return [None], [self.monoid.combine(state[0], part)]


@dataclass(frozen=True)
class Prefix(Accumulating):
    """The last result of a prefix scan; the first one if it runs from the end."""

    refused_on_devices: ClassVar[str | None] = (
        "goes on from one element of it to the next, and so from device to device"
    )

    def accumulates(self, op: Op) -> bool:
        return False

    def emits(self, op: Op) -> bool:
        return is_ragged(op.ins[0][op.params["axis"]])

    def direction(self, op: Op) -> bool | None:
        return bool(op.params["reverse"]) if self.emits(op) else None

    def begin(
        self,
        op: Op,
        initial: Sequence[jax.Array],
        is_first: jax.Array | None = None,
    ) -> State:
        shape = list(op.outs[0])
        shape[op.params["axis"]] = 1
        return [self.identity(op, shape)]

    def step(self, chunk: ChunkStep, state: State) -> tuple[Outputs, State]:
        # Within the chunk by the rule, then combined with what is before it.
        part = self.wide_result(chunk)
        whole = self.monoid.combine(part, jnp.broadcast_to(state[0], part.shape))
        params = chunk.op.params
        axis = params["axis"]
        end = 0 if params["reverse"] else part.shape[axis] - 1
        result = to_dtype(whole, chunk.values[0].dtype)
        return [result], [lax.slice_in_dim(whole, end, end + 1, axis=axis)]

    def finish(self, op: Op, state: State) -> list[jax.Array]:
        return []
