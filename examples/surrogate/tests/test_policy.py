"""The policy, and what it is trained by."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from examples.surrogate import _enumerated
from examples.surrogate._environment import GRID, environment
from examples.surrogate._grpo import Rules, advantages, batch_of, learn, objective, update_of
from examples.surrogate._play import Game, Models, all_graphs, log_posterior, play
from examples.surrogate._policy import Policy

RULES = Rules(Game(rounds=2, observed=6, repeats=2), models=2, group=2)


def test_advantages_are_relative_to_the_group():
    """Mean 0 and standard deviation 1 in each, whatever its level."""
    reward = np.array([[1.0, 2.0, 6.0], [101.0, 102.0, 106.0]])
    found = np.asarray(advantages(jnp.asarray(reward)))
    away = reward - reward.mean(1, keepdims=True)
    np.testing.assert_allclose(found, away / away.std(1, keepdims=True), rtol=1e-3)


@pytest.mark.rest
def test_the_objective_is_clipped_and_penalised():
    """Its definition in NumPy; a ratio far out with a positive advantage has no slope."""
    rules = replace(RULES, penalty=0.5)
    new, old, stays = (np.array(x) for x in ([-1.0, -0.2], [-1.1, -2.0], [-0.5, -0.2]))
    ratio, away = np.exp(new - old), np.exp(stays - new) - (stays - new) - 1
    for advantage in (2.0, -1.0):
        clipped = np.clip(ratio, 0.8, 1.2) * advantage
        expected = np.mean(np.minimum(ratio * advantage, clipped) - 0.5 * away)
        given = tuple(map(jnp.asarray, (new, old, stays, advantage)))
        assert float(objective(rules, *given)) == pytest.approx(expected, rel=1e-5)
    slope = jax.grad(lambda x: objective(replace(rules, penalty=0.0), x, *given[1:]))(given[0])
    up = jax.grad(
        lambda x: objective(replace(rules, penalty=0.0), x, *given[1:3], jnp.asarray(2.0))
    )(given[0])
    assert float(up[1]) == 0.0
    assert float(slope[1]) != 0.0


@pytest.mark.rest
def test_the_posterior_of_a_trajectory_is_the_enumerated_one():
    """In float32, with rows that have not come."""
    models = environment(np.random.default_rng(0), 1, 3)
    values = models.observed(np.random.default_rng(1), 9)[0].astype(np.float32)
    flags = np.zeros(values.shape, bool)
    graphs, sets = all_graphs()
    more = np.concatenate([values, np.ones((4, 3), np.float32)])
    unseen = np.concatenate([flags, np.ones((4, 3), bool)])
    found = jax.jit(lambda v, f: log_posterior(v, f, graphs, sets))(more, unseen)
    exact = _enumerated.posterior(values[None], flags[None])[0]
    np.testing.assert_allclose(np.exp(found), exact, atol=1e-4)


@pytest.mark.rest
def test_models_answer_as_the_environment_does():
    """With the same noise."""
    models = environment(np.random.default_rng(2), 2, 3)
    noise = np.random.default_rng(3).normal(size=(2, 5, 3))
    which, value = np.array([1, 2]), GRID[[0, 5]]
    expected = models.answer(noise, which, value)[0]
    found = jax.vmap(Models.answer)(Models.of(models), noise.astype(np.float32), which, value)
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.rest
def test_all_updates_of_all_seeds_are_one_program_and_the_policy_changes():
    """Never on the target; two seeds share it."""
    learned = [learn(RULES, seed, 2) for seed in (0, 1)]
    assert update_of(RULES).stats.traces == 1
    for seed, each in enumerate(learned):
        start = Policy(key=jax.random.key(seed))
        assert any(
            np.any(np.asarray(a) != np.asarray(b))
            for a, b in zip(*map(jax.tree.leaves, (each.policy, start)), strict=True)
        )
    models, observed, luck = batch_of(RULES, 5, 0)
    one = eqx.filter_jit(play)
    pick = lambda tree, *at: jax.tree.map(lambda part: part[at], tree)
    for group in range(2):
        found = one(
            RULES.game, learned[0].policy, pick(models, 0), observed[0], pick(luck, 0, group)
        )
        assert np.all(np.asarray(found.action) // len(GRID) != models.target[0])
        assert float(found.regret) >= 0
