"""Derivatives of steady states, policies and paths against closed forms and extended precision."""

from decimal import Decimal, localcontext

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from examples.equilibrium import (
    Model,
    ModelError,
    foresight,
    linearise,
    solution,
    solutions,
    steady_state,
)
from examples.equilibrium.models import brock_mirman, gali


def everything(found):
    """A solution as one vector."""
    parts = (found.u, found.x, found.G_x, found.G_z, found.H_x, found.H_z)
    return jnp.concatenate([jnp.ravel(part) for part in parts])


def differentiated(function, at):
    """Value, both Jacobians and the Hessian in one program."""
    with jax.enable_x64(True):
        each = lambda t: (
            function(t),
            jax.jacfwd(function)(t),
            jax.jacrev(function)(t),
            jax.hessian(function)(t),
        )
        return jax.device_get(jax.jit(each)(np.asarray(at)))


def test_float32_is_refused():
    """With what to write."""
    with pytest.raises(ModelError, match=r"float32 here[\s\S]*Fix: put `with jax.enable_x64"):
        solution(brock_mirman.MODEL, brock_mirman.Params())


@pytest.mark.rest
def test_derivatives_of_brock_mirman_are_the_closed_forms():
    """Log k is log(alpha beta) / (1 - alpha), and the policy moves with alpha alone: first and
    second derivatives, forward and backward.
    """

    def ours(t):
        return everything(solution(brock_mirman.MODEL, brock_mirman.Params(*t)))

    def closed(t):
        logk = jnp.log(t[0] * t[1]) / (1.0 - t[0])
        logc = t[0] * logk + jnp.log(1.0 - t[0] * t[1])
        return jnp.array([logc, logk, t[0], 1.0, t[0], 1.0])

    for mine, known in zip(
        differentiated(ours, [0.36, 0.96, 0.9]),
        differentiated(closed, [0.36, 0.96, 0.9]),
        strict=True,
    ):
        np.testing.assert_allclose(mine, known, rtol=1e-11, atol=1e-13)


@pytest.mark.rest
@pytest.mark.parametrize("terminal", ["stable", "steady"])
def test_derivatives_of_a_path_are_the_closed_forms(terminal):
    """Log k' = log(alpha beta) + a + alpha log k, from half the capital; to the steady state it is
    the same but for the last dates.
    """

    def ours(t):
        found = solution(brock_mirman.MODEL, brock_mirman.Params(*t))
        start = brock_mirman.States(found.x[0] + jnp.log(0.5))
        path = foresight(brock_mirman.MODEL, found, start, brock_mirman.Shocks(0.1), 41, terminal)
        return path["logk"][:20]

    def closed(t):
        logk = [jnp.log(t[0] * t[1]) / (1.0 - t[0]) + jnp.log(0.5)]
        for date in range(19):
            logk.append(jnp.log(t[0] * t[1]) + 0.1 * t[2] ** date + t[0] * logk[-1])
        return jnp.stack(logk)

    with jax.enable_x64(True):
        each = lambda f: jax.jit(lambda t: (f(t), jax.jacfwd(f)(t), jax.jacrev(f)(t)))
        found, known = (each(f)(np.array([0.36, 0.96, 0.9])) for f in (ours, closed))
    for mine, theirs in zip(found, known, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-8, atol=1e-9)


def growth(p, now, ahead):
    """Growth with partial depreciation."""
    gross = p["alpha"] * jnp.exp(ahead.a) * ahead.k ** (p["alpha"] - 1.0) + 1.0 - p["delta"]
    return {
        "euler": 1.0 - p["beta"] * (now.c / ahead.c) ** p["sigma"] * gross,
        "resources": now.c
        + ahead.k
        - jnp.exp(now.a) * now.k ** p["alpha"]
        - (1.0 - p["delta"]) * now.k,
    }


ORDER = ("alpha", "beta", "delta", "sigma")
GROWTH = Model(
    growth,
    {"c": 2.0},
    {"k": 20.0},
    {"a": 0.0},
    lambda p: {"a": 0.9},
    dict.fromkeys(ORDER, 0.5),
    name="growth",
)


def in_many_digits(alpha, beta, delta, sigma):
    """Steady state and policy: the stable root of Euler equation and resources, linearised."""
    k = (alpha / (1 / beta - 1 + delta)) ** (1 / (1 - alpha))
    c = k**alpha - delta * k
    b = 1 + 1 / beta - beta * c / sigma * alpha * (alpha - 1) * k ** (alpha - 2)
    root = 2 / beta / (b + (b * b - 4 / beta).sqrt())
    return c, k, 1 / beta - root, root


@pytest.mark.rest
@pytest.mark.parametrize(
    ("sigma", "tolerance"), [(2.0, 1e-10), (1e6, 1e-8)], ids=["usual", "near a unit root"]
)
def test_derivatives_are_central_differences_in_fifty_digits(sigma, tolerance):
    """With aversion of a million capital hardly moves: its root is one less 1.6e-7."""
    at = (0.36, 0.99, 0.025, sigma)

    def ours(t):
        found = solution(GROWTH, dict(zip(ORDER, t, strict=True)))
        return jnp.stack([found.u[0], found.x[0], found.G_x[0, 0], found.H_x[0, 0]])

    with jax.enable_x64(True):
        both = jax.jit(lambda t: (ours(t), jax.jacrev(ours)(t)))
        value, slopes = jax.device_get(both(np.array(at)))
    with localcontext() as digits:
        digits.prec = 50
        exact = [Decimal(each) for each in at]
        known = [float(each) for each in in_many_digits(*exact)]
        columns = []
        for i in range(4):
            ends = []
            for sign in (1, -1):
                moved = list(exact)
                moved[i] *= 1 + sign * Decimal("1e-16")
                ends.append(in_many_digits(*moved))
            step = 2 * exact[i] * Decimal("1e-16")
            columns.append([float((a - b) / step) for a, b in zip(*ends, strict=True)])
    np.testing.assert_allclose(value, known, rtol=tolerance)
    want = np.array(columns).T
    apart = np.abs(slopes - want) / (np.abs(want) + 1e-3 * np.abs(want).max(1, keepdims=True))
    assert np.max(apart) < 1e4 * tolerance if sigma > 10.0 else np.max(apart) < tolerance


