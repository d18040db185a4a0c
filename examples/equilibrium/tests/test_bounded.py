"""Constraints that bind at some dates, against Newton's method on equations with a maximum, and a
closed form.
"""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from examples.equilibrium import (
    Constraint,
    Linear,
    Model,
    ModelError,
    NoPath,
    Steady,
    bounded_path,
    bounded_simulation,
    linearise,
    perfect_foresight,
    steady_state,
)

PARAMS = {
    "sigma": 1.0,
    "kappa": 0.1,
    "beta": 0.99,
    "phi": 1.5,
    "smooth": 0.5,
    "floor": -0.01,
    "rho": 0.8,
}


def equations(rule):
    """Demand with a shock d to what people want to save, supply, and a rule of policy whose rate
    has a floor.
    """
    return lambda p, now, ahead: {
        "demand": now.y - ahead.y + (now.i - ahead.pi - now.d) / p["sigma"],
        "supply": now.pi - p["beta"] * ahead.pi - p["kappa"] * now.y,
        "wanted": now.want - p["smooth"] * now.last - (1.0 - p["smooth"]) * p["phi"] * now.pi,
        "policy": now.i - rule(p, now),
        "memory": ahead.last - now.i,
    }


def model(rule):
    """The New Keynesian model with interest rates that are smoothed."""
    return Model(
        equations(rule),
        {"y": 0.0, "pi": 0.0, "i": 0.0, "want": 0.0},
        {"last": 0.0},
        {"d": 0.0},
        lambda p: {"d": p["rho"]},
        PARAMS,
        name="floor",
    )


FREE = model(lambda p, now: now.want)
FLOOR = Constraint(
    equations(lambda p, now: p["floor"]),
    binds=lambda p, now: now.want - p["floor"],
    relaxes=lambda p, now: p["floor"] - now.want,
    name="lower bound",
)


def test_a_floor_under_what_follows_a_shock():
    """u = max(z, -0.1) of z' = z / 2, from derivatives by hand; the size of the shock is as exact
    as the dates at which the floor binds.
    """
    rule = lambda floor: lambda p, now, ahead: {"rule": now.u - (p["floor"] if floor else now.z)}
    model = Model(rule(False), {"u": 0.0}, {}, {"z": 0.0}, lambda p: {"z": 0.5}, {"floor": -0.1})
    one, none = np.ones((1, 1)), np.zeros((1, 0))
    blocks = {"u": one, "z": -one, "u_next": 0.0 * one, "z_next": 0.0 * one}
    blocks |= {"x": none, "x_next": none}
    steady = Steady(model, -0.1 * np.ones(1), *np.zeros((1, 1)), np.zeros(0), one[0] / 2, blocks, 0)
    linear = Linear(steady, "determinate", np.zeros(0), "", none, one, none[:0], none.T)
    floor = Constraint(
        rule(True), lambda p, now: now.z - p["floor"], lambda p, now: p["floor"] - now.z
    )
    path = bounded_path(linear, floor, None, {"z": -0.5}, 6)
    z = -0.5 * 0.5 ** np.arange(6)
    np.testing.assert_allclose(path["u"], np.maximum(z, -0.1), atol=1e-15)
    assert list(path.bound) == [True, True, True, False, False, False]


@pytest.fixture(scope="module")
def linear():
    return linearise(steady_state(FREE, PARAMS))


@pytest.mark.rest
def test_the_lower_bound_is_that_of_equations_with_a_maximum(linear):
    """Newton's method on all dates at once, where the interest rate is a maximum: it binds for
    eight dates, and the path is the same.
    """
    both = model(lambda p, now: jnp.maximum(now.want, p["floor"]))
    steady = steady_state(both, PARAMS)
    known = perfect_foresight(steady, None, {"d": -0.05}, 41, "stable", linearise(steady))
    ours = bounded_path(linear, FLOOR, None, {"d": -0.05}, 41)
    for name in ("y", "pi", "i", "last"):
        np.testing.assert_allclose(ours[name], known[name], rtol=1e-9, atol=1e-13)
    assert list(np.flatnonzero(ours.bound)) == list(np.flatnonzero(known["i"] <= -0.01 + 1e-12))
    assert ours.bound.sum() == 8


def clarida(rule):
    """The model of `runsim_cgg.m` in the toolkit of Guerrieri and Iacoviello (version 2013-05-31):
    that of Clarida, Gali and Gertler (1999), with the signs of their file.
    """
    p = {"lam": 0.04, "beta": 0.9925, "on_p": 4.0, "on_y": 4.0, "keep": 0.8, "phi": 1.0}
    return Model(
        lambda p, now, ahead: {
            "demand": now.y - ahead.y + p["phi"] * (now.r + ahead.p) - now.g,
            "supply": now.p - p["beta"] * ahead.p - p["lam"] * now.y,
            "wanted": now.want
            - p["keep"] * now.last
            - (1.0 - p["keep"]) * (p["on_p"] * now.p + p["on_y"] * now.y),
            "policy": now.r - rule(p, now),
            "memory": ahead.last - now.want,
        },
        {"y": 0.0, "p": 0.0, "r": 0.0, "want": 0.0},
        {"last": 0.0},
        {"g": 0.0},
        lambda p: {"g": 0.5},
        p,
    )


