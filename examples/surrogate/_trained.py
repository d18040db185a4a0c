"""The networks of the loop, kept beside this file, and what a campaign sees.

Two files have weights of the same network: `loop.npz` is trained on up to eight variables, and
`many.npz` goes on from these weights with up to twenty, where it is the better one.

A campaign has some observations, and answers that crowd on the interventions that were chosen: each
model has its own preferences for what is set.

`python -m examples.surrogate.learn` trains the network.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from . import _checkpoint
from ._environment import Environment, drawn_noise
from .reader import Reader

if TYPE_CHECKING:
    from ._learning import Session

WEIGHTS = Path(__file__).parent / "data" / "loop.npz"
MANY = WEIGHTS.with_name("many.npz")
FEW = 8  # variables, at most, on which `WEIGHTS` were trained
OBSERVED = 16
SIZES = ("hidden", "depth", "after")


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


def save(model: Reader, session: Session, path: Path = WEIGHTS) -> None:
    """Write the weights in half precision, and the sizes of the network; the file is replaced as a
    whole.
    """
    leaves = [np.asarray(leaf, np.float16) for leaf in jax.tree.leaves(model)]
    sizes = {name: np.array(getattr(session, name)) for name in SIZES}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, *leaves, **sizes)
    _checkpoint.replace(path, buffer.getvalue())


def best_for(variables: int) -> Path:
    """The weights that are better on held-out models of so many variables."""
    return WEIGHTS if variables <= FEW else MANY


def load(path: Path = WEIGHTS) -> Reader:
    """The network with the weights of the file, in single precision."""
    with np.load(path) as file:
        sizes = {name: int(file[name]) for name in SIZES}
        names = [name for name in file.files if name not in SIZES]
        leaves = [jnp.asarray(file[name], jnp.float32) for name in names]
    like = eqx.filter_eval_shape(lambda: Reader(**sizes, key=jax.random.key(0)))
    return jax.tree.unflatten(jax.tree.structure(like), leaves)
