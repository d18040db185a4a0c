"""The model against quadrature and NumPy, its products against a dense Jacobian."""

import jax
import numpy as np
import pytest
import scipy.integrate

from examples.homodyne import Parameters, Setup
from examples.homodyne._data import TRUTH
from examples.homodyne.model import c2, gram, power_integral, residual

T1 = np.array([0.1, 0.1, 1.0, 10.0, 10.0, 0.3])
T2 = np.array([0.2, 50.0, 1.0 + 1e-9, 10.1, 500.0, 0.3])
SETUP = Setup()


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


def quadrature(power, offset, exponent, a, b):
    return scipy.integrate.quad(
        lambda t: power * t**exponent + offset, a, b, epsabs=0, epsrel=1e-12
    )[0]


@pytest.mark.parametrize("exponent", [-2.5, -1.0, -1 + 1e-9, -1 + 1e-5, -0.4, 0.0, 0.7, 3.0])
def test_powers_are_integrated(exponent):
    """Also at -1 and beside it, and from a time to itself."""
    got = power_integral(T1, T2, np.float64(exponent))
    want = [
        quadrature(1.0, 0.0, exponent, a, b) if a != b else 0.0 for a, b in zip(T1, T2, strict=True)
    ]
    np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-300)


@pytest.mark.core("-0.4", "-1.0")
@pytest.mark.parametrize("exponent", [-1.0, -1 + 1e-7, -0.4, 1.0])
def test_derivatives_of_the_integral_are_smooth(exponent):
    """By the exponent, across -1, and finite for equal times."""
    slope = jax.vmap(jax.grad(power_integral, 2), (0, 0, None))(T1, T2, np.float64(exponent))
    want = [
        scipy.integrate.quad(lambda t: t**exponent * np.log(t), a, b, epsrel=1e-10)[0]
        if a != b
        else 0.0
        for a, b in zip(T1, T2, strict=True)
    ]
    np.testing.assert_allclose(slope, want, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("phi", [0.0, 0.15, 0.15 + np.pi / 2, -1.2])
def test_the_model_is_the_published_one(phi):
    """Both integrals by quadrature, the rest in NumPy."""
    p = Parameters.of(TRUTH)
    got = c2(p, SETUP, np.float64(phi), T1, T2)
    for value, a, b in zip(np.asarray(got), T1, T2, strict=True):
        displaced = quadrature(float(p.D0), float(p.D_offset), float(p.alpha), a, b)
        sheared = quadrature(float(p.gamma0), float(p.gamma_offset), float(p.beta), a, b)
        phase = SETUP.q * SETUP.gap * np.cos(phi - float(p.phi0)) / (2 * np.pi) * sheared
        want = 1.0 + 0.3 * np.exp(-(SETUP.q**2) * displaced) * np.sinc(phase) ** 2
        np.testing.assert_allclose(value, want, rtol=1e-12)


@pytest.mark.rest
def test_products_are_those_of_the_dense_jacobian():
    """Of [J, r], by `jax.jacrev` and NumPy."""
    rng = np.random.default_rng(0)
    t1 = rng.uniform(0.1, 5, 200)
    t2 = t1 + rng.uniform(0.1, 5, 200)
    measured = 1 + rng.normal(size=200)
    arguments = (SETUP, np.float64(0.4), t1, t2, measured)
    J, r = jax.jit(lambda x: (jax.jacrev(residual)(x, *arguments), residual(x, *arguments)))(TRUTH)
    rows = np.column_stack([J, r])
    scale = np.sqrt(np.diag(rows.T @ rows))
    got = jax.jit(lambda x: gram(x, *arguments))(TRUTH)
    np.testing.assert_allclose(
        got / np.outer(scale, scale), rows.T @ rows / np.outer(scale, scale), atol=1e-12
    )
