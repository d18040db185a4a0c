"""The carry of a loop along the cut axis, which each chunk goes on from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import jax

from ..._jax.programs.jaxprs import scan_parts
from ..callbacks import is_ordered
from ..dims import is_ragged
from ..interpreter import Op
from ..rule import Carrier, ChunkStep, Outputs, State, T, Use, bytes_of
from ..typed_jax import jnp


@dataclass(frozen=True)
class LoopCarry(Carrier):
    """The carry of a `scan`, which begins from the initial carry."""

    monoid: None = field(default=None, init=False)
    refused_on_devices: ClassVar[str | None] = (
        "goes on from one element of it to the next, and so from device to device"
    )

    def runs_along(self, op: Op) -> bool:
        return is_ragged(op.params["length"])

    def can_be_cut(self, op: Op, uses: Sequence[Use]) -> bool:
        # The one use is the loop itself: its body must have none.
        return self.runs_along(op) and len(uses) == 1

    def accumulates(self, op: Op) -> bool:
        return self.runs_along(op)

    def direction(self, op: Op) -> bool | None:
        if self.runs_along(op) and (self.initial(op, op.eqn.invars) or is_ordered(op)):
            return bool(op.params["reverse"])
        return None

    def initial(self, op: Op, operands: Sequence[T]) -> list[T]:
        return scan_parts(op.eqn, list(operands))[1]

    def state_bytes(self, op: Op) -> int:
        return bytes_of(atom.aval for atom in self.initial(op, op.eqn.invars))

    def begin(
        self,
        op: Op,
        initial: Sequence[jax.Array],
        is_first: jax.Array | None = None,
    ) -> State:
        return [jnp.asarray(x) for x in initial]

    def step(self, chunk: ChunkStep, state: State) -> tuple[Outputs, State]:
        constants, _, xs = scan_parts(chunk.op.eqn, chunk.values)
        out = chunk.evaluate([*constants, *state, *xs])
        carry, stacked = out[: len(state)], out[len(state) :]
        return [*(None for _ in state), *stacked], carry