@pytest.mark.rest
def test_the_lower_bound_of_the_toolkit_of_its_authors():
    """Their shocks, which nobody foresees: -0.06 on the fifth date and 0.06 on the last of 26. At
    each shock the path ahead is that of Newton's method on all dates with a maximum.
    """
    lowest = lambda p: 1.0 - 1.0 / p["beta"]
    free = clarida(lambda p, now: now.want)
    floor = Constraint(
        clarida(lambda p, now: lowest(p)).equations,
        binds=lambda p, now: now.r - lowest(p),
        relaxes=lambda p, now: lowest(p) - now.want,
    )
    e = np.zeros((46, 1))
    e[4], e[25] = -0.06, 0.06
    ours = bounded_simulation(linearise(steady_state(free, free.params)), floor, e, 60)

    both = clarida(lambda p, now: jnp.maximum(now.want, lowest(p)))
    steady = steady_state(both, both.params)
    linear = linearise(steady)
    g, last = 0.0, 0.0
    for date, dates in ((4, 21), (25, 21)):
        g = g * 0.5**21 + e[date, 0]
        path = perfect_foresight(steady, {"last": last}, {"g": g}, 60, "stable", linear)
        for name in ("y", "p", "r", "want"):
            here = ours[name][date : date + dates]
            np.testing.assert_allclose(here, path[name][:dates], rtol=1e-9, atol=1e-13)
        last = path["last"][dates]
    # The bound holds after the first shock only, where the rule alone goes far below.
    at = np.flatnonzero(ours["r"] <= 1.0 - 1.0 / 0.9925 + 1e-12)
    assert list(at) == [4, 5, 6, 7, 8]


@pytest.mark.rest
def test_where_nothing_binds_the_path_is_linear(linear):
    """A shock in the other direction."""
    ours = bounded_path(linear, FLOOR, {"last": 0.01}, {"d": 0.02}, 20)
    free = perfect_foresight(linear.steady, {"last": 0.01}, {"d": 0.02}, 20, "stable", linear)
    np.testing.assert_allclose(ours["pi"], free["pi"], atol=1e-12)
    assert not ours.bound.any()


@pytest.mark.rest
def test_a_simulation_looks_ahead_on_each_date(linear):
    """Innovations on three dates: each date is the first of a path from where the one before has
    ended.
    """
    e = np.array([[-0.03], [-0.02], [0.0], [0.01]])
    ours = bounded_simulation(linear, FLOOR, e, 41)
    last, d = 0.0, 0.0
    for date, innovation in enumerate(e[:, 0]):
        d = 0.8 * d + innovation
        path = bounded_path(linear, FLOOR, {"last": last}, {"d": d}, 41)
        np.testing.assert_allclose(ours["i"][date], path["i"][0], atol=1e-14)
        np.testing.assert_allclose(ours["last"][date], last, atol=1e-14)
        last = path["last"][1]
    assert ours.bound[1]


@pytest.mark.rest
def test_what_does_not_fit_a_constraint_is_told(linear):
    """One that binds in the steady state or for ever, conditions of another shape, and what is
    none.
    """
    wrong = dataclasses.replace(FLOOR, binds=lambda p, now: p["floor"] - now.want)
    with pytest.raises(ModelError, match="'lower bound' binds in the steady state"):
        bounded_path(linear, wrong, None, {"d": -0.05})
    with pytest.raises(NoPath, match="no dates at which 'lower bound' binds agree"):
        bounded_path(linear, FLOOR, None, {"d": -0.05}, 3)
    wrong = dataclasses.replace(FLOOR, binds=lambda p, now: now.wants)
    with pytest.raises(ModelError, match="neither a variable nor a derived quantity 'wants'"):
        bounded_path(linear, wrong)
    wrong = dataclasses.replace(FLOOR, binds=lambda p, now: jnp.ones(2))
    with pytest.raises(ModelError, match="It is one number for a date"):
        bounded_path(linear, wrong)
    with pytest.raises(ModelError, match="constraint is 3"):
        bounded_path(linear, 3)
    with pytest.raises(ModelError, match="innovations have shape"):
        bounded_simulation(linear, FLOOR, np.zeros(3))
    with pytest.raises(ModelError, match="innovations have shape"):
        bounded_simulation(linear, FLOOR, np.zeros((0, 1)))
    twice = lambda p, now, ahead: dict.fromkeys(
        ("demand", "supply", "wanted", "policy", "memory"), now.y
    )
    with pytest.raises(NoPath, match="while 'lower bound' binds, at date 2"):
        bounded_path(linear, dataclasses.replace(FLOOR, equations=twice), None, {"d": -0.05}, 3)
