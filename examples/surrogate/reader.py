"""A network that reads samples once and scores the parent sets of all variables.

`model.Surrogate` is asked about one target and reads the samples again for the next one. Here they
are read once, as in AVICI: attention over samples and over variables, mean and maximum over
samples, attention over variables alone; then each pair of variables, child and parent, has a
vector, a set is the sum over its members, and one small network scores every set. The prior over
sets is added to the scores, so that the network learns what the samples say.

Samples may be absent: one shape then serves campaigns of any length.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ._worlds import log_prior
from .model import Attention, Block, Feed, Linear, Norm


class Pairs(eqx.Module):
    """Scores of the parent sets of each variable, from what stands for the variables."""

    child: Linear
    parent: Linear
    norm: Norm
    member: Linear
    target: Linear
    last: Norm
    out: Float[Array, "hidden"]

    def __init__(self, hidden: int, key: PRNGKeyArray):
        a, b, c, d, e = jax.random.split(key, 5)
        self.child, self.parent = Linear(hidden, hidden, a), Linear(hidden, hidden, b)
        self.member, self.target = Linear(hidden, hidden, c), Linear(hidden, hidden, d)
        self.norm, self.last = Norm(hidden), Norm(hidden)
        self.out = Linear(hidden, 1, e).weight[0]

    def __call__(
        self, x: Float[Array, "vars hidden"], members: Float[Array, "vars sets vars"]
    ) -> Float[Array, "vars sets"]:
        """A set of a variable has 1 at its members."""
        pair = jax.nn.gelu(self.norm(self.child(x)[:, None] + self.parent(x)))
        whole = jnp.einsum("tsv,tvk->tsk", members, self.member(pair))
        return jax.nn.gelu(self.last(whole + self.target(x)[:, None])) @ self.out


class Reader(eqx.Module):
    """Log probabilities of the parent sets of all variables.

    Args:
        hidden: Width of the network.
        depth: How many blocks read the samples.
        after: How many layers of attention come after the samples.
        heads: Of attention; they divide `hidden`.
        key: For the weights.
    """

    first: Linear
    blocks: tuple[Block, ...]
    pool: Linear
    after: tuple[tuple[Attention, Feed], ...]
    norm: Norm
    pairs: Pairs

    def __init__(
        self,
        hidden: int = 80,
        depth: int = 4,
        after: int = 2,
        heads: int = 4,
        *,
        key: PRNGKeyArray,
    ):
        first, pool, last, *keys = jax.random.split(key, 3 + depth + 2 * after)
        self.first, self.pool = Linear(2, hidden, first), Linear(2 * hidden, hidden, pool)
        self.blocks = tuple(Block(hidden, heads, depth, each) for each in keys[:depth])
        pairs = zip(keys[depth::2], keys[depth + 1 :: 2], strict=True)
        self.after = tuple(
            (Attention(hidden, heads, depth, a), Feed(hidden, depth, b)) for a, b in pairs
        )
        self.norm, self.pairs = Norm(hidden), Pairs(hidden, last)

    def beliefs(
        self,
        values: Float[Array, "samples vars"],
        intervened: Bool[Array, "samples vars"],
        index: Int[Array, "vars sets parents"],
        mask: Bool[Array, "vars sets parents"],
        there: Bool[Array, "samples"] | None = None,
    ) -> Float[Array, "vars sets"]:
        """A distribution over the parent sets of each variable, from the samples that are there."""
        names = jnp.arange(values.shape[1])
        inside = (index[..., None] == names) & mask[..., None]
        members = jnp.sum(jnp.where(inside, 1.0, 0.0), axis=2)
        score = self.pairs(self.embed(values, intervened, there), members)
        return jax.nn.log_softmax(score + log_prior(mask), axis=1)

    def embed(
        self,
        values: Float[Array, "samples vars"],
        intervened: Bool[Array, "samples vars"],
        there: Bool[Array, "samples"] | None = None,
    ) -> Float[Array, "vars hidden"]:
        """What stands for each variable."""
        h = self.first(jnp.stack([values, jnp.where(intervened, 1.0, 0.0)], axis=-1))
        for block in self.blocks:
            h = block(h, there)
        if there is None:
            mean, most = jnp.mean(h, axis=0), jnp.max(h, axis=0)
        else:
            inside = there[:, None, None]
            mean = jnp.sum(jnp.where(inside, h, 0.0), axis=0) / jnp.sum(there)
            most = jnp.max(jnp.where(inside, h, -jnp.inf), axis=0)
        x = self.pool(jnp.concatenate([mean, most], axis=-1))
        for attention, feed in self.after:
            x = feed(attention(x[None])[0])
        return self.norm(x)
