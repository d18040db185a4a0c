"""Many parameters, by products: SciPy's sparse solver and closed forms."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
import scipy.sparse.linalg
from jax import enable_x64

from examples.trf import least_squares
from examples.trf._lsmr import lsmr
from examples.trf.large import grouped, least_squares_large

N = 300


def broyden(x):
    """Broyden's tridiagonal function."""
    f = (3 - x) * x + 1
    return f.at[1:].add(-x[:-1]).at[:-1].add(-2 * x[1:])


def in_numpy(x):
    f = (3 - x) * x + 1
    f[1:] -= x[:-1]
    f[:-1] -= 2 * x[1:]
    return f


def tridiagonal(x):
    ones = np.ones(x.size - 1)
    return scipy.sparse.diags_array([-ones, 3 - 2 * x, -2 * ones], offsets=(-1, 0, 1)).tocsr()


def scipys(x0, **options):
    return scipy.optimize.least_squares(
        in_numpy, x0, tridiagonal, tr_solver="lsmr", method="trf", **options
    )


@pytest.mark.rest
@pytest.mark.parametrize("seed", range(3))
def test_lsmr_is_scipys(seed):
    """On random systems, as far as its tolerances go; a singular one has the shortest solution."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(30, 12)) * np.logspace(0, 1, 12)
    A[:, 5] = A[:, 4] if seed == 2 else A[:, 5]
    b = rng.normal(size=30)
    with enable_x64(True):
        found = lsmr(lambda s: A @ s, lambda u: A.T @ u, jnp.asarray(b), 1e-12, 1e-12, 40.0)
        early = lsmr(lambda s: A @ s, lambda u: A.T @ u, jnp.asarray(b), 1e-2, 1e-2, 40.0)
    np.testing.assert_allclose(found, np.linalg.pinv(A) @ b, rtol=1e-8, atol=1e-10)
    theirs = scipy.sparse.linalg.lsmr(A, b, atol=1e-2, btol=1e-2)[0]
    np.testing.assert_allclose(early, theirs, rtol=1e-9)


@pytest.mark.rest
@pytest.mark.parametrize("damp", [0.3, 20.0])
def test_damped_lsmr_is_that_of_the_longer_system(damp):
    """Rows of damp I below A; and it stops where SciPy's does."""
    rng = np.random.default_rng(0)
    A, b = rng.normal(size=(30, 12)) * np.logspace(0, 1, 12), rng.normal(size=30)
    with enable_x64(True):
        found, early = (
            lsmr(lambda s: A @ s, lambda u: A.T @ u, jnp.asarray(b), tol, tol, 40.0, damp)
            for tol in (1e-12, 1e-2)
        )
    longer, padded = np.vstack([A, damp * np.eye(12)]), np.pad(b, (0, 12))
    np.testing.assert_allclose(found, np.linalg.lstsq(longer, padded)[0], rtol=1e-8)
    theirs = scipy.sparse.linalg.lsmr(A, b, damp, atol=1e-2, btol=1e-2)[0]
    np.testing.assert_allclose(early, theirs, rtol=1e-9)


@pytest.mark.rest
@pytest.mark.parametrize("bounds", ["free", "box"])
@pytest.mark.parametrize("x_scale", [1.0, "jac"])
def test_a_sparse_fit_is_scipys(bounds, x_scale):
    """The same steps, evaluation for evaluation."""
    rng = np.random.default_rng(0)
    x0 = -1 + 0.1 * rng.normal(size=N)
    box = (np.full(N, -2.0), np.full(N, -0.6)) if bounds == "box" else (-np.inf, np.inf)
    got = least_squares_large(broyden, x0, box, x_scale=x_scale)
    want = scipys(x0, bounds=box, x_scale=x_scale)
    assert got.success
    assert (got.nfev, got.njev, got.status) == (want.nfev, want.njev, want.status)
    np.testing.assert_allclose(got.cost, want.cost, rtol=1e-6, atol=1e-18)
    np.testing.assert_allclose(got.x, want.x, atol=1e-6)
    np.testing.assert_array_equal(got.active_mask, want.active_mask)
    np.testing.assert_allclose(got.jac.toarray(), want.jac.toarray(), atol=1e-5)


@pytest.mark.rest
def test_a_robust_fit_with_a_mask_is_that_of_the_dense_solver():
    """Weights of the loss are in the products too."""
    rng = np.random.default_rng(1)
    y, mask = rng.normal(size=40), np.ones(60, bool)
    mask[41:45] = False

    def smooth(x, y):
        return jnp.concatenate([x - y, 3 * (x[2::2] - x[:-2:2]), jnp.arctan(x[0])[None]])

    options = {"loss": "soft_l1", "f_scale": 0.5, "mask": mask, "args": (y,)}
    tight = {"ftol": 1e-14, "xtol": 1e-14, "gtol": 1e-10}
    got = least_squares_large(smooth, np.zeros(40), **options, **tight, atol=1e-12, btol=1e-12)
    want = least_squares(smooth, np.zeros(40), **options, **tight)
    np.testing.assert_allclose(got.cost, want.cost, rtol=1e-10)
    np.testing.assert_allclose(got.x, want.x, atol=1e-7)
    np.testing.assert_allclose(got.jac.toarray(), want.jac, atol=1e-6)


@pytest.mark.rest
def test_ten_thousand_parameters():
    """At the solution the residuals of Broyden's function are 0."""
    got = least_squares_large(broyden, np.full(10_000, -1.0))
    assert got.cost < 1e-15
    assert np.abs(in_numpy(got.x.copy())).max() < 1e-7
    assert got.jac.nnz == 3 * 10_000 - 2


def test_columns_of_a_group_share_no_row():
    """A tridiagonal matrix has three groups."""
    row, column = np.nonzero(tridiagonal(np.ones(20)).toarray())
    group = grouped(row, column, (20, 20))
    assert group.max() == 2
    for i in range(20):
        own = group[column[row == i]]
        assert len(set(own.tolist())) == own.size


@pytest.mark.rest
def test_a_start_that_is_not_finite_is_an_error():
    """As of `least_squares`."""
    with pytest.raises(ValueError, match="not finite at the start"):
        least_squares_large(lambda x: jnp.log(x), np.array([1.0, -1.0]))
    with pytest.raises(ValueError, match="is one fit"):
        least_squares_large(broyden, np.ones((2, 3)))
