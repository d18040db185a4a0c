"""What the network has to beat: a guess by the prior, a threshold on correlations, and the lasso.

The last two look at the samples in which nobody set the target, take the strongest predictors, and
cannot tell a parent from a child. Their one number is tuned on models that are not in the test.
"""

from collections.abc import Callable, Sequence
from math import comb

import numpy as np

from ._data import Batch, most_parents

Chosen = list[frozenset[int]]


def prior(data: Batch) -> np.ndarray:
    """The probability of each parent set before anything is seen: any number of variables comes
    before the target with equal chance, then any size of set, then any set.
    """
    variables = data.x.shape[2]
    most, found = most_parents(variables), []
    for size in data.mask[0].sum(1):
        befores = np.arange(size, variables)  # how many variables come before
        fits = np.array([comb(int(b), int(size)) / comb(variables - 1, int(size)) for b in befores])
        chance = (
            fits
            / np.array([comb(int(b), int(size)) for b in befores])
            / (1 + np.minimum(most, befores))
        )
        found.append(chance.sum() / variables)
    return np.broadcast_to(np.array(found), data.expert.shape)


def _designs(data: Batch) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """For each example the standardised other variables, the target, and which variables these
    are.
    """
    out = []
    for x, target in zip(data.x.astype(float), data.target, strict=True):
        free = x[:, target, 1] == 0
        others = np.array([i for i in range(x.shape[1]) if i != target])
        y, design = x[free, target, 0], x[free][:, others, 0]
        out.append(((design - design.mean(0)) / design.std(0), (y - y.mean()) / y.std(), others))
    return out


def _strongest(weight: np.ndarray, others: np.ndarray, most: int) -> frozenset[int]:
    """The variables of the largest weights that are not zero."""
    order = np.argsort(-np.abs(weight))[:most]
    return frozenset(int(others[i]) for i in order if weight[i])


def by_correlation(data: Batch, threshold: float) -> Chosen:
    """The variables whose correlation with the target is above a threshold, the largest ones."""
    most, out = most_parents(data.x.shape[2]), []
    for design, y, others in _designs(data):
        r = design.T @ y / len(y)
        out.append(_strongest(np.where(np.abs(r) > threshold, r, 0.0), others, most))
    return out


def by_lasso(data: Batch, penalty: float) -> Chosen:
    """The variables with the largest weights in a lasso."""
    most = most_parents(data.x.shape[2])
    return [
        _strongest(lasso(design, y, penalty), others, most) for design, y, others in _designs(data)
    ]


def lasso(design: np.ndarray, y: np.ndarray, penalty: float, turns: int = 60) -> np.ndarray:
    """Weights that minimise |y - design w|^2 / (2 n) + penalty |w|_1, by coordinate descent
    (Friedman, Hastie and Tibshirani 2010).

    Args:
        design: One column a variable, with mean 0 and variance 1.
        y: The target.
        penalty: On the sum of absolute weights.
        turns: How often each weight is visited.
    """
    gram, moment = design.T @ design / len(y), design.T @ y / len(y)
    weight = np.zeros(len(moment))
    for _ in range(turns):
        for j in range(len(weight)):
            rest = moment[j] - gram[j] @ weight + gram[j, j] * weight[j]
            weight[j] = np.sign(rest) * max(abs(rest) - penalty, 0.0) / gram[j, j]
    return weight


def right(chosen: Chosen, data: Batch) -> np.ndarray:
    """Whether each choice is the true parent set."""
    return np.array(
        [found == sets[at] for found, sets, at in zip(chosen, data.sets, data.truth, strict=True)]
    )


def tuned(
    method: Callable[[Batch, float], Chosen], values: Sequence[float], batches: Sequence[Batch]
) -> float:
    """The value of a method's number with which it is right most often."""
    hits = [
        np.concatenate([right(method(data, value), data) for data in batches]).mean()
        for value in values
    ]
    return values[int(np.argmax(hits))]
