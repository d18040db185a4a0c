"""Self-attention over sentences of unlike lengths: a vector for each word, and their mean for the
sentence.
"""

# %% Imports
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import jitney

from ._by_hand import blocks, in_order, in_order_cut
from ._sides import SMALL, Lengths, Work

WIDTH = 32


# %% The function of one row
def attend(
    heads: Float[Array, "3 width width"], words: Float[Array, "word width"]
) -> tuple[Float[Array, "word width"], Float[Array, "width"]]:
    """Words that have looked at each other, and their mean."""
    query, key, value = (words @ head for head in heads)
    weights = jax.nn.softmax(query @ key.T / jnp.sqrt(jnp.float32(heads.shape[1])))
    seen = words + weights @ value
    return seen, jnp.mean(seen, axis=0)


# %% With jitney
attending = jitney.optimize(vmap="sentence", pad={"word": "pow2"})(attend)


# %% By hand: masks, the same buckets
@jax.jit
def of_block(heads, words, length):
    def masked(words, length):
        inside = jnp.arange(words.shape[0]) < length
        query, key, value = (words @ head for head in heads)
        scores = query @ key.T / jnp.sqrt(jnp.float32(heads.shape[1]))
        seen = words + jax.nn.softmax(jnp.where(inside, scores, -jnp.inf)) @ value
        return seen, jnp.sum(jnp.where(inside[:, None], seen, 0), axis=0) / length

    return jax.vmap(masked)(words, length)


def by_hand(heads, sentences):
    parts = [(rows, *of_block(heads, *given)) for rows, _, given in blocks([sentences])]
    seen = in_order_cut([len(words) for words in sentences], [(rows, x) for rows, x, _ in parts])
    return seen, in_order(len(sentences), [(rows, pooled) for rows, _, pooled in parts])


# %% A compile for each length
alone = jax.jit(attend)


def a_length(heads, sentences):
    seen, pooled = zip(*(alone(heads, words) for words in sentences), strict=True)
    return [np.asarray(words) for words in seen], np.stack(pooled)


# %% Data
def heads() -> np.ndarray:
    """Query, key and value."""
    rng = np.random.default_rng(0)
    return (rng.normal(size=(3, WIDTH, WIDTH)) / WIDTH**0.5).astype(np.float32)


def sentences(sizes: Lengths, seed: int) -> list[np.ndarray]:
    """Words as vectors."""
    rng, counts = sizes.draw(seed)
    return [rng.normal(size=(n, WIDTH)).astype(np.float32) for n in counts]


def works(*, full: bool) -> tuple[Work, ...]:
    """A list along the axis and an array without it."""
    sizes = Lengths(2000, 20, 3, 120) if full else SMALL
    return (
        Work(
            "attention",
            "self-attention, a vector a word and one a sentence",
            (heads(),),
            lambda seed: (sentences(sizes, seed),),
            {"jitney": attending, "by hand": by_hand, "a length": a_length},
            (attending,),
            rtol=1e-4,
            atol=1e-5,
        ),
    )
