"""The loop: causal Bayesian optimisation of many models at once.

    for each round:
        worth = learner(data)                     # what each intervention should tell and bring
        chosen = the largest worth
        data = data and the environment's answer

A learner is a function from a campaign and random numbers to the worth of each intervention. They
differ in their belief about graphs alone: the network's, the exact posterior's, the truth.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import jax
import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import logsumexp

from . import _enumerated
from ._acquisition import KINDS
from ._data import positions_of, tables
from ._environment import GRID, Environment, drawn_noise
from ._expert import scores
from ._round import PART, Believer, Worth, considered, imagined, supposed
from ._worlds import Draws, Graphs


@dataclass(frozen=True)
class Plan:
    """What a campaign is made of.

    Args:
        rounds: How many interventions.
        observed: Samples before the first one.
        answers: Samples of each intervention.
        worlds: How many causal models stand for a belief.
        repeats: Simulations of each, an even number.
        kind: The acquisition, of `_acquisition.KINDS`, or `"random"`.
        seed: Of all random numbers.
    """

    rounds: int = 10
    observed: int = 16
    answers: int = 2
    worlds: int = 32
    repeats: int = 8
    kind: str = "both"
    seed: int = 0

    def __post_init__(self):
        if self.kind not in (*KINDS, "random"):
            kinds = ", ".join((*KINDS, "random"))
            raise ValueError(f"no acquisition is called {self.kind!r}: give one of {kinds}")
        if self.repeats < 2 or self.repeats % 2:
            raise ValueError(f"{self.repeats} repeats have no pairs: give an even number from 2")
        if self.rounds < 0 or min(self.observed, self.answers, self.worlds) < 1:
            raise ValueError("give 1 or more samples, answers and worlds, and 0 or more rounds")

    def draws(self, at: int, tasks: int, variables: int) -> Draws:
        """The random numbers of a round, the same for all learners."""
        rng = np.random.default_rng([self.seed, 0, at])
        found = Draws.of(rng, tasks * self.worlds, variables, self.repeats)
        split = lambda part: part.reshape(tasks, self.worlds, *part.shape[1:])  # noqa: E731
        return Draws(*(split(part) for part in vars(found).values()))

    def noise(self, at: int, environment: Environment) -> np.ndarray:
        """The noise of the answers of a round, the same for all learners."""
        shape = (environment.tasks, self.answers, environment.variables)
        return drawn_noise(np.random.default_rng([self.seed, 1, at]), shape, environment.noise)

    def guesses(self, at: int, target: np.ndarray, variables: int) -> tuple[np.ndarray, np.ndarray]:
        """Random interventions, not of the target."""
        rng = np.random.default_rng([self.seed, 2, at])
        which = (target + rng.integers(1, variables, size=len(target))) % variables
        return which, rng.integers(len(GRID), size=len(target))


@dataclass(frozen=True)
class Campaign:
    """All that is known of some models after some rounds.

    Args:
        values: Observations, then answers.
        intervened: Which variable was set in each sample.
        target: What is to be made large.
        chosen: The interventions of the rounds: a variable, and the position of its value.
        best: What a learner takes to be the best intervention after each round, and before the
            first.
    """

    values: Float[np.ndarray, "task samples vars"]
    intervened: Bool[np.ndarray, "task samples vars"]
    target: Int[np.ndarray, "task"]
    chosen: Int[np.ndarray, "round task 2"]
    best: Int[np.ndarray, "round task 2"]

    @property
    def rounds(self) -> int:
        """How many are done."""
        return len(self.chosen)

    @classmethod
    def begin(cls, environment: Environment, plan: Plan) -> "Campaign":
        """Observations alone."""
        values = environment.observed(np.random.default_rng([plan.seed, 3]), plan.observed)
        nothing = np.zeros((0, environment.tasks, 2), int)
        flags = np.zeros(values.shape, bool)
        return cls(values.astype(np.float32), flags, environment.target, nothing, nothing)

    def extended(
        self, chosen: np.ndarray, best: np.ndarray, values: np.ndarray, flags: np.ndarray
    ) -> "Campaign":
        """With the answer to one more intervention."""
        return replace(
            self,
            values=np.concatenate([self.values, values.astype(np.float32)], axis=1),
            intervened=np.concatenate([self.intervened, flags], axis=1),
            chosen=np.concatenate([self.chosen, chosen[None]]),
            best=np.concatenate([self.best, best[None]]),
        )


Result = TypeVar("Result")
Learner = Callable[[Campaign, Draws], Worth]


def by_network(model: Believer, weighed: bool = False) -> Learner:
    """The belief of the network; `weighed` by prior and evidence, as `imagine` has it."""

    def worth(campaign: Campaign, draws: Draws) -> Worth:
        sets = tables(campaign.values.shape[2])
        given = campaign.values, campaign.intervened, campaign.target, draws
        return by_parts(lambda *g: imagined(model, *g[:2], *sets, *g[2:], weighed), *given)

    return worth


def by_enumeration(campaign: Campaign, draws: Draws) -> Worth:
    """The exact posterior, for up to five variables: graphs are drawn from all that there are."""
    chance = _enumerated.posterior(campaign.values, campaign.intervened)
    sets, orders, _ = _enumerated.graphs(campaign.values.shape[2])
    upto = np.cumsum(chance, axis=1)
    # the numbers that choose a parent set for the network choose a graph here
    uniform = np.asarray(draws.chosen)[:, :, 0]
    at = np.array([np.searchsorted(c / c[-1], u) for c, u in zip(upto, uniform, strict=True)])
    return _in(campaign, orders[at], sets[at], draws)


def by_evidence(campaign: Campaign, draws: Draws) -> Worth:
    """Each parent set by its prior and its evidence alone, and graphs without circles drawn from
    the product: the posterior over graphs by importance sampling, for any number of variables,
    without a network. Each size of a parent set has the same prior, as where graphs are `weighed`.
    """
    local = scores(campaign.values.astype(float), campaign.intervened)
    return by_belief(campaign, local + np.log(chances(campaign.values.shape[2])), draws)


def by_marginals(campaign: Campaign, draws: Draws) -> Worth:
    """What a network would have to say that has learned all there is to learn: the exact posterior
    over the parent sets of each variable, for up to five variables. Graphs are drawn from the
    product of these, in which variables no longer know of each other.
    """
    chance = _enumerated.posterior(campaign.values, campaign.intervened)
    exact = _enumerated.marginals(chance, campaign.values.shape[2])
    return by_belief(campaign, np.log(np.maximum(exact, 1e-12)), draws)


def chances(variables: int) -> Float[np.ndarray, "vars sets"]:
    """A prior with the same chance for each size of a parent set, and then for each set."""
    size = tables(variables)[1].sum(2)
    many = (size[:, :, None] == size[:, None]).sum(2)
    return 1 / many / (size.max() + 1)


def by_belief(campaign: Campaign, log_q: np.ndarray, draws: Draws, weighed: bool = False) -> Worth:
    """The worth of interventions by the logarithm of a belief, up to a constant for each
    variable; `weighed` by prior and evidence, as `imagine` has it.
    """
    sets = tables(campaign.values.shape[2])
    log_q = (log_q - logsumexp(log_q, axis=2, keepdims=True)).astype(np.float32)
    given = campaign.values, campaign.intervened, campaign.target, draws
    return by_parts(lambda q, *g: supposed(q, *g[:2], *sets, *g[2:], weighed), log_q, *given)


def by_truth(environment: Environment) -> Learner:
    """The true graph, which an oracle knows; mechanisms are learned as by all."""
    positions = positions_of(environment.parents)

    def worth(campaign: Campaign, draws: Draws) -> Worth:
        worlds = draws.kind.shape[1]
        repeated = [np.repeat(part[:, None], worlds, 1) for part in (environment.order, positions)]
        return _in(campaign, *repeated, draws)

    return worth


def _in(campaign: Campaign, order: np.ndarray, sets: np.ndarray, draws: Draws) -> Worth:
    """The worth of interventions in graphs that count the same."""
    index, mask = _enumerated.as_steps(order, sets)
    even = np.zeros(order.shape[:2], np.float32)
    graphs = Graphs(order.astype(np.int32), index, mask, even)
    given = campaign.values, campaign.intervened, campaign.target, draws
    return by_parts(considered, graphs, *given)


def by_parts(program: Callable[..., Result], *given: Any) -> Result:
    """Call a program with so many tasks at a time, and put the results together.

    Args:
        program: What is called.
        given: Arrays and trees of arrays, along an axis of tasks.
    """
    tasks = len(jax.tree.leaves(given)[0])
    cuts = [slice(at, at + PART) for at in range(0, tasks, PART)]
    # one after the other, so that memory is that of one part
    parts = [
        jax.tree.map(np.asarray, program(*jax.tree.map(lambda x: x[cut], given)))  # noqa: B023
        for cut in cuts
    ]
    return jax.tree.map(lambda *each: np.concatenate(each), *parts)


def largest(worth: Float[np.ndarray, "task vars values"]) -> Int[np.ndarray, "task 2"]:
    """The variable and the position of the value."""
    flat = np.asarray(worth).reshape(len(worth), -1).argmax(1)
    return np.stack(np.unravel_index(flat, worth.shape[1:]), axis=1)


def run(
    environment: Environment,
    learner: Learner,
    plan: Plan,
    campaign: Campaign | None = None,
    after: Callable[[Campaign, Worth], None] = lambda campaign, worth: None,
) -> Campaign:
    """The loop, from the beginning or from where a campaign stands.

    Args:
        environment: What answers.
        learner: What says the worth of interventions.
        plan: How many rounds, and of what.
        campaign: Where to go on.
        after: Is called after each round.
    """
    campaign = campaign or Campaign.begin(environment, plan)
    size = environment.tasks, environment.variables
    for at in range(campaign.rounds, plan.rounds):
        worth = learner(campaign, plan.draws(at, *size))
        chosen = (
            np.stack(plan.guesses(at, campaign.target, size[1]), axis=1)
            if plan.kind == "random"
            else largest(worth.of(plan.kind))
        )
        values, flags = environment.answer(
            plan.noise(at, environment), chosen[:, 0], GRID[chosen[:, 1]]
        )
        campaign = campaign.extended(chosen, largest(worth.mean), values, flags)
        after(campaign, worth)
    return campaign


def last(campaign: Campaign, learner: Learner, plan: Plan) -> np.ndarray:
    """What a learner takes to be best after all answers."""
    tasks, _, variables = campaign.values.shape
    return largest(learner(campaign, plan.draws(plan.rounds, tasks, variables)).mean)


def regret(
    effects: Float[np.ndarray, "task vars values"], best: Int[np.ndarray, "*any task 2"]
) -> Float[np.ndarray, "*any task"]:
    """How far the mean of the target is below what the best intervention would give.

    Args:
        effects: The mean of the target under each intervention, `Environment.effects`.
        best: What is taken to be the best one.
    """
    task = np.arange(len(effects))
    return effects.max((1, 2)) - effects[task, best[..., 0], best[..., 1]]
