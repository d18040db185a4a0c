"""Measurements that are no arrays of NumPy's, as series of pandas, and piecewise models."""

import warnings

import numpy as np
import pytest
import scipy.optimize
from numpy.lib.mixins import NDArrayOperatorsMixin

from examples.trf import drop_in

T = np.linspace(0, 4, 40)
Y = 2.5 * np.exp(-1.3 * T) + 0.5 + 0.05 * np.cos(37 * T)


class Series(NDArrayOperatorsMixin):
    """A column of a table. Its operators leave to others what has a higher `__pandas_priority__`,
    and ufuncs what has an `__array_ufunc__` of its own.
    """

    __array_priority__ = 1000
    __pandas_priority__ = 3000

    def __init__(self, values):
        self.values = np.asarray(values)

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, dtype)

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        if any(hasattr(one, "__array_ufunc__") and not _known(one) for one in inputs):
            return NotImplemented
        values = [one.values if isinstance(one, Series) else one for one in inputs]
        return Series(getattr(ufunc, method)(*values, **options))

    def __mul__(self, other):
        if getattr(other, "__pandas_priority__", 0) > self.__pandas_priority__:
            return NotImplemented
        return Series(self.values * np.asarray(other))

    def __sub__(self, other):
        if getattr(other, "__pandas_priority__", 0) > self.__pandas_priority__:
            return NotImplemented
        return Series(self.values - np.asarray(other))


def _known(one):
    return isinstance(one, (Series, np.ndarray, np.generic))


def in_front(t, a, b, c):
    return a * np.exp(-b * t) + c


def behind(t, a, b, c):
    return a * np.exp(t * -b) + c


def by_values(t, a, b, c):
    return a * np.exp(-b * t.values) + c


@pytest.mark.rest
@pytest.mark.parametrize("model", [in_front, behind, by_values])
def test_a_series_is_traced(model):
    """Without a warning, which a function has that runs in NumPy."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x, covariance = drop_in.curve_fit(model, Series(T), Series(Y))
    expected, expected_covariance = scipy.optimize.curve_fit(in_front, T, Y)
    np.testing.assert_allclose(x, expected, rtol=1e-6)
    np.testing.assert_allclose(covariance, expected_covariance, rtol=1e-4)


@pytest.mark.rest
def test_residuals_of_series_are_traced():
    """Measured less expected, and the other way round."""
    expected = scipy.optimize.least_squares(lambda p: in_front(T, *p) - Y, [1, 1, 0]).x
    for residual in (
        lambda p, t, y: in_front(t, *p) - y,
        lambda p, t, y: y - behind(t, *p),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = drop_in.least_squares(residual, [1, 1, 0], args=(Series(T), Series(Y)))
        np.testing.assert_allclose(found.x, expected, rtol=1e-6)


def split(t, a, b):
    return np.piecewise(t, [t < 2, t >= 2], [lambda u: a * np.sqrt(u), lambda u: b / u])


def otherwise(t, a, b):
    return np.piecewise(t, [t < 2], [lambda u: a * np.sqrt(u), lambda u: b / u])


def one_condition(t, a, b):
    return np.piecewise(t, t < 2, [lambda u: a * np.sqrt(u), b])


@pytest.mark.rest
@pytest.mark.parametrize("model", [split, otherwise, one_condition])
def test_parts_that_the_data_choose_are_traced(model):
    """Each is evaluated at its own points: 1 / 0 and its derivative are no one's."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x, _ = drop_in.curve_fit(model, T, Y)
    expected, _ = scipy.optimize.curve_fit(model, T, Y)
    np.testing.assert_allclose(x, expected, rtol=1e-6)


class Decays:
    """Residuals as an object, which sums in a method of its own."""

    def __init__(self, t, y):
        self.t, self.y = t, y

    def curve(self, p):
        out = np.zeros_like(self.t)
        out += p[0] * np.exp(-p[1] * self.t)
        return out + p[2]

    def misfit(self, p):
        return self.curve(p) - self.y

    def __call__(self, p):
        return self.misfit(p)


class Weighted(Decays):
    """The same, weighed."""

    def misfit(self, p):
        return 2.0 * super().misfit(p)


@pytest.mark.rest
@pytest.mark.parametrize("kind", [Decays, Weighted])
def test_methods_that_a_method_calls_are_traced(kind):
    """By the object itself and by its bound method, of a class and of one that inherits."""
    one = kind(T, Y)
    expected = scipy.optimize.least_squares(one, [1, 1, 0])
    for fun in (one, one.misfit):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = drop_in.least_squares(fun, [1, 1, 0])
        np.testing.assert_allclose(found.x, expected.x, rtol=1e-6)
        np.testing.assert_allclose(found.cost, expected.cost, rtol=1e-9)
    assert vars(one).keys() == {"t", "y"}


@pytest.mark.rest
def test_numbers_of_a_result_are_numpys():
    """`result.cost.item()` is written in scripts."""
    found = drop_in.least_squares(lambda p: in_front(T, *p) - Y, [1, 1, 0])
    expected = scipy.optimize.least_squares(lambda p: in_front(T, *p) - Y, [1, 1, 0])
    assert {name: type(value) for name, value in found.items()} == {
        name: type(value) for name, value in expected.items()
    }
