"""The programs of the examples go through files, and give the numbers of the functions that they
were made of.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jitney
from examples.equilibrium.models import brock_mirman
from examples.surrogate._expert import batch, log_sum
from examples.surrogate._step import loss_of, start, step_of
from examples.surrogate.tests._small import RUN
from examples.trf._curve import Residual

from ._models import saved, to_the_bit


def decay(t, a, b):
    return a * jnp.exp(-b * t)


def test_residuals_of_a_curve_for_any_number_of_points(tmp_path):
    """Of the least-squares port, against numpy."""
    residual = jitney.optimize(Residual(decay, "vector").__call__)
    p = [jnp.float32(2.0), jnp.float32(0.5)]
    t = np.linspace(0, 3, 7, dtype=np.float32)
    y, sigma = np.cos(t), 1 + t
    loaded = saved(tmp_path, residual, p, t, y, sigma)
    np.testing.assert_allclose(
        loaded(p, t, y, sigma), (2 * np.exp(-0.5 * t) - y) / sigma, rtol=1e-5, atol=1e-6
    )


@pytest.mark.rest
def test_equilibrium_conditions_and_their_jacobian(tmp_path):
    """Of the macro port, in float64, against `jax.jit` and `jax.jacfwd` of the equations."""
    model = brock_mirman.MODEL
    u, x = (np.abs(part) + 0.2 for part in model.guess)
    z = np.full(model.sizes["z"], 0.1)
    at = (model.theta(model.params), u, x, z, u, x, z)
    equations = lambda *at: jnp.concatenate(
        [jnp.ravel(leaf) for leaf in jax.tree.leaves(model._residuals(*at))]
    )
    with jax.enable_x64(True):
        loaded = saved(tmp_path, model.residual, *at)
        np.testing.assert_array_equal(loaded(*at), jax.jit(equations)(*at))
        model.residual.jacobian.export(tmp_path / "jacobian.jitney", *at)
        blocks = jitney.load(tmp_path / "jacobian.jitney")(*at)
        np.testing.assert_allclose(
            blocks["x"], jax.jacfwd(equations, 2)(*at), rtol=1e-12, atol=1e-14
        )


@pytest.mark.rest
def test_exact_sums_of_the_expert(tmp_path):
    """Of the neural port, mapped, padded and in float64, for any number of examples: `jax.vmap` of
    the plain function under x64.
    """
    local = np.random.default_rng(3).normal(size=(5, 3, 4))
    loaded = saved(tmp_path, log_sum, local[:2], sizes={"example": range(2, 100)})
    with jax.enable_x64(True):
        expected = jax.jit(jax.vmap(log_sum.__wrapped__))(local)
    np.testing.assert_allclose(loaded(local), expected, rtol=1e-12)


@pytest.mark.slow  # it compiles the loss twice
def test_the_loss_of_examples(tmp_path):
    """Of the neural port, mapped over examples, against `jax.vmap` of the plain function."""
    data = batch(np.random.default_rng(3), 2, 3, samples=6)
    loss = loss_of(RUN.recipe)
    loaded = saved(tmp_path, loss, RUN.model(), *data.arrays)
    expected = eqx.filter_jit(jax.vmap(loss.__wrapped__, in_axes=(None, 0, 0, 0, 0)))(
        RUN.model(), *data.arrays
    )
    np.testing.assert_allclose(loaded(RUN.model(), *data.arrays), expected, rtol=1e-5)


@pytest.mark.slow  # it compiles the step twice
def test_a_step_of_training(tmp_path):
    """Of the neural port, which is padded and donates: weights and optimiser states to the bit as
    the step at exact size gives them.
    """
    data = batch(np.random.default_rng(3), 2, 3, samples=6)
    model = RUN.model()
    arguments = (model, start(RUN.recipe, model), *data.arrays)
    loaded = saved(tmp_path, step_of(RUN.recipe), *arguments)
    ours = loaded(*arguments)
    to_the_bit(ours, step_of(RUN.recipe, pad=None)(*jax.tree.map(jnp.array, arguments)))
    assert type(ours[0]) is type(model)
    loaded(*ours[:2], *data.arrays)
