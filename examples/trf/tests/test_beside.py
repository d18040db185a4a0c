"""What people use beside a solver: many starts, parameters by name, intervals, bootstrap, phases,
pictures.
"""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.stats

from examples.trf import curve_fit, least_squares
from examples.trf.bootstrap import bootstrap
from examples.trf.intervals import intervals
from examples.trf.multi_start import multi_start, multi_start_curve, starts
from examples.trf.parameters import Parameter, Tied, fit_named
from examples.trf.phases import phases
from examples.trf.pictures import draw_corner, draw_fit

T = np.linspace(0, 4, 40)
Y = 2.5 * np.exp(-1.3 * T) + 0.5 + 0.05 * np.cos(37 * T)
LEVELS = (0.6827, 0.9545)


def decay(t, a, b, c):
    return a * jnp.exp(-b * t) + c


def line(t, a, b):
    return a * t + b


def tilted(p):
    return jnp.stack([p[0] ** 2 - 1.0, 0.3 * (p[0] + 1.0)])


def twice_and_more(a, c):
    return 2 * a + c


def with_d(t, a, b, c, d):
    return decay(t, a, b, c) + 0 * d


@pytest.mark.rest
@pytest.mark.parametrize("draw", ["latin", "sobol"])
def test_starts_fill_the_box(draw):
    """Each eighth of each side has one of eight."""
    drawn = starts(([0, -2], [1, 6]), 8, draw)
    for side, (low, high) in zip(drawn.T, ((0, 1), (-2, 6)), strict=True):
        assert sorted(np.floor(8 * (side - low) / (high - low))) == list(range(8))


@pytest.mark.rest
def test_many_starts_find_the_best_of_several_minima():
    """(x^2 - 1)^2, tilted, has two: from the right a start finds the worse one, as SciPy does."""
    found = multi_start(tilted, ([-3.0], [3.0]), 16)
    np.testing.assert_allclose(found.best.x, -1.0, atol=1e-6)
    assert found.best.cost < 1e-12
    assert len(found.costs) == 2
    assert found.reached.sum() == 16
    worse = scipy.optimize.least_squares(lambda x: [x[0] ** 2 - 1, 0.3 * (x[0] + 1)], [2.0])
    np.testing.assert_allclose(found.minima[1], worse.x, rtol=1e-4)
    np.testing.assert_allclose(found.costs[1], worse.cost, rtol=1e-8)
    assert "16 starts, 2 minima" in repr(found)


@pytest.mark.rest
def test_many_starts_of_a_curve_are_of_one_curve():
    """A batch of as many curves as starts would be fitted curve by curve, each from one."""
    found = multi_start_curve(decay, T, Y, ([0.1] * 3, [3.0] * 3), 8, draw="sobol")
    expected, _ = scipy.optimize.curve_fit(
        lambda t, a, b, c: a * np.exp(-b * t) + c, T, Y, [1, 1, 0]
    )
    np.testing.assert_allclose(found.best.x, expected, rtol=1e-5)
    with pytest.raises(ValueError, match="All starts fit one curve"):
        multi_start_curve(decay, T, np.tile(Y, (8, 1)), ([0.1] * 3, [3.0] * 3), 8)
    with pytest.raises(TypeError, match="differ by their starts alone"):
        multi_start(decay, ([0.1], [3.0]), 8, mapped="y")


@pytest.mark.parametrize("within", [([0.0], [np.inf]), ([1.0], [0.0])])
def test_a_box_of_starts_is_finite(within):
    """Nothing can be drawn otherwise."""
    with pytest.raises(ValueError, match="not finite, or empty"):
        starts(within, 4)


def named(**options):
    return fit_named(
        with_d,
        {
            "a": 1.0,
            "b": Parameter(1.0, lower=0.0, upper=1.2),
            "c": Parameter(0.5, fixed=True),
            "d": Tied(twice_and_more),
        },
        T,
        Y,
        **options,
    )


@pytest.mark.rest
def test_parameters_by_name_are_fixed_tied_and_bounded():
    """As SciPy's fit of those that are free; the tied one has its error by its derivatives."""
    fit = named()
    expected, covariance = scipy.optimize.curve_fit(
        lambda t, a, b: a * np.exp(-b * t) + 0.5,
        T,
        Y,
        [1, 1],
        bounds=([-np.inf, 0], [np.inf, 1.2]),
    )
    np.testing.assert_allclose([fit.values["a"], fit.values["b"]], expected, rtol=1e-6)
    np.testing.assert_allclose(fit.errors["a"], np.sqrt(covariance[0, 0]), rtol=1e-5)
    np.testing.assert_allclose(fit.values["d"], 2 * fit.values["a"] + 0.5, rtol=1e-12)
    np.testing.assert_allclose(fit.errors["d"], 2 * fit.errors["a"], rtol=1e-9)
    assert fit.errors["c"] == 0.0
    text = fit.report()
    for words in ("0.5 (fixed)", "tied to a, c", "at its upper bound", "C(a, b) ="):
        assert words in text


