"""What users pass and get: arguments, errors, results, covariance, batches."""

import copy
import pickle
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

from examples.trf import curve_fit, least_squares

T = np.linspace(0, 4, 40)
NOISE = 0.05 * np.cos(37 * T)
Y = 2.5 * np.exp(-1.3 * T) + 0.5 + NOISE
P0 = np.array([1.0, 1.0, 0.0])


def decay(t, a, b, c):
    return a * jnp.exp(-b * t) + c


def numpy_decay(t, a, b, c):
    return a * np.exp(-b * t) + c


def residual(p, t, y):
    return decay(t, *p) - y


def jacobian(p, t, y):
    e = jnp.exp(-p[1] * t)
    return jnp.stack([e, -p[0] * t * e, jnp.ones_like(t)], axis=1)


def scaled(p, t, y, factor):
    return factor * residual(p, t, y)


# Results


@pytest.mark.rest
def test_result_has_scipys_attributes():
    """Every attribute of SciPy's result has its name, shape and value."""
    mine = least_squares(residual, P0, args=(T, Y))
    theirs = scipy.optimize.least_squares(
        lambda p: numpy_decay(T, *p) - Y,
        P0,
        jac=lambda p: np.asarray(jacobian(p, T, Y), dtype=float),
    )
    for name in ("nfev", "njev", "status", "success", "message"):
        assert getattr(mine, name) == theirs[name]
    for name in ("x", "cost", "fun", "jac", "active_mask"):
        np.testing.assert_allclose(getattr(mine, name), theirs[name], rtol=1e-5, atol=1e-6)
        assert np.shape(getattr(mine, name)) == np.shape(theirs[name])
    np.testing.assert_allclose(mine.grad, mine.jac.T @ mine.fun, atol=1e-12)
    # the program fuses the product that `grad` repeats: the last bit may differ
    np.testing.assert_allclose(mine.optimality, np.abs(mine.grad).max(), rtol=1e-14)


def test_numbers_are_float64_whatever_the_flag():
    """The global flag changes nothing: the same bits, in NumPy's float64."""
    off = least_squares(residual, P0, args=(T, Y))
    with jax.enable_x64(True):
        on = least_squares(residual, P0, args=(T, Y))
    assert not jax.config.jax_enable_x64
    assert off.x.dtype == off.fun.dtype == np.float64
    np.testing.assert_array_equal(off.x, on.x)


def test_result_says_what_happened():
    """Its text names the message and the parameters."""
    text = repr(least_squares(residual, P0, args=(T, Y)))
    assert "termination condition is satisfied" in text
    assert "nfev" in text


def test_result_is_a_pytree():
    """JAX can take a result apart and put it together."""
    fit = least_squares(residual, P0, args=(T, Y))
    again = jax.tree.unflatten(*reversed(jax.tree.flatten(fit)))
    np.testing.assert_array_equal(fit.x, again.x)


# Arguments


@pytest.mark.rest
def test_given_jacobian_is_used():
    """With `jac` the fit is the same, and a wrong one is noticed in the result."""
    np.testing.assert_allclose(
        least_squares(residual, P0, jacobian, args=(T, Y)).x,
        least_squares(residual, P0, args=(T, Y)).x,
        rtol=1e-9,
    )
    wrong = least_squares(
        residual, P0, lambda p, t, y: 0.5 * jacobian(p, t, y), args=(T, Y), max_nfev=2
    )
    assert wrong.nfev == 2


@pytest.mark.rest
def test_keywords_and_floats_reach_the_function():
    """`args` and `kwargs` are passed on; another float is other data for the same program, not
    another program.
    """
    traces = []

    def counted(p, t, *, y, factor):
        traces.append(1)
        return scaled(p, t, y, factor)

    one = least_squares(counted, P0, args=(T,), kwargs={"y": Y, "factor": 1.0})
    seen = len(traces)
    three = least_squares(counted, P0, args=(T,), kwargs={"y": Y, "factor": 3.0})
    np.testing.assert_allclose(three.cost, 9 * one.cost, rtol=1e-9)
    assert len(traces) == seen


