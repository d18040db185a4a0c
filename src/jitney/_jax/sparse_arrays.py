"""JAX's sparse arrays, imported when they are asked for: with SciPy's, that takes as long as half
of `import jax`.
"""

from __future__ import annotations

import sys
from typing import Any

from .._own_time import OWN_TIME
from .trees import is_a


def bcoo() -> Any:
    """The class `jax.experimental.sparse.BCOO`."""
    with OWN_TIME.running():
        from jax.experimental import sparse

    module: Any = sparse
    return module.BCOO


def is_bcoo(value: Any) -> bool:
    """Whether it is one of them; before anyone has imported them nothing is."""
    return "jax.experimental.sparse" in sys.modules and is_a(value, bcoo())
