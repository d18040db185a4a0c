"""Conditional paths against the likeliest innovations by hand, and announced shocks against closed
forms.
"""

import dataclasses

import numpy as np
import pytest

from examples.equilibrium import (
    Linear,
    Model,
    ModelError,
    Steady,
    conditional_path,
    linearise,
    perfect_foresight,
    steady_state,
)
from examples.equilibrium.models import brock_mirman


def forward():
    """A price that is a discounted sum of what is foreseen, p = z + 0.8 p(+1), and its memory."""
    return Model(
        lambda p, now, ahead: {
            "price": now.p - now.z - p["b"] * ahead.p,
            "memory": ahead.m - 0.5 * now.m - now.z - now.w,
        },
        {"p": 1.0},
        {"m": 0.0},
        {"w": 0.0, "z": 0.0},
        lambda p: {"w": 0.0, "z": p["rho"]},
        {"b": 0.8, "rho": 0.5},
        name="forward",
    )


def by_hand():
    """The linear solution of that model, without a program."""
    steady = Steady(
        forward(), np.array([0.8, 0.5]), np.zeros(1), np.zeros(1), np.array([0.0, 0.5]), {}, 0
    )
    price = np.array([[0.0, 1.0 / 0.6]])
    policy = (np.zeros((1, 1)), price, np.full((1, 1), 0.5), np.ones((1, 2)))
    return Linear(steady, "determinate", np.zeros(0), "", *policy)


def responses(dates):
    """What innovations (w, z) of each date do to p and m of each."""
    p, m = np.zeros((2, dates, dates, 2))
    for begun in range(dates):
        for shock in range(2):
            at, w, z = 0.0, float(shock == 0), float(shock == 1)
            for date in range(begun, dates):
                p[date, begun, shock], m[date, begun, shock] = z / 0.6, at
                at, w, z = 0.5 * at + z + w, 0.0, 0.5 * z
    return p.reshape(dates, -1), m.reshape(dates, -1)


@pytest.mark.parametrize("by", [None, ["z", "w", "z"], ["z"]])
def test_a_conditional_path_has_the_likeliest_innovations(by):
    """Levels of two variables on four of six dates, from a state that is not the steady one, with
    correlated shocks: the innovations are those of a least norm in units of their covariance.
    """
    sigma = np.array([[2.0, 0.6], [0.6, 1.0]])
    conditions = {"p": [np.nan, 1.0, 2.0], "m": [np.nan, np.nan, np.nan, 0.7]}
    if by == ["z"]:
        del conditions["m"]
    path = conditional_path(by_hand(), conditions, sigma, {"m": 0.4}, {"w": 0.0, "z": 0.2}, 6, by)
    p, m = responses(6)
    rows = [p[1], p[2]] + ([m[3]] if "m" in conditions else [])
    before = [0.2 * 0.5 / 0.6, 0.2 * 0.25 / 0.6, 0.4 * 0.125 + 0.2 * (0.25 + 0.25 + 0.25)]
    want = np.array([1.0, 2.0, 0.7])[: len(rows)] - before[: len(rows)]
    rows = np.array(rows).reshape(len(rows), 6, 2)
    inverse = np.linalg.inv(sigma)
    if by == ["z"]:
        rows[:, :, 0] = 0.0
        weight = np.kron(np.eye(6), np.diag([0.0, 1.0 / inverse[1, 1]]))
    else:
        weight = np.kron(np.eye(6), sigma)
    flat = rows.reshape(len(rows), -1)
    e = (weight @ flat.T @ np.linalg.solve(flat @ weight @ flat.T, want)).reshape(6, 2)
    z, known = 0.2, []
    for date in range(6):
        z = (0.5 * z if date else z) + e[date, 1]
        known.append(z)
    np.testing.assert_allclose(path["z"], known, atol=1e-12)
    np.testing.assert_allclose(path["w"], e[:, 0], atol=1e-12)
    np.testing.assert_allclose(path["p"][1:3], [1.0, 2.0], atol=1e-12)


