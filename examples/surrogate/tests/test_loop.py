"""The loop, its environment and the exact posterior over graphs."""

import equinox as eqx
import jax
import numpy as np
import pytest
from scipy.special import logsumexp

from examples.surrogate import _data, _enumerated, _loop
from examples.surrogate._environment import GRID, environment
from examples.surrogate._expert import posterior, scores
from examples.surrogate._loop import Plan, by_network, by_truth, regret, run
from examples.surrogate._round import imagine, imagined, suppose
from examples.surrogate._worlds import Draws
from examples.surrogate.reader import Reader
from examples.surrogate.tests._small import RUN

SMALL = Plan(rounds=3, observed=6, answers=1, worlds=4, repeats=2)


@pytest.mark.rest
def test_enumerated_graphs_are_the_known_number_with_the_posterior_of_the_sum_over_orders():
    """25 graphs of three variables, 543 of four (Robinson 1973); their marginals are those that
    `_expert` computes by a sum over orders.
    """
    for variables, count in ((3, 25), (4, 543)):
        sets, _, prior = _enumerated.graphs(variables)
        assert len(sets) == count
        assert np.exp(prior).sum() == pytest.approx(1)
    models = environment(np.random.default_rng(0), 2, 3)
    values = models.observed(np.random.default_rng(1), 10)
    flags = np.zeros(values.shape, bool)
    found = _enumerated.marginals(_enumerated.posterior(values, flags), 3)
    np.testing.assert_allclose(found, posterior(scores(values, flags)), atol=1e-6)


def test_a_plan_that_cannot_be_run_is_refused():
    """An acquisition that there is not, repeats without pairs, no answers."""
    for wrong, said in (
        ({"kind": "best"}, "best"),
        ({"repeats": 3}, "even"),
        ({"answers": 0}, "1"),
    ):
        with pytest.raises(ValueError, match=said):
            Plan(**wrong)


def test_an_environment_answers_by_its_mechanisms():
    """Of a linear chain with known weights: the mean effects are products of weights."""
    models = environment(np.random.default_rng(0), 1, 3, "linear")
    models.parents[:], models.weight[:], models.order[:] = False, 0.0, [0, 1, 2]
    models.weight[0, 1, 0], models.weight[0, 2, 1] = 0.5, -2.0
    models.shift[:], models.scale[:], models.target[:] = 0.0, [1.0, 2.0, 4.0], 2
    effects = models.effects()[0]
    np.testing.assert_allclose(effects[0], -2.0 / 4 * 0.5 / 2 * GRID, atol=1e-9)
    np.testing.assert_allclose(effects[1], -2.0 / 4 * GRID, atol=1e-9)
    assert np.all(effects[2] == -np.inf)


@pytest.mark.rest
def test_variables_have_mean_0_and_variance_1_and_every_target_a_parent():
    """Of all kinds of mechanism and noise."""
    for mechanism, noise in (("mixed", "gaussian"), ("neural", "laplace"), ("linear", "student")):
        models = environment(np.random.default_rng(1), 20, 5, mechanism, noise)
        values = models.observed(np.random.default_rng(2), 4000)
        assert np.abs(values.mean(1)).max() < 0.35
        assert np.abs(values.std(1) - 1).max() < 0.6
        assert models.parents[np.arange(20), models.target].any(1).all()


@pytest.mark.rest
def test_a_campaign_compiles_once_for_each_bucket():
    """After the first round of a bucket there is no trace and no compile, whatever the number of
    variables and of samples; the rounds of 3 and of 4 variables share one program.
    """
    model, counts = RUN.model(), []

    def count(*_):
        stats = imagined.stats
        counts.append((stats.traces, stats.compiles + stats.persistent_hits))

    for variables in (4, 3):
        models = environment(np.random.default_rng(variables), 2, variables)
        done = run(models, by_network(model), SMALL, after=count)
        assert done.values.shape == (2, 9, variables)
    assert counts == [counts[0]] * 6


READER = Reader(8, 1, 1, key=jax.random.key(0))


@pytest.mark.rest
@pytest.mark.parametrize("model", [RUN.model(), READER], ids=["surrogate", "reader"])
def test_a_padded_round_is_the_round_at_exact_size(model):
    """Worth of each intervention, of 3 variables in the program of 4."""
    models = environment(np.random.default_rng(3), 2, 3)
    campaign = _loop.Campaign.begin(models, SMALL)
    draws = SMALL.draws(0, 2, 3)
    ours = by_network(model)(campaign, draws)
    index, mask = _data.tables(3)
    plain = eqx.filter_jit(imagine)
    for task in range(2):
        own = Draws(*(part[task] for part in vars(draws).values()))
        data = campaign.values[task], campaign.intervened[task]
        found = plain(model, *data, index, mask, campaign.target[task], own)
        for name in ("mean", "information", "improvement", "sure"):
            np.testing.assert_allclose(
                getattr(ours, name)[task], getattr(found, name), rtol=1e-3, atol=1e-4
            )


@pytest.mark.rest
def test_with_the_true_graph_and_much_data_the_regret_goes_away():
    """An oracle finds the best intervention of nearly all models."""
    models = environment(np.random.default_rng(4), 12, 3)
    plan = Plan(rounds=4, observed=32, answers=8, worlds=16)
    learner = by_truth(models)
    done = run(models, learner, plan)
    left = regret(models.effects(), _loop.last(done, learner, plan))
    assert np.all(left >= 0)
    assert np.mean(left) < 0.1


@pytest.mark.rest
def test_enumeration_and_random_interventions_run():
    """With the same random numbers, and never on the target."""
    models = environment(np.random.default_rng(5), 3, 3)
    for kind in ("random", "information", "improvement"):
        plan = Plan(rounds=2, observed=6, answers=1, worlds=4, repeats=2, kind=kind)
        done = run(models, _loop.by_enumeration, plan)
        assert np.all(done.chosen[:, :, 0] != models.target)
        assert np.all(done.best[:, :, 0] != models.target)


def test_a_prior_has_each_size_of_a_parent_set_with_the_same_chance():
    """Of five variables: one set of none, four of one, six of two, four of three."""
    found, size = _loop.chances(5), _data.tables(5)[1].sum(2)
    for each, count in enumerate((1, 4, 6, 4)):
        np.testing.assert_allclose(found[size == each], 1 / 4 / count)


@pytest.mark.rest
@pytest.mark.parametrize("weighed", [False, True])
def test_a_belief_that_is_given_is_padded_as_one_of_a_network(weighed):
    """By evidence alone: the round at exact size, of 3 variables in the program of 4."""
    models = environment(np.random.default_rng(6), 2, 3)
    campaign = _loop.Campaign.begin(models, SMALL)
    draws, (index, mask) = SMALL.draws(0, 2, 3), _data.tables(3)
    local = scores(campaign.values.astype(float), campaign.intervened) + np.log(_loop.chances(3))
    log_q = (local - logsumexp(local, axis=2, keepdims=True)).astype(np.float32)
    ours = _loop.by_belief(campaign, local, draws, weighed)
    if not weighed:
        np.testing.assert_array_equal(ours.mean, _loop.by_evidence(campaign, draws).mean)
    plain = eqx.filter_jit(suppose)
    for task in range(2):
        own = Draws(*(part[task] for part in vars(draws).values()))
        data = log_q[task], campaign.values[task], campaign.intervened[task]
        found = plain(*data, index, mask, campaign.target[task], own, weighed)
        for name in ("mean", "information", "improvement", "sure"):
            np.testing.assert_allclose(
                getattr(ours, name)[task], getattr(found, name), rtol=1e-3, atol=1e-4
            )
