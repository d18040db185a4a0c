"""Random structural causal models, samples of them, and the parent sets that a target may have.

The graph: a random order of the variables; each has a random number of parents, from none to
`most_parents`, drawn from those before it. The mechanism of each variable is linear, y = sum a_i
x_i + noise, or nonlinear, y = sum a_i sin(OMEGA x_i) + b_i cos(OMEGA x_i) + noise, with equal
chance; the weights are Gaussian. Each variable is brought to unit variance before the next one is
made (Ormaniec et al., "Standardizing structural causal models", 2024), so that neither scale nor
variance tells the order. Half of the samples are only observed; in each of the others one variable
is set from outside.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int

EXACT = 6  # up to so many variables the exact posterior is there to imitate
WIDTH = 3  # the most parents that any set has
OMEGA = 1.5
SPREAD = 2.0  # the variance of weights over that of the noise
Kind = Literal["linear", "nonlinear", "mixed"]


def most_parents(variables: int) -> int:
    """The size of the largest parent set: 3 for up to six variables, 2 above, so that 20 variables
    have 191 sets and not 1160.
    """
    return min(WIDTH if variables <= EXACT else 2, variables - 1)


@lru_cache
def parent_sets(variables: int, target: int) -> tuple[frozenset[int], ...]:
    """All sets of other variables that a target may have as parents, the empty one first."""
    return tuple(map(frozenset, parents(variables, target)))


def parents(variables: int, target: int) -> list[tuple[int, ...]]:
    """The members of each."""
    others = [i for i in range(variables) if i != target]
    return [
        chosen
        for size in range(most_parents(variables) + 1)
        for chosen in combinations(others, size)
    ]


@lru_cache
def arrays_of(
    variables: int, target: int
) -> tuple[Int[np.ndarray, "sets parents"], Bool[np.ndarray, "sets parents"]]:
    """`parent_sets` as arrays: indices, and which of them count. What does not count is 0."""
    sets = parent_sets(variables, target)
    index, mask = np.zeros((len(sets), WIDTH), np.int32), np.zeros((len(sets), WIDTH), bool)
    for row, members in enumerate(sets):
        index[row, : len(members)] = sorted(members)
        mask[row, : len(members)] = True
    return index, mask


@lru_cache
def tables(
    variables: int,
) -> tuple[Int[np.ndarray, "vars sets parents"], Bool[np.ndarray, "vars sets parents"]]:
    """`arrays_of` for each variable in turn."""
    index, mask = zip(*(arrays_of(variables, v) for v in range(variables)), strict=True)
    return np.stack(index), np.stack(mask)


@dataclass(frozen=True)
class Batch:
    """Examples with one number of variables.

    Args:
        x: Value, whether it was set from outside, whether the variable is the target.
        index: The variables in each parent set.
        mask: Which of these count.
        expert: The distribution over parent sets to imitate.
        truth: The position of the true parent set.
        target: The target.
    """

    x: Float[np.ndarray, "example samples vars 3"]
    index: Int[np.ndarray, "example sets parents"]
    mask: Bool[np.ndarray, "example sets parents"]
    expert: Float[np.ndarray, "example sets"]
    truth: Int[np.ndarray, "example"]
    target: Int[np.ndarray, "example"]

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """What the loss takes."""
        return self.x, self.index, self.mask, self.expert

    @property
    def sets(self) -> list[tuple[frozenset[int], ...]]:
        """The parent sets of each example, as Python has them."""
        return [parent_sets(self.x.shape[2], int(target)) for target in self.target]


@dataclass(frozen=True)
class Samples:
    """What was drawn: values and flags, the graphs and the targets."""

    values: Float[np.ndarray, "example samples vars"]
    intervened: Bool[np.ndarray, "example samples vars"]
    parents: Bool[np.ndarray, "example vars vars"]  # [child, parent]
    target: Int[np.ndarray, "example"]


def draw(
    rng: np.random.Generator, examples: int, variables: int, samples: int = 32, kind: Kind = "mixed"
) -> Samples:
    """Random models, and samples of each."""
    ordered = _parents(rng, examples, variables)
    intervened = _interventions(rng, examples, samples, variables)
    values = _values(rng, ordered, intervened, kind)
    # position in the order -> variable
    names = np.argsort(rng.random((examples, variables)), axis=1)
    places = np.argsort(names, axis=1)
    values = np.take_along_axis(values, places[:, None, :], 2)
    intervened = np.take_along_axis(intervened, places[:, None, :], 2)
    parents = np.take_along_axis(
        np.take_along_axis(ordered, places[:, :, None], 1), places[:, None, :], 2
    )
    return Samples(values, intervened, parents, rng.integers(variables, size=examples))


def _parents(rng: np.random.Generator, examples: int, variables: int) -> np.ndarray:
    """Who is a parent of whom, where the order is that of the positions."""
    found = np.zeros((examples, variables, variables), bool)
    for child in range(1, variables):
        count = rng.integers(min(most_parents(variables), child) + 1, size=examples)
        rank = np.argsort(np.argsort(rng.random((examples, child)), axis=1), axis=1)
        found[:, child, :child] = rank < count[:, None]
    return found


def _interventions(
    rng: np.random.Generator, examples: int, samples: int, variables: int
) -> np.ndarray:
    """In the second half of the samples, one variable each."""
    flags = np.zeros((examples, samples, variables), bool)
    chosen = rng.integers(variables, size=(examples, samples - samples // 2))
    np.put_along_axis(flags[:, samples // 2 :], chosen[:, :, None], values=True, axis=2)
    return flags


def _values(
    rng: np.random.Generator, parents: np.ndarray, intervened: np.ndarray, kind: Kind
) -> np.ndarray:
    """Values along the order, each variable at unit variance where nothing was set."""
    examples, samples, variables = intervened.shape
    weight, cosine = np.sqrt(SPREAD) * parents * rng.normal(size=(2, *parents.shape))
    noise = rng.normal(size=(examples, samples, variables))
    outside = 1.5 * rng.normal(size=(examples, samples, variables))
    linear = (
        rng.random((examples, variables)) < {"linear": 1.0, "nonlinear": 0.0, "mixed": 0.5}[kind]
    )
    x = np.zeros((examples, samples, variables))
    for child in range(variables):
        waves = np.einsum("enp,ep->en", np.sin(OMEGA * x), weight[:, child]) + np.einsum(
            "enp,ep->en", np.cos(OMEGA * x), cosine[:, child]
        )
        y = (
            np.where(linear[:, None, child], np.einsum("enp,ep->en", x, weight[:, child]), waves)
            + noise[:, :, child]
        )
        seen = y[:, : samples // 2]
        y = (y - seen.mean(1, keepdims=True)) / seen.std(1, keepdims=True)
        x[:, :, child] = np.where(intervened[:, :, child], outside[:, :, child], y)
    return x


def inputs(drawn: Samples) -> Float[np.ndarray, "example samples vars 3"]:
    """What the network reads."""
    target = np.arange(drawn.values.shape[2]) == drawn.target[:, None]
    flags = np.broadcast_to(target[:, None, :], drawn.values.shape)
    return np.stack([drawn.values, drawn.intervened, flags], axis=-1).astype(np.float32)


def true_sets(drawn: Samples) -> Int[np.ndarray, "example"]:
    """The position of each target's true parent set among its `parent_sets`."""
    return positions_of(drawn.parents)[np.arange(len(drawn.target)), drawn.target]


def positions_of(parents: Bool[np.ndarray, "task vars vars"]) -> Int[np.ndarray, "task vars"]:
    """The position of the parent set of each variable among its `parent_sets`.

    Args:
        parents: [child, parent].
    """
    index, mask = tables(parents.shape[1])
    members = np.zeros((*index.shape[:2], parents.shape[1]), bool)
    variable, row, place = np.nonzero(mask)
    members[variable, row, index[variable, row, place]] = True
    # one variable at a time: twenty of them have 191 sets each
    found = [(members[v] == parents[:, None, v]).all(2).argmax(1) for v in range(parents.shape[1])]
    return np.stack(found, axis=1)
