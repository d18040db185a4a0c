"""A sweep over several devices as one writes it without jitney: `jax.vmap`, and a sharding for each argument.

It is what `tests/devices/examples/test_equilibrium.py` compares `sweep(..., mesh=mesh)` with.
"""

from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from examples.equilibrium._model import Model
from examples.equilibrium._sweep import one_draw


def program(model: Model, mesh: Mesh) -> Any:
    """The compiled sweep; of its arguments the first has a row for each draw."""
    rows, whole = NamedSharding(mesh, PartitionSpec(mesh.axis_names)), NamedSharding(mesh, PartitionSpec())
    mapped = jax.vmap(one_draw(model), (0, *[None] * 6))
    return jax.jit(mapped, in_shardings=(rows, *[whole] * 6), out_shardings=rows)
