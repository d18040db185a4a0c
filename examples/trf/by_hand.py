"""A batch of fits as one writes it without jitney, on one device or over several: `jax.vmap`, and a
sharding for each argument.

It is what `tests/devices/examples/test_trf.py` compares `curve_fit(..., mesh=mesh)` with.
"""

from dataclasses import replace
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ._jit import COMPILER
from ._problem import Data, Setup
from ._program import Packed, fitted


@lru_cache(maxsize=256)
def fit_batch(setup: Setup, mesh: Mesh | None = None) -> Any:
    """The program of a batch: starts, what each fit has for itself, what all share."""

    def fit(x0: Any, mapped: Data, shared: Data) -> Packed:
        return fitted(replace(setup, blocks=False), x0, eqx.combine(mapped, shared))

    batch = jax.vmap(fit, (0, 0, None))
    if mesh is None:
        return jax.jit(batch, compiler_options=COMPILER)
    rows, whole = (
        NamedSharding(mesh, PartitionSpec(mesh.axis_names)),
        NamedSharding(mesh, PartitionSpec()),
    )
    placed = {"in_shardings": (rows, rows, whole), "out_shardings": rows}
    return jax.jit(batch, compiler_options=COMPILER, **placed)
