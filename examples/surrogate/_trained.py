"""The network of the loop: trained on what a campaign sees, and kept beside this file.

A campaign has some observations, and answers that crowd on the interventions that were chosen. So
each model here has its own number of answers, and its own preferences for what is set. All
variables of a model are targets in turn: one exact posterior serves them all.

`python -m examples.surrogate.learn` trains it again.
"""

from dataclasses import dataclass, field
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ._data import EXACT, Batch, arrays_of
from ._environment import Environment, drawn_noise, environment
from ._expert import posterior, scores
from ._step import Recipe
from ._train import Run
from .model import Surrogate

WEIGHTS = Path(__file__).parent / "data" / "loop.npz"
OBSERVED = 16


@dataclass(frozen=True)
class LoopRun(Run):
    """A training run on data of campaigns. `samples` is the largest number of samples."""

    recipe: Recipe = field(default_factory=lambda: Recipe(steps=1500))
    hidden: int = 16
    depth: int = 1
    samples: int = 36
    variables: tuple[int, int] = (3, 8)

    @property
    def buckets(self) -> tuple[int, ...]:
        """One for all numbers of samples."""
        return (self.samples,)

    def batch(self, step: int) -> Batch:
        """The data of one step."""
        rng = np.random.default_rng([self.seed, step])
        choices = np.arange(self.variables[0], self.variables[1] + 1)
        variables = int(rng.choice(choices, p=(1 / choices) / (1 / choices).sum()))
        return of_campaigns(rng, self.examples, variables, self.samples)


def of_campaigns(rng: np.random.Generator, examples: int, variables: int, samples: int) -> Batch:
    """Examples, of as few models as have so many variables."""
    models = environment(rng, -(-examples // variables), variables)
    values, flags = seen(rng, models, int(rng.integers(samples - OBSERVED + 1)))
    sets = expert_of(models, values, flags)
    return asked(models, values, flags, sets, examples)


def seen(
    rng: np.random.Generator, models: Environment, answers: int
) -> tuple[np.ndarray, np.ndarray]:
    """Observations, and answers to interventions with a preference for some variables."""
    shape = (models.tasks, OBSERVED + answers, models.variables)
    flags = np.zeros(shape, bool)
    liking = rng.dirichlet(np.full(models.variables, 0.7), size=models.tasks)
    upto = np.cumsum(liking, axis=1)
    chosen = (rng.random((models.tasks, answers, 1)) > upto[:, None, :-1]).sum(2)
    np.put_along_axis(flags[:, OBSERVED:], chosen[:, :, None], values=True, axis=2)
    outside = np.where(flags, rng.uniform(-2, 2, shape), 0.0)
    values = models.values(drawn_noise(rng, shape, models.noise), flags, outside)
    return values.astype(np.float32), flags


def expert_of(models: Environment, values: np.ndarray, flags: np.ndarray) -> np.ndarray:
    """What to imitate, of all variables: the exact posterior, or above six variables the truth."""
    if models.variables <= EXACT:
        return posterior(scores(values.astype(float), flags)).astype(np.float32)
    return np.eye(len(arrays_of(models.variables, 0)[0]), dtype=np.float32)[truths(models)]


def truths(models: Environment) -> np.ndarray:
    """The position of the true parent set of each variable, [task, vars]."""
    found = np.empty((models.tasks, models.variables), int)
    for variable in range(models.variables):
        index, mask = arrays_of(models.variables, variable)
        sets = np.zeros((len(index), models.variables), bool)
        rows, places = np.nonzero(mask)
        sets[rows, index[rows, places]] = True
        found[:, variable] = (sets == models.parents[:, None, variable]).all(2).argmax(1)
    return found


def asked(
    models: Environment, values: np.ndarray, flags: np.ndarray, sets: np.ndarray, examples: int
) -> Batch:
    """An example for each variable of each model."""
    tasks, variables = models.tasks, models.variables
    task, target = (part.ravel()[:examples] for part in np.indices((tasks, variables)))
    asks = np.broadcast_to(
        (np.arange(variables) == target[:, None])[:, None], (examples, *values.shape[1:])
    )
    x = np.stack([values[task], flags[task], asks], axis=-1).astype(np.float32)
    index, mask = (
        np.stack(parts)[target]
        for parts in zip(*(arrays_of(variables, v) for v in range(variables)), strict=True)
    )
    return Batch(x, index, mask, sets[task, target], truths(models)[task, target], target)


def save(model: Surrogate, path: Path = WEIGHTS) -> None:
    """Write the weights."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(model)]
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, *leaves)


def load(path: Path = WEIGHTS) -> Surrogate:
    """The network with the weights of the file."""
    with np.load(path) as file:
        leaves = [jnp.asarray(file[name]) for name in file.files]
    like = eqx.filter_eval_shape(LoopRun().model)
    return jax.tree.unflatten(jax.tree.structure(like), leaves)
