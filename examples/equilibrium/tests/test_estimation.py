"""Estimation on a model whose posterior is known: a constant seen with noise."""

import jax
import jax.numpy as jnp
import matplotlib.image
import numpy as np
import pytest
import scipy.stats

from examples.equilibrium import (
    Chains,
    Mode,
    Model,
    ModelError,
    NoMode,
    Posterior,
    Prior,
    posterior_mode,
    sample,
)
from examples.equilibrium._estimation import _flattest


def constant():
    """y = mu + e."""
    return Model(
        lambda p, now, ahead: {"level": now.y - p["mu"] - now.e},
        {"y": 0.0},
        {},
        {"e": 0.0},
        lambda p: {"e": 0.0},
        {"mu": 1.0, "sd": 0.5},
        name="constant",
    )


DATA = np.random.default_rng(3).normal(2.0, 0.5, size=(25, 1))
DATA[4] = np.nan
SEEN = DATA[~np.isnan(DATA)]


def posterior(**priors):
    """Of that model."""
    model = constant()
    covariance = lambda p: {"e": p["sd"] ** 2}
    return Posterior(model, model.params, priors, DATA, ["y"], covariance)


MU = Prior("normal", 1.0, 0.3)
SD = Prior("gamma", 0.6, 0.2)


def exact():
    """Mean and variance of mu where sd is known to be 1/2."""
    precision = 1.0 / 0.3**2 + len(SEEN) / 0.25
    return (1.0 / 0.3**2 + SEEN.sum() / 0.25) / precision, 1.0 / precision


@pytest.mark.rest
def test_a_root_of_an_inverse_gamma_has_its_mean_and_deviation():
    """Both by quadrature; where the deviation is twenty times the mean, as for the shocks of Smets
    and Wouters, the second moment has a tail that is added in closed form.
    """
    for mean, deviation in [(0.7, 0.2), (0.1, 2.0)]:
        prior = Prior("root_inverse_gamma", mean, deviation)
        with jax.enable_x64(True):
            log = np.linspace(-25.0, 25.0, 200_001)
            density = np.exp(jax.vmap(prior.log_density)(np.exp(log))) * np.exp(log)
        shape, rate = prior._root
        total, first = (np.trapezoid(density * np.exp(k * log), log) for k in (0, 1))
        np.testing.assert_allclose([total, first], [1.0, mean], rtol=1e-8)
        np.testing.assert_allclose(rate / (shape - 1.0) - mean**2, deviation**2, rtol=1e-9)
        known = scipy.stats.invgamma(shape, scale=rate)
        square = known.cdf(np.exp(2.0 * log[::1000]))
        found = np.concatenate([[0.0], np.cumsum(0.5 * (density[1:] + density[:-1]))])
        step = log[1] - log[0]
        np.testing.assert_allclose(found[::1000] * step, square, atol=1e-7)


@pytest.mark.parametrize("kind", ["normal", "beta", "gamma", "inverse_gamma", "uniform"])
def test_priors_are_scipys_by_mean_and_deviation(kind):
    """Density, mean and deviation; and the way to the line and back with its derivative."""
    bounds = {"lower": 0.1, "upper": 1.5} if kind in ("beta", "uniform") else {}
    prior = Prior(kind, **bounds) if kind == "uniform" else Prior(kind, 0.7, 0.2, **bounds)
    shape = (0.7 / 0.2) ** 2
    part = 0.6 / 1.4
    total = part * (1.0 - part) * (1.4 / 0.2) ** 2 - 1.0
    known = {
        "normal": scipy.stats.norm(0.7, 0.2),
        "gamma": scipy.stats.gamma(shape, scale=0.7 / shape),
        "inverse_gamma": scipy.stats.invgamma(2.0 + shape, scale=0.7 * (1.0 + shape)),
        "beta": scipy.stats.beta(part * total, (1.0 - part) * total, 0.1, 1.4),
        "uniform": scipy.stats.uniform(0.1, 1.4),
    }[kind]
    if kind != "uniform":
        np.testing.assert_allclose([known.mean(), known.std()], [0.7, 0.2], rtol=1e-12)
    with jax.enable_x64(True):
        value = np.float64(0.9)
        np.testing.assert_allclose(prior.log_density(value), known.logpdf(0.9), rtol=1e-10)
        free = prior.outside(value)
        back, slope = prior.inside(free)
        np.testing.assert_allclose(back, 0.9, rtol=1e-12)
        step = 1e-6
        rise = prior.inside(free + step)[0] - prior.inside(free - step)[0]
        np.testing.assert_allclose(jnp.exp(slope), rise / (2.0 * step), rtol=1e-7)


