"""What an intervention is worth, against closed forms, quadrature and enumeration."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import logsumexp
from scipy.stats import norm, qmc

from examples.surrogate import _enumerated
from examples.surrogate._acquisition import improvement, information
from examples.surrogate._data import SPREAD, WIDTH, parent_sets, tables
from examples.surrogate._environment import environment
from examples.surrogate._expert import A0, B0, scores
from examples.surrogate._worlds import TERMS, Draws, drawn, mechanisms, regression


def test_improvement_over_normal_worlds_is_the_closed_form():
    """Of Mockus: (m - b) Phi(z) + s phi(z), with worlds at the quantiles of a normal."""
    m, s, best = 0.3, 0.8, 0.5
    worlds = m + s * norm.ppf((np.arange(4096) + 0.5) / 4096)
    z = (m - best) / s
    found = improvement(worlds[:, None], np.full(4096, 1 / 4096), best)
    assert float(found[0]) == pytest.approx((m - best) * norm.cdf(z) + s * norm.pdf(z), rel=1e-3)


@pytest.mark.rest
def test_information_is_the_integral_of_the_mutual_information():
    """Of which of three normal distributions an answer comes from, by quadrature. The mean over
    answers is by a low-discrepancy sequence; each answer stands for one intervention of the grid.
    """
    mean, s, chance = np.array([-0.5, 0.2, 1.4]), 0.6, np.array([0.5, 0.2, 0.3])

    def density(y):
        parts = norm.pdf(y, mean, s)
        mixed = chance @ parts
        return sum(c * p * np.log(p / mixed) for c, p in zip(chance, parts, strict=True))

    unit = norm.ppf(qmc.Sobol(1, seed=0).random(1024))[:, 0]
    answers = mean[:, None] + s * unit
    log_density = norm.logpdf(answers[:, :, None], mean, s)
    found = jax.jit(information)(jnp.asarray(log_density), jnp.asarray(chance))
    assert found.shape == (1024,)
    assert float(found.mean()) == pytest.approx(quad(density, -6, 7)[0], rel=2e-3)


@pytest.mark.rest
def test_information_is_between_nothing_and_all():
    """Equal worlds tell nothing, distant ones the entropy of their chances."""
    chance = np.array([0.25, 0.25, 0.5])
    assert float(jax.jit(information)(np.zeros((3, 1, 3)), chance)[0]) == pytest.approx(0, abs=1e-6)
    apart = np.where(np.eye(3), 0.0, -1e4)[:, None, :]
    entropy = -np.sum(chance * np.log(chance))
    assert float(jax.jit(information)(apart, chance)[0]) == pytest.approx(entropy, rel=1e-5)


@pytest.mark.rest
def test_graphs_are_drawn_from_the_product_of_beliefs_without_circles():
    """Enumerated for three variables: each graph as often, by weight, as the product of its parent
    sets' probabilities, of those that have no circle.
    """
    rng, worlds = np.random.default_rng(0), 20_000
    q = rng.dirichlet(np.full(4, 0.6), size=3)
    index, mask = tables(3)
    truth = {}
    for sets in itertools.product(range(4), repeat=3):
        edges = np.zeros((3, 3))
        for v, at in enumerate(sets):
            edges[v, index[v, at][mask[v, at]]] = 1
        if not np.linalg.matrix_power(edges, 3).any():
            truth[tuple(map(tuple, edges))] = np.prod(q[np.arange(3), sets])
    draws = Draws.of(rng, worlds, 3, 2)
    graphs = jax.jit(drawn)(np.log(q).astype(np.float32), index, mask, draws)
    chance, found = np.exp(np.asarray(graphs.log_weight, float)), {}
    edges = np.zeros((worlds, 3, 3))
    for step in range(3):
        for member in range(WIDTH):
            used = np.flatnonzero(graphs.mask[:, step, member])
            edges[used, graphs.order[used, step], graphs.index[used, step, member]] = 1
    for each, weight in zip(edges, chance / chance.sum(), strict=True):
        key = tuple(map(tuple, each))
        found[key] = found.get(key, 0.0) + weight
    total = sum(truth.values())
    assert set(found) <= set(truth)
    for key, value in truth.items():
        assert found.get(key, 0.0) == pytest.approx(value / total, abs=0.015)


@pytest.mark.rest
def test_a_mechanism_is_drawn_from_its_posterior():
    """Mean and covariance of the weights, and mean precision, of the normal-inverse-gamma
    posterior, in NumPy in float64.
    """
    rng = np.random.default_rng(0)
    design, used = rng.normal(size=(20, TERMS)), np.arange(TERMS) < 3
    y, free = design[:, :3] @ [0.5, -1.0, 0.2] + rng.normal(size=20), np.arange(20) < 15
    part, target = design[free][:, :3], y[free]
    precision = part.T @ part + np.eye(3) / SPREAD
    mean = np.linalg.solve(precision, part.T @ target)
    shape = A0 + 15 / 2
    rate = B0 + (target @ target - mean @ precision @ mean) / 2
    draws = rng.normal(size=(2, 4000, TERMS))
    many = jnp.vectorize(
        lambda s, w: regression(*map(jnp.asarray, (design, y, 1.0 * free, used)), s, w),
        signature="(),(k)->(),(k),()",
    )
    _, weight, spread = jax.jit(many)(draws[0, :, 0], draws[1])
    assert np.all(np.asarray(weight)[:, 3:] == 0)
    np.testing.assert_allclose(weight[:, :3].mean(0), mean, atol=0.02)
    covariance = rate / (shape - 1) * np.linalg.inv(precision)
    np.testing.assert_allclose(np.cov(weight[:, :3].T), covariance, atol=0.08 * covariance.max())
    np.testing.assert_allclose(np.mean(1 / spread**2), shape / rate, rtol=0.02)
    np.testing.assert_allclose(np.var(1 / spread**2), shape / rate**2, rtol=0.1)


@pytest.mark.rest
def test_weighed_graphs_have_the_posterior_whatever_they_are_drawn_from():
    """Enumerated for three variables, by a prior with equal chances for each size of a parent set,
    and the evidence of `_expert` in float64.
    """
    rng, worlds = np.random.default_rng(1), 4000
    models = environment(rng, 1, 3)
    values = models.observed(rng, 6).astype(np.float32)
    flags, (index, mask) = np.zeros(values.shape, bool), tables(3)
    sets, _, _ = _enumerated.graphs(3)
    local = scores(values.astype(float), flags)[0] - np.log([1, 2, 2, 1])
    joint = sum(local[v, sets[:, v]] for v in range(3))
    truth = np.exp(joint - logsumexp(joint))
    q = rng.dirichlet(np.full(4, 3.0), size=3)
    draws = Draws.of(rng, worlds, 3, 2)
    given = [jnp.asarray(part) for part in (np.log(q).astype(np.float32), index, mask)]

    @jax.jit
    def weighed(draws):
        graphs = drawn(*given, draws, weighed=True)
        found = mechanisms(graphs, jnp.asarray(values[0]), jnp.asarray(flags[0]), draws)
        return graphs, found.evidence

    graphs, evidence = jax.tree.map(np.asarray, weighed(draws))
    chance = jax.nn.softmax(graphs.log_weight + evidence)
    found, differs = {}, []
    place = {tuple(row): at for at, row in enumerate(sets.tolist())}
    whole = scores(values.astype(float), flags)[0]
    for at in range(worlds):
        key = [0, 0, 0]
        for step in range(3):
            members = set(graphs.index[at, step][graphs.mask[at, step]].tolist())
            variable = int(graphs.order[at, step])
            key[variable] = parent_sets(3, variable).index(frozenset(members))
        row = place[tuple(key)]
        found[row] = found.get(row, 0.0) + float(chance[at])
        differs.append(float(evidence[at]) - sum(whole[v, key[v]] for v in range(3)))
    assert np.ptp(differs) < 1e-3  # a constant apart
    away = [abs(found.get(row, 0.0) - expected) for row, expected in enumerate(truth)]
    assert sum(away) / 2 < 0.12
