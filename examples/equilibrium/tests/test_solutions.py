"""Steady states, calibration, verdicts, paths and sweeps, and that new numbers are no new
programs.
"""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

from examples.equilibrium import (
    BlanchardKahn,
    Model,
    ModelError,
    NoPath,
    NoSteadyState,
    _path,
    _steady,
    impulse_response,
    linearise,
    perfect_foresight,
    steady_state,
    sweep,
    verdict,
)
from examples.equilibrium.models import brock_mirman, gali, scalars, sectors

SECTORS, SCALARS = sectors.model(), scalars.model()
TARGET = float(np.log(1.5))


@pytest.fixture(scope="module")
def solved():
    steady = steady_state(SECTORS, SECTORS.params)
    return steady, linearise(steady)


@pytest.mark.rest
def test_the_sectors_steady_state_is_the_closed_form(solved):
    """q = 1 and the marginal product is what the discount factor asks for."""
    p, steady = sectors.Params(), solved[0]
    mp = 1 / p.beta - 1 + p.delta
    K = (p.alpha * p.Zbar / mp) ** (1 / (1 - p.alpha))
    np.testing.assert_allclose(np.exp(steady.states.logK), K, rtol=1e-12)
    np.testing.assert_allclose(steady["c"], np.sum(p.Zbar * K**p.alpha - p.delta * K), rtol=1e-12)


@pytest.mark.core("vector")
@pytest.mark.parametrize(
    ("model", "name"), [(SECTORS, "logK[0]"), (SCALARS, "logK_0")], ids=["vector", "scalar"]
)
def test_a_target_frees_a_parameter(model, name):
    """Capital of 1.5 in the first sector needs beta = 1 / (1 - delta + alpha Z K^(alpha - 1))."""
    steady = steady_state(model, model.params, {"beta": (name, TARGET)})
    beta = steady.theta[model.parameters.index("", "beta")]
    np.testing.assert_allclose(beta, 1 / (0.9 + 0.33 * 0.5 * 1.5**-0.67), rtol=1e-12)


@pytest.mark.rest
def test_two_targets_free_two_parameters():
    """With two slots: capital and consumption are those of the parameters they came from."""
    want = steady_state(brock_mirman.MODEL, brock_mirman.Params(0.3, 0.9))
    model = dataclasses.replace(brock_mirman.MODEL, slots=2)
    targets = {"alpha": ("logk", want["logk"]), "beta": ("logc", want["logc"])}
    found = steady_state(model, brock_mirman.Params(), targets).params
    np.testing.assert_allclose([found.alpha, found.beta], [0.3, 0.9], rtol=1e-10)


