"""The belief after a few gradient steps on the data of one campaign.

The network reads any data in one pass, and what it has learned is a mean over all models. On the
data at hand its loss is lowered further by steps on its outputs alone, the logits of parent sets:
semi-amortised inference (Kim et al., "Semi-amortized variational autoencoders", 2018), with the
gradient of the wake phase of reweighted wake-sleep (Bornschein and Bengio 2015). The loss is that
of training, the cross-entropy of the true parents. Nobody knows these in a campaign, so that their
posterior takes their place, as the campaign's own data have it:

1. Orders of the variables are drawn from the belief.
2. Given an order, the posterior over the parents of each variable is a closed form: prior times
   evidence, over the sets that stand before it (Friedman and Koller 2003).
3. An order counts by its prior and evidence, over the chance with which it was drawn.

Each step draws orders from the belief as it then is. Steps begin with the network's belief in each
round and nothing is carried along, so that a campaign goes on to the same bits from its data alone.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

import jitney

from ._data import tables
from ._expert import scores
from ._loop import Campaign, Learner, by_belief, by_parts
from ._round import DATA, LOOP_PAD, Believer, Worth, belief
from ._worlds import FLOOR, Draws, log_prior

STEPS, ORDERS, RATE = 8, 32, 3.0
SEED = 2**31 - 7  # of the orders


class Ignorant(eqx.Module):
    """A belief that no data change: the prior. Steps that begin here show what they do alone."""

    def beliefs(
        self,
        values: Float[Array, "samples vars"],
        intervened: Bool[Array, "samples vars"],
        index: Int[Array, "vars sets parents"],
        mask: Bool[Array, "vars sets parents"],
    ) -> Float[Array, "vars sets"]:
        """Each size of a parent set with equal chance, and each set of a size."""
        return jax.nn.log_softmax(log_prior(mask), axis=1)


def by_orders(
    log_q: Float[Array, "vars sets"],
    local: Float[Array, "vars sets"],
    index: Int[Array, "vars sets parents"],
    mask: Bool[Array, "vars sets parents"],
    gumbel: Float[Array, "order vars vars"],
) -> Float[Array, "vars sets"]:
    """The posterior over parent sets, by orders that are drawn from a belief.

    Args:
        log_q: The belief.
        local: The log evidence of each parent set.
        index: The parent sets.
        mask: Which members count.
        gumbel: Random numbers, which say what comes next.
    """
    q, at = jnp.exp(log_q) + FLOOR, jnp.arange(log_q.shape[0])
    size = jnp.sum(mask, axis=2)
    most = jnp.max(size)

    def order(gumbel: Array) -> tuple[Array, Array]:
        def place(state: tuple[Array, ...], numbers: Array) -> tuple[tuple[Array, ...], None]:
            before, found, weight = state
            fits = jnp.all(before[index] | ~mask, axis=2)
            ready = jnp.where(before, 0.0, jnp.sum(jnp.where(fits, q, 0.0), axis=1))
            which = jnp.argmax(jnp.log(ready) + numbers)
            chance = jnp.log(ready[which]) - jnp.log(jnp.sum(ready))
            joint = local[which] + log_chance(size[which], jnp.sum(before), most)
            joint = jnp.where(fits[which], joint, -jnp.inf)
            total = jax.nn.logsumexp(joint)
            here = at == which
            found = found + jnp.where(here[:, None], jnp.exp(joint - total), 0.0)
            return (before | here, found, weight + total - chance), None

        nobody = jnp.zeros(at.shape[0], bool)
        start = nobody, jnp.zeros_like(log_q), jnp.float32(0.0)
        _, found, weight = jax.lax.scan(place, start, gumbel)[0]
        return found, weight

    found, weight = jax.vmap(order)(gumbel)
    return jnp.tensordot(jax.nn.softmax(weight), found, axes=1)


def log_chance(
    size: Int[Array, "*any"], before: Int[Array, ""], most: Int[Array, ""]
) -> Float[Array, "*any"]:
    """The log chance of a parent set of so many members, where so many variables come before: as
    `_data` draws, the size first, up to `most`, and then the members.
    """
    n = before.astype(jnp.float32)
    ways = [jnp.ones_like(n), n, n * (n - 1) / 2, n * (n - 1) * (n - 2) / 6]
    count = jnp.select([size == k for k in range(4)], ways)
    return -jnp.log(jnp.maximum(count, 1.0)) - jnp.log(jnp.minimum(most, before) + 1.0)


def step(
    model: Believer,
    values: Float[Array, "samples vars"],
    intervened: Bool[Array, "samples vars"],
    index: Int[Array, "vars sets parents"],
    mask: Bool[Array, "vars sets parents"],
    local: Float[Array, "vars sets"],
    gumbel: Float[Array, "step order vars vars"],
    rate: Float[Array, ""],
) -> Float[Array, "vars sets"]:
    """The belief after as many gradient steps as there are random numbers for."""
    logits = belief(model, values, intervened, index, mask)

    def one(logits: Array, gumbel: Array) -> tuple[Array, None]:
        log_q = jax.nn.log_softmax(logits, axis=1)
        posterior = by_orders(log_q, local, index, mask, gumbel)
        # the gradient of the cross-entropy by the logits is belief less posterior
        return logits + rate * (posterior - jnp.exp(log_q)), None

    return jax.nn.log_softmax(jax.lax.scan(one, logits, gumbel)[0], axis=1)


stepped = jitney.optimize(vmap={"task": {**DATA, "local": 0, "gumbel": 0}}, pad=LOOP_PAD)(step)


def luck(
    tasks: int, samples: int, variables: int, steps: int
) -> Float[np.ndarray, "task step order vars vars"]:
    """The random numbers of the orders of a round, the same for the same number of samples."""
    rng = np.random.default_rng([SEED, samples])
    return rng.gumbel(size=(tasks, steps, ORDERS, variables, variables)).astype(np.float32)


def refined(
    model: Believer,
    values: Float[np.ndarray, "task samples vars"],
    intervened: Bool[np.ndarray, "task samples vars"],
    steps: int = STEPS,
    rate: float = RATE,
) -> Float[np.ndarray, "task vars sets"]:
    """The belief about many models after the steps, as log probabilities.

    Args:
        model: The network.
        values: The data.
        intervened: Where a variable was set from outside.
        steps: How many; another number is another program.
        rate: How long a step is.
    """
    tasks, samples, variables = values.shape
    gumbel = luck(tasks, samples, variables, steps)
    local = scores(values.astype(float), intervened)
    # only differences between the sets of a variable count: what matters keeps its digits
    local = (local - local.max(2, keepdims=True)).astype(np.float32)
    sets, size = tables(variables), np.float32(rate)
    given = values, intervened, local, gumbel
    return by_parts(lambda *g: stepped(model, *g[:2], *sets, *g[2:], size), *given)


def by_steps(model: Believer, weighed: bool = False, steps: int = STEPS) -> Learner:
    """The belief of the network, after so many gradient steps in each round; `weighed` by prior
    and evidence, as `imagine` has it, which brings back what variables know of each other.
    """

    def worth(campaign: Campaign, draws: Draws) -> Worth:
        log_q = refined(model, campaign.values, campaign.intervened, steps)
        return by_belief(campaign, log_q, draws, weighed)

    return worth
