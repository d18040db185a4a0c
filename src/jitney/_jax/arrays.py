"""Arrays of NumPy as bytes, and JAX's sparse arrays.

The sparse ones are imported on demand: with SciPy's, that takes half as long as `import jax`.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from .._host.own_time import OWN_TIME
from .typed import NumPyArray


def bytes_of(array: object) -> NumPyArray:
    """Return the bytes of an array in a row: a view, unless its elements lie apart."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def bcoo() -> Any:
    """The class `jax.experimental.sparse.BCOO`."""
    with OWN_TIME.running():
        from jax.experimental import sparse

    module = sparse
    return module.BCOO


def is_bcoo(value: object) -> bool:
    """Return whether a value is a BCOO array. Before the module is imported no value can be one."""
    return "jax.experimental.sparse" in sys.modules and isinstance(value, bcoo())
