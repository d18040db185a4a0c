"""The likelihood and the sweep that are written by hand for one model, which the benchmark times,
are those of the package.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from examples.equilibrium import likelihood_by_hand as hand
from examples.equilibrium import (
    log_likelihood,
    sectors_by_hand,
    smets_wouters_by_hand,
    solution,
    solutions,
    workflow_by_hand,
)
from examples.equilibrium._likelihood import kalman
from examples.equilibrium.models import sectors, smets_wouters
from examples.equilibrium.models.an_schorfheide import MODEL, Params, Shocks

NAMES = ("ylev", "ppi", "R")
ERRORS = np.array([0.1, 0.2, 0.3])
DATA = np.random.default_rng(0).normal(size=(40, 3))
BASE = {field.name: getattr(Params(), field.name) for field in dataclasses.fields(Params)}


def ours(p, errors, data):
    """The same from the model."""
    found = solution(MODEL, Params(**p))
    return log_likelihood(MODEL, found, data, NAMES, Shocks(*hand.VARIANCES), errors)


@pytest.mark.rest
def test_value_and_gradient_by_hand_are_ours():
    """By parameters, errors and data; of the filter alone by its matrices too."""
    with jax.enable_x64(True):
        given = (BASE, ERRORS, DATA)
        one, other = (
            jax.jit(jax.value_and_grad(each, (0, 1, 2)))(*given) for each in (hand.likelihood, ours)
        )
        pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
        for a, b in pairs:
            np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10)
        matrices = (*hand.system(BASE), ERRORS, DATA)
        one, other = (
            jax.jit(jax.grad(each, (0, 1, 2, 3, 4)))(*matrices) for each in (hand.kalman, kalman)
        )
        for a, b in zip(one, other, strict=True):
            # a variance is symmetric, and so is what it may move by
            a, b = (e + e.T for e in (a, b)) if a.shape == (5, 5) else (a, b)
            np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-9)


@pytest.mark.rest
def test_policies_of_draws_by_hand_are_ours():
    """With the gradient of one coefficient."""
    draws = BASE | {"tau": np.linspace(1.0, 3.0, 5), "psi1": np.linspace(1.2, 2.5, 5)}
    found = solutions(MODEL, Params(**draws), lambda s: s.G_z[2, 1])
    with jax.enable_x64(True):
        every = {name: jnp.broadcast_to(each, 5) for name, each in draws.items()}
        G, H, value, slope = jax.device_get(hand.sweep(every))
    assert set(found.verdict) == {"determinate"}
    np.testing.assert_allclose(H, found.solution.G_z[:, :4], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(G[:, :, 2], found.solution.G_x[:, :4, 0], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(value, found.value, rtol=1e-9)
    for name, each in slope.items():
        np.testing.assert_allclose(each, getattr(found.gradient, name), rtol=1e-7, atol=1e-10)


@pytest.mark.rest
def test_smets_and_wouters_by_hand_is_ours():
    """Value and gradient by all parameters, without measurement errors."""
    series, none, mod = smets_wouters.data()[:40], np.zeros(7), smets_wouters.MOD
    base = {name: float(value) for name, value in mod.params.items()}

    def ours(p, errors, data):
        found = solution(mod.model, p, at=mod.steady(p))
        return log_likelihood(mod.model, found, data, mod.observed, mod.covariance, errors)

    with jax.enable_x64(True):
        one, other = (
            jax.jit(jax.value_and_grad(each))(base, none, series)
            for each in (smets_wouters_by_hand.likelihood, ours)
        )
    np.testing.assert_allclose(one[0], other[0], rtol=1e-10)
    for name in base:
        np.testing.assert_allclose(one[1][name], other[1][name], rtol=1e-6, atol=1e-6)


@pytest.mark.rest
@pytest.mark.parametrize("way", ["written_out", "by_sector"])
def test_derivatives_of_sectors_are_those_of_jax(way):
    """Residuals too; derivatives that are not there are 1, -1 and 0."""
    model = sectors.model()
    column = np.random.default_rng(0).uniform(0.5, 1.5, sum(model.sizes.values()))
    cuts = np.cumsum(list(model.sizes.values()))[:-1]
    groups = ("u", "x", "u_next", "x_next")

    def dense(column):
        place = jnp.split(column, cuts)
        residual = lambda *place: jnp.concatenate(
            [jnp.ravel(each) for each in jax.tree.leaves(model._residuals(*place))]
        )
        return residual(*place), jax.jacfwd(residual, (1, 2, 4, 5))(*place)

    with jax.enable_x64(True):
        want, slopes = jax.jit(dense)(column)
        residuals, found = jax.jit(getattr(sectors_by_hand, way))(column)
    np.testing.assert_allclose(residuals, want, rtol=1e-12, atol=1e-14)
    blocks = sectors_by_hand.in_blocks(np.asarray(found))
    for name, slope in zip(groups, slopes, strict=True):
        block = blocks[name]
        filled = np.where(np.isnan(block), np.round(slope), block)
        np.testing.assert_allclose(filled, slope, rtol=1e-12, atol=1e-14)


def test_blocks_by_hand_are_those_of_jax():
    """Those of the workflow: filled in, by beta and by shocks too, at two places."""
    model = sectors.model()
    rng = np.random.default_rng(1)
    names = ("u", "x", "z", "u_next", "x_next", "z_next")
    places = [rng.uniform(0.5, 1.5, (2, model.sizes[name])) for name in names]
    theta = rng.uniform(0.5, 1.5, model.sizes["theta"])

    def residual(*place):
        leaves = jax.tree.leaves(model._residuals(*place))
        return jnp.concatenate([jnp.ravel(each) for each in leaves])

    def both(*place):
        return residual(*place), jax.jacfwd(residual, tuple(range(7)))(*place)

    with jax.enable_x64(True):
        F, by = workflow_by_hand.ByHand(model).at_each((theta, *places))
        program = jax.jit(both)
        for t in range(2):
            value, want = program(theta, *(each[t] for each in places))
            np.testing.assert_allclose(F[t], value, rtol=1e-12, atol=1e-13)
            np.testing.assert_allclose(by["theta"][t][:, 1], want[0][:, 1], rtol=1e-12, atol=1e-13)
            for name, slope in zip(names, want[1:], strict=True):
                np.testing.assert_allclose(by[name][t], slope, rtol=1e-12, atol=1e-13)
