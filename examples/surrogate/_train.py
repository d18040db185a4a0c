"""Train: each step has its own random numbers, so that a run that broke off goes on to the same
weights.
"""

import dataclasses
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jitney

from . import _checkpoint
from ._data import Batch
from ._expert import batch
from ._step import Recipe, start, step_of
from .model import Surrogate

AHEAD = 2  # batches that are made while a step runs
HELD_OUT = 2**32 - 1  # the seed of a test is one that no training has


@dataclass(frozen=True)
class Run:
    """What a training run is made of.

    Args:
        recipe: The step.
        hidden: Width of the network.
        depth: How many blocks it has.
        examples: In a batch.
        samples: In an example.
        variables: The least and the largest number; a batch has one of them, small ones more often.
        seed: Of weights and data.
        precision: As in `jitney.optimize`.
        remat: As in `jitney.optimize`.
    """

    recipe: Recipe = field(default_factory=Recipe)
    hidden: int = 32
    depth: int = 2
    examples: int = 32
    samples: int = 32
    variables: tuple[int, int] = (3, 8)
    seed: int = 0
    precision: str | None = None
    remat: str | None = None

    def model(self) -> Surrogate:
        """The network before training."""
        return Surrogate(self.hidden, self.depth, key=jax.random.key(self.seed))

    def batch(self, step: int) -> Batch:
        """The data of one step."""
        rng = np.random.default_rng([self.seed, step])
        choices = np.arange(self.variables[0], self.variables[1] + 1)
        chance = 1 / choices
        return batch(
            rng, self.examples, int(rng.choice(choices, p=chance / chance.sum())), self.samples
        )


@dataclass
class Trained:
    """Weights, what each step said, and the program that made them."""

    model: Surrogate
    history: np.ndarray  # [step, (loss, gradient norm)]
    step: Any


@functools.cache
def program(
    recipe: Recipe,
    precision: str | None = None,
    remat: str | None = None,
    fsdp: bool = False,
) -> Any:
    """The step, made once for each recipe."""
    return step_of(recipe, precision, remat, fsdp=fsdp)


def train(
    run: Run,
    path: Path | None = None,
    every: int = 100,
    progress: Callable[[int, float], None] = lambda done, loss: None,
    fsdp: bool = False,
) -> Trained:
    """Train, or go on with a run whose checkpoint is there. Within `with jitney.mesh(data=-1):`
    devices share each batch, which their number divides. They are no part of a run: it may go on on
    other ones.

    Args:
        run: What.
        path: The checkpoint; None for none.
        every: Steps between checkpoints, and between two looks at the metrics, which are on their
            way meanwhile.
        progress: Is told how many steps are done and their last mean loss.
        fsdp: Whether devices share weights and moments too.

    Raises:
        ValueError: The checkpoint is damaged or of another run.
    """
    step = program(run.recipe, run.precision, run.remat, fsdp)
    model = run.model()
    virtual = jax.device_count() > 1 and jax.default_backend() == "cpu"
    key = dataclasses.asdict(run)
    done, history, state = 0, [], (model, start(run.recipe, model))
    found = _checkpoint.load(path, key, state) if path else None
    if found:
        done, history, state = found
        progress(done, history[-1][0])
    with ThreadPoolExecutor(1) as maker:
        coming = [
            maker.submit(run.batch, done + i) for i in range(min(AHEAD, run.recipe.steps - done))
        ]
        waiting: list[jitney.types.Fetch[dict[str, Any]]] = []
        for at in range(done, run.recipe.steps):
            data = coming.pop(0).result()
            if at + AHEAD < run.recipe.steps:
                coming.append(maker.submit(run.batch, at + AHEAD))
            *state, metrics = step(*state, *data.arrays)
            if virtual:
                # virtual devices come to a standstill where steps overlap
                jax.block_until_ready(state)
            waiting.append(jitney.host(metrics))
            if (at + 1) % every == 0 or at + 1 == run.recipe.steps:
                history += [
                    [each["loss"], each["norm"]] for each in (fetch.result() for fetch in waiting)
                ]
                waiting = []
                if path:
                    _checkpoint.save(path, key, at + 1, history, tuple(state))
                progress(at + 1, float(np.mean([loss for loss, _ in history[-every:]])))
    return Trained(state[0], np.array(history), step)
