"""The exact posterior over whole graphs, for three to five variables, by writing down every graph.

The evidence of a graph is the product over its variables of the evidence of their parent sets
(`_expert.scores`); its prior is the sum over the orders that fit of the chances by which `_data`
draws an order and sets.
"""

from functools import lru_cache
from itertools import combinations, permutations, product
from math import comb, factorial

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import logsumexp

from ._data import arrays_of, most_parents, parent_sets
from ._expert import scores

MOST = 5  # 5 variables have 29,281 graphs, 6 have 3,781,503


@lru_cache
def graphs(
    variables: int,
) -> tuple[
    Int[np.ndarray, "graph vars"], Int[np.ndarray, "graph vars"], Float[np.ndarray, "graph"]
]:
    """All graphs: the position of each variable's parent set, an order that fits, and the logarithm
    of the prior.
    """
    position = [{s: i for i, s in enumerate(parent_sets(variables, v))} for v in range(variables)]
    chance: dict[tuple[int, ...], float] = {}
    fits: dict[tuple[int, ...], tuple[int, ...]] = {}
    for order in permutations(range(variables)):
        for choice in product(*(_choices(order, place) for place in range(variables))):
            key = [0] * variables
            for variable, (members, _) in zip(order, choice, strict=True):
                key[variable] = position[variable][members]
            prior = np.prod([each for _, each in choice]) / factorial(variables)
            chance[tuple(key)] = chance.get(tuple(key), 0.0) + prior
            fits[tuple(key)] = order
    keys = list(chance)
    found = np.array(keys), np.array([fits[key] for key in keys])
    return *found, np.log([chance[key] for key in keys])


def _choices(order: tuple[int, ...], place: int) -> list[tuple[frozenset[int], float]]:
    """Parent sets of the variable at a place, and their chances."""
    most = min(most_parents(len(order)), place)
    return [
        (frozenset(members), 1 / ((most + 1) * comb(place, size)))
        for size in range(most + 1)
        for members in combinations(order[:place], size)
    ]


def posterior(
    values: Float[np.ndarray, "task samples vars"],
    intervened: Bool[np.ndarray, "task samples vars"],
) -> Float[np.ndarray, "task graph"]:
    """The probability of each graph."""
    sets, _, prior = graphs(values.shape[2])
    local = scores(values.astype(float), intervened)
    joint = prior + sum(local[:, v, sets[:, v]] for v in range(values.shape[2]))
    return np.exp(joint - logsumexp(joint, axis=1, keepdims=True))


def marginals(
    chance: Float[np.ndarray, "task graph"], variables: int
) -> Float[np.ndarray, "task vars sets"]:
    """The probability of each parent set of each variable."""
    sets, _, _ = graphs(variables)
    found = np.zeros((len(chance), variables, len(parent_sets(variables, 0))))
    for variable in range(variables):
        for at in range(found.shape[2]):
            found[:, variable, at] = chance[:, sets[:, variable] == at].sum(1)
    return found


def as_steps(
    order: Int[np.ndarray, "*any vars"], sets: Int[np.ndarray, "*any vars"]
) -> tuple[Int[np.ndarray, "*any vars parents"], Bool[np.ndarray, "*any vars parents"]]:
    """The parents of the first variable of an order, of the second and so on: indices, and which of
    them count.
    """
    variables = order.shape[-1]
    index, mask = (
        np.stack(parts)
        for parts in zip(*(arrays_of(variables, v) for v in range(variables)), strict=True)
    )
    chosen = np.take_along_axis(sets, order, -1)
    return index[order, chosen], mask[order, chosen]
