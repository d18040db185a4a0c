"""State of the trace around a call: staged or not, and how often differentiated.

Both are found with public operations only, since the types of JAX's tracers are private. Tried on
jax 0.10.0 to 0.12.0.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from .trees import Tracer, issubdtype
from .typed import Array

# higher orders are treated like the second
_MOST = 2


def is_staged() -> bool:
    """Return whether operations are staged into a jaxpr here, as inside `jit`, `scan` or
    `eval_shape`, but not under `grad` or `vmap` alone.
    """
    # A concrete operand becomes a tracer only if the current trace stages every operation.
    return isinstance(jax.lax.neg(np.float32(0)), Tracer)


def times_differentiated(values: Sequence[Any]) -> int:
    """Count the derivatives that are being taken with respect to any of the values, up to two: one
    for `jax.grad`, two for `jax.hessian`.
    """
    # Peel off one JVP trace per call, until there is none.
    count, at = 0, _varying(values)
    while at and count < _MOST:
        outer = _primals(at)
        if not outer:
            break
        count, at = count + 1, _varying(outer)
    return count


def _primals(values: Sequence[object]) -> list[Any]:
    """Return the values as the trace around the innermost derivative has them; none if no
    derivative is taken with respect to them.
    """
    outer: list[Any] = []

    def rule(
        primals: Sequence[object],
        tangents: Sequence[object],
    ) -> tuple[list[object], list[object]]:
        # The innermost JVP trace calls this rule.
        outer[:] = primals
        return list(primals), list(tangents)

    same = jax.custom_jvp(_as_list)
    same.defjvp(rule)
    same(*values)
    return outer


def _as_list(*values: object) -> list[Any]:
    return list(values)


def _varying(values: Sequence[object]) -> list[Any]:
    return [x for x in values if isinstance(x, Tracer) and issubdtype(x.dtype, np.inexact)]


class _DerivedFirst(Exception):
    """Stops the probe below at a derivative that is taken inside of all maps."""


def mapped_in_derivative(values: Sequence[Array]) -> Sequence[bool] | None:
    """Return which values `jax.vmap` maps, if the call stands in a map inside of a derivative that
    JAX may transpose, as in `grad(vmap(f))`; None elsewhere, as in `vmap(grad(f))`.
    """
    # Most calls stand in a derivative alone, or in none.
    moving = _varying(values)
    rest = [x for x in values if isinstance(x, Tracer) and not issubdtype(x.dtype, np.inexact)]
    if not moving or not any(isinstance(x, Tracer) for x in [*_primals(moving), *rest]):
        return None

    mapped: list[bool] = []
    moves: list[bool] = []

    def along(
        primals: Sequence[object],
        tangents: Sequence[object],
    ) -> tuple[list[object], list[object]]:
        # The transform that stands next to the call is asked first.
        if not mapped:
            raise _DerivedFirst
        moves.extend(isinstance(x, Tracer) for x in tangents)
        return list(primals), list(tangents)

    same = jax.custom_jvp(_as_list)
    same.defjvp(along)

    def inexact(*given: Array) -> list[Array]:
        return same(*[x for x in given if issubdtype(x.dtype, np.inexact)])

    def over(size: int, batched: Sequence[bool], *given: Array) -> tuple[list[Array], list[bool]]:
        del size
        outer = mapped_in_derivative(given) or batched
        mapped[:] = [a or b for a, b in zip(batched, outer, strict=True)]
        are_inexact = [issubdtype(x.dtype, np.inexact) for x in given]
        pairs = zip(batched, are_inexact, strict=True)
        return inexact(*given), [is_mapped for is_mapped, is_inexact in pairs if is_inexact]

    probe = jax.custom_batching.custom_vmap(inexact)
    probe.def_vmap(over)
    try:
        probe(*values)
    except _DerivedFirst:
        return None
    return mapped if any(moves) else None
