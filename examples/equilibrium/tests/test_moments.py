"""Moments and the likelihood against closed forms, filters as matrices and joint densities."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.stats

from examples.equilibrium import (
    Model,
    ModelError,
    Solution,
    foresight,
    log_likelihood,
    moments,
    pruned_moments,
    second_order,
    simulate,
    solution,
    variable,
)
from examples.equilibrium.models import brock_mirman


def linear(states, shocks, equations, persistence, params, controls=()):
    """A linear model, all zero in its steady state."""
    zero = lambda names: dict.fromkeys(names, 0.0)
    groups = (zero(controls), zero(states), zero(shocks))
    return Model(equations, *groups, persistence, params, name="toy")


def computed(function):
    """In float64, as one program."""
    with jax.enable_x64(True):
        return jax.device_get(jax.jit(function)())


def test_a_covariance_of_another_shape_is_refused():
    """With the shape that it should have."""
    one, two = np.zeros((1, 1)), np.zeros(1)
    found = Solution(np.zeros(3), two, two, two, one, one, one, one, np.int32(0))
    with jax.enable_x64(True), pytest.raises(ModelError, match=r"a matrix of shape \(1, 1\)"):
        moments(brock_mirman.MODEL, found, np.ones(3))


@pytest.mark.rest
@pytest.mark.parametrize(
    ("function", "more"),
    [
        (moments, ([[1.0]],)),
        (log_likelihood, ([[0.0]], ["logk"], [[1.0]])),
        (second_order, ([[1.0]],)),
        (simulate, ([[0.0]],)),
        (pruned_moments, ()),
        (foresight, ()),
        (variable, ("logk",)),
    ],
)
def test_what_is_no_model_is_told(function, more):
    """A solution in its place too."""
    with pytest.raises(ModelError, match=rf"^{function.__name__}: model is 3"):
        function(3, 4, *more)
    with jax.enable_x64(True), pytest.raises(ModelError, match=r"(found|second) is 4"):
        function(brock_mirman.MODEL, 4, *more)


@pytest.mark.rest
@pytest.mark.parametrize(
    "covariance", [[[1.0, 2.0], [2.0, 1.0]], [[1.0, 0.0], [0.5, 1.0]], {"z": -1.0, "still": 1.0}]
)
def test_what_is_no_covariance_is_refused(covariance):
    """Not symmetric, or with a negative variance."""
    model, one = single(0.5), np.zeros((1, 2))
    found = Solution(*[np.zeros(1)] * 2, np.zeros(0), np.zeros(2), *[one] * 4, np.int32(0))
    found = found._replace(G_x=np.zeros((1, 0)), H_x=np.zeros((0, 0)), H_z=np.zeros((0, 2)))
    with jax.enable_x64(True), pytest.raises(ModelError, match="covariance is not one"):
        moments(model, found, covariance, ["u"])


def autocovariances(rho, lags):
    """Of z' = rho z + e with variance one."""
    return rho ** np.arange(lags) / (1.0 - rho**2)


@pytest.mark.rest
def test_moments_of_brock_mirman_are_those_of_an_autoregression():
    """Log k is an AR(2) with roots alpha and rho: its variance and first autocorrelation, and the
    gradient of the variance.
    """

    def closed(t):
        one, two = t[0] + t[1], -t[0] * t[1]
        first = one / (1.0 - two)
        return 0.01**2 / (1.0 - one * first - two * (one * first + two)), first

    def ours(t):
        found = solution(brock_mirman.MODEL, brock_mirman.Params(t[0], 0.96, t[1]))
        variances = brock_mirman.Shocks(1e-4)
        both = moments(brock_mirman.MODEL, found, variances, ["logk"], 1)
        return both.covariance[0, 0, 0], both.correlation[1, 0, 0]

    at = np.array([0.36, 0.9])
    with jax.enable_x64(True):
        each = lambda f: jax.jit(lambda t: (f(t), jax.jacrev(f)(t)))(at)
        for mine, known in zip(
            jax.tree.leaves(each(ours)), jax.tree.leaves(each(closed)), strict=True
        ):
            np.testing.assert_allclose(mine, known, rtol=1e-10)


@pytest.mark.rest
def test_shocks_that_load_on_each_other_and_an_arma_are_equations():
    """y = 0.8 y_1 + e + 0.5 e_1, an ARMA(1, 1), and v = 0.4 v_1 + 0.3 y_1 + w with w and e
    correlated, against a sum over many lags.
    """
    model = linear(
        ["y_1", "e_1", "v_1"],
        ["e", "w"],
        lambda p, now, ahead: {
            "y": ahead.y_1 - p["a"] * now.y_1 - now.e - p["b"] * now.e_1,
            "e": ahead.e_1 - now.e,
            "v": ahead.v_1 - 0.4 * now.v_1 - 0.3 * now.y_1 - now.w,
        },
        lambda p: {"e": 0.0, "w": 0.0},
        {"a": 0.8, "b": 0.5},
    )
    covariance = np.array([[1.0, 0.3], [0.3, 2.0]])
    ours = computed(
        lambda: moments(model, solution(model, model.params), covariance, ["y_1", "v_1"], 3)
    )
    root = np.linalg.cholesky(covariance)
    # v answers y of the date before
    response, y, v, last = np.zeros((400, 2, 2)), *np.zeros((3, 2))
    for date in range(400):
        e, w = np.eye(2) if date == 0 else np.zeros((2, 2))
        y, v, last = 0.8 * y + e + 0.5 * last, 0.4 * v + 0.3 * y + w, e
        response[date] = y, v
    for lag in range(4):
        want = sum(response[t + lag] @ covariance @ response[t].T for t in range(396))
        np.testing.assert_allclose(ours.covariance[lag], want, rtol=1e-10)
    orthogonal = response @ root
    parts = np.sum(orthogonal**2, 0)
    np.testing.assert_allclose(ours.parts, parts / parts.sum(1, keepdims=True), rtol=1e-10)


