"""The array that each chunk of the updates is scattered into: `x.at[i].add(updates)`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import jax

from ..interpreter import Op, PaddedInterpreter, ragged_axes
from ..monoids import to_dtype
from ..rule import Outputs, State, T, Use
from ..typed_jax import jnp
from .folds import Accumulating


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

    def step(
        self,
        walk: PaddedInterpreter,
        op: Op,
        values: list[jax.Array],
        state: State,
        *,
        back: bool,
    ) -> tuple[Outputs, State]:
        (x,), indices, updates = state, values[1], values[2]
        operands = [x, indices, to_dtype(updates, x.dtype)]
        return [None], walk.rules[op.name].pad(walk, op, operands)
