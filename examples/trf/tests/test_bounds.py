"""Bounded fits against SciPy's, on random problems and where bounds bite."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from hypothesis import example, given
from hypothesis import strategies as st

from examples.trf import least_squares
from examples.trf._coleman_li import Bounds, strictly_inside

TIGHT = {"ftol": 1e-14, "xtol": 1e-14, "gtol": 1e-12, "max_nfev": 1000}
T = np.linspace(0, 4, 40)


def linear(p, A, b):
    return A @ p - b


def wave(p, t, y):
    return p[0] * jnp.exp(-p[1] * t) * jnp.cos(p[2] * t) - y


def numpy_wave(p, t, y):
    return p[0] * np.exp(-p[1] * t) * np.cos(p[2] * t) - y


def numpy_wave_jacobian(p, t, y):
    e, c, s = np.exp(-p[1] * t), np.cos(p[2] * t), np.sin(p[2] * t)
    return np.stack([e * c, -p[0] * t * e * c, -p[0] * t * e * s], axis=1)


@pytest.mark.rest
@given(seed=st.integers(0, 2**32 - 1))
@example(seed=4)  # no bound stops the minimum
@example(seed=14)  # no side is missing; three bounds stop it, below and above
@example(seed=11)  # three upper ones
@example(seed=34)  # four sides are missing
@example(seed=1)  # the start is on a bound in each direction
@example(seed=28)  # the same, and a lower one stops it
def test_random_bounded_linear_problems(seed):
    """A convex problem in a random box, some sides missing, has one solution: SciPy's bounded
    linear solver finds it too.
    """
    rng = np.random.default_rng(seed)
    A, b = rng.normal(size=(20, 4)), rng.normal(size=20)
    low = np.where(rng.random(4) < 0.7, rng.uniform(-1, 0.2, 4), -np.inf)
    high = np.where(rng.random(4) < 0.7, np.maximum(low, -1) + rng.uniform(0.05, 1.5, 4), np.inf)
    x0 = np.clip(rng.normal(size=4), low, high)
    mine = least_squares(linear, x0, args=(A, b), bounds=(low, high), **TIGHT)
    theirs = scipy.optimize.lsq_linear(A, b, bounds=(low, high), method="bvls", tol=1e-14)
    np.testing.assert_allclose(mine.cost, theirs.cost, rtol=1e-9)
    np.testing.assert_allclose(mine.x, theirs.x, atol=1e-5)
    assert np.all((mine.x > low) & (mine.x < high))


@pytest.mark.rest
@given(seed=st.integers(0, 2**32 - 1))
@example(seed=0)  # no bound stops the minimum, and the cost no longer falls
@example(seed=12)  # no bound, and the steps become small
@example(seed=17)  # the amplitude stops at its bound, after 12 evaluations
@example(seed=6)  # the damping
@example(seed=7)  # the frequency
@example(seed=4)  # the amplitude, though the truth is in the box
def test_random_bounded_curves_follow_scipy(seed):
    """A damped wave from random data, start and box: SciPy's minimum, by its number of steps within
    one, at default tolerances.
    """
    rng = np.random.default_rng(seed)
    truth = rng.uniform([1, 0.1, 1], [3, 1, 2])
    y = numpy_wave(truth, T, 0) + 0.02 * rng.normal(size=T.size)
    low, high = truth - rng.uniform(-0.1, 0.5, 3), truth + rng.uniform(0.15, 0.6, 3)
    x0 = rng.uniform(low, high)
    mine = least_squares(wave, x0, args=(T, y), bounds=(low, high))
    theirs = scipy.optimize.least_squares(
        numpy_wave, x0, jac=numpy_wave_jacobian, args=(T, y), bounds=(low, high)
    )
    np.testing.assert_allclose(mine.cost, theirs.cost, rtol=1e-6)
    assert abs(mine.nfev - theirs.nfev) <= 1
    assert mine.status == theirs.status


@pytest.mark.rest
@pytest.mark.parametrize("x_scale", [1.0, [1.0, 0.1, 2.0], "jac"], ids=["one", "vector", "jac"])
def test_scales_follow_scipy(x_scale):
    """Any scale of the parameters takes SciPy's steps, in a box that stops two of the three."""
    y = numpy_wave([2.0, 0.4, 1.5], T, 0.1 * np.sin(5 * T))
    box = ([0, 0, 0], [1.9, 0.3, 5])
    mine = least_squares(wave, [1.0, 0.1, 1.0], args=(T, y), bounds=box, x_scale=x_scale)
    theirs = scipy.optimize.least_squares(
        numpy_wave,
        [1.0, 0.1, 1.0],
        jac=numpy_wave_jacobian,
        args=(T, y),
        bounds=box,
        x_scale=x_scale,
    )
    assert (mine.nfev, mine.status) == (theirs.nfev, theirs.status)
    np.testing.assert_allclose(mine.x, theirs.x, rtol=1e-7)
    np.testing.assert_array_equal(mine.active_mask, theirs.active_mask)
    np.testing.assert_allclose(mine.optimality, theirs.optimality, rtol=1e-2, atol=1e-12)


@pytest.mark.rest
def test_start_on_a_bound_moves_inside():
    """A start on its bounds is feasible: the solver steps off and finds the minimum inside."""
    y = numpy_wave([2.0, 0.4, 1.5], T, 0)
    fit = least_squares(wave, [1.0, 0.0, 1.0], args=(T, y), bounds=([1, 0, 1], [5, 5, 5]), **TIGHT)
    np.testing.assert_allclose(fit.x, [2.0, 0.4, 1.5], rtol=1e-8)


def test_a_step_that_ends_on_a_bound_is_moved_one_rounding_inside():
    """On it the distance to the bound, by which steps are scaled, would be zero; what lies beyond
    comes back too.
    """
    with jax.enable_x64(True):
        x, box = jnp.asarray([0.0, 1.0, 0.5, -1e-300, 1.5]), Bounds(jnp.zeros(5), jnp.ones(5))
        moved = np.asarray(strictly_inside(x, box))
    low, high = np.nextafter(0.0, 1.0), np.nextafter(1.0, 0.0)
    np.testing.assert_array_equal(moved, [low, high, 0.5, low, high])


@pytest.mark.rest
def test_scipy_bounds_object():
    """`scipy.optimize.Bounds` says the same as a pair."""
    y = numpy_wave([2.0, 0.4, 1.5], T, 0)
    one = least_squares(wave, [1.0, 0.1, 1.0], args=(T, y), bounds=([0, 0, 0], [1.9, 5, 5]))
    other = least_squares(
        wave, [1.0, 0.1, 1.0], args=(T, y), bounds=scipy.optimize.Bounds([0, 0, 0], [1.9, 5, 5])
    )
    np.testing.assert_array_equal(one.x, other.x)


@pytest.mark.rest
def test_infinite_bounds_are_none():
    """A box without sides gives the unbounded fit, to the bit."""
    y = numpy_wave([2.0, 0.4, 1.5], T, 0.1)
    free = least_squares(wave, [1.0, 0.1, 1.0], args=(T, y))
    boxed = least_squares(wave, [1.0, 0.1, 1.0], args=(T, y), bounds=(np.full(3, -np.inf), np.inf))
    np.testing.assert_array_equal(free.x, boxed.x)
