"""What a call stands in, where its arguments are traced: asked of JAX by public operations, since
the types of its tracers are private.

Tried on jax 0.10.0 to 0.12.0.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from .trees import Tracer, is_a, issubdtype

_jax: Any = jax
_MOST = 2  # what is differentiated more often is treated as if it were twice


def is_staged() -> bool:
    """Whether an operation here becomes a part of a program, as inside `jit`, `scan` or
    `eval_shape`; not so of a derivative or a map.
    """
    return is_a(_jax.lax.neg(np.float32(0)), Tracer)


def times_differentiated(values: Sequence[Any]) -> int:
    """How many derivatives with respect to any of these are being taken, up to two: `jax.grad` is
    one, `jax.hessian` two.
    """
    outer: list[Any] = []

    def rule(primals: Any, tangents: Any) -> Any:
        # what they are to the trace around the innermost one that differentiates
        outer[:] = primals
        return list(primals), list(tangents)

    same: Any = _jax.custom_jvp(_same)
    same.defjvp(rule)
    count, at = 0, _varying(values)
    while at and count < _MOST:
        outer.clear()
        same(*at)
        if not outer:
            break
        count, at = count + 1, _varying(outer)
    return count


def _same(*values: Any) -> list[Any]:
    return list(values)


def _varying(values: Sequence[Any]) -> list[Any]:
    return [x for x in values if is_a(x, Tracer) and issubdtype(x.dtype, np.inexact)]
