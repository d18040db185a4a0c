"""Steps of few parameters, which batches take number by number, and their data."""

import equinox as eqx
import jax
import numpy as np
import pytest

from examples.trf._few import FEW, damped, gradient, lengths, times
from examples.trf._problem import Data
from examples.trf._run import _parted
from examples.trf._subproblem import _damped

FITS = 20


def triangles(k, seed=0):
    """[R c] of some fits."""
    rng = np.random.default_rng(seed)
    return np.triu(rng.normal(size=(FITS, k, k + 1)) * 10.0 ** rng.uniform(-3, 3, (FITS, 1, k + 1)))


def mapped(step, triangle, root):
    with jax.enable_x64(True):
        return [np.asarray(one) for one in jax.jit(jax.vmap(step))(triangle, root)]


@pytest.mark.parametrize("k", [1, 2, 3, FEW])
def test_a_damped_step_is_that_of_least_squares(k):
    """And so are its length and the derivative of that, by NumPy."""
    triangle, root = triangles(k), np.geomspace(1e-2, 1e2, FITS)
    found = mapped(damped, triangle, root)
    for i in range(FITS):
        R, c = triangle[i, :, :-1], triangle[i, :, -1]
        whole = np.vstack([R, root[i] * np.eye(k)])
        p = np.linalg.lstsq(whole, -np.concatenate([c, np.zeros(k)]))[0]
        T = np.linalg.qr(whole, mode="r")
        bend = np.linalg.norm(np.linalg.solve(T.T, p))
        unit = 1e-12 * np.linalg.cond(T)
        np.testing.assert_allclose(found[0][i], p, rtol=unit, atol=unit * np.abs(p).max())
        np.testing.assert_allclose(found[1][i], np.linalg.norm(p), rtol=unit)
        np.testing.assert_allclose(found[2][i], bend, rtol=unit)


@pytest.mark.rest
@pytest.mark.parametrize("k", [1, 3, 5])
def test_a_damped_step_is_that_of_one_fit(k):
    """Where a parameter has no effect, too, and without damping, where its step is 0."""
    triangle, root = triangles(k, seed=1), np.geomspace(1e-8, 1e2, FITS)
    triangle[::2, :, 0], root[:4] = 0.0, 0.0
    for one, other in zip(
        mapped(damped, triangle, root), mapped(_damped, triangle, root), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12 * np.abs(other).max())


@pytest.mark.rest
def test_a_damped_step_squares_no_condition_number():
    """Columns that are parallel to eight digits, which the product of the triangle with itself does
    not tell apart.
    """
    triangle = np.tile([[1.0, 1.0, 1.0], [0.0, 1e-8, 1.0]], (FITS, 1, 1))
    root = np.geomspace(1e-12, 1e-7, FITS)
    found = mapped(damped, triangle, root)[0]
    for i in range(FITS):
        whole = np.vstack([triangle[i, :, :-1], root[i] * np.eye(2)])
        p = np.linalg.lstsq(whole, -np.array([1.0, 1.0, 0.0, 0.0]), rcond=0)[0]
        np.testing.assert_allclose(found[i], p, rtol=1e-6)


@pytest.mark.parametrize("k", [1, 3, FEW])
def test_products_with_a_triangle_are_numpys(k):
    """R s, R^T c and the lengths of the columns."""
    triangle = triangles(k)
    R, s = triangle[..., :-1], triangle[..., -1]
    with jax.enable_x64(True):
        found = [jax.vmap(times)(R, s), jax.vmap(gradient)(R, s), jax.vmap(lengths)(R)]
    wanted = [np.einsum("nij,nj->ni", R, s), np.einsum("nij,ni->nj", R, s)]
    sizes = [np.einsum("nij,nj->ni", abs(R), abs(s)), np.einsum("nij,ni->nj", abs(R), abs(s))]
    for one, other, size in zip(found, wanted, sizes, strict=False):
        assert np.all(abs(np.asarray(one) - other) <= 1e-14 * size)
    np.testing.assert_allclose(found[2], np.linalg.norm(R, axis=1), rtol=1e-14)


@pytest.mark.parametrize("names", [(), ("y",), ("t", "y"), ("held", "sigma")])
def test_data_of_each_fit_are_parted_as_by_equinox(names):
    """Arrays, trees of them and what is fixed, by position and by name, with and without masks."""
    tree = {"a": np.arange(3.0), "b": (None, "fixed", 2)}
    args, order = (np.ones(2), np.zeros((2, 2)), None, tree), ("t", "y", "sigma", "held")
    for mask in (None, np.ones(2, bool), np.ones((2, 2), bool)):
        data = Data(np.zeros(1), None, None, np.ones(5), mask, args, {"y": tree, "z": 1.0})
        own = Data(
            lower=True,
            upper=True,
            x_scale=False,
            controls=False,
            mask=np.ndim(mask) == 2,
            args=tuple(name in names for name in order),
            kwargs={name: name in names for name in data.kwargs},
        )
        found = _parted(data, [name in names for name in order], names)
        assert eqx.tree_equal(found, eqx.partition(data, own))
