"""A policy that reads the worth of each intervention, cell by cell, and gives each cell a logit.

So it serves any number of variables, and any belief.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ._round import Worth
from .model import Linear

FEATURES = 4


class Policy(eqx.Module):
    """A small network for each cell of the worth."""

    layers: tuple[Linear, Linear, Linear]

    def __init__(self, hidden: int = 16, *, key: PRNGKeyArray):
        a, b, c = jax.random.split(key, 3)
        shapes = ((FEATURES, hidden, a), (hidden, hidden, b), (hidden, 1, c))
        self.layers = tuple(Linear(*shape) for shape in shapes)

    def __call__(
        self, seen: Float[Array, "vars values features"], allowed: Bool[Array, "vars"]
    ) -> Float[Array, "vars values"]:
        """Log probabilities."""
        h = jax.nn.gelu(self.layers[0](seen))
        logits = self.layers[2](jax.nn.gelu(self.layers[1](h)))[..., 0]
        logits = jnp.where(allowed[:, None], logits, -jnp.inf)
        return logits - jax.nn.logsumexp(logits)


def looks(worth: Worth, left: Float[Array, ""]) -> Float[Array, "vars values features"]:
    """What the policy reads: the mean below the best one, information, improvement, and how much of
    the campaign is left.
    """
    below = worth.mean - jnp.max(worth.mean)
    parts = (below, worth.information, worth.improvement, jnp.broadcast_to(left, below.shape))
    return jnp.stack([jnp.where(jnp.isfinite(part), part, 0.0) for part in parts], axis=-1)
