"""JAX's sparse arrays, imported on demand: with SciPy's, the import takes half as long as `import
jax`.
"""

from __future__ import annotations

import sys
from typing import Any

from .._host.own_time import OWN_TIME


def bcoo() -> Any:
    """The class `jax.experimental.sparse.BCOO`."""
    with OWN_TIME.running():
        from jax.experimental import sparse

    module = sparse
    return module.BCOO


def is_bcoo(value: object) -> bool:
    """Return whether a value is a BCOO array. Before the module is imported no value can be one."""
    return "jax.experimental.sparse" in sys.modules and isinstance(value, bcoo())
