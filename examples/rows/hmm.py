"""A hidden Markov model learnt from sequences of unlike lengths: log-likelihood by the forward
algorithm, and its gradient for parameters that all sequences share.
"""

# %% Imports
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

import jitney

from ._by_hand import blocks
from ._sides import SMALL, Lengths, Work

STATES, SYMBOLS = 8, 16


# %% The function of one row
def log_likelihood(
    first: Float[Array, "state"],
    move: Float[Array, "state state"],
    emit: Float[Array, "symbol state"],
    seen: Int[Array, "time"],
) -> Float[Array, ""]:
    """Logits of the first state, of moves and of symbols; the symbols of a sequence."""
    moves, says = jax.nn.softmax(move), jax.nn.softmax(emit, axis=0)

    def step(state, symbol):
        joint = state * says[symbol]
        total = jnp.sum(joint)
        return (joint / total) @ moves, jnp.log(total)

    return jnp.sum(lax.scan(step, jax.nn.softmax(first), seen)[1])


# %% With jitney
likelihoods = jitney.optimize(vmap="sequence", pad={"time": "pow2"})(log_likelihood)


def by_jitney(parameters, sequences):
    found = likelihoods.value_and_grad(*parameters, sequences, wrt=("first", "move", "emit"))
    value, grads = jax.tree.map(lambda each: -np.sum(np.asarray(each), axis=0), found)
    return value, (grads["first"], grads["move"], grads["emit"])


# %% By hand: masks, the same buckets
def masked(first, move, emit, seen, length):
    moves, says = jax.nn.softmax(move), jax.nn.softmax(emit, axis=0)

    def step(state, at):
        symbol, inside = at
        joint = state * says[symbol]
        total = jnp.sum(joint)
        after = jnp.where(inside, (joint / total) @ moves, state)
        return after, jnp.where(inside, jnp.log(total), 0)

    inside = jnp.arange(seen.shape[0]) < length
    return jnp.sum(lax.scan(step, jax.nn.softmax(first), (seen, inside))[1])


@jax.jit
@jax.value_and_grad
def of_block(parameters, seen, length, count):
    each = jax.vmap(masked, in_axes=(None, None, None, 0, 0))(*parameters, seen, length)
    return -jnp.sum(jnp.where(jnp.arange(len(each)) < count, each, 0))


def by_hand(parameters, sequences):
    found = [
        of_block(parameters, *given, np.int32(count)) for _, count, given in blocks([sequences])
    ]
    return jax.tree.map(lambda *parts: sum(map(np.asarray, parts)), *found)


# %% A compile for each length
alone = jax.jit(jax.value_and_grad(lambda parameters, seen: -log_likelihood(*parameters, seen)))


def a_length(parameters, sequences):
    found = [alone(parameters, seen) for seen in sequences]
    return jax.tree.map(lambda *parts: sum(map(np.asarray, parts)), *found)


# %% Data
def parameters() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logits of a model that stays in its states."""
    rng = np.random.default_rng(0)
    shapes = ((STATES,), (STATES, STATES), (SYMBOLS, STATES))
    first, move, emit = (rng.normal(size=shape).astype(np.float32) for shape in shapes)
    return first, move + 2 * np.eye(STATES, dtype=np.float32), emit


def sequences(sizes: Lengths, seed: int) -> list[np.ndarray]:
    """Of symbols."""
    rng, counts = sizes.draw(seed)
    return [rng.integers(SYMBOLS, size=n).astype(np.int32) for n in counts]


def works(*, full: bool) -> tuple[Work, ...]:
    """Value and gradient, the sum over all sequences."""
    sizes = Lengths(2000, 100, 10, 1000) if full else SMALL
    return (
        Work(
            "hmm",
            "HMM, value and gradient for shared parameters",
            (parameters(),),
            lambda seed: (sequences(sizes, seed),),
            {"jitney": by_jitney, "by hand": by_hand, "a length": a_length},
            (likelihoods,),
            rtol=1e-4,
            atol=1e-4 * sizes.count,
        ),
    )