@pytest.mark.rest
@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"conditions": {}}, "conditions are {}"),
        ({"conditions": {"q": [1.0]}}, "there is no 'q'"),
        ({"conditions": {"p": [1.0] * 7}}, "'p' is"),
        ({"conditions": {"p": "1"}}, "'p' is '1'"),
        ({"conditions": {"m": [1.0]}}, "'m' at date 0 is missed by 1"),
        ({"conditions": {"p": [1.0]}, "by": ["w"]}, "'p' at date 0 is missed by 1"),
        ({"by": ["v"]}, "there is no 'v'"),
        ({"by": []}, r"by is \[\]"),
        ({"by": 3}, "by is 3"),
        ({"conditions": {"p": [np.nan], "m": []}}, "no date of p, m has a condition"),
        ({"conditions": {"p": [np.nan, np.inf]}}, r"'p\[1\]' is inf"),
        ({"linear": 3}, "linear is 3"),
    ],
)
def test_what_a_conditional_path_cannot_be_is_told(changed, said):
    """Conditions that no shock meets too."""
    given = {"linear": by_hand(), "conditions": {"p": [1.0]}, "covariance": np.eye(2), "dates": 6}
    with pytest.raises(ModelError, match=said) as raised:
        conditional_path(**{**given, **changed})
    assert "Fix: " in str(raised.value)


@pytest.mark.rest
def test_announced_shocks_are_foreseen():
    """A price rises by the discounted shock at once, and is what it would be without the
    announcement after it.
    """
    model = forward()
    steady = steady_state(model, model.params)
    path = perfect_foresight(
        steady,
        None,
        {"w": 0.0, "z": 0.1},
        60,
        "stable",
        linearise(steady),
        announced={"z": [0.0, 0.0, 0.0, 1.0], "w": [0.0, 2.0]},
    )
    z = 0.1 * 0.5 ** np.arange(60)
    z[3:] += 0.5 ** np.arange(57)
    np.testing.assert_allclose(path["z"], z, rtol=1e-12)
    foreseen = 0.8 ** np.maximum(3 - np.arange(60.0), 0.0) * 0.5 ** np.maximum(
        np.arange(60.0) - 3, 0.0
    )
    np.testing.assert_allclose(path["p"], (0.1 * 0.5 ** np.arange(60) + foreseen) / 0.6, rtol=1e-10)
    np.testing.assert_allclose(path["m"][:4], [0.0, 0.1, 2.1, 1.075], rtol=1e-12)


@pytest.mark.rest
def test_an_announced_shock_of_brock_mirman_moves_nothing_before_it():
    """Of log utility: income and substitution cancel, on a path that is not linear."""
    steady = steady_state(brock_mirman.MODEL, brock_mirman.Params())
    path = perfect_foresight(steady, dates=80, announced={"a": [0.0, 0.0, 0.1]})
    np.testing.assert_allclose(path["logc"][:2], steady["logc"], rtol=1e-12)
    logk = [steady["logk"]]
    for date in range(60):
        a = 0.1 * 0.9 ** (date - 2) if date >= 2 else 0.0
        logk.append(np.log(0.36 * 0.96) + 0.36 * logk[-1] + a)
    np.testing.assert_allclose(path["logk"][:40], logk[:40], rtol=1e-6)


@pytest.mark.rest
@pytest.mark.parametrize(
    "announced", [3, {"b": [0.1]}, {"a": 0.1}, {"a": [0.1] * 42}, {"a": ["x"]}], ids=repr
)
def test_announcements_that_do_not_fit_are_told(announced):
    """Another name, one number, too many of them."""
    steady = dataclasses.replace(by_hand().steady, model=brock_mirman.MODEL, rho=np.ones(1) / 2)
    with pytest.raises(ModelError, match="path, announced"):
        perfect_foresight(steady, announced=announced)
