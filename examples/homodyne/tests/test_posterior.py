"""The posterior's density against SciPy, its draws, and what is made of them."""

import gc
import sys
import weakref
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from examples.homodyne import _posterior
from examples.homodyne._diagnostics import effective_size, r_hat
from examples.homodyne._mode_fit import fit_mode
from examples.homodyne._posterior import Chain, consensus, divided, posterior
from examples.homodyne._synthetic import TRUTH, decay, synthetic
from examples.homodyne._target import target

MODE = "static_isotropic"


@pytest.fixture(scope="module")
def fitted():
    data = replace(synthetic(MODE, frames=30, angles=2), sigma=0.01)
    return fit_mode(MODE, data, held={"D_offset": 500.0}), data


def aim_at(fitted, **options):
    found, data = fitted
    z = found.x[[found.names.index(name) for name in found.free]]
    with jax.enable_x64(True):
        return target(found.layout, data, found.sigma, z, found.covariance, **options), z


def test_the_density_is_that_of_normal_noise_and_the_priors(fitted):
    """Differences of its logarithm between points, by SciPy; the derivative by differences."""
    found, data = fitted
    aim, _ = aim_at(fitted, priors={"D0": (1.1e4, 2e3)})
    mode = found.layout.mode
    rng = np.random.default_rng(0)
    points = rng.normal(size=(3, aim.size))

    def reference(w):
        z = np.asarray(aim.data.z(w))
        shape = np.asarray(
            decay(mode, np.insert(z[:2], 2, 500.0), data.setup, data.phi, data.t1, data.t2)
        )
        noise = scipy.stats.norm.logpdf(data.measured, z[3] + z[2] * shape, 0.01).sum()
        return noise + scipy.stats.norm.logpdf(z[0], 1.1e4, 2e3)

    with jax.enable_x64(True):
        density = jax.jit(aim.density)
        got = np.array([density(jnp.asarray(w), aim.data) for w in points])
        want = np.array([reference(w) for w in points])
        slope = jax.jit(jax.grad(aim.density))(jnp.asarray(points[0]), aim.data)
        h = 1e-6
        differences = [
            (density(points[0] + h * e, aim.data) - density(points[0] - h * e, aim.data)) / (2 * h)
            for e in np.eye(aim.size)
        ]
    np.testing.assert_allclose(got - got[0], want - want[0], rtol=1e-7, atol=1e-6)
    np.testing.assert_allclose(slope, differences, rtol=1e-5, atol=1e-5)


@pytest.mark.rest
def test_parts_multiply_to_the_whole(fitted):
    """The densities of the parts, with their roots of the prior."""
    found, data = fitted
    whole, _ = aim_at(fitted)
    rng = np.random.default_rng(1)
    with jax.enable_x64(True):
        for w in rng.normal(size=(2, whole.size)):
            parts = [aim_at((found, piece), parts=3)[0] for piece in divided(data, 3)]
            pieces = [float(part.density(w, part.data)) for part in parts]
            np.testing.assert_allclose(sum(pieces), whole.density(w, whole.data), rtol=1e-12)


@pytest.mark.rest
def test_float32_is_widened_in_chunks(fitted):
    """The density is that of the same values in float64, which take twice the memory."""
    found, data = fitted
    short = replace(data, measured=np.asarray(data.measured, np.float32))
    wide = replace(short, measured=np.asarray(short.measured, np.float64))
    aims = [aim_at((found, each))[0] for each in (short, wide)]
    assert [aim.data.measured[-1].dtype for aim in aims] == [np.float32, np.float64]
    with jax.enable_x64(True):
        values = [float(aim.density(np.ones(aim.size), aim.data)) for aim in aims]
    assert values[0] == values[1]


@pytest.mark.rest
def test_one_part_is_in_memory_at_a_time(fitted, monkeypatch):
    """Those before are gone when the next one is read."""
    seen, there = [], []

    def watched(*words, **options):
        gc.collect()
        there.append(sum(each() is not None for each in seen))
        aim = target(*words, **options)
        seen.append(weakref.ref(aim.data.measured[-1]))
        return aim

    monkeypatch.setattr(_posterior, "target", watched)
    found, data = fitted
    posterior(found, data, chains=1, draws=100, parts=3, sampler=exact)
    assert there == [0, 0, 0]


def exact(aim, key, start, warmup, draws):
    """Draws of a standard normal, which the posterior nearly is."""
    return Chain(np.asarray(jax.random.normal(key, (draws, aim.size))), 0)


@pytest.mark.rest
def test_draws_are_summed_up(fitted):
    """Means, deviations and intervals of draws that are known; seeds give the same ones."""
    found, data = fitted
    drawn = posterior(found, data, chains=2, draws=500, sampler=exact)
    z, errors = np.delete(found.x, 2), np.delete(found.errors, 2)
    assert drawn.draws.shape == (2, 500, 4)
    assert np.all(np.abs(drawn.mean - z) < 0.2 * errors)
    np.testing.assert_allclose(drawn.deviation, errors, rtol=0.15)
    assert np.all(drawn.r_hat < 1.02)
    again = posterior(found, data, chains=2, draws=500, sampler=exact)
    assert drawn.draws.tobytes() == again.draws.tobytes()


