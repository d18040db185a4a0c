"""A batch of fits over several devices as one writes it without jitney: `jax.vmap`, and a sharding for each argument.

It is what `tests/devices/examples/test_trf.py` compares `curve_fit(..., mesh=mesh)` with.
"""

from typing import Any

import equinox as eqx
import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from examples.trf._problem import Data, Setup
from examples.trf._program import Packed, fitted


def fit_batch(setup: Setup, mesh: Mesh) -> Any:
    """The program of a batch: starts, what each fit has for itself, what all share."""
    rows, whole = NamedSharding(mesh, PartitionSpec(mesh.axis_names)), NamedSharding(mesh, PartitionSpec())

    def fit(x0: Any, mapped: Data, shared: Data) -> Packed:
        return fitted(setup, x0, eqx.combine(mapped, shared))

    return jax.jit(jax.vmap(fit, (0, 0, None)), in_shardings=(rows, rows, whole), out_shardings=rows)