@pytest.mark.rest
def test_the_mode_of_a_conjugate_posterior_and_its_evidence_are_known():
    """All that is normal: mean, deviation, and the density of the data."""
    mode = posterior_mode(posterior(mu=MU), {"mu": 0.5})
    mean, variance = exact()
    np.testing.assert_allclose(mode.values["mu"], mean, rtol=1e-8)
    np.testing.assert_allclose(mode.deviation["mu"], np.sqrt(variance), rtol=1e-9)
    joint = 0.25 * np.eye(len(SEEN)) + 0.09
    known = scipy.stats.multivariate_normal.logpdf(SEEN, np.ones(len(SEEN)), joint)
    np.testing.assert_allclose(mode.evidence, known, rtol=1e-9)


def grid():
    """Means and deviations of mu and sd by quadrature."""
    mu, sd = np.linspace(1.3, 2.6, 400)[:, None], np.linspace(0.2, 1.2, 400)[None]
    density = scipy.stats.norm.logpdf(mu, 1.0, 0.3)
    density = density + scipy.stats.gamma.logpdf(sd, 9.0, scale=0.6 / 9.0)
    density = density + scipy.stats.norm.logpdf(SEEN[:, None, None], mu, sd).sum(0)
    weight = np.exp(density - density.max())
    weight /= weight.sum()
    means = [(weight * each).sum() for each in (mu, sd)]
    return means, [
        np.sqrt((weight * (each - mean) ** 2).sum())
        for each, mean in zip((mu, sd), means, strict=True)
    ]


@pytest.mark.rest
def test_chains_have_the_moments_of_quadrature_and_go_on_where_they_were_interrupted(tmp_path):
    """Means within five standard errors, deviations within a tenth; a run that is interrupted after
    its first part comes to the same draws, and another one does not go on with them.
    """
    pytest.importorskip("blackjax")
    mode = posterior_mode(posterior(mu=MU, sd=SD))
    told = []
    sizes = {"warmup": 200, "chains": 4, "part": 50}
    whole = sample(mode, 480, **sizes, report=told.append)
    assert told[0].startswith("50 of 480 draws, ")
    assert told[-1].startswith("480 of 480 draws, ")
    for name, mean, deviation in zip(("mu", "sd"), *grid(), strict=True):
        draws = whole.values[name]
        assert whole.rhat[name] < 1.05
        assert abs(draws.mean() - mean) < 5.0 * deviation / np.sqrt(whole.ess[name])
        np.testing.assert_allclose(draws.std(), deviation, rtol=0.1)

    class Interrupted(Exception):
        pass

    def stop(line):
        raise Interrupted(line)

    with pytest.raises(Interrupted):
        sample(mode, 480, **sizes, folder=tmp_path, report=stop)
    assert sorted(path.stem for path in tmp_path.iterdir()) == ["0000", "warm"]
    again = sample(mode, 480, **sizes, folder=tmp_path)
    for name in ("mu", "sd"):
        np.testing.assert_array_equal(again.values[name], whole.values[name])
    with pytest.raises(ModelError, match="is of another run"):
        sample(mode, 480, **sizes, seed=1, folder=tmp_path)