@pytest.mark.rest
@pytest.mark.parametrize("root", [0.9])
def test_repeated_roots_have_derivatives(root):
    """x' = a x, y' = a y + c x: a root twice, with one eigenvector. u = b u' + y, so the policy is
    (0, 1) / (1 - b H).
    """
    model = Model(
        lambda p, now, ahead: {
            "x": ahead.x - p["a"] * now.x,
            "y": ahead.y - p["a"] * now.y - p["c"] * now.x - now.z,
            "u": now.u - p["b"] * ahead.u - now.y,
        },
        {"u": 0.0},
        {"x": 0.0, "y": 0.0},
        {"z": 0.0},
        lambda p: {"z": 0.5},
        {"a": 0.9, "b": 0.9, "c": 0.1},
        name="Jordan",
    )
    zero = {"u": 0.0}, {"x": 0.0, "y": 0.0}

    def ours(t):
        found = solution(model, dict(zip("abc", t, strict=True)), at=zero if root == 1.0 else None)
        return jnp.concatenate([found.G_x[0], found.H_x.ravel(), found.G_z[0]])

    def closed(t):
        a, b, c = t
        H = jnp.array([[a, 0.0], [c, a]])
        G = jnp.linalg.solve((jnp.eye(2) - b * H).T, jnp.array([0.0, 1.0]))
        return jnp.concatenate([G, H.ravel(), jnp.array([b * G[1] / (1.0 - 0.5 * b)])])

    for mine, known in zip(
        differentiated(ours, [root, 0.9, 0.1]),
        differentiated(closed, [root, 0.9, 0.1]),
        strict=True,
    ):
        np.testing.assert_allclose(mine, known, rtol=1e-9, atol=1e-9)


def impact(found):
    """Of a monetary shock on inflation."""
    return found.G_z[1, 0]


@pytest.mark.rest
def test_each_draw_has_its_policy_verdict_and_gradient():
    """Gali's closed form, chapter 3; below one for one there are many solutions, and no number."""
    phi = np.array([0.5, 1.2, 1.5, 3.0])
    p = gali.Params(phi_pi=phi)
    draws = solutions(gali.MODEL, p, impact)
    assert draws.verdict.tolist() == ["indeterminate", *["determinate"] * 3]
    y, pi, _ = (gali.MODEL.layouts[0].index("", name) for name in ("y", "pi", "i"))
    assert (y, pi) == (0, 1)
    shared = (1.0 - p.beta * p.rho_v) * (p.sigma * (1.0 - p.rho_v) + p.phi_y)
    weight = 1.0 / (shared + p.kappa * (phi[1:] - p.rho_v))
    np.testing.assert_allclose(draws.value[1:], -p.kappa * weight, rtol=1e-11)
    slope = p.kappa**2 * weight**2
    np.testing.assert_allclose(draws.gradient.phi_pi[1:], slope, rtol=1e-10)
    assert np.isnan(draws.value[0])


@pytest.mark.rest
def test_many_draws_run_in_parts_of_one_size(monkeypatch):
    """Seven by threes are those of one call."""
    p = gali.Params(phi_pi=np.linspace(0.9, 3.0, 7))
    whole = solutions(gali.MODEL, p, impact)
    monkeypatch.setattr("examples.equilibrium._sweep.AT_ONCE", 3)
    parts = solutions(gali.MODEL, p, impact)
    assert parts.verdict.tolist() == whole.verdict.tolist()
    np.testing.assert_allclose(parts.value, whole.value, rtol=1e-13)
    np.testing.assert_allclose(parts.gradient.phi_pi, whole.gradient.phi_pi, rtol=1e-12)
    np.testing.assert_allclose(parts.solution.G_x, whole.solution.G_x, rtol=1e-13, atol=1e-15)


@pytest.mark.rest
def test_a_solution_is_that_of_the_host():
    """The same policy to the last digits, and the derivatives are in the gradient of a target."""
    params = dict(zip(ORDER, (0.36, 0.99, 0.025, 2.0), strict=True))
    linear = linearise(steady_state(GROWTH, params))
    with jax.enable_x64(True):
        found = jax.device_get(solution(GROWTH, params))
        freed = jax.device_get(solution(GROWTH, params, {"beta": ("k", 40.0)}))
    for name in ("G_x", "G_z", "H_x", "H_z"):
        np.testing.assert_allclose(getattr(found, name), getattr(linear, name), rtol=1e-11)
    assert found.verdict == 0
    beta = 1.0 / (0.36 * 40.0**-0.64 + 1.0 - 0.025)
    np.testing.assert_allclose(freed.theta[GROWTH.parameters.index("", "beta")], beta, rtol=1e-12)
