"""The step over several devices as one writes it without jitney: a sharding for each array, written down.

It is what `tests/devices/examples/test_surrogate.py` and `tests/perf/scaling.py` compare `step_of(..., mesh=mesh)` with.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from examples.surrogate._losses import LOSSES
from examples.surrogate._step import Recipe, updated


def shardings(mesh: Mesh, tree: Any, fsdp: bool) -> Any:
    """Where the arrays of a model or of an optimiser's state lie: whole, or cut along the largest axis that divides."""

    def of(leaf: Any) -> NamedSharding:
        divides = [axis for axis, size in enumerate(leaf.shape) if size % mesh.shape["data"] == 0]
        if not fsdp or not divides:
            return NamedSharding(mesh, PartitionSpec())
        axis = max(divides, key=lambda axis: leaf.shape[axis])
        return NamedSharding(mesh, PartitionSpec(*[None] * axis, "data"))

    return jax.tree.map(of, tree)


def step_of(recipe: Recipe, mesh: Mesh, model: Any, opt: Any, fsdp: bool = False) -> tuple[Any, Any]:
    """The step, and how to bring model and state to it.

    Args:
        recipe: How to train.
        mesh: Devices along an axis `data`.
        model: The network.
        opt: The state of the optimiser.
        fsdp: Whether devices share weights and moments too.
    """
    arrays, rest = eqx.partition((model, opt), eqx.is_array)
    state, data = shardings(mesh, arrays, fsdp), NamedSharding(mesh, PartitionSpec("data"))

    def step(arrays: Any, *batch: Any) -> Any:
        model, opt = eqx.combine(arrays, rest)

        def mean(model: Any) -> Any:
            return jnp.mean(jax.vmap(LOSSES[recipe.loss], (None, 0, 0, 0, 0))(model, *batch))

        value, gradient = eqx.filter_value_and_grad(mean)(model)
        after = updated(recipe, model, opt, gradient)
        return eqx.filter(after, eqx.is_array), {"loss": value, "norm": optax.tree.norm(gradient)}

    jitted = jax.jit(step, in_shardings=(state, data, data, data, data), out_shardings=(state, None), donate_argnums=0)
    return jitted, jax.device_put(arrays, state)
