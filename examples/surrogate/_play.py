"""Campaigns on models of three variables as one program, to train a policy on.

All 25 graphs are the belief, so that nothing has to be drawn or trained first. A trajectory has
room for all its samples from the beginning; in one that has not come yet, all variables count as
set from outside, which tells nothing about any.
"""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from . import _enumerated
from ._data import OMEGA, WIDTH, tables
from ._environment import GRID, Environment
from ._policy import Policy, looks
from ._round import consider
from ._worlds import TERMS, Draws, Graphs, features, regression


@dataclass(frozen=True)
class Game:
    """What a trajectory is made of.

    Args:
        rounds: Interventions.
        observed: Samples before.
        answers: Samples of each intervention.
        repeats: Simulations of each world.
    """

    rounds: int = 4
    observed: int = 10
    answers: int = 1
    repeats: int = 4


class Models(eqx.Module):
    """An environment as arrays of JAX, of linear mechanisms and waves."""

    order: Int[Array, "vars"]
    weight: Float[Array, "vars vars"]
    cosine: Float[Array, "vars vars"]
    linear: Bool[Array, "vars"]
    shift: Float[Array, "vars"]
    scale: Float[Array, "vars"]
    target: Int[Array, ""]
    effects: Float[Array, "vars values"]

    @classmethod
    def of(cls, models: Environment) -> "Models":
        """Along an axis of tasks."""
        reals = (models.weight, models.cosine, models.shift, models.scale, models.effects())
        weight, cosine, shift, scale, effects = (part.astype(np.float32) for part in reals)
        order, target = models.order.astype(np.int32), models.target.astype(np.int32)
        return cls(order, weight, cosine, models.kind == 0, shift, scale, target, effects)

    def answer(
        self, noise: Float[Array, "answers vars"], variable: Int[Array, ""], value: Float[Array, ""]
    ) -> Float[Array, "answers vars"]:
        """Samples in which one variable is set."""
        at = jnp.arange(noise.shape[1])

        def place(x: Array, child: Array) -> tuple[Array, None]:
            waves = (
                jnp.sin(OMEGA * x) @ self.weight[child] + jnp.cos(OMEGA * x) @ self.cosine[child]
            )
            y = jnp.where(self.linear[child], x @ self.weight[child], waves) + noise[:, child]
            y = (y - self.shift[child]) / self.scale[child]
            y = jnp.where(child == variable, value, y)
            return jnp.where(at == child, y[:, None], x), None

        return jax.lax.scan(place, jnp.zeros_like(noise), self.order)[0]


def all_graphs(variables: int = 3) -> tuple[Graphs, np.ndarray]:
    """Every graph, with its prior as its weight, and the position of each variable's parent set."""
    sets, order, prior = _enumerated.graphs(variables)
    index, mask = _enumerated.as_steps(order, sets)
    return Graphs(order.astype(np.int32), index, mask, prior.astype(np.float32)), sets


def log_posterior(
    values: Float[Array, "samples vars"],
    intervened: Bool[Array, "samples vars"],
    graphs: Graphs,
    sets: Int[np.ndarray, "world vars"],
) -> Float[Array, "world"]:
    """Of each graph. A sample in which all variables are set counts for none."""
    variables = values.shape[1]
    index, mask = map(jnp.asarray, tables(variables))
    nothing = jnp.zeros(()), jnp.zeros(TERMS)

    def local(variable: Array, index: Array, mask: Array) -> Array:
        y, free = values[:, variable], jnp.where(intervened[:, variable], 0.0, 1.0)
        design = features(values[:, index])
        design = jnp.concatenate([jnp.ones_like(design[:, :1]), design], axis=1)
        none = jnp.zeros(WIDTH, bool)
        ways = ((mask, none, none), (none, mask, mask))
        both = [
            regression(design, y, free, jnp.concatenate([jnp.ones(1, bool), *way]), *nothing)[0]
            for way in ways
        ]
        return jnp.logaddexp(*both)

    scores = jax.vmap(jax.vmap(local, (None, 0, 0)))(jnp.arange(variables), index, mask)
    total = sum(scores[v, sets[:, v]] for v in range(variables))
    return jax.nn.log_softmax(graphs.log_weight + total)


class Luck(eqx.Module):
    """The random numbers of a trajectory."""

    draws: Draws  # [round + 1, ...]
    noise: Float[Array, "round answers vars"]
    choice: Float[Array, "round vars values"]  # Gumbel


class Trajectory(eqx.Module):
    """What happened."""

    seen: Float[Array, "round vars values features"]
    action: Int[Array, "round"]
    log_p: Float[Array, "round"]
    told: Float[Array, ""]  # nats of entropy that the posterior has lost
    reached: Float[Array, ""]  # the target's mean under the intervention taken for the best
    regret: Float[Array, ""]


def play(
    game: Game,
    policy: Policy,
    model: Models,
    observed: Float[Array, "observed vars"],
    luck: Luck,
) -> Trajectory:
    """One trajectory, by `scan` over rounds."""
    graphs, sets = all_graphs(observed.shape[1])
    rows, variables = game.rounds * game.answers, observed.shape[1]
    unseen = jnp.zeros((rows, variables)), jnp.ones((rows, variables), bool)
    start = (
        jnp.concatenate([observed, unseen[0]]),
        jnp.concatenate([jnp.zeros(observed.shape, bool), unseen[1]]),
    )
    allowed = jnp.arange(variables) != model.target

    def known(values: Array, flags: Array) -> Graphs:
        return eqx.tree_at(
            lambda g: g.log_weight, graphs, log_posterior(values, flags, graphs, sets)
        )

    def one(state: tuple[Array, Array], step: tuple[Array, Draws, Array, Array]) -> tuple:
        values, flags = state
        at, draws, noise, gumbel = step
        worth = consider(known(values, flags), values, flags, model.target, draws)
        seen = looks(worth, 1.0 - at / game.rounds, allowed)
        log_p = policy(seen, allowed)
        action = jnp.argmax((log_p + gumbel).ravel())
        variable, value = action // len(GRID), jnp.asarray(GRID)[action % len(GRID)]
        answer = model.answer(noise, variable, value)
        row = (game.observed + at * game.answers, 0)
        is_set = jnp.broadcast_to(jnp.arange(variables) == variable, answer.shape)
        state = (
            jax.lax.dynamic_update_slice(values, answer, row),
            jax.lax.dynamic_update_slice(flags, is_set, row),
        )
        return state, (seen, action, log_p.ravel()[action])

    first = jax.tree.map(lambda part: part[:-1], luck.draws)
    later = jax.tree.map(lambda part: part[-1], luck.draws)
    steps = (jnp.arange(game.rounds), first, luck.noise, luck.choice)
    end, (seen, action, log_p) = jax.lax.scan(one, start, steps)
    before, after = known(*start), known(*end)
    best = jnp.argmax(consider(after, *end, model.target, later).mean.ravel())
    told = _entropy(before.log_weight) - _entropy(after.log_weight)
    reached = model.effects.ravel()[best]
    return Trajectory(seen, action, log_p, told, reached, jnp.max(model.effects) - reached)


def _entropy(log_p: Array) -> Array:
    return -jnp.sum(jnp.exp(log_p) * log_p)
