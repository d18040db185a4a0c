"""What a function under `jax.jit` was told besides the function: nothing public says so.

`__getstate__`, by which JAX pickles it, has all of it: names and numbers of static arguments, and
what JAX's own key holds. Tried on jax 0.10.0, 0.10.2 and 0.12.0.1; delete this when
`jax.stages.Wrapped` tells.
"""

from __future__ import annotations

from typing import Any

import jax

from .trees import is_a, type_of

_jax: Any = jax
JITTED: Any = type_of(_jax.jit(len))


def told(jitted: Any) -> tuple[Any, str] | None:
    """The function inside, and what `jax.jit` was told, as text; None where this JAX does not say
    it so.
    """
    asked = getattr(jitted, "__getstate__", None)
    state: Any = asked() if callable(asked) else None
    if (
        not is_a(state, dict)
        or not {"fun", "static_argnums", "static_argnames", "global_cache_key"} <= state.keys()
    ):
        return None
    return state["fun"], repr(
        (state["static_argnums"], state["static_argnames"], state["global_cache_key"])
    )
