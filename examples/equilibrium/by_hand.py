"""A sweep as one writes it without jitney, on one device or over several: `jax.vmap`, and a
sharding for each argument.

It is what `tests/devices/examples/test_equilibrium.py` compares `sweep(..., mesh=mesh)` with.
"""

from functools import lru_cache
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ._model import Model
from ._sweep import one_draw


@lru_cache(maxsize=64)
def program(model: Model, mesh: Mesh | None = None) -> Any:
    """The compiled sweep; of its arguments the first has a row for each draw."""
    mapped = jax.vmap(one_draw(model), (0, *[None] * 6))
    if mesh is None:
        return jax.jit(mapped)
    rows, whole = (
        NamedSharding(mesh, PartitionSpec(mesh.axis_names)),
        NamedSharding(mesh, PartitionSpec()),
    )
    return jax.jit(mapped, in_shardings=(rows, *[whole] * 6), out_shardings=rows)
