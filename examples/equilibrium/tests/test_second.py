"""Second order against closed forms, a published solution, and exact moments of quadratic
models.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from examples.equilibrium import (
    Model,
    ModelError,
    Second,
    Solution,
    parse_mod,
    pruned_moments,
    second_order,
    simulate,
    solution,
)
from examples.equilibrium._reference import load
from examples.equilibrium.models import brock_mirman


def computed(model, covariance, params=None, then=None):
    """In float64, as one program."""
    params = model.params if params is None else params

    def of(params):
        second = second_order(model, solution(model, params), covariance)
        return second if then is None else then(second)

    with jax.enable_x64(True):
        return jax.device_get(jax.jit(of)(params))


def burnside(rolled=True):
    """The price of a share whose dividends grow by x, an autoregression (Burnside 1998)."""
    return Model(
        lambda p, now, ahead: {
            "price": now.y - p["beta"] * jnp.exp(p["theta"] * ahead.x) * (1.0 + ahead.y)
        },
        {"y": 12.0},
        {},
        {"x": 0.0},
        lambda p: {"x": p["rho"]},
        {"beta": 0.95, "theta": -1.5, "rho": -0.139},
        rolled=rolled,
    )


def closed(p, x, sigma):
    """Burnside's price with x = 0 on average: a sum over dates of lognormal means."""
    i, rho, theta = jnp.arange(1, 2000), p["rho"], p["theta"]
    b = theta * rho * (1.0 - rho**i) / (1.0 - rho)
    spread = i - 2.0 * rho * (1.0 - rho**i) / (1.0 - rho)
    spread += rho**2 * (1.0 - rho ** (2 * i)) / (1.0 - rho**2)
    a = 0.5 * (theta * sigma / (1.0 - rho)) ** 2 * spread
    return jnp.sum(p["beta"] ** i * jnp.exp(a + b * x))


@pytest.mark.rest
@pytest.mark.parametrize("rolled", [True, False], ids=["rolled", "dense"])
def test_burnsides_price_has_the_second_derivatives_of_its_closed_form(rolled):
    """By x twice, and by the size of shocks twice, with the gradient of both by the parameters."""
    model = burnside(rolled)
    both = lambda second: (second.G_ss[0, 0, 0], second.G_risk[0])
    with jax.enable_x64(True):
        bent = lambda p: (
            jax.hessian(closed, 1)(p, 0.0, 0.0),
            jax.hessian(closed, 2)(p, 0.0, 0.0) * 0.02**2,
        )
        known = jax.jit(lambda p: (bent(p), jax.jacfwd(bent)(p)))(model.params)
        ours = lambda p: both(second_order(model, solution(model, p), jnp.full((1, 1), 0.02**2)))
        mine = jax.jit(lambda p: (ours(p), jax.jacfwd(ours)(p)))(model.params)
    for one, other in zip(jax.tree.leaves(mine), jax.tree.leaves(known), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)


@pytest.mark.rest
def test_brock_mirman_is_linear_in_logarithms_and_known_in_levels():
    """No second derivatives and no risk in logarithms; in levels those of k' = alpha beta e^a
    k^alpha.
    """
    second = computed(brock_mirman.MODEL, brock_mirman.Shocks(1e-4), brock_mirman.Params())
    for part in (second.G_ss, second.H_ss, second.G_risk, second.H_risk):
        np.testing.assert_allclose(part, 0.0, atol=1e-12)
    p = {"alpha": 0.36, "beta": 0.96, "rho": 0.9}
    levels = Model(
        lambda p, now, ahead: {
            "euler": 1.0 / now.c
            - p["beta"] * p["alpha"] * jnp.exp(ahead.a) * ahead.k ** (p["alpha"] - 1.0) / ahead.c,
            "resources": now.c + ahead.k - jnp.exp(now.a) * now.k ** p["alpha"],
        },
        {"c": 0.35},
        {"k": 0.2},
        {"a": 0.0},
        lambda p: {"a": p["rho"]},
        p,
    )
    second = computed(levels, {"a": 1e-4})
    share = p["alpha"] * p["beta"]
    k = share ** (1.0 / (1.0 - p["alpha"]))
    bent = jax.hessian(lambda s: share * jnp.exp(s[1]) * s[0] ** p["alpha"])
    with jax.enable_x64(True):
        known = np.asarray(bent(np.array([k, 0.0])))
    np.testing.assert_allclose(second.H_ss[0], known, rtol=1e-9)
    np.testing.assert_allclose(second.G_ss[0], known * (1.0 - share) / share, rtol=1e-9)
    np.testing.assert_allclose([second.G_risk, second.H_risk], 0.0, atol=1e-12)


