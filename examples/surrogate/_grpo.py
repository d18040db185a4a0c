"""Group-relative policy optimisation (GRPO; Shao et al., "DeepSeekMath", 2024) of the policy.

For each model a group of trajectories begins with the same observations. A trajectory is rewarded
for what is known at its end (nats of the posterior over graphs) and for the target under the
intervention that it then takes for the best. Its advantage is its reward beside the group's, in
standard deviations; the ratio of probabilities is clipped, and the divergence from the policy
before training is a penalty. Trajectories of all models and groups, and the steps of gradient
descent on them, are one program.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PyTree

import jitney

from ._environment import GRID, environment
from ._play import Game, Luck, Models, Trajectory, all_graphs, play
from ._policy import Policy
from ._worlds import Draws


@dataclass(frozen=True)
class Rules:
    """What a policy is trained by.

    Args:
        game: What a trajectory is.
        models: In a batch.
        group: Trajectories of each.
        clip: How far a ratio may go from 1.
        penalty: On the divergence from the reference.
        told: The worth of a nat about the graph, in standard deviations of the target.
        epochs: Steps of gradient descent on the same trajectories.
        rate: The learning rate.
        shared: Whether trajectories of a group have the same noise of the answers, so that they
            differ by choices alone.
    """

    game: Game = field(default_factory=Game)
    models: int = 8
    group: int = 8
    clip: float = 0.2
    penalty: float = 0.01
    told: float = 0.2
    epochs: int = 2
    rate: float = 5e-2
    shared: bool = True

    def optimiser(self) -> optax.GradientTransformation:
        """Adam, with a clip of the gradient."""
        return optax.chain(optax.clip_by_global_norm(1.0), optax.adam(self.rate))


def advantages(reward: Float[Array, "task group"]) -> Float[Array, "task group"]:
    """Each reward beside those of its group, in standard deviations."""
    away = reward - jnp.mean(reward, axis=1, keepdims=True)
    return away / (jnp.std(reward, axis=1, keepdims=True) + 1e-4)


def objective(
    rules: Rules,
    log_p: Float[Array, "round"],
    old: Float[Array, "round"],
    reference: Float[Array, "round"],
    advantage: Float[Array, ""],
) -> Float[Array, ""]:
    """To be made large, of one trajectory: the clipped ratio times the advantage, less the
    divergence from the reference (the estimate r - log r - 1, which is never negative).
    """
    ratio = jnp.exp(log_p - old)
    clipped = jnp.clip(ratio, 1 - rules.clip, 1 + rules.clip)
    gained = jnp.minimum(ratio * advantage, clipped * advantage)
    away = jnp.exp(reference - log_p) - (reference - log_p) - 1
    return jnp.mean(gained - rules.penalty * away)


def chosen_log_p(policy: Policy, model: Models, trajectory: Trajectory) -> Float[Array, "round"]:
    """Log probabilities of the interventions that were chosen."""
    allowed = jnp.arange(model.order.shape[0]) != model.target

    def one(seen: Array, action: Array) -> Array:
        return policy(seen, allowed).ravel()[action]

    return jax.vmap(one)(trajectory.seen, trajectory.action)


def played(rules: Rules, policy: Policy, models: Models, observed: Array, luck: Luck) -> Trajectory:
    """Trajectories, [task, group]."""
    one = functools.partial(play, rules.game, policy)
    return jax.vmap(jax.vmap(one, (None, None, 0)))(models, observed, luck)


def reward_of(rules: Rules, found: Trajectory) -> Float[Array, "*any"]:
    """The target that is reached, and what is known."""
    return found.reached + rules.told * found.told


SEEDS = dict.fromkeys(("policy", "opt", "reference", "models", "observed", "luck"), 0)


@functools.cache
def update_of(rules: Rules) -> Any:
    """One update as one program: trajectories, advantages, steps of gradient descent.

    It is written for one policy; `vmap` trains one for each seed, side by side.
    """

    @jitney.optimize(vmap={"seed": SEEDS}, donate=("policy", "opt"))
    def update(
        policy: Policy,
        opt: PyTree,
        reference: Policy,
        models: Models,
        observed: Float[Array, "task observed vars"],
        luck: Luck,
    ) -> tuple[Policy, PyTree, dict[str, Array]]:
        found = jax.lax.stop_gradient(played(rules, policy, models, observed, luck))
        reward = reward_of(rules, found)
        advantage = advantages(reward)
        each = jax.vmap(jax.vmap(chosen_log_p, (None, None, 0)), (None, 0, 0))
        stays = each(reference, models, found)

        def loss(policy: Policy) -> Array:
            one = functools.partial(objective, rules)
            log_p = each(policy, models, found)
            return -jnp.mean(jax.vmap(jax.vmap(one))(log_p, found.log_p, stays, advantage))

        for _ in range(rules.epochs):
            slope = eqx.filter_grad(loss)(policy)
            change, opt = rules.optimiser().update(slope, opt)
            policy = eqx.apply_updates(policy, change)
        means = {"reward": reward, "log_p": found.log_p, "told": found.told}
        return policy, opt, {name: jnp.mean(part) for name, part in means.items()}

    return update


@functools.cache
def judge_of(rules: Rules) -> Any:
    """Rewards and regrets of several policies on the same models, with the same luck."""

    @jitney.optimize(vmap={"way": {"policy": 0}})
    def judge(
        policy: Policy,
        models: Models,
        observed: Float[Array, "task observed vars"],
        luck: Luck,
    ) -> dict[str, Float[Array, "task"]]:
        found = played(rules, policy, models, observed, luck)
        parts = {"reward": reward_of(rules, found), "regret": found.regret, "told": found.told}
        return {name: jnp.mean(part, axis=1) for name, part in parts.items()}

    return judge


def batch_of(
    rules: Rules, seed: int, at: int, group: int | None = None
) -> tuple[Models, np.ndarray, Luck]:
    """Models, observations and luck of an update. Trajectories of a group share the models that the
    belief draws.
    """
    rng = np.random.default_rng([seed, 4, at])
    models = environment(rng, rules.models, 3)
    observed = models.observed(rng, rules.game.observed).astype(np.float32)
    group, worlds, rounds = group or rules.group, len(all_graphs()[1]), rules.game.rounds + 1
    draws = Draws.of(rng, rules.models * rounds * worlds, 3, rules.game.repeats)
    shape = (rules.models, 1, rounds, worlds)

    def split(part: np.ndarray) -> np.ndarray:
        whole = (rules.models, group, *shape[2:], *part.shape[1:])
        return np.broadcast_to(part.reshape(*shape, *part.shape[1:]), whole)

    answers = rules.game.rounds, rules.game.answers, 3
    noise = rng.normal(size=(rules.models, 1 if rules.shared else group, *answers))
    noise = np.broadcast_to(noise, (rules.models, group, *answers))
    choice = rng.gumbel(size=(rules.models, group, rules.game.rounds, 3, len(GRID)))
    luck = Luck(
        Draws(*(split(part) for part in vars(draws).values())),
        *(part.astype(np.float32) for part in (noise, choice)),
    )
    return Models.of(models), observed, luck


HELD_OUT = 2**32 - 4  # the seed of models that no training has


@dataclass(frozen=True)
class State:
    """Training of one policy for each seed: all that goes on.

    Args:
        done: Updates.
        policy: Along an axis of seeds.
        opt: The state of the optimiser.
    """

    done: int
    policy: Policy
    opt: Any

    @classmethod
    def begin(cls, rules: Rules, seeds: int) -> "State":
        """Policies that choose at random."""
        each = [Policy(key=jax.random.key(seed)) for seed in range(seeds)]
        policy = stacked(each)
        return cls(0, policy, stacked([rules.optimiser().init(one) for one in each]))


def stacked(trees: Sequence[Any]) -> Any:
    """Along a new first axis."""
    return jax.tree.map(lambda *parts: jnp.stack(parts), *trees)


def learn(
    rules: Rules,
    state: State,
    updates: int,
    after: Callable[[State, Any], None] = lambda state, means: None,
) -> State:
    """Train all policies up to so many updates.

    Args:
        rules: How.
        state: Where to begin, or to go on. It is donated, so that it cannot be used again.
        updates: In all.
        after: Is called after each update with means that are on their way to the host
            (`jitney.host`); it reads them when it wants them.
    """
    update = update_of(rules)
    seeds = len(state.policy.straight)
    reference = State.begin(rules, seeds).policy
    for at in range(state.done, updates):
        batch = stacked_batch([batch_of(rules, seed, at) for seed in range(seeds)])
        policy, opt, means = update(state.policy, state.opt, reference, *batch)
        state = State(at + 1, policy, opt)
        after(state, jitney.host(means))
    return state


def stacked_batch(batches: Sequence[Any]) -> Any:
    """On the host."""
    return jax.tree.map(lambda *parts: np.stack(parts), *batches)
