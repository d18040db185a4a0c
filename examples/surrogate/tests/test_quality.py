"""How beliefs are judged."""

import numpy as np
import pytest

from examples.surrogate import quality, regret
from examples.surrogate._data import positions_of
from examples.surrogate._environment import environment
from examples.surrogate.quality import Data, distance, edges_of, judged


def test_the_truth_has_no_fault_and_a_turned_edge_is_one():
    """F1, Hamming distance, log likelihood and calibration, of the true graphs, and of the same
    with every edge turned.
    """
    models = environment(np.random.default_rng(0), 4, 4)
    values = models.observed(np.random.default_rng(1), 8)
    data = Data(models, values, np.zeros(values.shape, bool))
    belief = np.eye(8)[positions_of(models.parents)]
    edges = edges_of(belief)
    np.testing.assert_array_equal(edges, models.parents)
    assert judged(edges, data, belief) == quality.Quality(1.0, 0.0, 0.0, 0.0)
    turned = judged(edges.mT, data, belief)
    assert turned.f1 == 0
    assert turned.shd == pytest.approx(models.parents.sum((1, 2)).mean())
    assert distance(np.zeros_like(models.parents), models.parents).sum() == models.parents.sum()


def test_an_interval_is_that_of_a_mean():
    """Of many numbers, 1.96 standard errors to each side."""
    values = np.random.default_rng(0).normal(size=400)
    low, high = regret.interval(values)
    error = 1.96 * values.std() / 20
    assert low == pytest.approx(values.mean() - error, abs=0.2 * error)
    assert high == pytest.approx(values.mean() + error, abs=0.2 * error)
