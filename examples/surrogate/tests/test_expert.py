"""Models, samples and the exact posterior, against SciPy, enumeration and the graphs themselves."""

from itertools import combinations, permutations, product
from math import comb, log

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_t

from examples.surrogate._data import (
    OMEGA,
    SPREAD,
    arrays_of,
    draw,
    inputs,
    most_parents,
    parent_sets,
    true_sets,
)
from examples.surrogate._expert import A0, B0, batch, posterior, scores


def test_evidence_is_that_of_a_multivariate_t():
    """Of SciPy, for each set and form of mechanism, over the samples in which nobody set the
    variable.
    """
    drawn = draw(np.random.default_rng(0), 2, 3, samples=14)
    found = scores(drawn.values, drawn.intervened)
    for example, variable in product(range(2), range(3)):
        free = ~drawn.intervened[example, :, variable]
        x = drawn.values[example][free]
        for position, members in enumerate(parent_sets(3, variable)):
            pa = x[:, sorted(members)]
            both = []
            for columns in ([pa], [np.sin(OMEGA * pa), np.cos(OMEGA * pa)]):
                design = np.hstack([np.ones((len(x), 1)), *columns])
                shape = B0 / A0 * (np.eye(len(x)) + SPREAD * design @ design.T)
                both.append(multivariate_t(shape=shape, df=2 * A0).logpdf(x[:, variable]))
            assert found[example, variable, position] == pytest.approx(
                logsumexp(both) - log(2), rel=1e-10
            )


@pytest.mark.core("3")
@pytest.mark.parametrize("variables", [3, 4])
def test_posterior_is_that_of_all_orders_and_graphs(variables):
    """Enumerated: each order, and for each of its places each set of those before it, with the
    chances of the generator.
    """
    local = np.random.default_rng(variables).normal(
        scale=3, size=(2, variables, len(parent_sets(variables, 0)))
    )
    weight = np.zeros(local.shape[1:])
    position = [{s: i for i, s in enumerate(parent_sets(variables, v))} for v in range(variables)]
    for order in permutations(range(variables)):
        choices = []
        for place, variable in enumerate(order):
            most = min(most_parents(variables), place)
            choices.append(
                [
                    (
                        variable,
                        position[variable][frozenset(chosen)],
                        -log((most + 1) * comb(place, size)),
                    )
                    for size in range(most + 1)
                    for chosen in combinations(order[:place], size)
                ]
            )
        for graph in product(*choices):
            chance = np.exp(sum(prior + local[0, variable, at] for variable, at, prior in graph))
            for variable, at, _ in graph:
                weight[variable, at] += chance
    np.testing.assert_allclose(
        posterior(local)[0], weight / weight.sum(1, keepdims=True), rtol=1e-9
    )


def test_graphs_have_an_order_and_their_sets_are_candidates():
    """No variable is its own ancestor, and the true set is the one at its position."""
    for variables in (3, 6, 9):
        drawn = draw(np.random.default_rng(1), 20, variables, samples=8)
        reach = np.linalg.matrix_power(drawn.parents.astype(int), variables)
        assert not reach.any()
        for parents, target, at in zip(drawn.parents, drawn.target, true_sets(drawn), strict=True):
            assert parent_sets(variables, target)[at] == frozenset(np.flatnonzero(parents[target]))


def test_arrays_say_what_the_sets_say():
    """Indices that count are the members; the empty set has none."""
    for variables in (3, 6, 20):
        index, mask = arrays_of(variables, 2)
        assert [frozenset(row[used]) for row, used in zip(index, mask, strict=True)] == list(
            parent_sets(variables, 2)
        )
    assert len(parent_sets(6, 0)) == 1 + 5 + 10 + 10
    assert len(parent_sets(20, 0)) == 1 + 19 + 171


def test_samples_are_observed_then_set_from_outside():
    """Half of them without, the others with one variable set; variables that nobody sets have unit
    variance; one target an example.
    """
    drawn = draw(np.random.default_rng(2), 4, 5, samples=20)
    assert not drawn.intervened[:, :10].any()
    np.testing.assert_array_equal(drawn.intervened[:, 10:].sum(2), 1)
    np.testing.assert_allclose(drawn.values[:, :10].std(1), 1)
    x = inputs(drawn)
    np.testing.assert_array_equal(x[:, 0, :, 2].argmax(1), drawn.target)
    assert x.dtype == np.float32


def test_values_follow_the_mechanisms():
    """Of linear models: regressed on its parents and its other ancestors, a variable depends on the
    parents alone, by the t statistic.
    """
    drawn = draw(np.random.default_rng(3), 30, 4, samples=1000, kind="linear")
    strays, direct = [], []
    for values, parents in zip(drawn.values[:, :500], drawn.parents, strict=True):
        ancestors = np.linalg.inv(np.eye(4) - parents) - np.eye(4) > 0.5
        for child in range(4):
            others = np.flatnonzero(ancestors[child])
            covariance = np.linalg.inv(values[:, others].T @ values[:, others])
            fit = covariance @ values[:, others].T @ values[:, child]
            left = values[:, child] - values[:, others] @ fit
            t = np.abs(fit) / np.sqrt(np.diag(covariance) * left.var())
            strays += list(t[~parents[child, others]])
            direct += list(t[parents[child, others]])
    assert len(strays) > 5
    assert max(strays) < 4
    assert np.median(direct) > 10


@pytest.mark.rest
def test_the_expert_finds_true_sets_and_knows_when():
    """More often than not, and as often as it says to within four standard errors; for many
    variables the truth stands in.
    """
    found = batch(np.random.default_rng(4), 400, 4)
    at = np.arange(400)
    said, right = found.expert.max(1), found.expert.argmax(1) == found.truth
    assert abs(right.mean() - said.mean()) < 4 * np.sqrt(np.mean(said * (1 - said)) / 400)
    assert right.mean() > 0.8
    many = batch(np.random.default_rng(4), 3, 9)
    np.testing.assert_array_equal(many.expert[at[:3], many.truth], 1)
