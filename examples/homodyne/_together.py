"""One fit of several processes, each with its part of the points: what they send each other is the
products of an evaluation, some hundred numbers.
"""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

import jitney

from ..trf._fail import fail

AXIS = "processes"


@jitney.optimize(shard={"process": AXIS}, precision="f64")
def added(
    own: Float[Array, "process entries"], same: Float[Array, "process k"]
) -> tuple[Float[Array, "entries"], Float[Array, "k"]]:
    """The sum over processes, and how far apart is what should be the same in all."""
    return own.sum(0), same.max(0) - same.min(0)


@dataclass(frozen=True)
class Together:
    """Sums over the processes of a run; all of them call it, as often, in one order.

    Args:
        processes: The run, of `jitney.processes.distributed`.
    """

    processes: jitney.processes.Processes

    @property
    def mesh(self) -> Any:
        """A device of each process."""
        first = {device.process_index: device for device in reversed(jax.devices())}
        devices = [first[index] for index in range(self.processes.count)]
        return jitney.mesh(**{AXIS: -1}, devices=devices)

    def __call__(self, own: np.ndarray, same: np.ndarray) -> np.ndarray:
        """The sum of `own`.

        Raises:
            ValueError: `same` is not the same in all processes.
        """
        if self.processes.count == 1:
            return own
        with jax.enable_x64(True), self.mesh:
            parts = jitney.processes.from_processes(
                (own.reshape(1, -1), np.asarray(same, np.float64)[None]), AXIS
            )
            total, apart = map(np.asarray, added(*parts))
        if np.any(apart):
            fail(
                f"The processes are not at the same parameters: they are {apart.max():.2g} apart.",
                "Each takes the steps of all, for which start, bounds, tolerances, versions and"
                " processors are the same.",
                "give all processes the same.",
            )
        return total.reshape(own.shape)

    def rows(self, count: int) -> slice:
        """The part of this process, of so many rows that all can read."""
        index, of = self.processes.index, self.processes.count
        return slice(index * count // of, (index + 1) * count // of)
