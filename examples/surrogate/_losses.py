"""How far the network is from the expert, for one example."""

import jax.numpy as jnp
from jax.scipy.special import xlogy
from jaxtyping import Array, Bool, Float, Int

from .model import Surrogate

# the weight of an example of which the expert knows nothing; it is 1 where the expert is certain
FLOOR = 0.5


def kl(expert: Float[Array, "sets"], log_q: Float[Array, "sets"]) -> Float[Array, ""]:
    """The Kullback-Leibler divergence of a distribution to the expert's, in nats."""
    return jnp.sum(xlogy(expert, expert) - expert * log_q)


def certainty(expert: Float[Array, "sets"]) -> Float[Array, ""]:
    """1 minus the expert's entropy over that of a guess: 1 where it is sure, 0 where all sets are
    as likely.
    """
    return 1 + jnp.sum(xlogy(expert, expert)) / jnp.log(jnp.asarray(expert.shape[0], expert.dtype))


def divergence(
    model: Surrogate,
    x: Float[Array, "samples vars 3"],
    index: Int[Array, "sets parents"],
    mask: Bool[Array, "sets parents"],
    expert: Float[Array, "sets"],
) -> Float[Array, ""]:
    """KL divergence of what the network predicts to the expert."""
    return kl(expert, model(x, index, mask))


def weighted(
    model: Surrogate,
    x: Float[Array, "samples vars 3"],
    index: Int[Array, "sets parents"],
    mask: Bool[Array, "sets parents"],
    expert: Float[Array, "sets"],
) -> Float[Array, ""]:
    """The same, weighted by the expert's certainty."""
    return (FLOOR + (1 - FLOOR) * certainty(expert)) * kl(expert, model(x, index, mask))


LOSSES = {"kl": divergence, "weighted": weighted}
