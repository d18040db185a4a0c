"""What the loop does where steps fail, models degenerate and limits bite."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

from examples.trf import least_squares
from examples.trf._qr import LONG, WIDE, back_substitute, triangularise
from examples.trf._subproblem import solve_subproblem


def decay(p, t, y):
    return p[0] * jnp.exp(-p[1] * t) + p[2] - y


T = np.linspace(0, 4, 50)
Y = 2.5 * np.exp(-1.3 * T) + 0.5


@pytest.mark.rest
def test_non_finite_trial_shrinks_the_region():
    """A step to where the residuals are NaN is refused, and the fit goes on to the minimum, as
    SciPy's does.
    """

    def log_residual(x):
        return jnp.stack([jnp.log(x[0]) + 3.0, 0.1 * x[0]])

    mine = least_squares(log_residual, [2.0], history=True)
    with np.errstate(all="ignore"):
        theirs = scipy.optimize.least_squares(
            lambda x: np.array([np.log(x[0]) + 3.0, 0.1 * x[0]]),
            [2.0],
            jac=lambda x: np.array([[1 / x[0]], [0.1]]),
        )
    assert 0 in mine.history.step
    assert mine.nfev == theirs.nfev
    np.testing.assert_allclose(mine.x, theirs.x, rtol=1e-7)


@pytest.mark.rest
def test_infinite_jacobian_shrinks_the_region():
    """A finite residual with an infinite slope is no place to go either."""

    def root(x):
        return jnp.stack([jnp.sqrt(jnp.abs(x[0])) + 1.0, x[0] - 0.1])

    fit = least_squares(
        root,
        [1.0],
        jac=lambda x: jnp.stack([jnp.where(x[0] < 0.2, jnp.inf, 1.0), 1.0])[:, None],
        max_nfev=50,
    )
    assert np.isfinite(fit.x).all()
    assert fit.x[0] >= 0.2


@pytest.mark.rest
def test_zero_jacobian_stops_at_once():
    """Residuals that do not depend on x satisfy `gtol` at the start."""
    with pytest.warns(UserWarning, match=r"`x\[0\]`, `x\[1\]` have no effect"):
        fit = least_squares(lambda x: jnp.ones(3) + 0 * x[0], [1.0, 2.0])
    assert (fit.status, fit.nfev) == (1, 1)


@pytest.mark.rest
def test_zero_jacobian_without_gtol_has_no_nan():
    """With `gtol` off the subproblem itself must cope with a zero Jacobian: the step is zero, which
    stops the fit.
    """
    with pytest.warns(UserWarning, match=r"`x\[0\]`, `x\[1\]` have no effect"):
        fit = least_squares(lambda x: jnp.ones(3) + 0 * x[0], [1.0, 2.0], gtol=None)
    np.testing.assert_array_equal(fit.x, [1.0, 2.0])
    assert fit.status == 4


@pytest.mark.rest
def test_rank_deficient_model():
    """Two parameters that only count together are split evenly, at SciPy's cost."""

    def sum_only(p, y):
        return (p[0] + p[1]) * jnp.ones(4) - y

    y = np.array([1.0, 2.0, 3.0, 4.0])
    with pytest.warns(UserWarning, match=r"`x\[0\]`, `x\[1\]` have no effect"):
        fit = least_squares(sum_only, [0.5, 0.5], args=(y,))
    np.testing.assert_allclose(fit.cost, 2.5, rtol=1e-12)
    np.testing.assert_allclose(fit.x[0], fit.x[1], rtol=1e-6)


@pytest.mark.rest
def test_max_nfev_stops_with_status_zero():
    """The limit counts every evaluation, the start's included."""
    fit = least_squares(decay, [1.0, 1.0, 0.0], args=(T, Y), max_nfev=3)
    assert (fit.nfev, fit.status, fit.success) == (3, 0, False)
    assert fit.message == "The maximum number of function evaluations is exceeded."


@pytest.mark.rest
def test_history_has_one_row_per_trial():
    """The record has a row for every evaluation after the start; cost never rises and ends at the
    result's.
    """
    fit = least_squares(decay, [1.0, 1.0, 0.0], args=(T, Y), history=True)
    assert len(fit.history.cost) == fit.nfev - 1
    assert np.all(np.diff(fit.history.cost) <= 0)
    assert fit.history.cost[-1] == fit.cost
    assert fit.history.optimality[-1] == fit.optimality


@pytest.mark.rest
def test_no_history_unless_asked():
    """Without `history=True` there is none."""
    assert least_squares(decay, [1.0, 1.0, 0.0], args=(T, Y)).history is None


@pytest.mark.rest
def test_triangle_is_householders():
    """R and Q^T r agree with LAPACK's up to signs, at a condition number where the Gram matrix
    would be singular.
    """
    rng = np.random.default_rng(0)
    J = rng.normal(size=(60, 4)) @ np.diag([1.0, 1e-3, 1e-6, 1e-9]) @ rng.normal(size=(4, 4))
    r = rng.normal(size=60)
    with jax.enable_x64(True):
        mine = np.asarray(triangularise(jnp.asarray(J.T), jnp.asarray(r)))
    reference = np.linalg.qr(np.column_stack([J, r]), mode="r")[:4]
    reference *= np.sign(np.diag(reference))[:, None]
    # A backward-stable triangle is unique up to rounding times the condition number: compare what
    # it is for.
    p, reference_p = (-np.linalg.lstsq(R[:, :4], R[:, 4], rcond=None)[0] for R in (mine, reference))
    np.testing.assert_allclose(J @ p, J @ reference_p, atol=1e-6)
    np.testing.assert_allclose(mine[:, :4].T @ mine[:, :4], J.T @ J, rtol=1e-13, atol=1e-14)


