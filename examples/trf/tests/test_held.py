"""Functions that are Equinox modules."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from examples.trf import curve_fit, least_squares
from examples.trf.tests.test_api import P0, T, Y, decay, jacobian


class Misfit(eqx.Module):
    """Residuals that hold their data."""

    y: jax.Array | np.ndarray
    trace: Callable[[int], None] = eqx.field(static=True, default=abs)

    def __call__(self, p, t):
        self.trace(1)
        return decay(t, *p) - self.y

    def slope(self, p, t):
        return jacobian(p, t, self.y)


class Scaled(eqx.Module):
    """A curve that holds a factor."""

    factor: jax.Array | np.ndarray

    def __call__(self, t, a, b, c):
        return self.factor * decay(t, a, b, c)


@pytest.mark.rest
def test_modules_of_one_structure_share_a_program():
    """The arrays of a module are data: other numbers are fitted without another trace."""
    traces = []
    one = least_squares(Misfit(Y, traces.append), P0, x_scale="jac", args=(T,))
    seen = len(traces)
    two = least_squares(Misfit(2 * Y, traces.append), P0, x_scale="jac", args=(T,))
    assert len(traces) == seen
    np.testing.assert_allclose(
        [one.x, two.x], [curve_fit(decay, T, y, P0).x for y in (Y, 2 * Y)], rtol=1e-9
    )


@pytest.mark.rest
def test_methods_of_modules():
    """A bound method is a function like any other, for the residuals and for their Jacobian."""
    misfit = Misfit(Y)
    fit = least_squares(misfit.__call__, P0, misfit.slope, x_scale="jac", args=(T,))
    np.testing.assert_allclose(fit.x, curve_fit(decay, T, Y, P0).x, rtol=1e-9)


@pytest.mark.rest
def test_module_as_a_curve():
    """A model may be a module, alone or with a Jacobian that is a plain function."""
    model = Scaled(np.asarray(2.0))
    plain = curve_fit(lambda t, a, b, c: 2.0 * decay(t, a, b, c), T, Y, P0)
    for jac in (None, lambda t, *p: 2.0 * jacobian(jnp.stack(p), t, None)):
        np.testing.assert_allclose(curve_fit(model, T, Y, P0, jac=jac).x, plain.x, rtol=1e-9)


@pytest.mark.rest
def test_module_in_a_batch():
    """A module's arrays are shared by the fits of a batch; `mapped` still names the other
    arguments.
    """
    times = np.stack([T, 1.1 * T])
    batch = least_squares(Misfit(Y), np.tile(P0, (2, 1)), args=(times,), mapped="t")
    np.testing.assert_allclose(batch.x[1], curve_fit(decay, times[1], Y, P0).x, rtol=1e-9)


@pytest.mark.rest
def test_derivative_with_respect_to_a_module():
    """A fit inside a derivative carries it to the arrays of the module: twice the factor is half
    the amplitude.
    """
    with jax.enable_x64(True):
        slope = jax.grad(lambda model: curve_fit(model, T, Y, P0).x[0])(Scaled(jnp.asarray(2.0)))
    amplitude = curve_fit(Scaled(np.asarray(2.0)), T, Y, P0).x[0]
    np.testing.assert_allclose(slope.factor, -amplitude / 2, rtol=1e-6)