@pytest.mark.rest
def test_growth_in_levels_is_as_published():
    """A growth model with log utility and depreciation, to all printed digits; its gradients by
    alpha and beta too.
    """
    data = load("second_order_rbc")
    p = data["params"]
    model = Model(
        lambda p, now, ahead: {
            "euler": 1.0 / now.c
            - p["beta"]
            / ahead.c
            * (p["alpha"] * jnp.exp(ahead.z) * ahead.k ** (p["alpha"] - 1.0) + 1.0 - p["delta"]),
            "resources": now.c + ahead.k - (1.0 - p["delta"]) * now.k - now.q,
            "output": now.q - jnp.exp(now.z) * now.k ** p["alpha"],
        },
        {"c": 6.0, "q": 7.0},
        {"k": 47.0},
        {"z": 0.0},
        lambda p: {"z": p["rho"]},
        p,
    )
    covariance = np.full((1, 1), data["sigma"] ** 2)

    def of(p):
        second = second_order(model, solution(model, p), covariance)
        found = second.first
        G = jnp.concatenate([found.G_x, found.G_z], 1)
        return {
            "g_x": G,
            "g_xx": second.G_ss,
            "g_ss": second.G_risk,
            "h_xx": second.H_ss[0],
            "h_ss": second.H_risk[0],
        }

    with jax.enable_x64(True):
        ours, slopes = jax.jit(lambda p: (of(p), jax.jacfwd(of)(p)))(p)
    for name, known in data["published"].items():
        np.testing.assert_allclose(ours[name], known, rtol=1e-9, atol=1e-12, err_msg=name)
    for (name, by), known in (
        ((n, b), v) for b, d in data["gradients"].items() for n, v in d.items()
    ):
        np.testing.assert_allclose(slopes[name][by], known, rtol=1e-7, atol=1e-9, err_msg=name)


def test_the_growth_model_as_its_paper_prints_it():
    """Schmitt-Grohé and Uribe (2004), section 5.1, all in logarithms: four digits of each."""
    model = Model(
        lambda p, now, ahead: {
            "resources": jnp.exp(now.c) + jnp.exp(ahead.k) - jnp.exp(now.a + p["alpha"] * now.k),
            "euler": jnp.exp(-p["gamma"] * now.c)
            - p["beta"]
            * p["alpha"]
            * jnp.exp(ahead.a + (p["alpha"] - 1.0) * ahead.k - p["gamma"] * ahead.c),
        },
        {"c": -0.5},
        {"k": -1.5},
        {"a": 0.0},
        lambda p: {"a": 0.0},
        {"alpha": 0.3, "beta": 0.95, "gamma": 2.0},
    )
    second = computed(model, {"a": 1.0})
    ours = [*second.first.G_x[0], *second.first.G_z[0], *second.first.H_x[0], *second.first.H_z[0]]
    ours += [second.G_ss[0, 0, 0], second.G_risk[0], second.H_risk[0]]
    known = [0.2525, 0.8417, 0.4191, 1.3970, -0.0051, -0.1921, 0.4820]
    np.testing.assert_allclose(ours, known, atol=0.5e-4)


def quadratic():
    """u = 1 + z^2 + 0.3 x with x' = 0.5 x + z + 0.2 x^2 + 0.4 x z, z an autoregression."""
    return Model(
        lambda p, now, ahead: {
            "rule": now.u - 1.0 - now.z**2 - 0.3 * now.x,
            "law": ahead.x - 0.5 * now.x - now.z - 0.2 * now.x**2 - 0.4 * now.x * now.z,
        },
        {"u": 1.0},
        {"x": 0.0},
        {"z": 0.0},
        lambda p: {"z": p["rho"]},
        {"rho": 0.7},
    )


