"""What `examples/trf`, `examples/equilibrium` and `examples/surrogate` compute in one process and
in several: batches that both sides have.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from examples.equilibrium import sweep
from examples.equilibrium.models import brock_mirman
from examples.equilibrium.models.brock_mirman import Params, Shocks, States
from examples.surrogate._expert import batch
from examples.surrogate._step import start, step_of
from examples.surrogate.tests._small import RUN
from examples.trf import curve_fit

ROWS = 8  # two for each of four devices


def decay(t, a, k):
    """The model of the fits."""
    return a * jnp.exp(-k * t)


def fitted(rows: slice) -> dict[str, np.ndarray]:
    """Some fits of a batch: parameters, cost, evaluations, status."""
    rng = np.random.default_rng(0)
    t = np.linspace(0, 3, 30)
    a, k = rng.uniform(0.5, 2, (2, ROWS, 1))
    y = a * np.exp(-k * t) + 0.01 * rng.normal(size=(ROWS, 30))
    found = curve_fit(decay, t, y[rows], np.ones(2))
    return {"x": found.x, "cost": found.cost, "nfev": found.nfev, "status": found.status}


def swept(rows: slice) -> dict[str, np.ndarray]:
    """Some draws of parameters: steady state and path."""
    params = Params(alpha=np.linspace(0.25, 0.4, ROWS)[rows])
    found = sweep(brock_mirman.MODEL, params, States(0.1), Shocks(0.0), dates=60)
    assert found.converged.all()
    assert found.settled.all()
    return {"steady": found.x, "path": found.path_x, "controls": found.path_u}


def trained(assemble: Any) -> dict[str, np.ndarray]:
    """Two steps: the weights, the losses and the norms of the gradients.

    Args:
        assemble: Makes a batch of the arrays of all its examples.
    """
    # `pad` fills on the host, and is refused over several processes
    step, model = step_of(RUN.recipe, pad=None), RUN.model()
    state, told = (model, start(RUN.recipe, model)), {}
    for number in range(2):
        data = batch(np.random.default_rng(number), ROWS, 3, samples=6)
        *state, metrics = step(*state, *assemble(data.arrays))
        told |= {f"{name} {number}": np.asarray(value) for name, value in metrics.items()}
    weights = jax.tree.leaves(state[0])
    return told | {f"weights {i}": np.asarray(leaf) for i, leaf in enumerate(weights)}


def as_text(found: dict[str, np.ndarray]) -> dict[str, list[str]]:
    """Each number to the bit."""
    return {name: [v.hex() for v in np.ravel(a).astype(float)] for name, a in found.items()}


def as_numbers(told: dict[str, list[str]]) -> dict[str, np.ndarray]:
    """The inverse of `as_text`, flat."""
    return {name: np.array([*map(float.fromhex, texts)]) for name, texts in told.items()}
