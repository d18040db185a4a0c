"""Robust losses against SciPy's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

from examples.trf import least_squares

# finer, and rounding of the cost decides where either solver stops
TIGHT = {"ftol": 1e-12, "xtol": 1e-12, "gtol": 1e-12}
T = np.linspace(0, 4, 60)
Y = 2.5 * np.exp(-1.3 * T) + 0.5 + 0.05 * np.cos(37 * T)
Y[[7, 23, 41]] += [2.0, -1.5, 3.0]  # outliers
START = np.array([2.0, 1.0, 0.2])


def residual(p, t, y):
    return p[0] * jnp.exp(-p[1] * t) + p[2] - y


def numpy_residual(p, t, y):
    return p[0] * np.exp(-p[1] * t) + p[2] - y


def numpy_jacobian(p, t, y):
    e = np.exp(-p[1] * t)
    return np.stack([e, -p[0] * t * e, np.ones_like(t)], axis=1)


def by_scipy(**options):
    return scipy.optimize.least_squares(
        numpy_residual, START, jac=numpy_jacobian, args=(T, Y), **TIGHT, **options
    )


def pseudo_huber_stack(z):
    """soft_l1 under another name, as SciPy wants a loss."""
    root = (1 + z) ** 0.5
    return jnp.stack([2 * (root - 1), 1 / root, -0.5 / root**3])


def pseudo_huber(z):
    """The same, without derivatives."""
    return 2 * (jnp.sqrt(1 + z) - 1)


@pytest.mark.core("soft_l1")
@pytest.mark.parametrize("loss", ["huber", "soft_l1", "cauchy", "arctan"])
def test_robust_losses_agree_with_scipy(loss):
    """Cost and parameters agree to nine digits."""
    mine = least_squares(residual, START, loss=loss, f_scale=0.1, args=(T, Y), **TIGHT)
    theirs = by_scipy(loss=loss, f_scale=0.1)
    np.testing.assert_allclose(mine.cost, theirs.cost, rtol=1e-9)
    np.testing.assert_allclose(mine.x, theirs.x, rtol=1e-9)


@pytest.mark.rest
@pytest.mark.parametrize("loss", ["huber", "soft_l1", "cauchy", "arctan"])
def test_robust_losses_agree_with_scipy_at_a_bound(loss):
    """The same for the cost where a bound holds one parameter. Parameters: to where the cost no
    longer tells two points apart.
    """
    start, box = np.array([2.0, 1.0, 0.6]), ([0, 0, 0.55], [10, 10, 10])
    mine = least_squares(residual, start, loss=loss, f_scale=0.1, args=(T, Y), bounds=box, **TIGHT)
    theirs = scipy.optimize.least_squares(
        numpy_residual,
        start,
        jac=numpy_jacobian,
        args=(T, Y),
        bounds=box,
        loss=loss,
        f_scale=0.1,
        **TIGHT,
    )
    np.testing.assert_allclose(mine.cost, theirs.cost, rtol=1e-9)
    np.testing.assert_allclose(mine.x, theirs.x, rtol=1e-7)


@pytest.mark.rest
@pytest.mark.parametrize("loss", [pseudo_huber_stack, pseudo_huber], ids=["stacked", "derived"])
def test_callable_loss_is_the_named_one(loss):
    """A callable that gives rho, rho', rho'' as SciPy's do, or rho alone, fits as the built-in loss
    with that formula.
    """
    mine = least_squares(residual, START, loss=loss, f_scale=0.1, args=(T, Y), **TIGHT)
    theirs = by_scipy(loss="soft_l1", f_scale=0.1)
    np.testing.assert_allclose(mine.x, theirs.x, rtol=1e-9)


@pytest.mark.rest
def test_jacobian_carries_the_weights_of_the_loss():
    """As in SciPy `jac` is the weighted Jacobian and `fun` the plain residuals."""
    mine = least_squares(residual, START, loss="cauchy", f_scale=0.1, args=(T, Y), **TIGHT)
    theirs = by_scipy(loss="cauchy", f_scale=0.1)
    np.testing.assert_allclose(mine.jac, theirs.jac, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(mine.fun, theirs.fun, rtol=1e-7, atol=1e-9)


@pytest.mark.rest
def test_linear_loss_ignores_f_scale():
    """`f_scale` scales nothing where the loss is a square."""
    one, ten = (least_squares(residual, START, f_scale=scale, args=(T, Y)) for scale in (1.0, 10.0))
    assert one.cost == ten.cost


def test_small_residuals_lose_no_digits():
    """soft_l1 of a tiny z is z (1 - z / 4), where 2 (sqrt(1 + z) - 1) would round to zero."""
    from examples.trf._losses import soft_l1

    with jax.enable_x64(True):
        value, _, _ = soft_l1(jnp.asarray([1e-18]))
    np.testing.assert_allclose(value, [1e-18], rtol=1e-12)
