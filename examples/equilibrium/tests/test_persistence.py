"""Shocks that persist by a matrix, against the same model whose states are the shocks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from examples.equilibrium import (
    BlanchardKahn,
    Constraint,
    Model,
    ModelError,
    bounded_path,
    conditional_path,
    foresight,
    impulse_response,
    linearise,
    log_likelihood,
    moments,
    perfect_foresight,
    pruned_moments,
    second_order,
    solution,
    steady_state,
    sweep,
)
from examples.equilibrium._persistence import decay, full, largest, later

PARAMS = {"alpha": 0.36, "beta": 0.95, "own": 0.6, "cross": 0.2}
SIGMA = np.array([[4e-4, 1e-4], [1e-4, 9e-4]])


def growth(now, ahead, a, b, a_next, p):
    """Growth with productivity a and a taste b for consumption."""
    return {
        "euler": jnp.exp(b - now.c)
        - p["beta"]
        * p["alpha"]
        * jnp.exp(a_next[1] - ahead.c + a_next[0] + (p["alpha"] - 1.0) * ahead.k),
        "resources": jnp.exp(now.c) + jnp.exp(ahead.k) - jnp.exp(a + p["alpha"] * now.k),
    }


def matrix(p):
    return (
        jnp.array([[1.0, 0.0], [0.0, 1.0]]) * p["own"]
        + jnp.array([[0.0, 1.0], [0.5, 0.0]]) * p["cross"]
    )


SHOCKS = Model(
    lambda p, now, ahead: growth(now, ahead, now.a, now.b, (ahead.a, ahead.b), p),
    {"c": -1.0},
    {"k": -1.7},
    {"a": 0.0, "b": 0.0},
    matrix,
    PARAMS,
    name="matrix",
)
STATES = Model(
    lambda p, now, ahead: {
        **growth(
            now,
            ahead,
            ahead.a,
            ahead.b,
            (
                p["own"] * ahead.a + p["cross"] * ahead.b + ahead.e,
                0.5 * p["cross"] * ahead.a + p["own"] * ahead.b + ahead.f,
            ),
            p,
        ),
        "a": ahead.a - p["own"] * now.a - p["cross"] * now.b - now.e,
        "b": ahead.b - 0.5 * p["cross"] * now.a - p["own"] * now.b - now.f,
    },
    {"c": -1.0},
    {"k": -1.7, "a": 0.0, "b": 0.0},
    {"e": 0.0, "f": 0.0},
    lambda p: {"e": 0.0, "f": 0.0},
    PARAMS,
    name="states",
)


def test_a_vector_and_its_matrix_persist_alike():
    """On the host and traced; and a matrix is not its transpose."""
    rho, z = np.array([0.5, -0.9]), np.array([1.0, 2.0])
    for given in (rho, np.diag(rho)):
        np.testing.assert_allclose(later(given, z), [0.5, -1.8])
        np.testing.assert_allclose(decay(given, z, 3)[2], [0.25, 1.62])
        np.testing.assert_allclose(largest(given), 0.9)
        np.testing.assert_allclose(full(given), np.diag(rho))
    R = np.array([[0.5, 0.3], [0.0, 0.2]])
    with jax.enable_x64(True):
        for kind in (np.asarray, jnp.asarray):
            np.testing.assert_allclose(later(kind(R), kind(z)), R @ z)
            np.testing.assert_allclose(decay(kind(R), kind(z), 3)[2], R @ R @ z)
    np.testing.assert_allclose(later(R, np.array([z, 2.0 * z])), [R @ z, 2.0 * R @ z])


@pytest.fixture(scope="module")
def both():
    return [linearise(steady_state(model, PARAMS)) for model in (SHOCKS, STATES)]


@pytest.mark.rest
def test_policy_responses_and_paths_are_those_of_states(both):
    """Linear and not."""
    ours, theirs = both
    by_a, by_e = impulse_response(ours, "a", 0.1, 12), impulse_response(theirs, "e", 0.1, 12)
    for name in ("c", "k"):
        np.testing.assert_allclose(by_a[name], by_e[name], atol=1e-12)
    np.testing.assert_allclose(by_a["b"][:-1], by_e["b"][1:], atol=1e-12)
    start = {"k": ours.steady["k"] - 0.3}
    path = perfect_foresight(ours.steady, start, {"a": 0.1, "b": -0.2}, 40, "stable", ours)
    known = perfect_foresight(
        theirs.steady,
        {**start, "a": 0.0, "b": 0.0},
        {"e": 0.1, "f": -0.2},
        40,
        "stable",
        theirs,
    )
    for name in ("c", "k"):
        np.testing.assert_allclose(path[name], known[name], rtol=1e-9)
    with jax.enable_x64(True):
        found = solution(SHOCKS, PARAMS)
        np.testing.assert_allclose(found.G_z, ours.G_z, rtol=1e-10)
        traced = foresight(SHOCKS, found, start, {"a": 0.1, "b": -0.2}, 40, "stable")
    np.testing.assert_allclose(traced["c"], path["c"], rtol=1e-9)
    rows = {name: np.full(3, value) for name, value in PARAMS.items()}
    many = sweep(SHOCKS, rows, None, {"a": 0.1, "b": -0.2}, 40)
    one = perfect_foresight(ours.steady, None, {"a": 0.1, "b": -0.2}, 40)
    np.testing.assert_allclose(many.path_u[1, :, 0], one["c"], rtol=1e-9)
    assert many.settled.all()


@pytest.mark.rest
def test_moments_likelihood_and_second_order_are_those_of_states():
    """With correlated innovations, and the gradient of the likelihood by an element of the
    matrix.
    """
    data = np.random.default_rng(0).normal(-1.05, 0.05, size=(20, 1))

    def of(model):
        def value(cross):
            found = solution(model, {**PARAMS, "cross": cross})
            return log_likelihood(model, found, data, ["c"], SIGMA, 1e-4)

        found = solution(model, PARAMS)
        second = second_order(model, found, SIGMA)
        return (
            moments(model, found, SIGMA, ["c", "k"], 2).covariance,
            jax.value_and_grad(value)(0.2),
            second.G_risk,
            second.H_risk[-1],
            pruned_moments(model, second, ["c"], 1),
        )

    with jax.enable_x64(True):
        ours, theirs = (jax.jit(lambda model=model: of(model))() for model in (SHOCKS, STATES))
    leaves = zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True)
    for mine, known in leaves:
        np.testing.assert_allclose(mine, known, rtol=1e-8)


@pytest.mark.rest
def test_constraints_and_conditions_are_those_of_states(both):
    """A floor under consumption that stays where it has bound, and consumption that is given."""
    paths = []
    for linear, shocks in zip(both, ({"a": -0.3, "b": 0.0}, {"e": -0.3, "f": 0.0}), strict=True):
        equations, level = linear.steady.model.equations, linear.steady["c"] - 0.1
        floor = Constraint(
            lambda p, now, ahead, e=equations, c=level: {**e(p, now, ahead), "euler": now.c - c},
            lambda p, now, c=level: now.c - c,
            lambda p, now: 0.0 * now.k + 1.0,
        )
        paths.append(bounded_path(linear, floor, None, shocks, 30))
    np.testing.assert_array_equal(paths[0].bound, paths[1].bound)
    np.testing.assert_allclose(paths[0]["c"], paths[1]["c"], atol=1e-12)
    wanted = {"c": [np.nan, both[0].steady["c"] + 0.1]}
    ours, theirs = (conditional_path(linear, wanted, SIGMA, dates=5) for linear in both)
    np.testing.assert_allclose(ours["k"], theirs["k"], atol=1e-12)


@pytest.mark.rest
def test_a_matrix_that_does_not_fit_is_told():
    """Of another shape, and one that explodes though no element does."""
    model = lambda given: Model(
        SHOCKS.equations, {"c": -1.0}, {"k": -1.7}, SHOCKS.shocks, lambda p: given, PARAMS
    )
    with pytest.raises(ModelError, match=r"the matrix has shape \(3, 3\)"):
        steady_state(model(np.eye(3)), PARAMS)
    steady = steady_state(model(np.array([[0.7, 0.7], [0.7, 0.7]])), PARAMS)
    with pytest.raises(BlanchardKahn, match=r"shocks explode, their largest root is 1\.4"):
        linearise(steady)
    with pytest.raises(ModelError, match="the shock 'a' explodes"):
        perfect_foresight(steady, None, {"a": 0.1, "b": 0.0})
