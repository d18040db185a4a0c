"""How good the predictions are on models that were not trained on: divergence to the expert, true
sets found, and calibration.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import xlogy

import jitney

from . import _baselines
from ._data import Batch
from ._step import PAD
from .model import Surrogate

BINS = 10
THRESHOLDS = tuple(np.round(np.arange(0.05, 0.8, 0.05), 2))
PENALTIES = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)

predict = jitney.optimize(vmap="example", pad={"example": [32, 256, 1024], **PAD})(
    Surrogate.__call__
)


@dataclass(frozen=True)
class Score:
    """Of one method on one number of variables.

    Args:
        kl: Mean KL divergence to the exact posterior, in nats; None where there is none.
        top: How often the most probable set is the true one.
        surprise: Mean of minus the log probability of the true set, in nats; None for a method that
            gives no probabilities.
        error: Expected calibration error: how far stated probabilities of top sets are from how
            often these are true, a mean over bins.
    """

    kl: float | None
    top: float
    surprise: float | None
    error: float | None


def probabilities(model: Surrogate, data: Batch) -> np.ndarray:
    """What the network predicts."""
    return np.exp(np.asarray(predict(model, *data.arrays[:3]), float))


def score(q: np.ndarray, data: Batch, exact: bool) -> Score:
    """Of distributions over parent sets."""
    at, q = np.arange(len(q)), np.maximum(q, 1e-12)
    divergence = (
        float(np.mean(np.sum(xlogy(data.expert, data.expert) - data.expert * np.log(q), axis=1)))
        if exact
        else None
    )
    return Score(
        divergence,
        hits(q, data).mean(),
        float(-np.log(q[at, data.truth]).mean()),
        calibration(q.max(1), hits(q, data))[0],
    )


def hits(q: np.ndarray, data: Batch) -> np.ndarray:
    """Whether the most probable set is the true one."""
    return q.argmax(1) == data.truth


def calibration(said: np.ndarray, true: np.ndarray) -> tuple[float, list[tuple[float, float, int]]]:
    """The expected calibration error, and for each bin what was said, how often it was true, and of
    how many.
    """
    place = np.minimum((said * BINS).astype(int), BINS - 1)
    bins = [
        (float(said[place == i].mean()), float(true[place == i].mean()), int((place == i).sum()))
        for i in np.unique(place)
    ]
    return sum(abs(a - b) * count for a, b, count in bins) / len(said), bins


def compare(
    model: Surrogate, test: Sequence[Batch], tuning: Sequence[Batch], exact: int
) -> dict[int, dict[str, Score]]:
    """Each method on each batch, by the number of variables.

    Args:
        model: The trained network.
        test: One batch for each number of variables.
        tuning: The same, to tune the baselines with.
        exact: Up to so many variables the expert is the exact posterior.
    """
    methods: dict[str, Any] = {
        "correlation": (_baselines.by_correlation, THRESHOLDS),
        "lasso": (_baselines.by_lasso, PENALTIES),
    }
    found = {}
    for data, others in zip(test, tuning, strict=True):
        variables = data.x.shape[2]
        known = variables <= exact
        row = {"prior": score(_baselines.prior(data), data, known)}
        for name, (method, values) in methods.items():
            best = _baselines.tuned(method, values, [others])
            row[name] = Score(
                None, float(_baselines.right(method(data, best), data).mean()), None, None
            )
        row["network"] = score(probabilities(model, data), data, known)
        if known:
            row["exact posterior"] = score(data.expert, data, known)
        found[variables] = row
    return found
