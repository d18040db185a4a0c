"""The step as most of us would write it first: a loop over examples, parent sets as Python has
them, and floats read back on the way.

It is what the tables of STEP.md call "eager loop". The layers are the same; what is around them is
not.
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from ._data import Batch
from ._losses import FLOOR, certainty, kl
from ._step import Recipe, updated
from .model import Surrogate

Sets = Sequence[frozenset[int]]


def log_probabilities(
    model: Surrogate, x: Float[Array, "samples vars 3"], sets: Sets
) -> Float[Array, "sets"]:
    """Of the parent sets of the target, set by set."""
    h = model.embed(x)
    members = [
        sum((model.scorer.member(h[i]) for i in sorted(each)), jnp.zeros(h.shape[1], h.dtype))
        for each in sets
    ]
    return jax.nn.log_softmax(model.scorer.of_members(jnp.stack(members), h, x[0, :, 2]))


def example_loss(
    model: Surrogate,
    x: Float[Array, "samples vars 3"],
    sets: Sets,
    expert: Float[Array, "sets"],
    loss: str,
) -> Array:
    """KL divergence to the expert of one example, weighted by certainty or not."""
    weight = FLOOR + (1 - FLOOR) * certainty(expert) if loss == "weighted" else 1.0
    return weight * kl(expert, log_probabilities(model, x, sets))


def mean_gradient(
    model: Surrogate, batch: Batch, loss: str, differentiated: Any = None
) -> tuple[float, Surrogate]:
    """Mean loss and its gradient, an example at a time. `differentiated` takes the place of the
    eager derivative.
    """
    gradient_of = differentiated or eqx.filter_value_and_grad(example_loss)
    values, total = [], None
    for x, sets, expert in zip(batch.x, batch.sets, batch.expert, strict=True):
        value, gradient = gradient_of(model, jnp.asarray(x), sets, jnp.asarray(expert), loss)
        values.append(float(value))
        total = gradient if total is None else jax.tree.map(jnp.add, total, gradient)
    return sum(values) / len(values), jax.tree.map(lambda part: part / len(values), total)


def step(
    recipe: Recipe, model: Surrogate, opt: Any, batch: Batch, differentiated: Any = None
) -> tuple[Surrogate, Any, dict[str, float]]:
    """One step of training."""
    value, gradient = mean_gradient(model, batch, recipe.loss, differentiated)
    model, opt = updated(recipe, model, opt, gradient)
    return model, opt, {"loss": value, "norm": float(optax.tree.norm(gradient))}
