"""A batch of fits of `examples/trf` on eight devices, against one device and against shardings by
hand.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jitney
from examples.trf import by_hand, curve_fit
from examples.trf._curve import Residual
from examples.trf._problem import Data, Setup
from examples.trf._program import programs
from tests.devices.examples._collectives import sent

T = np.linspace(0, 4, 12)
RNG = np.random.default_rng(0)
TRUE = RNG.uniform((1, 0.5, 0), (3, 2, 1), (16, 3))
Y = TRUE[:, :1] * np.exp(-TRUE[:, 1:2] * T) + TRUE[:, 2:] + 0.01 * RNG.standard_normal((16, 12))


def decay(t, a, b, c):
    return a * jnp.exp(-b * t) + c


def mesh():
    return jitney.mesh(data=4, model=2, devices=jax.devices()[:8])


def test_a_batch_of_fits_is_that_of_one_device():
    """To 1e-10, with as many evaluations, whatever turns the others take; over all axes of the
    mesh.
    """
    with mesh():
        many = curve_fit(decay, T, Y, [1, 1, 0])
    one = curve_fit(decay, T, Y, [1, 1, 0])
    assert len(set(one.nfev)) > 1
    np.testing.assert_array_equal(many.nfev, one.nfev)
    np.testing.assert_allclose(many.x, one.x, rtol=1e-10)
    np.testing.assert_allclose(many.fun, one.fun, rtol=1e-7, atol=1e-10)


def test_it_sends_what_is_sent_by_hand():
    """Whether any fit is not done, one byte, once for each turn of a loop: nothing of the data. The
    results are the same.
    """
    setup = Setup(
        Residual(decay, "no"), None, "linear", bounded=False, scale_by_jac=False, records=None
    )
    data = Data(None, None, None, np.array([1e-8, 1e-8, 1e-8, 1, 300]), None, (T, Y, None), {})
    own = Data(None, None, None, controls=False, mask=None, args=(False, True, None), kwargs={})
    given = np.ones((16, 3)), *eqx.partition(data, own)
    on = mesh()
    fit, by = programs(setup).fit_batch, by_hand.fit_batch(setup, on.mesh)
    with jax.enable_x64(True), on:
        ours = sent(fit.lower(*given), on)
        assert ours == sent(by.lower(*given), on)
        assert set(ours) == {("all-reduce", ("data", "model"), 1, True)}
        np.testing.assert_array_equal(
            jax.block_until_ready(fit(*given))[0], jax.block_until_ready(by(*given))[0]
        )


def test_fits_that_the_devices_do_not_divide_are_refused():
    """With the sizes."""
    with (
        mesh(),
        pytest.raises(
            jitney.errors.MeshError, match=r"axis 'fit' of x0 has size 10(.|\n)*make it 16"
        ),
    ):
        curve_fit(decay, T, Y[:10], [1, 1, 0])


def test_one_fit_is_that_of_one_device():
    """Nothing of it can be shared, and a mesh may be around it for another reason."""
    with mesh():
        alone = curve_fit(decay, T, Y[0], [1, 1, 0])
    np.testing.assert_array_equal(alone.x, curve_fit(decay, T, Y[0], [1, 1, 0]).x)
