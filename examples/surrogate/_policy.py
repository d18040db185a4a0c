"""A policy that reads the worth of each intervention, cell by cell, and gives each cell a logit.

So it serves any number of variables, and any belief.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ._round import Worth
from .model import Linear

FEATURES = 6
LITTLE = 0.01  # nats, or standard deviations of the target


class Policy(eqx.Module):
    """Logits of cells: a sum of what is read, and a small network.

    Before training both are 0: interventions are then uniform at random, and so is the reference
    of the training.
    """

    straight: Float[Array, "features"]
    layers: tuple[Linear, Linear, Linear]

    def __init__(self, hidden: int = 16, *, key: PRNGKeyArray):
        a, b, c = jax.random.split(key, 3)
        shapes = ((FEATURES, hidden, a), (hidden, hidden, b), (hidden, 1, c))
        first, second, last = (Linear(*shape) for shape in shapes)
        still = jax.tree.map(jnp.zeros_like, last)
        self.straight, self.layers = jnp.zeros(FEATURES), (first, second, still)

    def __call__(
        self, seen: Float[Array, "vars values features"], allowed: Bool[Array, "vars"]
    ) -> Float[Array, "vars values"]:
        """Log probabilities."""
        h = jax.nn.gelu(self.layers[0](seen))
        curved = self.layers[2](jax.nn.gelu(self.layers[1](h)))[..., 0]
        logits = jnp.where(allowed[:, None], seen @ self.straight + curved, -jnp.inf)
        return logits - jax.nn.logsumexp(logits)

    def fixed(self, **weights: float) -> "Policy":
        """A policy that learns nothing, with such weights of `PARTS`."""
        straight = jnp.array([weights.get(name, 0.0) for name in PARTS])
        still = jax.tree.map(jnp.zeros_like, self)
        return eqx.tree_at(lambda policy: policy.straight, still, straight)


# what a policy reads of a cell
PARTS = ("below", "information", "improvement", "informs", "improves", "left")


def looks(
    worth: Worth, left: Float[Array, ""], allowed: Bool[Array, "vars"]
) -> Float[Array, "vars values features"]:
    """What the policy reads: the mean below the best one, information, improvement, the last two
    beside the largest of all cells, and how much of the campaign is left.

    Information and improvement are small numbers where little can be gained. Beside the largest
    they are from 0 to 1, so that weights of order 1 can tell cells apart; where the largest is
    below `LITTLE`, beside that. Estimates of information may be below 0, and count as 0 there.
    """
    inside = allowed[:, None]
    below = worth.mean - jnp.max(worth.mean)
    told, better = (jnp.where(inside, x, 0.0) for x in (worth.information, worth.improvement))
    beside = [jnp.maximum(x, 0.0) / jnp.maximum(jnp.max(x), LITTLE) for x in (told, better)]
    rest = jnp.broadcast_to(left, below.shape)
    parts = (jnp.where(inside, below, 0.0), told, better, *beside, rest)
    return jnp.stack(parts, axis=-1)
