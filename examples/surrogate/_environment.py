"""Structural causal models that answer interventions, one for each task, and their truth.

Graphs and mechanisms are those of `_data`, with two more that no training sees: small neural
networks, and noise that is not Gaussian. Each variable is brought to mean 0 and variance 1 once,
when the model is drawn, so that an answer today and one tomorrow are of the same mechanism.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from ._data import OMEGA, SPREAD, _parents

GRID = np.linspace(-2.0, 2.0, 7).astype(np.float32)  # the values that may be set from outside
SCALED_BY = 512  # observations, to bring a variable to mean 0 and variance 1
UNITS = 6  # of a neural mechanism
Mechanism = Literal["mixed", "linear", "nonlinear", "neural"]
Noise = Literal["gaussian", "laplace", "student"]


@dataclass(frozen=True)
class Environment:
    """Models along an axis of tasks; variables have the names that a learner sees.

    Args:
        parents: [child, parent].
        order: Variables, each after its parents.
        weight: Of a parent, or of its sine.
        cosine: Of the cosine of a parent.
        network: Two layers of a neural mechanism.
        kind: 0 for linear, 1 for waves, 2 for neural.
        shift: What brings a variable to mean 0.
        scale: What brings it to variance 1.
        target: What is to be made large.
        noise: Its distribution.
    """

    parents: Bool[np.ndarray, "task vars vars"]
    order: Int[np.ndarray, "task vars"]
    weight: Float[np.ndarray, "task vars vars"]
    cosine: Float[np.ndarray, "task vars vars"]
    network: tuple[Float[np.ndarray, "task vars vars units"], Float[np.ndarray, "task vars units"]]
    kind: Int[np.ndarray, "task vars"]
    shift: Float[np.ndarray, "task vars"]
    scale: Float[np.ndarray, "task vars"]
    target: Int[np.ndarray, "task"]
    noise: Noise

    @property
    def tasks(self) -> int:
        """How many models."""
        return len(self.target)

    @property
    def variables(self) -> int:
        """How many variables each has."""
        return self.parents.shape[1]

    def values(
        self,
        noise: Float[np.ndarray, "task samples vars"],
        intervened: Bool[np.ndarray, "task samples vars"],
        outside: Float[np.ndarray, "task samples vars"],
    ) -> Float[np.ndarray, "task samples vars"]:
        """Samples: along the order, each variable from its parents, or from outside."""
        x = np.zeros(np.broadcast_shapes(noise.shape, outside.shape))
        task = np.arange(self.tasks)
        for child in self.order.T:
            y = self._mechanism(child, x) + noise[task, :, child]
            y = (y - self.shift[task, child, None]) / self.scale[task, child, None]
            x[task, :, child] = np.where(intervened[task, :, child], outside[task, :, child], y)
        return x

    def _mechanism(self, child: np.ndarray, x: np.ndarray) -> np.ndarray:
        """The value of one variable a task from all of its parents, [task, samples]."""
        task = np.arange(self.tasks)
        weight, cosine = self.weight[task, child, :, None], self.cosine[task, child, :, None]
        first, second = (part[task, child] for part in self.network)
        linear, waves, neural = x @ weight, np.sin(OMEGA * x) @ weight, np.tanh(x @ first)
        kind = self.kind[task, child, None]
        curved = waves[..., 0] + (np.cos(OMEGA * x) @ cosine)[..., 0]
        return np.select(
            [kind == 0, kind == 1], [linear[..., 0], curved], (neural @ second[..., None])[..., 0]
        )

    def observed(self, rng: np.random.Generator, samples: int) -> np.ndarray:
        """Samples in which nothing is set."""
        shape = (self.tasks, samples, self.variables)
        return self.values(
            drawn_noise(rng, shape, self.noise), np.zeros(shape, bool), np.zeros(shape)
        )

    def answer(
        self,
        noise: Float[np.ndarray, "task samples vars"],
        variable: Int[np.ndarray, "task"],
        value: Float[np.ndarray, "task"],
    ) -> tuple[np.ndarray, np.ndarray]:
        """Samples in which one variable is set, and the flags that say so."""
        flags = np.zeros(noise.shape, bool)
        flags[np.arange(self.tasks), :, variable] = True
        return self.values(noise, flags, np.where(flags, value[:, None, None], 0.0)), flags

    def effects(self, samples: int = 512, seed: int = 0) -> Float[np.ndarray, "task vars values"]:
        """The mean of the target where a variable is set to a value of the grid, with the same
        noise for all; minus infinity where the variable is the target itself.
        """
        noise = drawn_noise(
            np.random.default_rng(seed), (self.tasks, samples // 2, self.variables), self.noise
        )
        noise, task = np.concatenate([noise, -noise], axis=1), np.arange(self.tasks)
        found = np.empty((self.tasks, self.variables, len(GRID)))
        for variable in range(self.variables):
            for at, value in enumerate(GRID):
                where = np.full(self.tasks, variable), np.full(self.tasks, value)
                answers = self.answer(noise, *where)[0]
                found[:, variable, at] = answers[task, :, self.target].mean(1)
        found[task, self.target] = -np.inf
        return found


def drawn_noise(
    rng: np.random.Generator, shape: tuple[int, ...], noise: Noise = "gaussian"
) -> np.ndarray:
    """Noise of variance 1."""
    if noise == "laplace":
        return rng.laplace(scale=0.5**0.5, size=shape)
    if noise == "student":
        return rng.standard_t(5, size=shape) * 0.6**0.5
    return rng.normal(size=shape)


def environment(
    rng: np.random.Generator,
    tasks: int,
    variables: int,
    mechanism: Mechanism = "mixed",
    noise: Noise = "gaussian",
    caused: bool = True,
) -> Environment:
    """Random models.

    Args:
        rng: Random numbers.
        tasks: How many.
        variables: Of each.
        mechanism: Which kinds; `"mixed"` is linear or waves, as in training.
        noise: Its distribution.
        caused: Whether the target has a parent at least, so that something can be done.
    """
    ordered = _parents(rng, tasks, variables)
    names = np.argsort(rng.random((tasks, variables)), axis=1)  # position in the order -> variable
    task = np.arange(tasks)[:, None, None]
    parents = np.zeros_like(ordered)
    parents[task, names[:, :, None], names[:, None, :]] = ordered
    weight, cosine = np.sqrt(SPREAD) * parents * rng.normal(size=(2, *parents.shape))
    first = rng.normal(size=(*parents.shape, UNITS)) * parents[..., None]
    second = np.sqrt(SPREAD) * rng.normal(size=(tasks, variables, UNITS)) / 1.5
    fixed = {"linear": 0, "nonlinear": 1, "neural": 2}.get(mechanism)
    kind = rng.integers(2, size=(tasks, variables))
    kind = kind if fixed is None else np.full_like(kind, fixed)
    target = _targets(rng, parents if caused else np.ones_like(parents))
    none, one = np.zeros((tasks, variables)), np.ones((tasks, variables))
    parts = parents, names, weight, cosine, (first, second), kind, none, one, target, noise
    raw = Environment(*parts)
    return _standardised(raw, drawn_noise(rng, (tasks, SCALED_BY, variables), noise))


def _targets(rng: np.random.Generator, parents: np.ndarray) -> np.ndarray:
    """A variable that has a parent, where there is one."""
    chance = rng.random(parents.shape[:2]) + parents.any(2)
    return chance.argmax(1)


def _standardised(raw: Environment, noise: np.ndarray) -> Environment:
    """The same models with shifts and scales, one variable after the other."""
    task, x = np.arange(raw.tasks), np.zeros_like(noise)
    for child in raw.order.T:
        y = raw._mechanism(child, x) + noise[task, :, child]
        raw.shift[task, child], raw.scale[task, child] = y.mean(1), y.std(1)
        x[task, :, child] = (y - y.mean(1, keepdims=True)) / y.std(1, keepdims=True)
    return raw
