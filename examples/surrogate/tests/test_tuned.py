"""The belief after gradient steps on a campaign's data."""

from math import comb

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from examples.surrogate import _data, _tuned
from examples.surrogate._environment import environment
from examples.surrogate._expert import posterior, scores
from examples.surrogate._trained import seen
from examples.surrogate.reader import Reader

READER = Reader(8, 1, 1, key=jax.random.key(0))


def test_a_set_has_the_chance_with_which_it_is_drawn():
    """Its size first, then its members: the chances of all sets of those before sum to 1."""
    for before in (0, 1, 3, 6):
        size = np.array([k for k in range(4) for _ in range(comb(before, k))])
        found = np.exp(_tuned.log_chance(size, np.int32(before), np.int32(3)))
        assert found.sum() == pytest.approx(1, rel=1e-5)
        for each, chance in zip(size, found, strict=True):
            assert chance == pytest.approx(1 / (min(3, before) + 1) / comb(before, each), rel=1e-5)


@pytest.mark.rest
def test_orders_from_a_wrong_belief_give_the_exact_posterior():
    """That of the sum over all orders in closed form, whatever belief the orders come from."""
    models = environment(np.random.default_rng(0), 3, 4)
    values = models.observed(np.random.default_rng(1), 10)
    local = scores(values, np.zeros(values.shape, bool))
    exact, (index, mask) = posterior(local), _data.tables(4)
    rng = np.random.default_rng(2)
    wrong = jax.nn.log_softmax(rng.normal(size=local.shape), axis=2)
    gumbel = rng.gumbel(size=(3, 4000, 4, 4)).astype(np.float32)
    several = jax.jit(jax.vmap(lambda q, l, g: _tuned.by_orders(q, l, index, mask, g)))
    found = several(wrong, local.astype(np.float32), gumbel)
    np.testing.assert_allclose(found, exact, atol=0.03)
    assert np.abs(np.exp(wrong) - exact).max() > 0.3


@pytest.mark.rest
def test_a_step_is_one_along_the_gradient_of_the_loss():
    """By automatic differentiation of the cross-entropy of the posterior; of three variables, of
    which the program of four makes the same. Another size of the bucket makes no program.
    """
    models = environment(np.random.default_rng(3), 2, 3)
    values = models.observed(np.random.default_rng(4), 10).astype(np.float32)
    flags, (index, mask) = np.zeros(values.shape, bool), _data.tables(3)
    found = _tuned.refined(READER, values, flags)
    local = jnp.asarray(scores(values.astype(float), flags), jnp.float32)
    gumbel = _tuned.luck(2, 10, 3, _tuned.STEPS)

    def loss(logits, wanted):
        return -jnp.sum(wanted * jax.nn.log_softmax(logits, axis=1))

    @jax.jit
    def step(logits, local, gumbel):
        belief = jax.nn.log_softmax(logits, axis=1)
        wanted = _tuned.by_orders(belief, local, index, mask, gumbel)
        return logits - _tuned.RATE * jax.grad(loss)(logits, wanted)

    for task in range(2):
        logits = READER.beliefs(values[task], flags[task], index, mask)
        for each in gumbel[task]:
            logits = step(logits, local[task], each)
        wanted = jax.nn.softmax(logits, axis=1)
        np.testing.assert_allclose(np.exp(found[task]), wanted, rtol=1e-3, atol=1e-4)
    traces = _tuned.stepped.stats.traces
    more = environment(np.random.default_rng(5), 3, 4).observed(np.random.default_rng(6), 12)
    _tuned.refined(READER, more.astype(np.float32), np.zeros(more.shape, bool))
    assert _tuned.stepped.stats.traces == traces


@pytest.mark.rest
def test_steps_bring_the_belief_near_the_exact_posterior():
    """The divergence from it is a quarter at most of what it is with a network that knows nothing:
    of observations and answers.
    """
    models = environment(np.random.default_rng(7), 6, 3)
    values, flags = seen(np.random.default_rng(8), models, 8)
    index, mask = _data.tables(3)
    before = jax.vmap(lambda *each: READER.beliefs(*each, index, mask))(values, flags)
    exact = posterior(scores(values.astype(float), flags))
    far = [
        np.sum(exact * (np.log(np.maximum(exact, 1e-9)) - belief), axis=2).mean()
        for belief in (before, _tuned.refined(READER, values, flags))
    ]
    assert far[1] < far[0] / 4