def test_scalar_and_vector_formulas_give_one_solution(solved):
    """Steady state, policy and eigenvalues."""
    steady, linear = solved
    other = linearise(steady_state(SCALARS, SCALARS.params))
    order = [
        SCALARS.layouts[0].names.index(name.replace("[", "_").replace("]", ""))
        for name in SECTORS.layouts[0].names
    ]
    states = [SCALARS.layouts[1].names.index(f"logK_{i}") for i in range(14)]
    np.testing.assert_allclose(other.steady.u[order], steady.u, rtol=1e-11)
    np.testing.assert_allclose(other.G_x[np.ix_(order, states)], linear.G_x, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(other.eigenvalues[:28], linear.eigenvalues[:28], rtol=1e-8)


@pytest.mark.rest
# 41 dates are few for three sectors
@pytest.mark.filterwarnings("ignore::examples.equilibrium.NotSettled")
def test_new_parameters_and_targets_are_no_new_programs():
    """Two programs are traced for everything, one for steady states, one for paths of as many
    dates; and one for paths of twice as many, which those that do not settle are compared with.
    """
    model = sectors.model(3)
    for alpha, targets in (
        (0.3, {}),
        (0.35, {"beta": ("logK[2]", TARGET)}),
        (0.32, {"delta": ("c", 2.0)}),
    ):
        steady = steady_state(model, eqx.tree_at(lambda p: p.alpha, model.params, alpha), targets)
        for terminal in ("steady", "stable"):
            perfect_foresight(
                steady,
                steady.x + 0.02,
                sectors.Shocks(np.full(3, 0.01)),
                41,
                terminal,
                linearise(steady),
            )
    assert _steady.program(model).stats.traces == 1
    assert _path.program(model).stats.traces == 2


@pytest.mark.rest
def test_no_steady_state_names_the_equation():
    """sqrt(x) = -1 has no solution; the message has the largest residual's equation and a fix."""
    model = Model(
        lambda p, now, ahead: {"impossible": now.u * now.u + 1.0, "law": ahead.x - 0.5 * now.x},
        {"u": 1.0},
        {"x": 1.0},
        {"z": 0.0},
        lambda p: {"z": p["rho"]},
        {"rho": 0.5},
        name="toy",
    )
    with pytest.raises(
        NoSteadyState, match=r"toy, steady state: no convergence.*'impossible'[\s\S]*Fix: "
    ):
        steady_state(model, model.params)


@pytest.mark.rest
def test_a_guess_outside_the_domain_says_so():
    """The logarithm of a negative number."""
    model = Model(
        lambda p, now, ahead: {"domain": jnp.log(now.u), "law": ahead.x - 0.5 * now.x},
        {"u": -1.0},
        {"x": 1.0},
        {"z": 0.0},
        lambda p: {"z": p["rho"]},
        {"rho": 0.5},
        name="toy",
    )
    with pytest.raises(NoSteadyState, match=r"'domain'[\s\S]*at which this equation is finite"):
        steady_state(model, model.params)


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ({"gamma": ("logk", 0.0)}, "no 'gamma'"),
        ({"beta": ("k", 0.0)}, "the target 'k' is no variable"),
        ({"beta": ("logk", 0.0), "alpha": ("logc", 0.0)}, "2 targets and 1 slots"),
    ],
)
def test_targets_that_cannot_be_are_refused(targets, message):
    """With the names there are."""
    with pytest.raises(ModelError, match=message):
        steady_state(brock_mirman.MODEL, brock_mirman.Params(), targets)


def test_a_passive_policy_is_indeterminate():
    """Below one for one, Gali's policy leaves inflation undetermined (chapter 4); the message lists
    the eigenvalues.
    """
    steady = steady_state(gali.MODEL, gali.Params(phi_pi=0.5, phi_y=0.0))
    assert verdict(steady).verdict == "indeterminate"
    with pytest.raises(
        BlanchardKahn,
        match=r"indeterminate: 1 stable eigenvalues for 0 states; their sizes are 0\.[0-9]+, 1\.",
    ):
        linearise(steady)


@pytest.mark.rest
def test_an_explosive_state_has_no_stable_solution():
    """x' = 1.2 x whatever the control does."""
    model = Model(
        lambda p, now, ahead: {
            "control": now.u - 0.5 * ahead.u - now.x,
            "law": ahead.x - 1.2 * now.x - now.z,
        },
        {"u": 0.0},
        {"x": 0.0},
        {"z": 0.0},
        lambda p: {"z": p["rho"]},
        {"rho": 0.5},
        name="toy",
    )
    with pytest.raises(
        BlanchardKahn,
        match=r"no stable solution: 0 stable eigenvalues for 1 states; their sizes are 1\.2, 2",
    ):
        linearise(steady_state(model, model.params))


def test_an_equation_written_twice_is_found():
    """The pencil is singular."""
    model = Model(
        lambda p, now, ahead: {
            "law": ahead.x - 0.5 * now.x - now.z,
            "again": 2.0 * ahead.x - now.x - 2.0 * now.z,
        },
        {"u": 0.0},
        {"x": 0.0},
        {"z": 0.0},
        lambda p: {"z": p["rho"]},
        {"rho": 0.5},
        name="toy",
    )
    from examples.equilibrium import at

    with pytest.raises(BlanchardKahn, match="equations are not independent"):
        linearise(at(model, model.params, {"u": 0.0}, {"x": 0.0}))


