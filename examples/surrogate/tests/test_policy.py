"""The policy, and what it is trained by."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from examples.surrogate import _enumerated
from examples.surrogate._environment import GRID, environment
from examples.surrogate._grpo import (
    Rules,
    State,
    advantages,
    batch_of,
    learn,
    objective,
    update_of,
)
from examples.surrogate._play import Game, Models, all_graphs, log_posterior
from examples.surrogate._policy import Policy, looks
from examples.surrogate._round import Worth
from examples.surrogate.grpo import trained

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
def test_all_updates_of_all_seeds_are_one_program():
    """Each policy changes, and no two in the same way."""
    state = learn(RULES, State.begin(RULES, 2), 2)
    assert update_of(RULES).stats.traces == 1
    first, second = np.asarray(state.policy.straight)
    assert np.all(np.isfinite([first, second]))
    assert np.any(first != 0)
    assert np.any(second != first)


@pytest.mark.rest
def test_training_that_broke_off_goes_on_to_the_same_bits(tmp_path):
    """Policies, the optimiser's state and all looks at held-out models."""
    given = RULES, 2
    whole, looks = trained(*given, 4, every=2, models=3)
    trained(*given, 2, every=2, models=3, path=tmp_path / "run")
    done, again = trained(*given, 4, every=2, models=3, path=tmp_path / "run")
    assert [look.done for look in again] == [0, 2, 4]
    assert [look.as_json() for look in again] == [look.as_json() for look in looks]
    ours, theirs = ((each.policy, each.opt) for each in (done, whole))
    for a, b in zip(*map(jax.tree.leaves, (ours, theirs)), strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(ValueError, match="other options"):
        trained(replace(RULES, clip=0.1), 2, 4, every=2, models=3, path=tmp_path / "run")


def test_a_policy_begins_at_random_and_can_take_the_largest_worth():
    """Without weights all cells but those of the target have the same chance; with large ones the
    cell with the largest sum has all of it.
    """
    rng = np.random.default_rng(0)
    told, better = rng.random((2, 3, 7)).astype(np.float32)
    allowed = np.arange(3) != 1
    off = np.where(allowed[:, None], 0.0, -np.inf)
    worth = Worth(*(jnp.asarray(x + off) for x in (told - 1, told, better)), jnp.ones(()))
    seen = looks(worth, jnp.asarray(0.5), jnp.asarray(allowed))
    first = Policy(key=jax.random.key(0))
    even = np.exp(first(seen, jnp.asarray(allowed)))
    np.testing.assert_allclose(even[allowed], 1 / 14, rtol=1e-5)
    assert np.all(even[1] == 0)
    greedy = first.fixed(information=1e4, improvement=1e4)
    chance = np.exp(greedy(seen, jnp.asarray(allowed)))
    assert chance.argmax() == (told + better + off).argmax()
    assert chance.max() == pytest.approx(1)


def test_trajectories_of_a_group_share_the_noise_of_answers_or_not():
    """As the rules have it; choices are drawn apart in any case."""
    for shared in (True, False):
        luck = batch_of(replace(RULES, shared=shared), 0, 0)[2]
        noise, choice = np.asarray(luck.noise), np.asarray(luck.choice)
        assert np.array_equal(noise[:, 0], noise[:, 1]) == shared
        assert not np.array_equal(choice[:, 0], choice[:, 1])


def test_what_a_policy_reads_is_of_order_one_where_nothing_can_be_gained():
    """Estimates of information that are all below 0 are not divided by next to nothing."""
    worth = Worth(*(jnp.full((3, 7), x) for x in (0.3, -0.02, 0.0)), jnp.ones(()))
    seen = np.asarray(looks(worth, jnp.asarray(1.0), jnp.ones(3, bool)))
    assert np.all(np.isfinite(seen))
    assert np.abs(seen).max() <= 1
