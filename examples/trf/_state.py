"""What the loop takes from turn to turn."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ._problem import Model

Scalar = Float[Array, ""]
Vector = Float[Array, "k"]

RUNNING = -2.0  # statuses from 0 on are SciPy's
NOT_FINITE = -1.0
TOO_FEW = -3.0  # points; SciPy has -2 for a callback that stopped the fit


class Records(eqx.Module):
    """One row per trial step; see `History`."""

    cost: Float[Array, "trials"]
    step: Float[Array, "trials"]
    radius: Float[Array, "trials"]
    optimality: Float[Array, "trials"]


class State(eqx.Module):
    """Where the solver stands before a trial step. Counts and status are floats as all else is, to
    go into one array with it.
    """

    x: Vector
    model: Model
    scale: Vector
    radius: Scalar
    alpha: Scalar
    optimality: Scalar
    nfev: Scalar
    njev: Scalar
    status: Scalar
    records: Records | None

    @property
    def first(self) -> Bool[Array, ""]:
        """Whether the next trial is of the start itself."""
        return self.nfev == 0


class Carry(eqx.Module):
    """A state in few arrays: for each that a turn makes XLA compiles a kernel, and a batch selects
    among each.
    """

    x: Vector
    triangle: Float[Array, "k k+1"]
    scale: Vector
    numbers: Float[Array, "7"]
    records: Records | None
    few: bool = eqx.field(static=True)  # see `Setup.few`

    @classmethod
    def of(cls, state: State) -> "Carry":
        """Put it together."""
        numbers = (
            state.model.cost,
            state.radius,
            state.alpha,
            state.optimality,
            state.nfev,
            state.njev,
            state.status,
        )
        model, stacked = state.model, jnp.stack(numbers)
        return cls(state.x, model.triangle, state.scale, stacked, state.records, model.few)

    def state(self) -> State:
        """Take it apart."""
        cost, *numbers = self.numbers
        model = Model(cost, self.triangle, self.few)
        return State(self.x, model, self.scale, *numbers, self.records)