def test_the_policy_solves_the_linearised_equations(solved):
    """F_u G + F_x' H + F_u' G H + F_x = 0, for states and for shocks, whatever algorithm found
    it.
    """
    steady, linear = solved
    by, rho = steady.blocks, np.diag(steady.rho)
    G_x, G_z, H_x, H_z = linear.G_x, linear.G_z, linear.H_x, linear.H_z
    to_states = by["u"] @ G_x + by["x"] + by["u_next"] @ G_x @ H_x + by["x_next"] @ H_x
    to_shocks = (
        by["u"] @ G_z
        + by["z"]
        + by["u_next"] @ (G_x @ H_z + G_z @ rho)
        + by["x_next"] @ H_z
        + by["z_next"] @ rho
    )
    np.testing.assert_allclose(to_states, 0.0, atol=1e-10)
    np.testing.assert_allclose(to_shocks, 0.0, atol=1e-10)
    assert np.max(np.abs(np.linalg.eigvals(H_x))) < 1


def test_impulse_responses_are_proportional_to_the_shock(solved):
    """Twice and minus the shock, twice and minus the response."""
    one, minus_two = (impulse_response(solved[1], "z[3]", size, 20) for size in (1.0, -2.0))
    np.testing.assert_allclose(minus_two["c"], -2 * one["c"], rtol=1e-13)
    np.testing.assert_allclose(one["z[3]"], 0.9 ** np.arange(20), rtol=1e-13)


@pytest.mark.rest
# the same ten dates on both sides
@pytest.mark.filterwarnings("ignore::examples.equilibrium.NotSettled")
def test_a_path_is_what_scipy_finds():
    """All periods at once by `scipy.optimize.root`, for two sectors and ten dates."""
    model, dates = sectors.model(2), 10
    steady = steady_state(model, model.params)
    z0 = np.array([0.1, -0.05])
    path = perfect_foresight(steady, steady.x - 0.2, z0, dates)
    p, z = model.params, z0 * 0.9 ** np.arange(dates)[:, None]
    nu = steady.u.size

    def stacked(flat):
        rows = flat.reshape(dates - 1, -1)
        u = np.vstack([rows[:, :nu], steady.u])
        logK = np.vstack([steady.x - 0.2, rows[:, nu:]])
        c, (inv, y, mp, q, ret) = u[:, 0], np.moveaxis(u[:, 1:].reshape(dates, 5, 2), 1, 0)
        K, gap = np.exp(logK), inv / np.exp(logK) - p.delta
        lam = c**-p.gamma
        static = [
            y - p.Zbar * np.exp(z) * K**p.alpha,
            mp - p.alpha * y / K,
            q - 1 - p.phi * gap,
            ret - mp - 0.5 * p.phi * ((inv / K) ** 2 - p.delta**2) - (1 - p.delta) * q,
            (c - np.sum(y - inv - 0.5 * p.phi * gap**2 * K, 1))[:, None],
        ]
        dynamic = [
            q[:-1] * lam[:-1, None] - p.beta * lam[1:, None] * ret[1:],
            K[1:] - (1 - p.delta) * K[:-1] - inv[:-1],
        ]
        return np.hstack([*(each[:-1] for each in static), *dynamic]).ravel()

    found = scipy.optimize.root(
        stacked, np.tile(np.concatenate([steady.u, steady.x]), dates - 1), tol=1e-12
    )
    want = found.x.reshape(dates - 1, -1)
    np.testing.assert_allclose(path.u[:-1], want[:, :nu], atol=1e-8)
    np.testing.assert_allclose(path.x[1:], want[:, nu:], atol=1e-8)


