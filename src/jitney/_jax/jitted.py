"""The function and the options inside of a `jax.jit` wrapper, which nothing public shows.

`__getstate__`, by which JAX pickles the wrapper, has them all: static argument names and numbers,
and what is in JAX's own cache key. Tried on jax 0.10.0, 0.10.2 and 0.12.0.1; delete this when
`jax.stages.Wrapped` shows them.
"""

from __future__ import annotations

from typing import Any

import jax

JITTED: Any = type(jax.jit(len))


def jit_options(jitted: object) -> tuple[Any, str] | None:
    """Return the wrapped function, and the options of `jax.jit` as text; None if this JAX has
    another form of state.
    """
    asked = getattr(jitted, "__getstate__", None)
    state = asked() if callable(asked) else None
    if (
        not isinstance(state, dict)
        or not {"fun", "static_argnums", "static_argnames", "global_cache_key"} <= state.keys()
    ):
        return None
    return state["fun"], repr(
        (state["static_argnums"], state["static_argnames"], state["global_cache_key"])
    )
