"""One step, before and after: eager, jitted and batched are the same numbers."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jitney
from examples.surrogate import before, by_hand, variants
from examples.surrogate._expert import batch
from examples.surrogate._losses import FLOOR, certainty, kl
from examples.surrogate._step import start, step_of
from examples.surrogate._train import program
from examples.surrogate.tests._small import RATE, RUN

SEED = 3


@pytest.fixture(scope="module")
def model():
    return RUN.model()


@pytest.fixture(scope="module")
def data():
    found = batch(np.random.default_rng(SEED), 2, 3, samples=6)
    assert len(set(found.target)) == 1  # one tuple of parent sets, so one program
    return found


@pytest.fixture(scope="module")
def jitted():
    """The derivative of the loss before, compiled: parent sets as they come, a tuple of frozensets,
    are static.
    """
    one = jitney.optimize(static=("sets", "loss"))(before.example_loss)
    return lambda model, *rest: one.value_and_grad(model, *rest, wrt="model")


@pytest.fixture(scope="module")
def eager(model, data):
    return before.mean_gradient(model, data, "weighted")


def same(value, norm, after, eager, model):
    """Equal loss, gradient norm, and weights after a step of gradient descent."""
    true_value, gradient = eager
    assert float(value) == pytest.approx(true_value, rel=1e-5)
    assert float(norm) == pytest.approx(float(optax.tree.norm(gradient)), rel=1e-5)
    for ours, at, slope in zip(*map(jax.tree.leaves, (after, model, gradient)), strict=True):
        np.testing.assert_allclose(
            ours, np.asarray(at) - RATE * np.asarray(slope), rtol=1e-5, atol=1e-6
        )


@pytest.mark.rest
def test_jitted_is_eager(model, data, eager, jitted):
    """With frozensets as statics, which the body gets as what they were."""
    value, gradient = before.mean_gradient(model, data, "weighted", jitted)
    same(
        value, optax.tree.norm(gradient), optax.tree.add_scale(model, -RATE, gradient), eager, model
    )


@pytest.mark.rest
def test_the_step_after_is_the_step_before(model, data, eager):
    """Mapped over examples, padded from 3 variables to 4 and from 4 sets to 8, donated, in one
    program.
    """
    step = program(RUN.recipe, RUN.precision, RUN.remat)
    given = jax.tree.map(jnp.array, (model, start(RUN.recipe, model)))  # what is donated is a copy
    after, _, metrics = step(*given, *data.arrays)
    same(metrics["loss"], metrics["norm"], after, eager, model)
    assert step.stats.traces == 1
    assert step.stats.padding["vars"] > 0


@pytest.mark.rest
def test_a_padded_step_is_the_one_with_masks_by_hand(model):
    """Loss, gradient norm, weights and momentum, of 3 and of 4 variables, which share a program."""
    step, hand = program(RUN.recipe, RUN.precision, RUN.remat), by_hand.step_of(RUN.recipe)
    for variables in (3, 4):
        data = batch(np.random.default_rng(variables), 2, variables, samples=6).arrays
        ours, theirs = (
            each(*jax.tree.map(jnp.array, (model, start(RUN.recipe, model))), *data)
            for each in (step, hand)
        )
        for mine, his in zip(*map(jax.tree.leaves, (ours, theirs)), strict=True):
            np.testing.assert_allclose(mine, his, rtol=1e-4, atol=1e-6)


@pytest.mark.rest
def test_every_parameter_has_a_gradient(eager):
    """None is dead."""
    assert all(np.abs(leaf).max() > 1e-6 for leaf in jax.tree.leaves(eager[1]))


def test_losses_are_their_definitions():
    """In NumPy, of a distribution with a zero."""
    p, q = np.array([0.7, 0.3, 0.0], np.float32), np.array([0.2, 0.3, 0.5], np.float32)
    assert float(kl(p, np.log(q))) == pytest.approx(0.7 * np.log(0.7 / 0.2), rel=1e-6)
    assert float(certainty(p)) == pytest.approx(
        1 + (0.7 * np.log(0.7) + 0.3 * np.log(0.3)) / np.log(3), rel=1e-6
    )
    assert 0 < FLOOR < 1


@pytest.mark.rest
def test_order_of_samples_and_names_of_variables_do_not_matter(model, data):
    """Samples in another order give the same scores; renamed variables give those of the renamed
    sets.
    """
    x, index, mask = (jnp.asarray(part[0]) for part in (data.x, data.index, data.mask))
    scored = eqx.filter_jit(model)
    scores = scored(x, index, mask)
    np.testing.assert_allclose(scored(x[::-1], index, mask), scores, rtol=1e-4, atol=1e-5)
    names = np.array([2, 0, 1])
    np.testing.assert_allclose(
        scored(x[:, np.argsort(names)], jnp.asarray(names)[index], mask),
        scores,
        rtol=1e-4,
        atol=1e-5,
    )


@pytest.mark.rest
def test_a_batch_in_parts_gives_the_step_of_the_whole(model):
    """Loss, gradient norm and weights, with gradients of two parts added up."""
    both = batch(np.random.default_rng(SEED), 4, 3, samples=6).arrays
    state = model, start(variants.RECIPE, model)
    whole = step_of(variants.RECIPE, pad=None, donate=False)(*state, *both)
    parts = variants.in_parts(2)(*state, *both)
    assert variants.off(parts, whole, 1e-4, "in parts") < 1e-4


@pytest.mark.rest
def test_a_step_that_cannot_be_traced_runs_unjitted_with_a_warning(model):
    """A clip that reads the norm in Python: the numbers of the compiled step."""
    both = batch(np.random.default_rng(SEED), 4, 3, samples=6).arrays
    state = model, start(variants.RECIPE, model)
    whole = step_of(variants.RECIPE, pad=None, donate=False)(*state, *both)
    step = variants.untraceable()
    with pytest.warns(match=r"`if norm > RECIPE.clip:`.*\n.*runs un-jitted"):
        first = step(*state, *both)
    assert variants.off(first, whole, 1e-4, "not traceable") < 1e-4
    assert variants.off(step(*state, *both), whole, 1e-4, "again, without a warning") < 1e-4
    assert step.stats.eager == 2
    # the table of `variants` has no program of it to look at
    assert variants.temporaries(variants.variants(4)["not traceable"], state, both) is None
