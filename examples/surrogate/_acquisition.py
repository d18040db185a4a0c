"""How much an intervention is worth: what it should tell about the model, what it should bring to
the target, or both.

Worlds are draws from a belief, with weights; a grid has which variable is set, to which value.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

KINDS = ("information", "improvement", "both")


def information(
    log_density: Float[Array, "world *grid world"], chance: Float[Array, "world"]
) -> Float[Array, "*grid"]:
    """Expected information gain about which world it is, in nats: the mean, over worlds and the
    answer that each gives, of how much likelier the answer is there than in all of them together
    (Lindley 1956; nested Monte Carlo as in Rainforth et al. 2018).

    Args:
        log_density: Of the answer that a world gives (first axis) in each world (last axis).
        chance: Of each world; the sum is 1.
    """
    own = jnp.moveaxis(jnp.diagonal(log_density, axis1=0, axis2=-1), -1, 0)
    mixture = jax.nn.logsumexp(log_density + jnp.log(chance), axis=-1)
    return jnp.tensordot(chance, own - mixture, axes=1)


def improvement(
    mean: Float[Array, "world *grid"], chance: Float[Array, "world"], best: Float[Array, ""]
) -> Float[Array, "*grid"]:
    """Expected improvement of the target's mean over the best that is known (Mockus 1978), over the
    worlds instead of a normal distribution.
    """
    return jnp.tensordot(chance, jnp.maximum(mean - best, 0.0), axes=1)