@pytest.mark.rest
def test_triangle_of_long_and_wide_problems():
    """The variants for many rows and for many columns factor the same matrix."""
    rng = np.random.default_rng(1)
    for m, k in ((LONG, 2), (WIDE + 10, WIDE + 1)):
        J, r = rng.normal(size=(m, k)), rng.normal(size=m)
        with jax.enable_x64(True):
            R = np.asarray(triangularise(jnp.asarray(J.T), jnp.asarray(r)))
        np.testing.assert_allclose(R.T @ R[:, :k], np.column_stack([J, r]).T @ J, atol=1e-10 * m)


@pytest.mark.rest
def test_many_parameters():
    """More parameters than the unrolled factorisation takes."""
    k = WIDE + 4
    target = np.linspace(-1, 1, 2 * k)

    def coupled(p):
        return jnp.concatenate([p + 0.1 * p**2, p - jnp.roll(p, 1)]) - target

    mine = least_squares(coupled, np.zeros(k))
    theirs = scipy.optimize.least_squares(
        lambda p: np.concatenate([p + 0.1 * p**2, p - np.roll(p, 1)]) - target,
        np.zeros(k),
        jac=lambda p: np.vstack([np.diag(1 + 0.2 * p), np.eye(k) - np.roll(np.eye(k), 1, axis=0)]),
    )
    np.testing.assert_allclose(mine.cost, theirs.cost, rtol=1e-8)


@pytest.mark.rest
def test_back_substitution():
    """Both the written-out and LAPACK's substitution solve R X = B."""
    rng = np.random.default_rng(2)
    for k in (3, WIDE + 1):
        R, B = np.triu(rng.normal(size=(k, k))) + 3 * np.eye(k), rng.normal(size=(k, 2))
        with jax.enable_x64(True):
            X = np.asarray(back_substitute(jnp.asarray(R), jnp.asarray(B)))
        np.testing.assert_allclose(R @ X, B, atol=1e-9)


@pytest.mark.rest
def test_subproblem_is_exact():
    """The step is as long as the radius, and the damped normal equations hold for the multiplier
    that comes with it.
    """
    rng = np.random.default_rng(3)
    R, c = np.triu(rng.normal(size=(4, 4))), rng.normal(size=4)
    with jax.enable_x64(True):
        p, alpha = map(np.asarray, solve_subproblem(*map(jnp.asarray, (R, c, 0.3, 0.0, 50.0))))
    np.testing.assert_allclose(np.linalg.norm(p), 0.3, rtol=1e-12)
    np.testing.assert_allclose((R.T @ R + alpha * np.eye(4)) @ p, -R.T @ c, rtol=0.02, atol=1e-3)


@pytest.mark.rest
@pytest.mark.parametrize("k", [1, 3, 6, 7])
@pytest.mark.parametrize("condition", [1e2, 1e10])
def test_the_subproblem_of_a_batch_is_exact(k, condition):
    """As long as the radius, and minimal for the multiplier that comes with it, by least squares on
    the longer matrix: of six parameters number by number, of seven by arrays.
    """
    rng = np.random.default_rng(k)
    u, v = (np.linalg.qr(rng.normal(size=(5, k, k)))[0] for _ in range(2))
    R = np.linalg.qr(u * np.geomspace(1, 1 / condition, k) @ v)[1]
    c, radius = rng.normal(size=(5, k)), np.geomspace(1e-6, 0.3, 5)

    def one(*of):
        return solve_subproblem(*of, jnp.zeros(()), jnp.asarray(50.0), few=True)

    with jax.enable_x64(True):
        p, alpha = map(np.asarray, jax.jit(jax.vmap(one))(R, c, radius))
    np.testing.assert_allclose(np.linalg.norm(p, axis=1), radius, rtol=1e-9)
    for i in range(5):
        longer = np.vstack([R[i], np.sqrt(alpha[i]) * np.eye(k)])
        best = np.linalg.lstsq(longer, np.pad(-c[i], (0, k)))[0]
        np.testing.assert_allclose(p[i], best, rtol=1e-4, atol=1e-4 * np.linalg.norm(best))


@pytest.mark.rest
def test_the_subproblem_of_a_singular_batch_is_exact():
    """With a column of zeros, and with one twice: damped steps as long as the radius."""
    R = np.array(
        [[[2.0, 1.0, 0.0], [0, 1.0, 0], [0, 0, 0]], [[2.0, 2.0, 1.0], [0, 0, 0], [0, 0, 1]]]
    )
    c = np.array([[1.0, -2.0, 0.5], [1.0, 0.0, -1.0]])

    def one(R, c):
        return solve_subproblem(R, c, jnp.asarray(0.1), jnp.zeros(()), jnp.asarray(50.0), few=True)

    with jax.enable_x64(True):
        p, alpha = map(np.asarray, jax.jit(jax.vmap(one))(R, c))
    for i in range(2):
        best = -np.linalg.solve(R[i].T @ R[i] + alpha[i] * np.eye(3), R[i].T @ c[i])
        np.testing.assert_allclose(p[i], best, rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(np.linalg.norm(p, axis=1), 0.1, rtol=1e-9)


def test_a_step_inside_the_region_is_that_of_gauss_and_newton():
    """It solves the least-squares problem, and its multiplier is zero."""
    rng = np.random.default_rng(3)
    R, c = np.triu(rng.normal(size=(4, 4))) + 3 * np.eye(4), rng.normal(size=4)
    with jax.enable_x64(True):
        p, alpha = map(np.asarray, jax.jit(solve_subproblem)(R, c, 100.0, 0.0, 50.0))
    np.testing.assert_allclose(p, np.linalg.lstsq(R, -c)[0], rtol=1e-12)
    assert alpha == 0