@pytest.mark.rest
def test_small_paths_follow_the_linear_policy(solved):
    """To second order in the size of the shock."""
    steady, linear = solved
    z0 = np.full(14, 1e-5)
    path = perfect_foresight(steady, None, z0, 41, "stable", linear)
    response = sum(impulse_response(linear, f"z[{i}]", 1e-5, 41)["c"] for i in range(14))
    np.testing.assert_allclose(path["c"] - steady["c"], response, atol=1e-8)


@pytest.mark.rest
def test_no_path_names_equation_and_period():
    """Capital that is all but gone, without a guess."""
    model = sectors.model(2)
    steady = steady_state(model, model.params)
    with pytest.raises(
        NoPath, match=r"no convergence in \d+ evaluations.*of equation '.*' in period \d+"
    ):
        perfect_foresight(steady, np.full(2, -40.0), None, 12)


def test_a_stable_end_needs_the_linear_solution(solved):
    """An error that says what to pass."""
    with pytest.raises(ModelError, match=r"pass linear=linearise\(steady\)"):
        perfect_foresight(solved[0], terminal="stable")


@pytest.mark.rest
def test_a_thousand_draws_are_closed_forms():
    """Steady states and paths of Brock and Mirman for random parameters, in one program."""
    rng = np.random.default_rng(0)
    alpha, beta = rng.uniform(0.2, 0.5, 1000), rng.uniform(0.8, 0.98, 1000)
    found = sweep(
        brock_mirman.MODEL,
        brock_mirman.Params(alpha, beta),
        brock_mirman.States(np.log(0.6)),
        brock_mirman.Shocks(0.1),
        60,
    )
    assert np.all(found.converged)
    logk = np.log(alpha * beta) / (1 - alpha)
    np.testing.assert_allclose(found.x[:, 0], logk, rtol=1e-11)
    want, a = [logk + np.log(0.6)], 0.1
    for _ in range(30):
        want.append(np.log(alpha * beta) + a + alpha * want[-1])
        a *= 0.9
    np.testing.assert_allclose(found.path_x[:, :31, 0], np.array(want).T, rtol=1e-8, atol=1e-8)


@pytest.mark.rest
def test_draws_have_the_jacobians_of_their_steady_states():
    """As solved one at a time."""
    alpha = np.array([0.25, 0.36, 0.45])
    found = sweep(brock_mirman.MODEL, brock_mirman.Params(alpha=alpha), dates=3)
    for i, each in enumerate(alpha):
        alone = steady_state(brock_mirman.MODEL, brock_mirman.Params(alpha=each))
        for name, block in alone.blocks.items():
            np.testing.assert_allclose(found.blocks[name][i], block, rtol=1e-9, atol=1e-12)


@pytest.mark.rest
def test_a_model_without_states_jumps():
    """In Gali's model output, inflation and interest rate die out with the shock, on any path."""
    steady = steady_state(gali.MODEL, gali.Params())
    linear = linearise(steady)
    path = perfect_foresight(steady, None, gali.Shocks(1.0), 20, "stable", linear)
    np.testing.assert_allclose(path["pi"], linear["pi"][1] * 0.5 ** np.arange(20), rtol=1e-10)


@pytest.mark.rest
def test_a_model_without_shocks_goes_home():
    """x' = 0.5 x + 1, and u is its square."""
    model = Model(
        lambda p, now, ahead: {
            "law": ahead.x - p["a"] * now.x - 1.0,
            "square": now.u - now.x * now.x,
        },
        {"u": 1.0},
        {"x": 1.0},
        {},
        lambda p: {},
        {"a": 0.5},
        name="toy",
    )
    steady = steady_state(model, model.params)
    path = perfect_foresight(steady, {"x": 4.0}, None, 10, "stable", linearise(steady))
    # the end is linear
    np.testing.assert_allclose(path["u"][:-1], (2.0 + 2.0 * 0.5 ** np.arange(9)) ** 2, rtol=1e-10)