def single(rho):
    """One autoregression, seen as a control."""
    return linear(
        [],
        ["z", "still"],
        lambda p, now, ahead: {"u": now.u - now.z - now.still},
        lambda p: {"z": rho, "still": 0.5},
        {"a": 0.5},
        ["u"],
    )


@pytest.mark.rest
@pytest.mark.parametrize("rho", [0.9, 1.0])
def test_filtered_moments_are_those_of_the_filter_as_a_matrix(rho):
    """The middle row of (1 + 1600 D'D)^-1 on 1201 dates, applied to an autoregression; with a unit
    root it is applied to the differences, and moments without a filter are NaN.
    """
    model = single(rho)
    variances = {"z": 1.0, "still": 0.0}
    ours, plain = computed(
        lambda: (
            moments(model, solution(model, model.params), variances, ["u"], 1, filtered=1600.0),
            moments(model, solution(model, model.params), variances, ["u"], 1),
        )
    )
    dates, middle = 1201, 600
    second = np.diff(np.eye(dates), 2, axis=0)
    cycle = -np.linalg.inv(np.eye(dates) + 1600.0 * second.T @ second)[middle]
    cycle[middle] += 1.0
    if rho == 1.0:  # weights sum to zero, so they are weights of the differences
        cycle, covariance = -np.cumsum(cycle), np.eye(dates)
        assert np.all(np.isnan(plain.covariance))
    else:
        covariance = scipy.linalg.toeplitz(autocovariances(rho, dates))
        np.testing.assert_allclose(plain.covariance[:, 0, 0], covariance[0, :2], rtol=1e-11)
    np.testing.assert_allclose(ours.covariance[0, 0, 0], cycle @ covariance @ cycle, rtol=1e-9)
    after = np.roll(cycle, 1)
    np.testing.assert_allclose(ours.covariance[1, 0, 0], cycle @ covariance @ after, rtol=1e-9)
    np.testing.assert_allclose(ours.parts, [[0.0, 1.0]], atol=1e-15)


@pytest.mark.rest
def test_the_likelihood_is_the_joint_density_of_all_that_is_there():
    """Two variables with errors at 30 dates, a fifth of them missing, against SciPy's normal
    density of the vector of all; and the gradient against differences of it.
    """
    rng = np.random.default_rng(0)
    data = rng.normal(size=(30, 2)) * 0.05 + [-1.6, -1.1]
    data[rng.uniform(size=data.shape) < 0.2] = np.nan
    data[7] = np.nan
    errors, names = np.array([1e-4, 4e-4]), ["logk", "logc"]

    def ours(t):
        found = solution(brock_mirman.MODEL, brock_mirman.Params(t[0], t[1], t[2]))
        noise = jnp.reshape(t[3] ** 2, (1, 1))
        return log_likelihood(brock_mirman.MODEL, found, data, names, noise, errors)

    def joint(t):
        alpha, beta, rho, sigma = t
        logk = np.log(alpha * beta) / (1.0 - alpha)
        level = np.array([logk, alpha * logk + np.log(1.0 - alpha * beta)])
        A, C = np.array([[alpha, 1.0], [0.0, rho]]), np.array([[1.0, 0.0], [alpha, 1.0]])
        variance = scipy.linalg.solve_discrete_lyapunov(A, np.diag([0.0, sigma**2]))
        whole = np.zeros((30, 2, 30, 2))
        for i in range(30):
            for j in range(i + 1):
                whole[i, :, j] = C @ np.linalg.matrix_power(A, i - j) @ variance @ C.T
                whole[j, :, i] = whole[i, :, j].T
        whole = whole.reshape(60, 60) + np.diag(np.tile(errors, 30))
        there = ~np.isnan(data.ravel())
        off = (data - level).ravel()[there]
        return scipy.stats.multivariate_normal.logpdf(off, None, whole[np.ix_(there, there)])

    at = np.array([0.36, 0.96, 0.9, 0.02])
    with jax.enable_x64(True):
        value, slope = jax.jit(jax.value_and_grad(ours))(at)
    np.testing.assert_allclose(value, joint(at), rtol=1e-11)
    steps = 1e-5 * np.diag(at)
    near, far = ([joint(at + k * d) - joint(at - k * d) for d in steps] for k in (1, 2))
    want = (8.0 * np.array(near) - far) / (12e-5 * at)
    np.testing.assert_allclose(slope, want, rtol=1e-6)