@pytest.mark.rest
def test_chains_that_differ_are_named(fitted):
    """By R-hat, with the fix."""
    found, data = fitted

    def stuck(aim, key, start, warmup, draws):
        return Chain(np.tile(start, (draws, 1)) + exact(aim, key, start, warmup, draws).draws, 3)

    drawn = posterior(found, data, chains=3, draws=100, sampler=stuck)
    assert any("have not mixed" in each for each in drawn.warnings)
    assert any("9 of 300 steps ended, diverging" in each for each in drawn.warnings)


@pytest.mark.rest
def test_parts_that_reach_a_bound_are_named():
    """Of which the average is biased."""
    data = synthetic(MODE, frames=60, angles=4)
    found = fit_mode(MODE, data)
    drawn = posterior(found, data, chains=1, draws=400, parts=4, sampler=wide)
    assert any("Draws of parts reach the bounds of D_offset" in each for each in drawn.warnings)
    assert drawn.parts == 4


def wide(aim, key, start, warmup, draws):
    """Normal draws of a part, of twice the deviation, between the bounds."""
    drawn = 2 * np.asarray(jax.random.normal(key, (20 * draws, aim.size)))
    kept = np.array([w for w in drawn if aim.inside(w)])
    return Chain(kept[:draws], 0)


@pytest.mark.rest
def test_consensus_of_normal_parts_is_the_product():
    """Means and covariance of the product of normal densities."""
    rng = np.random.default_rng(0)
    means = rng.normal(size=(3, 2))
    covariances = [np.cov(rng.normal(size=(2, 6))) for _ in means]
    pieces = [
        rng.multivariate_normal(m, c, size=(2, 40_000))
        for m, c in zip(means, covariances, strict=True)
    ]
    weights = [np.linalg.inv(c) for c in covariances]
    covariance = np.linalg.inv(sum(weights))
    mean = covariance @ sum(w @ m for w, m in zip(weights, means, strict=True))
    got = consensus(pieces).reshape(-1, 2)
    np.testing.assert_allclose(got.mean(axis=0), mean, atol=0.02)
    np.testing.assert_allclose(np.cov(got, rowvar=False), covariance, atol=0.02)


@pytest.mark.rest
def test_diagnostics_of_chains_that_are_known():
    """Of an autoregression its integrated time is (1 + a) / (1 - a)."""
    rng = np.random.default_rng(0)
    a, chains = 0.7, np.zeros((4, 20_000))
    noise = rng.normal(size=chains.shape)
    for i in range(1, chains.shape[1]):
        chains[:, i] = a * chains[:, i - 1] + noise[:, i]
    assert effective_size(chains) == pytest.approx(chains.size * (1 - a) / (1 + a), rel=0.1)
    assert r_hat(chains) < 1.001
    assert r_hat(chains + np.arange(4)[:, None]) > 1.1
    assert r_hat(chains * np.array([1, 1, 1, 3])[:, None]) > 1.1
    independent = rng.normal(size=(4, 1000))
    assert effective_size(independent) == pytest.approx(4000, rel=0.15)


def test_diagnostics_are_those_of_arviz():
    """Of arviz-stats 0.8.0, `array_stats.rhat` and `array_stats.ess`."""
    rng = np.random.default_rng(0)
    values = []
    for a in (0.0, 0.5):
        chains, noise = np.zeros((4, 1000)), rng.standard_t(3, size=(4, 1000))
        for i in range(1, 1000):
            chains[:, i] = a * chains[:, i - 1] + noise[:, i]
        chains[3] += 0.3 * (a == 0.5)
        values += [r_hat(chains), effective_size(chains)]
    want = [1.0003653437742734, 4047.4554260855666, 1.0048844069333378, 1117.403815486893]
    np.testing.assert_allclose(values, want, rtol=1e-10)


@pytest.mark.rest
def test_nuts_agrees_with_the_fit(fitted):
    """Where the posterior is nearly normal: means within its deviations, deviations the standard
    errors.
    """
    pytest.importorskip("blackjax")
    found, data = fitted
    drawn = posterior(found, data, chains=2, draws=400, warmup=300)
    assert np.all(drawn.r_hat < 1.05)
    z, errors = np.delete(found.x, 2), np.delete(found.errors, 2)
    assert np.all(np.abs(drawn.mean - z) < errors)
    np.testing.assert_allclose(drawn.deviation, errors, rtol=0.4)
    truth = [TRUTH[MODE]["D0"], TRUTH[MODE]["alpha"], 0.3, 1.0]
    low, high = drawn.interval(0.9999)
    assert np.all((low < truth) & (truth < high))


def test_without_blackjax_the_package_is_named(fitted, monkeypatch):
    """And what to do."""
    monkeypatch.setitem(sys.modules, "blackjax", None)
    with pytest.raises(ImportError, match="pip install blackjax"):
        posterior(*fitted)


@pytest.mark.rest
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"chains": 0}, "chains=0"),
        ({"priors": {"gamma0": (0.0, 1.0)}}, "Free parameters are D0"),
        ({"priors": {"D0": (0.0, -1.0)}}, "above 0"),
    ],
)
def test_wrong_arguments_are_named(fitted, options, message):
    """With the fix."""
    with pytest.raises(ValueError, match=message):
        posterior(*fitted, sampler=exact, **options)
