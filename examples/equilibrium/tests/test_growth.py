"""Paths that end in balanced growth, against the closed form of Brock and Mirman with productivity
that grows.
"""

import jax.numpy as jnp
import numpy as np
import pytest

from examples.equilibrium import (
    Growth,
    Model,
    ModelError,
    NoSteadyState,
    NotSettled,
    balanced_growth,
    conditional_path,
    linearise,
    perfect_foresight,
)

PARAMS = {"alpha": 0.36, "beta": 0.96, "rho": 0.9, "growth": 1.02}
FACTORS = {"c": 1.02, "k": 1.02, "A": 1.02}
DRIFTS = dict.fromkeys(FACTORS, np.log(1.02))


def levels():
    """Output is e^z k^alpha A^(1 - alpha), capital lasts a date, utility is logarithmic."""
    return Model(
        lambda p, now, ahead: {
            "euler": 1.0 / now.c
            - p["beta"] / ahead.c * p["alpha"] * output(p, ahead.k, ahead.A, ahead.z) / ahead.k,
            "resources": now.c + ahead.k - output(p, now.k, now.A, now.z),
            "productivity": ahead.A - p["growth"] * now.A,
        },
        {"c": 0.3},
        {"k": 0.2, "A": 1.0},
        {"z": 0.0},
        lambda p: {"z": p["rho"]},
        PARAMS,
        name="levels",
    )


def output(p, k, A, z):
    return jnp.exp(z) * k ** p["alpha"] * A ** (1.0 - p["alpha"])


def logs():
    """The same in logarithms, in which its policy is linear."""
    return Model(
        lambda p, now, ahead: {
            "euler": 1.0
            - p["beta"]
            * jnp.exp(now.c - ahead.c - ahead.k + ahead.z)
            * p["alpha"]
            * jnp.exp(p["alpha"] * ahead.k + (1.0 - p["alpha"]) * ahead.A),
            "resources": jnp.exp(now.c)
            + jnp.exp(ahead.k)
            - jnp.exp(now.z + p["alpha"] * now.k + (1.0 - p["alpha"]) * now.A),
            "productivity": ahead.A - jnp.log(p["growth"]) - now.A,
        },
        {"c": -1.0},
        {"k": -1.5, "A": 0.0},
        {"z": 0.0},
        lambda p: {"z": p["rho"]},
        PARAMS,
        name="logs",
    )


def closed(k, A, z, dates):
    """Capital on the path with these at the first date."""
    found = [k]
    for date in range(dates - 1):
        y = np.exp(z * 0.9**date) * found[-1] ** 0.36 * (A * 1.02**date) ** 0.64
        found.append(0.36 * 0.96 * y)
    return np.array(found)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"factors": {"q": 1.0}}, "there is no 'q'"),
        ({"factors": {"k": -1.0}}, "the factor of 'k' is -1"),
        ({"drifts": 0.02}, r"drifts are 0\.02"),
        ({"held": ["q"]}, "there is no 'q'"),
    ],
)
def test_names_and_numbers_that_do_not_fit_growth_are_told(changed, said):
    """Before anything is computed."""
    with pytest.raises(ModelError, match=said):
        balanced_growth(levels(), PARAMS, **changed)


@pytest.mark.rest
def test_growth_is_what_the_savings_rate_says():
    """k' = alpha beta y, so that (k / A)^(1 - alpha) is alpha beta over the growth, whatever the
    productivity that is held.
    """
    growth = balanced_growth(levels(), PARAMS, FACTORS, held=["A"])
    ratio = (0.36 * 0.96 / 1.02) ** (1.0 / 0.64)
    np.testing.assert_allclose([growth["k"], growth["A"]], [ratio, 1.0], rtol=1e-12)
    u, x = growth.levels(3)
    np.testing.assert_allclose(x[2], 1.02**2 * growth.x, rtol=1e-14)
    np.testing.assert_allclose(u[:, 0], growth["c"] * 1.02 ** np.arange(3.0), rtol=1e-14)


@pytest.mark.rest
@pytest.mark.parametrize("method", ["newton", "chord"])
def test_a_path_in_levels_ends_in_growth(method):
    """From half the capital and a shock: all dates but those near the end, where the path ends on
    growth with what is left of the shock; on the policy there too, to the square of it.
    """
    growth = balanced_growth(levels(), PARAMS, FACTORS, held="A")
    start = {"k": 0.5 * growth["k"]}
    known = closed(start["k"], 1.0, 0.1, 121)
    path = perfect_foresight(growth, start, {"z": 0.1}, 121, method=method)
    np.testing.assert_allclose(path["k"][:80], known[:80], rtol=1e-10)
    path = perfect_foresight(
        growth, start, {"z": 0.1}, 61, "stable", linearise(growth), method=method
    )
    np.testing.assert_allclose(path["k"], known[:61], rtol=1e-6)
    saved = 1.0 / (0.36 * 0.96) - 1.0
    np.testing.assert_allclose(path["c"][:-1], saved * path["k"][1:], rtol=1e-6)


@pytest.mark.rest
def test_a_path_in_logarithms_is_exact_at_any_end():
    """Its policy is linear, at a productivity that has another level for good too; without the
    policy that is a warning.
    """
    growth = balanced_growth(logs(), PARAMS, drifts=DRIFTS, held=["A"])
    assert isinstance(growth, Growth)
    linear = linearise(growth)
    start = {"k": growth["k"] + np.log(0.5), "A": 0.3}
    path = perfect_foresight(growth, start, {"z": 0.1}, 60, "stable", linear)
    known = np.log(closed(np.exp(start["k"]), np.exp(0.3), 0.1, 60))
    np.testing.assert_allclose(path["k"], known, rtol=1e-11)
    np.testing.assert_allclose(path["A"], 0.3 + np.log(1.02) * np.arange(60), rtol=1e-12)
    with pytest.warns(NotSettled, match=r"off balanced growth[\s\S]*on another level of growth"):
        perfect_foresight(growth, start, {"z": 0.1}, 41)


@pytest.mark.rest
def test_growth_that_is_none_is_told():
    """Factors that do not fit, levels that are open, and paths around a steady state."""
    model = levels()
    for changed, said in (
        ({"factors": FACTORS}, "leave the level of 'c', 'A' and 'k' open"),
        ({"factors": FACTORS | {"A": 1.03}, "held": ["A"]}, "none was found: equation 'pro"),
        ({"factors": FACTORS | {"k": 1.0}, "held": ["A"]}, "not balanced|none was found"),
    ):
        with pytest.raises(NoSteadyState, match=said):
            balanced_growth(model, PARAMS, **changed)
    linear = linearise(balanced_growth(model, PARAMS, FACTORS, held=["A"]))
    with pytest.raises(ModelError, match="is that of balanced growth"):
        conditional_path(linear, {"c": [0.3]}, [[1.0]])