@pytest.mark.rest
def test_moments_of_a_square_are_those_of_a_chi_square():
    """u = z^2 of an autoregression: mean v, autocovariances 2 v^2 rho^(2 k)."""
    model = Model(
        lambda p, now, ahead: {"rule": now.u - now.z**2},
        {"u": 0.0},
        {},
        {"z": 0.0},
        lambda p: {"z": p["rho"]},
        {"rho": 0.7},
    )
    found = computed(model, {"z": 0.3}, then=lambda s: pruned_moments(model, s, ["u", "z"], 3))
    v = 0.3 / (1.0 - 0.49)
    np.testing.assert_allclose(found.mean, [v, 0.0], rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(
        found.covariance[:, 0, 0], 2.0 * v**2 * 0.49 ** np.arange(4), rtol=1e-11
    )
    np.testing.assert_allclose(found.covariance[:, 1, 1], v * 0.7 ** np.arange(4), rtol=1e-11)
    np.testing.assert_allclose(found.covariance[:, 0, 1], 0.0, atol=1e-14)


@pytest.mark.rest
def test_moments_of_the_pruned_solution_are_those_of_its_long_paths():
    """400 paths of 2,000 dates: means and covariances within five standard errors."""
    model = quadratic()
    names = ["u", "x", "z"]
    rng = np.random.default_rng(0)
    e = rng.normal(size=(400, 2100, 1)) * 0.1

    def both(second):
        paths = jax.vmap(lambda e: simulate(model, second, e))(e)
        return pruned_moments(model, second, names, 2), jnp.stack([paths[n] for n in names], -1)

    exact, paths = computed(model, {"z": 0.01}, then=both)
    paths = paths[:, 100:]
    means = paths.mean(1)
    error = means.std(0) / 20.0
    assert np.all(np.abs(means.mean(0) - exact.mean) < 5.0 * error + 1e-15)
    off = paths - exact.mean
    for lag in range(3):
        each = np.einsum("pti,ptj->pij", off[:, lag:], off[:, : 2000 - lag]) / (2000 - lag)
        error = each.std(0) / 20.0
        assert np.all(np.abs(each.mean(0) - exact.covariance[lag]) < 5.0 * error)


def test_a_simulated_path_is_the_recursion_by_hand():
    """Of the model that is quadratic, with its derivatives by hand, from a state that is not the
    steady one; squares are those of the first order.
    """
    model, rng = quadratic(), np.random.default_rng(1)
    e, one = rng.normal(size=(30, 1)) * 0.3, np.ones(1)
    policy = ([[0.3]], [[0.0]], [[0.5]], [[1.0]])
    first = Solution(0.7 * one, one, 0.0 * one, 0.7 * one, *map(np.array, policy), np.int32(0))
    bent = np.array([[[0.0, 0.0], [0.0, 2.0]]]), np.array([[[0.4, 0.4], [0.4, 0.0]]])
    second = Second(first, *bent, 0.02 * one, 0.04 * one, np.eye(1))
    with jax.enable_x64(True):
        ours = jax.device_get(simulate(model, second, e, {"x": 0.2}))
    first, bend, z = 0.2, 0.0, 0.0
    for date in range(30):
        z = (0.7 * z if date else 0.0) + e[date, 0]
        np.testing.assert_allclose(ours["x"][date], first + bend, rtol=1e-12)
        u = 1.0 + z**2 + 0.3 * (first + bend) + 0.01
        np.testing.assert_allclose(ours["u"][date], u, rtol=1e-12)
        bend = 0.5 * bend + 0.2 * first**2 + 0.4 * first * z + 0.02
        first = 0.5 * first + z


@pytest.mark.rest
def test_a_lead_of_two_dates_has_the_risk_of_both():
    """p = E exp(theta d(+2)) d in a file: theta^2 (1 + rho^2) times the variance, times d."""
    mod = parse_mod(
        """
        var p d; varexo e; parameters theta rho mean; theta = 1.5; rho = 0.8; mean = 2;
        model;
          p = exp(theta*d(+2)) * (d + mean);
          d = rho*d(-1) + e;
        end;
        shocks; var e; stderr 0.1; end;
        """
    )
    second = computed(mod.model, mod.covariance, mod.params)
    place = mod.model.layouts[0].names.index("p")
    np.testing.assert_allclose(second.G_risk[place], 2.0 * 1.5**2 * 1.64 * 0.01, rtol=1e-9)


def test_what_is_given_wrongly_is_told():
    """Something else than a second order, and innovations of another shape."""
    model = quadratic()
    with jax.enable_x64(True):
        with pytest.raises(ModelError, match="second is 3"):
            simulate(model, 3, np.zeros((2, 1)))
        with pytest.raises(ModelError, match="found is None"):
            second_order(model, None, np.eye(1))
