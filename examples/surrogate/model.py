"""A network that reads samples of some variables and scores the parent sets of one of them, in the
style of AVICI.

Lorch et al., "Amortized inference for causal structure learning", NeurIPS 2022: attention in turn
over samples and over variables, with one set of weights for all, so that the order of neither
matters and any number of them fits; then the largest over samples. A set of variables is the sum of
what stands for its members, and one small network scores every set.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray


class Linear(eqx.Module):
    """Along the last axis."""

    weight: Float[Array, "out width"]
    bias: Float[Array, "out"]

    def __init__(self, width: int, out: int, key: PRNGKeyArray, scale: float = 1.0):
        self.weight = scale / width**0.5 * jax.random.truncated_normal(key, -2, 2, (out, width))
        self.bias = jnp.zeros(out)

    def __call__(self, x: Float[Array, "*any width"]) -> Float[Array, "*any out"]:
        """The product with the weights, shifted."""
        return x @ self.weight.T + self.bias


class Norm(eqx.Module):
    """Mean 0 and variance 1 along the last axis, then scale and shift."""

    scale: Float[Array, "hidden"]
    shift: Float[Array, "hidden"]

    def __init__(self, hidden: int):
        self.scale, self.shift = jnp.ones(hidden), jnp.zeros(hidden)

    def __call__(self, x: Float[Array, "*any hidden"]) -> Float[Array, "*any hidden"]:
        """Each vector alone."""
        x = x - jnp.mean(x, axis=-1, keepdims=True)
        return (
            x * jax.lax.rsqrt(jnp.mean(x**2, axis=-1, keepdims=True) + 1e-5) * self.scale
            + self.shift
        )


class Attention(eqx.Module):
    """Each row of a matrix attends to all of its rows; keys have no bias, since a softmax does not
    see it.
    """

    norm: Norm
    query: Linear
    key: Float[Array, "hidden hidden"]
    value: Linear
    out: Linear
    heads: int = eqx.field(static=True)

    def __init__(self, hidden: int, heads: int, depth: int, key: PRNGKeyArray):
        q, k, v, o = jax.random.split(key, 4)
        self.norm, self.heads = Norm(hidden), heads
        self.query, self.value = Linear(hidden, hidden, q), Linear(hidden, hidden, v)
        self.key = Linear(hidden, hidden, k).weight
        self.out = Linear(hidden, hidden, o, (2 * depth) ** -0.5)

    def __call__(
        self, x: Float[Array, "other rows hidden"], there: Bool[Array, "rows"] | None = None
    ) -> Float[Array, "other rows hidden"]:
        """For each of the others alone, to rows that are there."""
        y = self.norm(x)
        query, key, value = (
            self._split(part) for part in (self.query(y), y @ self.key.T, self.value(y))
        )
        score = jnp.einsum("ornk,osnk->onrs", query, key) * query.shape[-1] ** -0.5
        score = score if there is None else jnp.where(there, score, -jnp.inf)
        weight = jax.nn.softmax(score, axis=-1)
        mixed = jnp.einsum("onrs,osnk->ornk", weight, value)
        return x + self.out(mixed.reshape(*x.shape))

    def _split(self, x: Float[Array, "other rows hidden"]) -> Float[Array, "other rows heads each"]:
        return x.reshape(*x.shape[:2], self.heads, -1)


class Feed(eqx.Module):
    """Two layers for each element alone."""

    norm: Norm
    wide: Linear
    narrow: Linear

    def __init__(self, hidden: int, depth: int, key: PRNGKeyArray):
        wide, narrow = jax.random.split(key)
        self.norm, self.wide = Norm(hidden), Linear(hidden, 2 * hidden, wide)
        self.narrow = Linear(2 * hidden, hidden, narrow, (2 * depth) ** -0.5)

    def __call__(self, x: Float[Array, "*any hidden"]) -> Float[Array, "*any hidden"]:
        """What comes in, and what the layers add."""
        return x + self.narrow(jax.nn.gelu(self.wide(self.norm(x))))


class Block(eqx.Module):
    """Attention over samples, then over variables, each followed by two layers."""

    samples: Attention
    vars: Attention
    feeds: tuple[Feed, Feed]

    def __init__(self, hidden: int, heads: int, depth: int, key: PRNGKeyArray):
        a, b, c, d = jax.random.split(key, 4)
        self.samples, self.vars = (
            Attention(hidden, heads, depth, a),
            Attention(hidden, heads, depth, b),
        )
        self.feeds = Feed(hidden, depth, c), Feed(hidden, depth, d)

    def __call__(
        self, x: Float[Array, "samples vars hidden"], there: Bool[Array, "samples"] | None = None
    ) -> Float[Array, "samples vars hidden"]:
        """One after the other; of samples those that are there."""
        x = self.feeds[0](jnp.swapaxes(self.samples(jnp.swapaxes(x, 0, 1), there), 0, 1))
        return self.feeds[1](self.vars(x))


class Scorer(eqx.Module):
    """One number for each set, from what stands for its members, for the target and for all
    variables.
    """

    member: Linear
    target: Linear
    all: Linear
    norm: Norm
    out: Float[Array, "hidden"]

    def __init__(self, hidden: int, key: PRNGKeyArray):
        a, b, c, d = jax.random.split(key, 4)
        self.member, self.target, self.all = (
            Linear(hidden, hidden, a),
            Linear(hidden, hidden, b),
            Linear(hidden, hidden, c),
        )
        self.norm, self.out = Norm(hidden), Linear(hidden, 1, d).weight[0]

    def __call__(
        self,
        x: Float[Array, "vars hidden"],
        target: Float[Array, "vars"],
        index: Int[Array, "sets parents"],
        mask: Bool[Array, "sets parents"],
    ) -> Float[Array, "sets"]:
        """The scores of sets given as indices and which of them count."""
        return self.of_members(
            jnp.sum(jnp.where(mask[:, :, None], self.member(x)[index], 0.0), axis=1), x, target
        )

    def of_members(
        self,
        members: Float[Array, "sets hidden"],
        x: Float[Array, "vars hidden"],
        target: Float[Array, "vars"],
    ) -> Float[Array, "sets"]:
        """The scores, from the sum over the members of each set of what `member` makes of them."""
        context = self.target(target @ x) + self.all(jnp.mean(x, axis=0))
        return jax.nn.gelu(self.norm(members + context)) @ self.out


class Surrogate(eqx.Module):
    """Scores of parent sets from samples.

    Args:
        hidden: Width of the network.
        depth: How many blocks.
        heads: Of attention; they divide `hidden`.
        key: For the weights.
    """

    first: Linear
    blocks: tuple[Block, ...]
    norm: Norm
    scorer: Scorer

    def __init__(self, hidden: int = 32, depth: int = 2, heads: int = 4, *, key: PRNGKeyArray):
        first, last, *keys = jax.random.split(key, depth + 2)
        self.first, self.norm, self.scorer = (
            Linear(3, hidden, first),
            Norm(hidden),
            Scorer(hidden, last),
        )
        self.blocks = tuple(Block(hidden, heads, depth, each) for each in keys)

    def embed(self, x: Float[Array, "samples vars 3"]) -> Float[Array, "vars hidden"]:
        """What stands for each variable."""
        h = self.first(x)
        for block in self.blocks:
            h = block(h)
        return self.norm(jnp.max(h, axis=0))

    def __call__(
        self,
        x: Float[Array, "samples vars 3"],
        index: Int[Array, "sets parents"],
        mask: Bool[Array, "sets parents"],
    ) -> Float[Array, "sets"]:
        """Log probabilities of the parent sets of the variable that the last channel flags."""
        return jax.nn.log_softmax(self.scorer(self.embed(x), x[0, :, 2], index, mask))

    def beliefs(
        self,
        values: Float[Array, "samples vars"],
        intervened: Bool[Array, "samples vars"],
        index: Int[Array, "vars sets parents"],
        mask: Bool[Array, "vars sets parents"],
    ) -> Float[Array, "vars sets"]:
        """The same for each variable in turn."""

        def one(flag: Array, index: Array, mask: Array) -> Array:
            flags = jnp.broadcast_to(flag, values.shape)
            return self(jnp.stack([values, intervened, flags], axis=-1), index, mask)

        names = jnp.arange(values.shape[1])
        return jax.vmap(one)(jnp.where(names[:, None] == names, 1.0, 0.0), index, mask)


def parameters(model: Any) -> int:
    """How many numbers are trained."""
    return sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array)))