def test_estimates_are_printed_in_few_lines():
    """With deviations and diagnostics, and not as arrays."""
    ones = np.ones((2, 3))
    mode = Mode(posterior(mu=MU), {"mu": 1.25}, -3.5, 0.01 * np.eye(1))
    assert repr(mode) == "constant, mode of log density -3.5\n  mu  1.25 +- 0.1"
    assert repr(mode.posterior).startswith("constant, posterior given 25 dates of y\n  mu  Prior(")
    chains = Chains({"mu": ones}, ones, ones > 1.0, {"mu": 1.01}, {"mu": 5.0}, {"mu": MU})
    assert repr(chains).splitlines() == [
        "2 chains of 3 draws, 0 diverged",
        "  mu  1 +- 0, R-hat 1.010, as good as 5 draws",
    ]


@pytest.mark.rest
def test_a_picture_of_chains_is_written(tmp_path):
    """With a panel for each parameter, one of which diverged."""
    rng = np.random.default_rng(0)
    values = {"mu": rng.normal(2.0, 0.1, (3, 60)), "sd": rng.gamma(9.0, 0.06, (3, 60))}
    away = np.zeros((3, 60), bool)
    away[1, 7] = True
    judged = {"mu": 1.0, "sd": float("nan")}
    found = Chains(values, np.zeros((3, 60)), away, judged, judged, {"mu": MU, "sd": SD})
    found.draw(tmp_path / "pictures" / "chains.png")
    picture = matplotlib.image.imread(tmp_path / "pictures" / "chains.png")
    assert picture.shape[0] > 500
    assert picture.shape[1] > 1000
    assert np.ptp(picture[..., :3]) > 0.5


@pytest.mark.rest
def test_what_does_not_fit_an_estimation_is_told():
    """Priors of what is not there or cannot be, starts without a density, and what is not seen."""
    model = constant()
    for observed, covariance, said in (
        ("y", lambda p: p, "observed is 'y'"),
        (["q"], lambda p: p, "there is no 'q'"),
        (["y", "e"], lambda p: p, "data has shape"),
        (["y"], 3, "covariance is 3"),
    ):
        with pytest.raises(ModelError, match=said):
            Posterior(model, model.params, {"mu": MU}, DATA, observed, covariance)
    for given, said in (
        ({"nu": MU}, "there is no 'nu'"),
        ({"mu": 3}, "the prior of 'mu' is 3"),
        ({}, "priors are {}"),
    ):
        with pytest.raises(ModelError, match=said):
            posterior(**given)
    for kind, numbers in (
        ("beta", (0.5, 0.6)),
        ("beta", (0.5, -0.1)),
        ("gamma", (-1.0, 0.1)),
        ("cauchy", (0.0, 1.0)),
        ("uniform", (0.0, 2.0)),
        ("gamma", (1.0, 0.1, 0.5)),
    ):
        with pytest.raises(ModelError, match="Prior: "):
            Prior(kind, *numbers)
    for start, said in (
        ({"nu": 1.0}, "'nu' has no prior"),
        ([1.0], r"start is \[1\.0\]"),
        ({"mu": [1.0, 2.0]}, "'mu' has shape"),
    ):
        with pytest.raises(ModelError, match=said):
            posterior_mode(posterior(mu=MU), start)
    with pytest.raises(NoMode, match="begins where the density is zero"):
        posterior_mode(posterior(sd=Prior("uniform", lower=0.1, upper=2.0)), {"sd": 3.0})


def test_of_second_derivatives_that_are_not_finite_the_own_one_is_named():
    """A parameter of which nothing is known makes rows and columns of others NaN too."""
    curve = -np.eye(3)
    assert _flattest(curve) is None
    curve[1, 1] = 0.5
    assert _flattest(curve) == 1
    curve[2, :] = curve[:, 2] = np.nan
    assert _flattest(curve) == 2
    curve[2, 2] = -1.0
    assert _flattest(curve) == 2
