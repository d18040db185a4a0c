"""Campaigns on models that nobody has seen, drawn on the device: inside the program of a training
step, so that no data is made on the host and none is copied.

Models are those of `_environment`, in distribution: a test compares moments and how often there are
which parents. Random numbers are others, so nothing has to be the same to the bit.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ._data import OMEGA, SPREAD, most_parents, tables
from ._environment import SCALED_BY

OBSERVED = 16
ANSWERS = 20  # at most


class Difficulty(eqx.Module):
    """What a model is drawn by. Programs are the same for all.

    Args:
        linear: The chance that a mechanism is linear.
        spread: The variance of weights over that of the noise.
        most: The size of the largest parent set, if it is smaller than that of all models.
        least: The smallest number of answers.
    """

    linear: Float[Array, ""]
    spread: Float[Array, ""]
    most: Int[Array, ""]
    least: Int[Array, ""]

    @classmethod
    def of(
        cls, linear: float = 0.5, spread: float = SPREAD, most: int = 3, least: int = 0
    ) -> "Difficulty":
        """By default that of the environment."""
        return cls(jnp.float32(linear), jnp.float32(spread), jnp.int32(most), jnp.int32(least))


class Seen(eqx.Module):
    """Samples of one model, and its truth.

    Args:
        values: Observations, then answers.
        intervened: Which variable was set.
        there: Which samples there are.
        parents: [child, parent].
    """

    values: Float[Array, "samples vars"]
    intervened: Bool[Array, "samples vars"]
    there: Bool[Array, "samples"]
    parents: Bool[Array, "vars vars"]


class Luck(eqx.Module):
    """The random numbers of one model and its campaign."""

    counts: Float[Array, "vars"]  # uniform: how many parents
    ranks: Float[Array, "vars vars"]  # uniform: which
    kinds: Float[Array, "vars"]  # uniform: linear or waves
    names: Float[Array, "vars"]  # uniform: which place has which name
    likings: Float[Array, "vars"]  # Gumbel: which variables are set often
    length: Float[Array, "1"]  # uniform: how many answers
    chosen: Float[Array, "answers vars"]  # Gumbel: what is set
    outside: Float[Array, "answers"]  # uniform: to which value
    weights: Float[Array, "2 vars vars"]  # normal
    noise: Float[Array, "vars rows"]  # normal

    @classmethod
    def of(cls, key: PRNGKeyArray, examples: int, variables: int, answers: int) -> "Luck":
        """Along an axis of examples, from two draws: each draw takes seconds to compile."""
        one, two = jax.random.split(key)
        square, rows = (variables, variables), SCALED_BY + OBSERVED + answers
        line, many = (variables,), (answers, variables)
        shapes = line, square, line, line, line, (1,), many, (answers,)
        drawn = jax.random.uniform(one, (examples, _size(*shapes)), minval=1e-7)
        counts, ranks, kinds, names, likings, length, chosen, outside = _split(drawn, *shapes)
        shapes = (2, *square), (variables, rows)
        normal = _split(jax.random.normal(two, (examples, _size(*shapes))), *shapes)
        gumbel = lambda x: -jnp.log(-jnp.log(x))  # noqa: E731
        return cls(
            counts, ranks, kinds, names, gumbel(likings), length, gumbel(chosen), outside, *normal
        )


def _size(*shapes: tuple[int, ...]) -> int:
    return sum(math.prod(shape) for shape in shapes)


def _split(numbers: Float[Array, "example any"], *shapes: tuple[int, ...]) -> list[Array]:
    """Parts of such shapes."""
    upto = np.cumsum([math.prod(shape) for shape in shapes])[:-1]
    parts = jnp.split(numbers, upto, axis=1)
    return [each.reshape(-1, *shape) for each, shape in zip(parts, shapes, strict=True)]


def graph(luck: Luck, most: Int[Array, ""]) -> Bool[Array, "vars vars"]:
    """[child, parent], along an order: how many parents, then which of those before."""
    variables = luck.counts.shape[0]
    at = jnp.arange(variables)
    most = jnp.minimum(jnp.minimum(most_parents(variables), most), at)
    count = jnp.floor(luck.counts * (most + 1))
    before = at < at[:, None]
    lot = jnp.where(before, luck.ranks, 2.0)
    return before & (_rank(lot) < count[:, None])


def _rank(lot: Float[Array, "*any n"]) -> Int[Array, "*any n"]:
    """How many are smaller. Few numbers, so no sort."""
    return jnp.sum(lot[..., :, None] > lot[..., None, :], axis=-1)


def campaign(luck: Luck, difficulty: Difficulty) -> Seen:
    """A model, observations, and answers to interventions with a preference for some variables."""
    (variables, rows), (answers, _) = luck.noise.shape, luck.chosen.shape
    parents, at = graph(luck, difficulty.most), jnp.arange(variables)
    weight, other = jnp.sqrt(difficulty.spread) * luck.weights * parents
    flags = at == jnp.argmax(luck.likings + luck.chosen, axis=1)[:, None]
    # the first rows bring each variable to mean 0 and variance 1
    flags = jnp.pad(flags, ((rows - answers, 0), (0, 0)))
    outside = jnp.pad(4 * luck.outside - 2, (rows - answers, 0))

    def place(state: tuple[Array, ...], step: tuple[Array, ...]) -> tuple[tuple[Array, ...], None]:
        x, sine, cosine = state
        child, weight, other, linear, noise, flag = step
        # sums and not products of matrices, which a GPU rounds to 10 bits
        waves = jnp.sum(sine * weight[:, None] + cosine * other[:, None], axis=0)
        y = jnp.where(linear, jnp.sum(x * weight[:, None], axis=0), waves) + noise
        y = (y - jnp.mean(y[:SCALED_BY])) / jnp.std(y[:SCALED_BY])
        y = jnp.where(flag, outside, y)
        # each wave is taken once, not again for each variable that comes after
        new = y, jnp.sin(OMEGA * y), jnp.cos(OMEGA * y)
        return tuple(old.at[child].set(one) for old, one in zip(state, new, strict=True)), None

    linear = luck.kinds < difficulty.linear
    steps = (at, weight, other, linear, luck.noise, flags.T)
    x = jax.lax.scan(place, (jnp.zeros((variables, rows)),) * 3, steps)[0][0].T
    # a variable's name has nothing to do with its place
    names = _rank(luck.names)
    least = jnp.minimum(difficulty.least, answers)
    count = least + jnp.floor(luck.length * (answers + 1 - least))
    there = jnp.arange(OBSERVED + answers) < OBSERVED + count
    return Seen(x[SCALED_BY:, names], flags[SCALED_BY:, names], there, parents[names][:, names])


def campaigns(
    key: PRNGKeyArray,
    examples: int,
    variables: int,
    difficulty: Difficulty,
    answers: int = ANSWERS,
) -> Seen:
    """Many, along an axis of examples."""
    luck = Luck.of(key, examples, variables, answers)
    return jax.vmap(lambda luck: campaign(luck, difficulty))(luck)


def members(variables: int) -> Bool[np.ndarray, "vars sets vars"]:
    """Who is in each parent set."""
    index, mask = tables(variables)
    return ((index[..., None] == np.arange(variables)) & mask[..., None]).any(2)


def truth(parents: Bool[Array, "vars vars"]) -> Bool[Array, "vars sets"]:
    """Which set is the true one."""
    return jnp.all(members(parents.shape[0]) == parents[:, None], axis=2)