@pytest.mark.rest
def test_statistics_of_a_report_are_lmfits():
    """By its formulas; a robust cost has no likelihood of normal errors."""
    fit = fit_named(decay, {"a": 1.0, "b": 1.0, "c": 0.0}, T, Y)
    expected, covariance = scipy.optimize.curve_fit(
        lambda t, a, b, c: a * np.exp(-b * t) + c, T, Y, [1, 1, 0]
    )
    chi2 = np.sum((expected[0] * np.exp(-expected[1] * T) + expected[2] - Y) ** 2)
    likelihood = T.size * np.log(chi2 / T.size)
    found = fit._statistics()
    for name, value in (
        ("chi-square", chi2),
        ("reduced chi-square", chi2 / (T.size - 3)),
        ("Akaike info crit", likelihood + 6),
        ("Bayesian info crit", likelihood + 3 * np.log(T.size)),
    ):
        np.testing.assert_allclose(float(found[name]), value, rtol=1e-6)
    correlation = covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1])
    np.testing.assert_allclose(fit.correlations["a", "b"], correlation, rtol=1e-4)
    robust = fit_named(decay, {"a": 1.0, "b": 1.0, "c": 0.0}, T, Y, loss="soft_l1")
    assert "chi-square" not in robust.report()


def test_ties_in_a_circle_are_refused():
    """And so is one to a name that is not there."""
    for tie in (Tied(lambda b: b), Tied(lambda other: other)):
        with pytest.raises(ValueError, match="without a circle"):
            fit_named(decay, {"a": 1.0, "b": Tied(lambda c: c), "c": tie}, T, Y)