def test_tolerances_do_not_recompile():
    """Tolerances, limits and f_scale are data of one program."""
    traces = []

    def counted(p, t, y):
        traces.append(1)
        return residual(p, t, y)

    least_squares(counted, P0, args=(T, Y))
    seen = len(traces)
    least_squares(counted, P0, args=(T, Y), ftol=1e-12, max_nfev=7, f_scale=2.0)
    assert len(traces) == seen


@pytest.mark.rest
def test_masked_points_do_not_count():
    """A masked point may be NaN; fit and covariance are those of the others."""
    keep = np.ones(T.size, bool)
    keep[[3, 17]] = False
    spoiled = np.where(keep, Y, np.nan)
    masked = least_squares(residual, P0, args=(T, spoiled), mask=keep)
    fewer = least_squares(residual, P0, args=(T[keep], Y[keep]))
    np.testing.assert_allclose(masked.x, fewer.x, rtol=1e-9)
    np.testing.assert_allclose(masked.covariance, fewer.covariance, rtol=1e-6)
    np.testing.assert_array_equal(masked.fun[~keep], 0)


def test_mask_and_robust_loss():
    """A callable loss that is not zero at zero still does not count masked points."""
    keep = np.arange(T.size) % 5 != 0

    def shifted(z):
        return jnp.log1p(z) + 1.0

    masked = least_squares(residual, P0, args=(T, Y), mask=keep, loss=shifted, f_scale=0.1)
    fewer = least_squares(residual, P0, args=(T[keep], Y[keep]), loss=shifted, f_scale=0.1)
    np.testing.assert_allclose(masked.cost, fewer.cost, rtol=1e-9)


@pytest.mark.rest
def test_other_arguments_are_fixed():
    """A string or an int among the arguments is part of the program, a NumPy scalar is data."""

    def branching(p, t, y, kind, power, factor):
        assert kind == "plain"
        return factor**power * residual(p, t, y)

    fit = least_squares(branching, P0, args=(T, Y, "plain", 2, np.float64(2.0)))
    np.testing.assert_allclose(
        fit.cost, 16 * least_squares(residual, P0, args=(T, Y)).cost, rtol=1e-9
    )


# Curves and covariance


SIGMA = 0.03 + 0.01 * np.sin(T) ** 2
CORRELATED = 0.002 * np.exp(-np.abs(T[:, None] - T)) + 0.001 * np.eye(T.size)


@pytest.mark.core("none-False", "matrix-True")
@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize("sigma", [None, SIGMA, CORRELATED], ids=["none", "vector", "matrix"])
def test_curve_fit_agrees_with_scipy(sigma, absolute):
    """Parameters and covariance are SciPy's for every kind of sigma."""
    mine = curve_fit(decay, T, Y, P0, sigma, absolute, ftol=1e-14, xtol=1e-14)
    x, covariance = scipy.optimize.curve_fit(
        numpy_decay, T, Y, P0, sigma, absolute, ftol=1e-14, xtol=1e-14
    )
    np.testing.assert_allclose(mine.x, x, rtol=1e-6)
    np.testing.assert_allclose(mine.covariance, covariance, rtol=1e-5, atol=1e-12)


@pytest.mark.rest
def test_scalar_sigma():
    """One number is the standard deviation of every point."""
    one, many = (
        curve_fit(decay, T, Y, P0, sigma, absolute_sigma=True)
        for sigma in (0.05, np.full(T.size, 0.05))
    )
    np.testing.assert_allclose(one.covariance, many.covariance, rtol=1e-12)


