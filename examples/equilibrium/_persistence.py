"""How shocks persist, z' = R z + e: each by a number of its own, or all by a matrix.

A vector stands for a diagonal matrix, and is what most models have; what follows from it is cheaper
than from a matrix, so both forms are kept.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax


def full(rho: Any) -> Any:
    """The matrix R."""
    return rho if rho.ndim == 2 else _library(rho).diag(rho)


def later(rho: Any, z: Any) -> Any:
    """R z, of a vector or of rows."""
    return z @ rho.T if rho.ndim == 2 else rho * z


def decay(rho: Any, z: Any, dates: int) -> Any:
    """R^t z at dates, rows."""
    if rho.ndim == 1:
        return z * rho ** _library(rho).arange(dates, dtype=np.float64)[:, None]
    if isinstance(rho, np.ndarray) and isinstance(z, np.ndarray):
        rows = [z]
        for _ in range(dates - 1):
            rows.append(rho @ rows[-1])
        return np.array(rows)
    return lax.scan(lambda z, _: (rho @ z, z), jnp.asarray(z), None, dates)[1]


def largest(rho: Any) -> Any:
    """The size of the largest root of R; without derivatives."""
    library = _library(rho)
    roots = rho
    if rho.ndim == 2:
        roots = library.linalg.eigvals(rho if library is np else lax.stop_gradient(rho))
    return library.max(library.abs(roots), initial=0.0)


def _library(rho: Any) -> Any:
    return np if isinstance(rho, np.ndarray) else jnp
