"""Fits by products: those of `least_squares`, from Gram matrices alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from examples.trf import least_squares, least_squares_by_products
from examples.trf.nist import load

T = np.linspace(0, 3, 50)
Y = 2 * np.exp(-1.3 * T) + 0.5 + 0.01 * np.sin(40 * T)


def decay(x):
    return x[0] * jnp.exp(-x[1] * T) + x[2] - Y


def gram_of(fun):
    """The products of a function, dense."""

    @jax.jit
    def products(x):
        rows = jnp.column_stack([jax.jacfwd(fun)(x), fun(x)])
        return rows.T @ rows

    def gram(x):
        with jax.enable_x64(True):
            return np.asarray(products(x))

    return gram


@pytest.mark.rest
@pytest.mark.parametrize(
    "bounds", [(-np.inf, np.inf), ([0, 0, 0.6], [1.9, 5, 3])], ids=["free", "box"]
)
@pytest.mark.parametrize("x_scale", ["jac", None])
def test_the_same_fit_as_with_residuals(bounds, x_scale):
    """Free and at bounds: parameters, cost and covariance."""
    options = {"bounds": bounds, "x_scale": x_scale, "ftol": 1e-12, "xtol": 1e-12, "gtol": 1e-12}
    x0 = [1.0, 1.0, 0.8]
    got, want = (
        least_squares_by_products(gram_of(decay), x0, T.size, **options),
        least_squares(decay, x0, **options),
    )
    np.testing.assert_allclose(got.x, want.x, rtol=1e-6)
    np.testing.assert_allclose(got.cost, want.cost, rtol=1e-10)
    assert got.success
    with jax.enable_x64(True):
        J = np.asarray(jax.jacfwd(decay)(got.x))
    np.testing.assert_allclose(
        got.covariance, np.linalg.inv(J.T @ J) * 2 * got.cost / (T.size - 3), rtol=1e-6
    )


@pytest.mark.rest
@pytest.mark.parametrize("name", ["Misra1a", "Chwirut1", "Gauss1"])
def test_nist_sets(name):
    """Certified values from the second start."""
    reference = load(name)
    residuals = lambda x: reference.model(reference.x, *x) - reference.y
    got = least_squares_by_products(
        gram_of(residuals),
        reference.starts[1],
        reference.y.size,
        ftol=1e-14,
        xtol=1e-14,
        gtol=1e-14,
        polish=3,
    )
    assert reference.digits(got.x) >= 6


@pytest.mark.rest
def test_polishing_brings_orders_of_summation_together():
    """Products that are rounded differently end at the same parameters."""
    gram = gram_of(decay)
    noise = np.random.default_rng(0)
    rounded = lambda x: gram(x) * (1 + 1e-15 * noise.normal())
    found = [
        least_squares_by_products(f, [1.0, 1.0, 0.8], T.size, polish=3).x for f in (gram, rounded)
    ]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-12)


@pytest.mark.rest
def test_progress_counts_evaluations():
    """And tells the cost."""
    seen = []
    found = least_squares_by_products(
        gram_of(decay), [1.0, 1.0, 0.8], T.size, progress=lambda n, cost: seen.append((n, cost))
    )
    assert [n for n, _ in seen] == list(range(1, found.nfev + 1))
    assert min(cost for _, cost in seen) == found.cost


@pytest.mark.rest
def test_a_limit_stops():
    """With the status that says so."""
    found = least_squares_by_products(gram_of(decay), [1.0, 1.0, 0.8], T.size, max_nfev=2)
    assert (found.status, found.nfev, found.success) == (0, 2, False)
    assert "maximum number" in found.message


@pytest.mark.core(
    "<lambda>-not finite, or not of full rank", "<lambda>-At 3 parameters it is 4 by 4"
)
@pytest.mark.parametrize(
    ("gram", "message"),
    [
        (lambda x: np.full((4, 4), np.nan), "not finite, or not of full rank"),
        (lambda x: np.ones((4, 4)), "not of full rank"),
        (lambda x: np.ones((3, 3)), "At 3 parameters it is 4 by 4"),
    ],
)
def test_products_that_are_none_are_refused(gram, message):
    """With a sentence."""
    with pytest.raises(ValueError, match=message):
        least_squares_by_products(gram, [1.0, 1.0, 1.0], 10)