@pytest.mark.rest
@pytest.mark.parametrize("sigma", [SIGMA, CORRELATED], ids=["vector", "matrix"])
def test_curve_fit_with_a_jacobian(sigma):
    """The model's own Jacobian is divided by sigma as the residuals are."""
    own = curve_fit(decay, T, Y, P0, sigma, jac=lambda t, *p: jacobian(jnp.stack(p), t, None))
    derived = curve_fit(decay, T, Y, P0, sigma)
    np.testing.assert_allclose(own.jac, derived.jac, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(own.x, derived.x, rtol=1e-9)


def test_a_parameter_that_is_not_determined_has_an_infinite_error():
    """One without effect, and two that do the same, are named; the others keep their errors."""
    with pytest.warns(UserWarning, match=r"^`b` has no effect of its own"):
        idle = curve_fit(lambda t, a, b: a * t + 0 * b, T, Y, [1, 1])
    np.testing.assert_array_equal(idle.undetermined, [False, True])
    alone = scipy.optimize.curve_fit(lambda t, a: a * t, T, Y, [1])[1]
    scatter = (T.size - 1) / (T.size - 2)
    np.testing.assert_allclose(idle.covariance[0, 0], alone[0, 0] * scatter, rtol=1e-6)
    assert np.isinf(idle.covariance[1]).all()


@pytest.mark.rest
def test_parameters_that_do_the_same_have_infinite_errors():
    """Whatever their units; a third one has the error that it has without one of them."""
    with pytest.warns(UserWarning, match=r"^`a`, `b` have no effect of their own"):
        twice = curve_fit(lambda t, a, b, c: (a + 1e6 * b) * t + c, T, Y, [1, 1, 1])
    once = scipy.optimize.curve_fit(lambda t, a, c: a * t + c, T, Y, [1, 1])[1]
    np.testing.assert_array_equal(np.isinf(np.diag(twice.covariance)), [True, True, False])
    scatter = (T.size - 2) / (T.size - 3)
    np.testing.assert_allclose(twice.covariance[2, 2], once[1, 1] * scatter, rtol=1e-6)


@pytest.mark.rest
def test_the_scale_of_a_curves_parameters_is_the_jacobians():
    """SciPy's regression 2639: with a scale of 1 the fit ends elsewhere, at a cost of 433,462."""
    t = 574.0 + np.array([142, 154, 165, 177, 188, 199, 211, 222, 234, 245]) / 1000
    y = np.array([859.0, 997, 1699, 2604, 2013, 1964, 2435, 1550, 949, 841])
    start = [574.1861428571428, 574.2155714285715, 1302.0, 1302.0, 0.0035019999999983615, 859.0]

    def peaks(t, a, b, high, low, width, level):
        first, second = (jnp.exp(-((t - at) ** 2) / (2 * width**2)) for at in (a, b))
        return high * first + low * second + level

    fit = curve_fit(peaks, t, y, start)
    found = [574.17715, 574.209188, 1741.87044, 1586.46166, 1.0068462e-2, 857.450661]
    np.testing.assert_allclose(fit.x, found, rtol=1e-5)
    np.testing.assert_allclose(fit.cost, 662.5, rtol=1e-3)


@pytest.mark.rest
def test_covariance_without_degrees_of_freedom():
    """As many points as parameters leave the scatter unknown: infinite, unless sigma is
    absolute.
    """
    assert np.isinf(curve_fit(decay, T[:3], Y[:3], P0).covariance).all()
    assert np.isfinite(
        curve_fit(decay, T[:3], Y[:3], P0, 0.1, absolute_sigma=True).covariance
    ).all()


# Batches


@pytest.mark.rest
def test_batch_is_each_fit():
    """Every row of a batch is what that fit gives alone: x, cost, count, status, covariance,
    history.
    """
    many = np.stack([Y, Y + 0.3, 2 * Y])
    batch = curve_fit(decay, T, many, P0, history=True)
    assert batch.x.shape == (3, 3)
    for i, y in enumerate(many):
        alone = curve_fit(decay, T, y, P0, history=True)
        np.testing.assert_allclose(batch.x[i], alone.x, rtol=1e-9)
        np.testing.assert_allclose(batch.cost[i], alone.cost, rtol=1e-9)
        assert (batch.nfev[i], batch.status[i]) == (alone.nfev, alone.status)
        np.testing.assert_allclose(batch.covariance[i], alone.covariance, rtol=1e-6)
        np.testing.assert_allclose(batch.jac[i], alone.jac, rtol=1e-6, atol=1e-9)
        assert len(batch.history[i].cost) == alone.nfev - 1


@pytest.mark.rest
def test_batch_of_starts_bounds_and_times():
    """Starts, t and sigma may differ between fits; bounds are shared, and some fits end at them."""
    starts = np.array([[1.0, 1.0, 0.1], [2.0, 0.5, 0.2]])
    times = np.stack([T, 1.5 * T])
    sigmas = np.stack([SIGMA, SIGMA[::-1]])
    box = ([0, 0, 0], [2.4, 5, 5])
    batch = curve_fit(decay, times, np.stack([Y, Y]), starts, sigmas, bounds=box)
    for i in range(2):
        alone = curve_fit(decay, times[i], Y, starts[i], sigmas[i], bounds=box)
        np.testing.assert_allclose(batch.x[i], alone.x, rtol=1e-9)
        np.testing.assert_array_equal(batch.active_mask[i], alone.active_mask)


@pytest.mark.rest
def test_batch_of_least_squares_maps_what_is_named():
    """With rows of starts, `mapped` names the arguments that have a row for each fit."""
    many = np.stack([Y, Y + 0.3])
    batch = least_squares(
        residual, np.tile(P0, (2, 1)), args=(T, many), mapped=("y",), loss="huber", f_scale=0.1
    )
    alone = least_squares(residual, P0, args=(T, many[1]), loss="huber", f_scale=0.1)
    np.testing.assert_allclose(batch.x[1], alone.x, rtol=1e-9)


# Copies


@pytest.mark.rest
@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, lambda fit: pickle.loads(pickle.dumps(fit))],
    ids=["copy", "deepcopy", "pickle"],
)
def test_results_survive_copying(copied):
    """A copy has every number, those too that were not asked for before."""
    fit = curve_fit(decay, T, np.stack([Y, Y + 0.3]), P0, absolute_sigma=True, history=True)
    other = copied(fit)
    for name in ("x", "cost", "grad", "fun", "jac", "covariance", "nfev", "active_mask"):
        np.testing.assert_array_equal(getattr(other, name), getattr(fit, name))
    np.testing.assert_array_equal(other.history[1].cost, fit.history[1].cost)
    assert other.message == fit.message


