"""The steps of `variants.py` as one writes each in JAX and Optax, without jitney.

The model's leaves are all arrays of float32, so `jax.jit` takes it as it is. Steps on several
devices are those of `by_hand.py`.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from ._losses import weighted
from ._step import Recipe, updated
from .model import Surrogate

RECIPE = Recipe()
PARTS = 4  # of the batch
EACH = (None, 0, 0, 0, 0)
Step = Callable[..., tuple[Surrogate, Any, dict[str, Any]]]


def mean(model: Surrogate, *data: Any) -> Any:
    """The mean loss of a batch."""
    return jnp.mean(jax.vmap(weighted, EACH)(model, *data))


def rematerialised(model: Surrogate, *data: Any) -> Any:
    """The same, computed once more on the way back."""
    return jnp.mean(jax.vmap(jax.checkpoint(weighted), EACH)(model, *data))


def in_bf16(model: Surrogate, x: Any, *data: Any) -> Any:
    """The same in bfloat16 all through, with weights in float32 outside."""
    low = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), model)
    return mean(low, x.astype(jnp.bfloat16), *data).astype(jnp.float32)


def stepped(of: Callable[..., Any]) -> Step:
    """The step of a mean loss."""

    def step(model: Surrogate, opt: Any, *data: Any) -> Any:
        value, slope = jax.value_and_grad(of)(model, *data)
        return *updated(RECIPE, model, opt, slope), {"loss": value, "norm": optax.tree.norm(slope)}

    return step


@jax.jit
def in_parts(model: Surrogate, opt: Any, *data: Any) -> Any:
    """The step with the batch in parts, of which the gradients are added up."""

    def add(total: Any, part: Any) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, total, jax.value_and_grad(mean)(model, *part)), None

    parts = [each.reshape(PARTS, -1, *each.shape[1:]) for each in data]
    zero = jnp.zeros(()), jax.tree.map(jnp.zeros_like, model)
    total, _ = jax.lax.scan(add, zero, parts)
    value, slope = jax.tree.map(lambda part: part / PARTS, total)
    return *updated(RECIPE, model, opt, slope), {"loss": value, "norm": optax.tree.norm(slope)}


slope_of = jax.jit(jax.value_and_grad(mean))
update = jax.jit(lambda model, opt, slope: updated(RECIPE, model, opt, slope))


def with_a_branch(model: Surrogate, opt: Any, *data: Any) -> Any:
    """The step with a clip that reads the norm in Python, between two programs."""
    value, slope = slope_of(model, *data)
    norm = optax.tree.norm(slope)
    if norm > RECIPE.clip:
        slope = jax.tree.map(lambda part: part * RECIPE.clip / norm, slope)
    return *update(model, opt, slope), {"loss": value, "norm": norm}


plain = jax.jit(stepped(mean))
donated = jax.jit(stepped(mean), donate_argnums=(0, 1))
checkpointed = jax.jit(stepped(rematerialised))
low = jax.jit(stepped(in_bf16))
