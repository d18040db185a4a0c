"""The drop-in as MINPACK: units, options, what `full_output` holds, forms of `jac`."""

import itertools
import warnings

import numpy as np
import pytest
import scipy.optimize

from examples.trf import drop_in

T = np.linspace(0, 4, 40)
Y = 2.5 * np.exp(-1.3 * T) + 0.5 + 0.05 * np.cos(37 * T)


def decay(t, a, b, c):
    return a * np.exp(-b * t) + c


@pytest.mark.parametrize("unit", [1e-5, 1e-8, 1e-12])
def test_small_units_do_not_end_a_fit_at_its_start(unit):
    """MINPACK's `gtol` is a cosine, which no unit changes; a gradient of amperes is small where the
    data are of nanoamperes.
    """
    x, covariance = drop_in.curve_fit(decay, T, unit * Y, [unit, 1, 0])
    expected = scipy.optimize.curve_fit(decay, T, unit * Y, [unit, 1, 0])
    np.testing.assert_allclose(x, expected[0], rtol=1e-5)
    np.testing.assert_allclose(covariance, expected[1], rtol=1e-4)

    def residual(p):
        return decay(T, *p) - unit * Y

    fit = drop_in.least_squares(residual, [unit, 1, 0], method="lm")
    np.testing.assert_allclose(fit.x, expected[0], rtol=1e-5)


@pytest.mark.rest
def test_a_cosine_below_gtol_ends_a_fit_by_minpack():
    """At once where the start is the solution, traced or not, as in SciPy."""
    x, _ = scipy.optimize.curve_fit(decay, T, Y, ftol=1e-14, xtol=1e-14)

    def untraced(t, a, b, c):
        return decay(t, float(a), b, c)

    for module, model in itertools.product((scipy.optimize, drop_in), (decay, untraced)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", drop_in.NotTraced)
            *_, words, number = module.curve_fit(model, T, Y, x, gtol=1e-5, full_output=True)
        assert (number, words[:10]) == (4, "The cosine")


@pytest.mark.rest
def test_columns_are_numbered_as_scipy_numbers_them():
    """In `ipvt`; R in `fjac` is the same but for signs, and `njev` is there with `jac`."""

    def slopes(t, a, b, c):
        e = np.exp(-b * t)
        return np.stack([e, -a * t * e, np.ones_like(t)], axis=-1)

    options = {"jac": slopes, "full_output": True}
    *_, about, _, _ = drop_in.curve_fit(decay, T, Y, **options)
    *_, expected, _, _ = scipy.optimize.curve_fit(decay, T, Y, **options)
    assert about.keys() == expected.keys()
    np.testing.assert_array_equal(about["ipvt"], expected["ipvt"])
    rows = [np.abs(np.triu(one["fjac"].T[:3])) for one in (about, expected)]
    np.testing.assert_allclose(*rows, rtol=1e-4, atol=1e-5)


@pytest.mark.rest
def test_a_jacobian_for_minpack_may_be_of_columns():
    """By `col_deriv`, or of one axis for one parameter; a wrong shape is a `TypeError`, as in
    SciPy.
    """

    def rows(t, a, b):
        return np.array([t, np.ones_like(t)])

    line = lambda t, a, b: a * t + b
    with warnings.catch_warnings():
        warnings.simplefilter("error", drop_in.NotTraced)
        x, _ = drop_in.curve_fit(line, T, Y, jac=rows, col_deriv=True)
        one, _ = drop_in.curve_fit(lambda t, a: a * t, T, Y, jac=lambda t, a: t)
    np.testing.assert_allclose(x, np.polyfit(T, Y, 1), rtol=1e-7)
    np.testing.assert_allclose(one, [T @ Y / (T @ T)], rtol=1e-7)
    for module in (drop_in, scipy.optimize):
        with pytest.raises(TypeError, match="mismatch between the input and output shape"):
            module.curve_fit(line, T, Y, jac=rows)


@pytest.mark.rest
def test_a_list_of_points_is_traced():
    """As what a model gives; SciPy makes an array of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", drop_in.NotTraced)
        x, _ = drop_in.curve_fit(lambda t, a, b: [a * one + b for one in t], T, Y)
    np.testing.assert_allclose(x, np.polyfit(T, Y, 1), rtol=1e-7)


@pytest.mark.rest
def test_a_loop_over_many_points_runs_in_numpy():
    """Its program has some operations for each of them, whose compile would take minutes."""
    t = np.linspace(0, 4, 500)
    with pytest.warns(drop_in.NotTraced, match=r"program of [\d,]+ operations takes long"):
        x, _ = drop_in.curve_fit(lambda t, a, b: [a * one + b for one in t], t, 2 * t - 1)
    np.testing.assert_allclose(x, [2, -1], rtol=1e-6)


@pytest.mark.rest
def test_bounds_of_fewer_parameters_leave_the_last_their_defaults():
    """As SciPy guesses their number; without defaults that is the model's error."""
    bounds = ([0, 0], [5, 5])

    def offset(t, a, b, c=0.5):
        return decay(t, a, b, c)

    x, _ = drop_in.curve_fit(offset, T, Y, bounds=bounds)
    expected, _ = scipy.optimize.curve_fit(offset, T, Y, bounds=bounds)
    np.testing.assert_allclose(x, expected, rtol=1e-4)
    for module in (drop_in, scipy.optimize):
        with pytest.raises(TypeError, match="missing 1 required positional argument: 'c'"):
            module.curve_fit(decay, T, Y, bounds=bounds)


@pytest.mark.rest
@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"factor": -1}, RuntimeError, "Improper input parameters"),
        ({"diag": [1, -1, 1]}, RuntimeError, "Improper input parameters"),
        ({"ftol": -1}, RuntimeError, "Improper input parameters"),
        ({"ftol": 0, "xtol": 0}, RuntimeError, "tol=0.000000 is too small"),
        ({"method": "trf", "maxfev": 0}, ValueError, "must be None or positive"),
        ({"method": "trf", "maxfev": 9, "max_nfev": 9}, TypeError, r"least_squares\(\) got an"),
        ({"method": "trf", "factor": 1}, TypeError, r"least_squares\(\) got an unexpected"),
        ({"p0": [1 + 0j, 1, 0]}, TypeError, "complex128"),
        ({"p0": ["1", "1", "0"]}, TypeError, "U1|str_"),
    ],
)
def test_an_option_that_scipy_refuses_is_refused(options, error, words):
    """With the class and, where SciPy has some for it, its words."""
    for module in (drop_in, scipy.optimize):
        with pytest.raises(error, match=words):
            module.curve_fit(decay, T, Y, **options)


@pytest.mark.rest
@pytest.mark.filterwarnings("error")
def test_a_jacobian_that_is_nan_has_no_warning_of_numpys():
    """It is an error alone, as in SciPy."""
    bad = lambda t, a, b, c: np.full((t.size, 3), np.nan) * a
    with pytest.raises(ValueError, match="not finite"):
        drop_in.curve_fit(decay, T, Y, jac=bad, method="trf")
