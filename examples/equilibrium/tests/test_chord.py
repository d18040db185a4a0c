"""The chord method beside Newton's: the same paths, by fewer Jacobians."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from examples.equilibrium import (
    ModelError,
    NoPath,
    linearise,
    perfect_foresight,
    steady_state,
)
from examples.equilibrium._chord import chord
from examples.equilibrium._newton import CONVERGED
from examples.equilibrium.models import sectors
from examples.equilibrium.models.brock_mirman import MODEL, Params, States


def test_a_root_by_fewer_jacobians_than_evaluations():
    """x^3 = 8 and x y = 3, from where the first full step of x is far too long."""

    def residual(v):
        return jnp.stack([v[0] ** 3 - 8.0, v[0] * v[1] - 3.0])

    def direction(jacobian, value):
        return -jnp.linalg.solve(jacobian, value)

    with jax.enable_x64(True):
        start = jnp.array([0.5, 1.0])
        search = chord(residual, jax.jacfwd(residual), direction, start, 1e-8)
    found = jax.device_get(search)
    assert found.ended == CONVERGED
    np.testing.assert_allclose(found.point + found.step, [2.0, 1.5], rtol=1e-12)
    assert 2 <= found.jacobians < found.turns


@pytest.mark.rest
def test_the_chord_method_finds_the_closed_form_with_fewer_jacobians():
    """Brock and Mirman from a quarter of the capital: the guess, the steady state at all dates, is
    far off.
    """
    steady = steady_state(MODEL, Params())
    start = States(steady["logk"] + np.log(0.25))
    path = perfect_foresight(steady, start, dates=60, method="chord")
    logk = [start.logk]
    for _ in range(30):
        logk.append(np.log(0.36 * 0.96) + 0.36 * logk[-1])
    np.testing.assert_allclose(path["logk"][:31], logk, rtol=1e-11)
    assert path.jacobians < path.turns
    assert path.jacobians <= perfect_foresight(steady, start, dates=60).jacobians


@pytest.mark.rest
@pytest.mark.parametrize("rolled", [True, False])
@pytest.mark.parametrize("terminal", ["steady", "stable"])
def test_the_chord_method_and_newtons_end_at_the_same_path(rolled, terminal):
    """Fourteen sectors from nine tenths of their capital, with and without a graph: Newton's method
    computes derivatives as often as residuals.
    """
    model = dataclasses.replace(sectors.model(), rolled=rolled)
    steady = steady_state(model, model.params)
    linear = linearise(steady) if terminal == "stable" else None
    given = (steady, steady.x + np.log(0.9), np.full(14, 0.02), 120, terminal, linear)
    newton, chord = (perfect_foresight(*given, method=name) for name in ("newton", "chord"))
    np.testing.assert_allclose(chord.u, newton.u, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(chord.x, newton.x, rtol=1e-10, atol=1e-12)
    assert newton.jacobians == newton.turns
    assert chord.jacobians < newton.jacobians
    assert chord.turns < 30


@pytest.mark.rest
def test_what_no_path_is_has_none_by_the_chord_method_either():
    """A start where a logarithm is not finite, and a method that is none."""
    steady = steady_state(MODEL, Params())
    with pytest.raises(NoPath, match="no convergence in"):
        perfect_foresight(steady, States(1e6), method="chord")
    with pytest.raises(ModelError, match="method is 'secant'"):
        perfect_foresight(steady, method="secant")