@pytest.mark.rest
def test_a_batch_is_printed_as_a_summary_and_the_first_few():
    """Ten thousand fits in a screenful, counted by what they ended with."""
    rng = np.random.default_rng(0)
    result = least_squares(lambda p: p - jnp.array([1.0, 2.0]), rng.normal(size=(10_000, 2)))
    text = repr(result)
    assert len(text) < 2000
    assert "fits: 10,000, 10,000 with success" in text
    assert (
        sum(
            int(line.split(":")[1].split(".")[0].replace(",", ""))
            for line in text.splitlines()
            if "status " in line[:12]
        )
        == 10_000
    )
    assert text.splitlines()[-1].strip() == "..."
    assert len([line for line in text.splitlines() if ", x [1. 2.]" in line]) == 5


@pytest.mark.rest
def test_a_batch_that_cannot_begin_names_the_first_of_its_fits():
    """And how many there are; the others come back."""
    start = np.ones((2000, 2))
    start[::2, 0] = -1.0
    words = r"of fits \[0, 2, 4, 6, 8, \.\.\.\] \(1,000 in all\)"
    with pytest.warns(UserWarning, match=words):
        result = least_squares(lambda p: jnp.log(p), start)
    assert "1,000 of 2,000 fits met a tolerance" in result.message
    assert len(result.message) < 300
    np.testing.assert_allclose(result.x[1::2], 1.0)
    assert np.isnan(result.x[::2]).all()
    with pytest.raises(ValueError, match=r"\(2,000 in all\)"):
        least_squares(lambda p: jnp.log(p), -(start**2))


def test_one_bad_row_of_a_batch_fails_alone():
    """NaN data, all masked, a fit that its data do not determine, a sigma of zero: the others are
    what they are alone.
    """
    many = np.stack([Y, Y * np.nan, Y, 0 * Y, Y])
    keep = np.ones(many.shape, bool)
    keep[2] = False
    sigma = np.full(many.shape, 0.1)
    sigma[4] = 0.0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit = curve_fit(lambda t, a, b: a * t * b, T, many, [1, 1], sigma, mask=keep)
    told = " ".join(str(one.message) for one in caught)
    for words in ("than parameters in fits [2]", "of fits [1, 4]", "in fits [0, 3]"):
        assert words in told
    np.testing.assert_array_equal(fit.status < 0, [False, True, True, False, True])
    assert np.isnan(fit.x[fit.status < 0]).all()
    assert np.isnan(fit.cost[fit.status < 0]).all()
    with pytest.warns(UserWarning, match="no effect"):
        alone = curve_fit(lambda t, a, b: a * t * b, T, Y, [1, 1], 0.1)
    np.testing.assert_allclose(fit.cost[0], alone.cost, rtol=1e-9)
    assert "Failed: fits [1, 2, 4]." in fit.message