@pytest.mark.rest
def test_intervals_of_a_line_are_those_of_student():
    """Where the model is linear the profile is the t distribution's interval."""
    fit = curve_fit(line, T, Y, [1, 1])
    found = intervals(fit, 0.95)
    half = scipy.stats.t.ppf(0.975, T.size - 2) * np.sqrt(np.diag(fit.covariance))
    np.testing.assert_allclose(found.lower[0], fit.x - half, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(found.upper[0], fit.x + half, rtol=1e-5, atol=1e-8)


@pytest.mark.rest
def test_ends_of_an_interval_have_the_cost_that_the_level_allows():
    """By SciPy, with the parameter held there; both levels, both sides of the rate of a decay."""
    fit = curve_fit(decay, T, Y, [1, 1, 0])
    found = intervals(fit, LEVELS)
    for level, low, high in zip(LEVELS, found.lower, found.upper, strict=True):
        goal = fit.cost * (1 + scipy.stats.f.ppf(level, 1, T.size - 3) / (T.size - 3))
        for rate in (low[1], high[1]):
            held = scipy.optimize.least_squares(
                lambda p, rate=rate: p[0] * np.exp(-rate * T) + p[1] - Y, [1, 0], xtol=1e-12
            )
            np.testing.assert_allclose(held.cost, goal, rtol=1e-5)


@pytest.mark.rest
def test_an_interval_of_one_parameter_minds_mask_and_sigma():
    """With one parameter nothing is fitted anew: the mean, whose interval is that of its points."""
    mask = T > 1.0
    fit = curve_fit(lambda t, a: a + 0 * t, T, Y, [1.0], sigma=0.2, absolute_sigma=True, mask=mask)
    found = intervals(fit, 0.9545)
    half = np.sqrt(scipy.stats.chi2.ppf(0.9545, 1)) * 0.2 / np.sqrt(mask.sum())
    np.testing.assert_allclose(found.lower[0, 0], Y[mask].mean() - half, rtol=1e-6)
    np.testing.assert_allclose(found.upper[0, 0], Y[mask].mean() + half, rtol=1e-6)


@pytest.mark.rest
def test_an_interval_ends_at_a_bound_and_may_have_no_end():
    """The cost of a saturating curve does not rise as its rate grows."""
    x, y = np.array([0.5, 0.7, 6.0, 7.0, 8.0]), np.array([0.95, 0.99, 1.04, 0.96, 1.0])

    def saturating(t, a, b):
        return a * (1 - jnp.exp(-b * t))

    free = intervals(curve_fit(saturating, x, y, [1.0, 3.0]), 0.95)
    assert np.isposinf(free.upper[0, 1])
    assert np.isfinite(free.lower[0, 1])
    bounded = curve_fit(saturating, x, y, [1.0, 3.0], bounds=([0, 0], [10, 50]))
    np.testing.assert_allclose(intervals(bounded, 0.95).upper[0, 1], 50.0)


@pytest.mark.rest
def test_an_interval_around_the_worse_minimum_is_refused():
    """With the parameter held beyond the hill the cost is lower."""
    fit = least_squares(lambda p: jnp.concatenate([tilted(p), 0.05 + 0 * p]), [2.0])
    with pytest.raises(ValueError, match="lowest minimum"):
        intervals(fit, 0.95)


@pytest.mark.rest
@pytest.mark.parametrize("kind", ["residuals", "points", "normal"])
def test_a_bootstrap_fits_what_it_draws(kind):
    """Of a line each draw has a closed form; the spread is that of the covariance."""
    mask = T[7] != T
    fit = curve_fit(line, T, Y, [1, 1], mask=mask)
    drawn = bootstrap(fit, 400, kind)
    A = np.column_stack([T, np.ones_like(T)])[mask]
    for i in (0, 1, 399):
        root, shift = drawn.roots[i, mask], drawn.shifts[i, mask]
        expected, *_ = np.linalg.lstsq(root[:, None] * A, root * (Y[mask] - shift), rcond=None)
        np.testing.assert_allclose(drawn.fits.x[i], expected, rtol=1e-6)
    if kind != "points":  # which allows for a spread that differs, as it does here
        errors = np.sqrt(np.diag(drawn.covariance))
        np.testing.assert_allclose(errors, np.sqrt(np.diag(fit.covariance)), rtol=0.15)
    low, high = drawn.interval(0.9)
    assert np.all((low[0] < fit.x) & (fit.x < high[0]))


@pytest.mark.rest
def test_points_are_not_drawn_of_a_robust_fit():
    """Its weights would be those of larger residuals."""
    fit = curve_fit(line, T, Y, [1, 1], loss="soft_l1")
    with pytest.raises(ValueError, match="The loss is robust"):
        bootstrap(fit, 4, "points")


@pytest.mark.rest
def test_phases_of_a_fit_add_up():
    """Each holds the one before; what residuals take is a number for each point."""
    fit = curve_fit(decay, T, Y, [1, 1, 0])
    found = phases(fit, [1, 1, 0], seconds=0.0)
    assert [one.name for one in found.each] == [
        "residuals",
        "Jacobian",
        "factorisation",
        "rest of a turn",
    ]
    assert found.turns == fit.nfev
    assert found.each[0].bytes >= 8 * T.size
    assert found.each[1].bytes >= 4 * 8 * T.size
    assert f"{fit.nfev} evaluations" in str(found)


@pytest.mark.rest
def test_a_picture_has_data_curve_residuals_and_correlations(tmp_path):
    """What is drawn is what SciPy fits."""
    mask = T[7] != T
    fit = curve_fit(decay, T, Y, [1, 1, 0], sigma=0.05, mask=mask)
    figure = draw_fit(fit)
    figure.savefig(tmp_path / "fit.png")
    assert (tmp_path / "fit.png").read_bytes().startswith(b"\x89PNG")
    data, residuals, correlations = figure.axes
    curve = next(of for of in data.lines if of.get_label() == "fit").get_xydata()
    expected, covariance = scipy.optimize.curve_fit(
        lambda t, a, b, c: a * np.exp(-b * t) + c, T[mask], Y[mask], [1, 1, 0]
    )
    at = expected[0] * np.exp(-expected[1] * curve[:, 0]) + expected[2]
    np.testing.assert_allclose(curve[:, 1], at, rtol=1e-5)
    above = Y - expected[0] * np.exp(-expected[1] * T) - expected[2]
    points = np.asarray(residuals.collections[0].get_offsets())
    np.testing.assert_allclose(points[:, 1], above[mask] / 0.05, atol=1e-5)
    shown = np.asarray(correlations.images[0].get_array())
    of = covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1])
    np.testing.assert_allclose(shown[0, 1], of, rtol=1e-4)


@pytest.mark.rest
def test_a_corner_has_each_pair(tmp_path):
    """Histograms hold each draw, and a pair's points are its columns."""
    x = np.random.default_rng(0).normal(size=(50, 3))
    figure = draw_corner(x, ("a", "b", "c"), at=[0, 0, 0])
    figure.savefig(tmp_path / "corner.png")
    grid = np.reshape(figure.axes, (3, 3))
    assert sum(bar.get_height() for bar in grid[1, 1].patches) == 50
    np.testing.assert_array_equal(grid[2, 0].lines[0].get_xydata(), x[:, [0, 2]])
