"""The smoother against dense normal distributions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from examples.equilibrium import Model, ModelError, Solution, log_likelihood, smoothed, solution
from examples.equilibrium._moments import system

DATES = 12
NAMES = ("y", "v", "e", "w")


def model():
    """y = 0.8 y_1 + e + 0.5 e_1 and v = 0.4 v_1 + 0.3 y_1 + w, with a w that lasts."""
    return Model(
        lambda _, now, ahead: {
            "y": now.y - 0.8 * now.y_1 - now.e - 0.5 * now.e_1 - 2.0,
            "v": now.v - 0.4 * now.v_1 - 0.3 * now.y_1 - now.w,
            "y_1": ahead.y_1 - now.y,
            "e_1": ahead.e_1 - now.e,
            "v_1": ahead.v_1 - now.v,
        },
        {"y": 0.0, "v": 0.0},
        {"y_1": 0.0, "e_1": 0.0, "v_1": 0.0},
        {"e": 0.0, "w": 0.0},
        lambda p: {"e": 0.0, "w": p["rho"]},
        {"rho": 0.6},
        name="toy",
    )


COVARIANCE = np.array([[1.0, 0.3], [0.3, 2.0]])
ERRORS = np.array([0.2, 0.5])


def series():
    """A third is missing, and one date whole."""
    rng = np.random.default_rng(3)
    data = np.array([10.0, 5.0]) + rng.normal(size=(DATES, 2))
    data[rng.uniform(size=data.shape) < 0.3] = np.nan
    data[4] = np.nan
    return data


def dense(A, B, C, begun, data, level):
    """Means and deviations of C s at all dates and means of e given data, from their joint
    normal distribution, and the density of data.
    """
    size, nz = len(A), B.shape[1]
    # s of all dates from that of the first and all later innovations
    made = np.zeros((DATES, size, size + nz * (DATES - 1)))
    made[0, :, :size] = np.eye(size)
    for t in range(1, DATES):
        made[t] = A @ made[t - 1]
        made[t, :, size + nz * (t - 1) : size + nz * t] += B
    moved = scipy.linalg.block_diag(begun, *[COVARIANCE] * (DATES - 1))
    shown = np.einsum("yi,tij->tyj", C, made).reshape(-1, made.shape[2])
    seen = np.einsum("yi,tij->tyj", C[:2], made).reshape(-1, made.shape[2])
    there = ~np.isnan(data.ravel())
    seen, errors = seen[there], np.tile(ERRORS, DATES)[there]
    off = (data - level[:2]).ravel()[there]
    total = seen @ moved @ seen.T + np.diag(errors)
    gain = np.linalg.solve(total, seen @ moved).T
    known = gain @ off
    left = moved - gain @ seen @ moved
    mean = level + (shown @ known).reshape(DATES, -1)
    deviation = np.sqrt(np.einsum("ai,ij,aj->a", shown, left, shown)).reshape(DATES, -1)
    density = scipy.stats.multivariate_normal.logpdf(off, None, total)
    return mean, deviation, known[size:].reshape(DATES - 1, nz), density


@pytest.mark.rest
@pytest.mark.parametrize("start", [None, 3.0])
def test_the_smoother_is_the_normal_distribution_given_all_data(start):
    """Means, deviations and innovations of two variables and two shocks; and the likelihood with
    that start.
    """
    toy, data = model(), series()

    def ours(data):
        found = solution(toy, toy.params)
        given = (toy, found, data, ["y", "v"], COVARIANCE, ERRORS, start)
        return found, smoothed(*given, of=NAMES), log_likelihood(*given)

    with jax.enable_x64(True):
        found, each, value = jax.jit(ours)(data)
        A, B, C = (np.asarray(m) for m in system(toy, found, NAMES, ""))
    noise = B @ COVARIANCE @ B.T
    begun = scipy.linalg.solve_discrete_lyapunov(A, noise)
    if start is not None:
        begun[:3], begun[:, :3] = 0.0, 0.0
        begun[:3, :3] = start * np.eye(3)
    rest = 0.3 * 10.0 / 0.6
    mean, deviation, pushed, density = dense(A, B, C, begun, data, np.array([10, rest, 0, 0]))
    np.testing.assert_allclose(each.mean, mean, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(each.deviation, deviation, rtol=1e-9)
    np.testing.assert_allclose(each.innovations, pushed, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(value, density, rtol=1e-11)


@pytest.mark.rest
def test_what_is_seen_without_errors_is_known():
    """With as many shocks as series: its mean is the data, its deviation zero; and the derivative
    of one mean by a number of another date is that of differences.
    """
    toy, data = model(), np.random.default_rng(0).normal(size=(6, 2))

    with jax.enable_x64(True):
        found = jax.jit(lambda p: solution(toy, p))(toy.params)

        @jax.jit
        def ours(data):
            return smoothed(toy, found, data, ["y", "v"], COVARIANCE, of=["y", "v", "e"])

        each = ours(data)
        np.testing.assert_allclose(each.mean[:, :2], data, atol=1e-9)
        np.testing.assert_allclose(each.deviation[:, :2], 0.0, atol=1e-6)
        slope = jax.jit(jax.grad(lambda data: ours(data).mean[2, 2]))(data)
        move = jnp.zeros_like(data).at[1, 0].set(1.0)
        rise = ours(data + move).mean[2, 2] - ours(data - move).mean[2, 2]
    np.testing.assert_allclose(slope[1, 0], 0.5 * float(rise), rtol=1e-9)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"start": -1.0}, "start is -1.0"),
        ({"errors": -1.0}, "errors is -1.0"),
        ({"of": ["u"]}, "'u'"),
    ],
)
def test_what_the_smoother_cannot_take_is_told(given, told):
    """With the name of the argument."""
    toy, two = model(), np.zeros(2)
    parts = (np.zeros((2, 3)), np.zeros((2, 2)), np.zeros((3, 3)), np.zeros((3, 2)))
    found = Solution(np.zeros(1), two, np.zeros(3), two, *parts, np.int32(0))
    with jax.enable_x64(True), pytest.raises(ModelError, match=told):
        smoothed(toy, found, np.zeros((3, 2)), ["y", "v"], COVARIANCE, **given)
