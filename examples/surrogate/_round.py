"""One round of the loop as one program: data and a belief in, the worth of each intervention out.

A function for one task, with the names of its axes. `vmap` maps it over tasks, `pad` lets numbers
of variables, of parent sets, of samples and of tasks share programs.
"""

from typing import Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

import jitney

from ._acquisition import improvement, information
from ._environment import GRID
from ._step import PAD
from ._worlds import (
    Draws,
    Graphs,
    drawn,
    log_likelihood,
    mechanisms,
    simulated,
)

SAMPLES = [32, 64, 128]
ROUND_PAD = {**PAD, "samples": SAMPLES}


class Worth(eqx.Module):
    """What a round finds, for each variable and each value of the grid; where the variable is the
    target there is minus infinity.
    """

    mean: Float[Array, "vars values"]  # of the target, over the worlds
    information: Float[Array, "vars values"]
    improvement: Float[Array, "vars values"]
    sure: Float[Array, ""]  # how many worlds the weights are worth, over how many there are

    def of(self, kind: str) -> Float[Array, "vars values"]:
        """The worth by one acquisition; their sum has nats and standard deviations as equals."""
        if kind == "both":
            return self.information + self.improvement
        return getattr(self, kind)


class Believer(Protocol):
    """A network that gives each variable a distribution over its parent sets."""

    def beliefs(
        self,
        values: Float[Array, "samples vars"],
        intervened: Bool[Array, "samples vars"],
        index: Int[Array, "vars sets parents"],
        mask: Bool[Array, "vars sets parents"],
    ) -> Float[Array, "vars sets"]:
        """Log probabilities."""
        ...


def belief(
    model: Believer,
    values: Float[Array, "samples vars"],
    intervened: Bool[Array, "samples vars"],
    index: Int[Array, "vars sets parents"],
    mask: Bool[Array, "vars sets parents"],
) -> Float[Array, "vars sets"]:
    """What the network makes of the data: a distribution over parent sets for each variable."""
    return model.beliefs(values, intervened, index, mask)


def consider(
    graphs: Graphs,
    values: Float[Array, "samples vars"],
    intervened: Bool[Array, "samples vars"],
    target: Int[Array, ""],
    draws: Draws,
    weighed: bool = False,
) -> Worth:
    """The worth of each intervention, in the worlds with these graphs.

    Args:
        graphs: With their weights.
        values: The data.
        intervened: Where a variable was set from outside.
        target: What is to be made large.
        draws: Random numbers.
        weighed: Whether a graph counts by the evidence of its mechanisms too.
    """
    worlds = mechanisms(graphs, values, intervened, draws)
    more = worlds.evidence if weighed else 0.0
    chance = jax.nn.softmax(graphs.log_weight + more)
    grid = jnp.asarray(GRID)
    answers = simulated(worlds, grid, draws.noise)
    means = jnp.mean(jnp.take(answers, target, axis=-1), axis=-1)
    allowed = (jnp.arange(values.shape[1]) != target)[:, None]
    mean = jnp.where(allowed, jnp.tensordot(chance, means, axes=1), -jnp.inf)
    told = information(log_likelihood(worlds, answers[:, :, :, 0]), chance)
    better = improvement(means, chance, jnp.max(mean))
    told, better = (jnp.where(allowed, each, -jnp.inf) for each in (told, better))
    return Worth(mean, told, better, 1 / jnp.sum(chance**2) / chance.shape[0])


def imagine(
    model: Believer,
    values: Float[Array, "samples vars"],
    intervened: Bool[Array, "samples vars"],
    index: Int[Array, "vars sets parents"],
    mask: Bool[Array, "vars sets parents"],
    target: Int[Array, ""],
    draws: Draws,
    weighed: bool = False,
) -> Worth:
    """The same from the network's belief: all of a round.

    With `weighed` graphs are drawn from the belief and count by prior and evidence: importance
    sampling of the exact posterior, with the network as the proposal.
    """
    log_q = belief(model, values, intervened, index, mask)
    return suppose(log_q, values, intervened, index, mask, target, draws, weighed)


def suppose(
    log_q: Float[Array, "vars sets"],
    values: Float[Array, "samples vars"],
    intervened: Bool[Array, "samples vars"],
    index: Int[Array, "vars sets parents"],
    mask: Bool[Array, "vars sets parents"],
    target: Int[Array, ""],
    draws: Draws,
    weighed: bool = False,
) -> Worth:
    """The same from a belief that is given."""
    graphs = drawn(log_q, index, mask, draws, weighed)
    return consider(graphs, values, intervened, target, draws, weighed)


# Tasks run in parts of up to 32 (`_loop.by_parts`): memory does not grow with their number.
PART = 32
DATA = {"values": 0, "intervened": 0}
LOOP_PAD = {**ROUND_PAD, "task": [8, PART]}
GRAPH_PAD = {name: LOOP_PAD[name] for name in ("vars", "samples", "task")}
believed = jitney.optimize(vmap={"task": DATA}, pad=LOOP_PAD)(belief)
considered = jitney.optimize(
    vmap={"task": {**DATA, "graphs": 0, "target": 0, "draws": 0}}, pad=GRAPH_PAD
)(consider)
imagined = jitney.optimize(vmap={"task": {**DATA, "target": 0, "draws": 0}}, pad=LOOP_PAD)(imagine)
supposed = jitney.optimize(
    vmap={"task": {**DATA, "log_q": 0, "target": 0, "draws": 0}}, pad=LOOP_PAD
)(suppose)
