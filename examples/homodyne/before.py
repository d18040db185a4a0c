"""The fit as most of us would write it first: an array program per angle, all points at once, a
Jacobian from `jax.jacfwd`.

It is what the README's table calls "before". The physics is the same function; what is around it is
not.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ._data import Data
from .model import Setup, residual


def products(data: Data) -> Any:
    """Sum J^T J and J^T r over a Python loop of angles; compiled once for each number of points."""
    with jax.enable_x64(True):
        arrays = [
            jnp.asarray(np.asarray(data.mapped(name)), jnp.float64)
            for name in ("t1", "t2", "measured")
        ]
    t1, t2, measured = arrays
    value = jax.jit(residual)
    slope = jax.jit(jax.jacfwd(residual))

    def summed(vector: np.ndarray) -> np.ndarray:
        with jax.enable_x64(True):
            x, out = jnp.asarray(vector), np.zeros((vector.size + 1, vector.size + 1))
            for i, phi in enumerate(data.phi.astype(np.float32)):
                r = value(x, Setup(), jnp.asarray(phi, jnp.float64), t1, t2, measured[i])
                J = slope(x, Setup(), jnp.asarray(phi, jnp.float64), t1, t2, measured[i])
                rows = jnp.column_stack([J, r])
                out += np.asarray(rows.T @ rows)
        return out

    return summed
