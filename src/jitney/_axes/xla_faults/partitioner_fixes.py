"""Interpreter that works round two faults of XLA's partitioner, so that a program whose arrays are
sharded gives the numbers of one device.

The faults (tried with jax 0.10.2 and 0.12.0.1), and the rewrites:
- A maximum or minimum of numbers with a NaN has to be NaN. The collectives that XLA adds to a
  sharded reduction may drop it (on CPUs they do). So the NaN is reduced besides, as a flag, as in
  `chunks/over_devices.py`.
- XLA computes the start of a device's shard in the dtype of the positions, so that narrow ones
  wrap; in gathers and scatters it ends the process ("Unsupported indices type"). So narrow
  positions are converted to int32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from ..._jax.programs.evaluation import interpret
from ..._jax.programs.jaxprs import (
    abstract,
    equations,
    inside,
    open_jaxpr,
    rebind,
)
from ..._jax.programs.primitives import HOLDERS
from ..._jax.typed import JaxprEqn
from ..monoids import MONOIDS, SCATTERS
from ..typed_jax import dtypes, lax, make_jaxpr
from .lost_nans import EXTREMES, bind_extreme, has_nan, is_extreme, meets_nan, with_nans

_OVER_MAPPED = [monoid.collective for monoid in EXTREMES]
_SCATTERS = [name for name, monoid in SCATTERS.items() if MONOIDS[monoid] in EXTREMES]
POSITIONED: dict[str, tuple[int, int | None]] = {
    "gather": (1, 2),
    **dict.fromkeys(("scatter", "scatter_sub", "scatter-sub", *SCATTERS), (1, 2)),
    "dynamic_slice": (1, None),
    "dynamic_update_slice": (2, None),
}
"""Primitive -> the range of its operands that are positions (from, to)."""


def partition_safe(fn: Callable[..., object]) -> Callable[..., list[jax.Array]]:
    """Wrap a function of flat arrays so that it gives the same numbers on sharded arrays as on one
    device.
    """

    def over_devices(*arrays: jax.Array) -> list[jax.Array]:
        return interpret(make_jaxpr(fn)(*arrays), arrays, bind_partition_safe)

    return over_devices


def bind_partition_safe(eqn: JaxprEqn, values: Sequence[jax.Array]) -> list[jax.Array]:
    """Evaluate one equation, with the rewrites where it needs them."""
    if eqn.primitive.name in POSITIONED:
        values = list(values)
        positions = slice(*POSITIONED[eqn.primitive.name])
        values[positions] = map(_counting, values[positions])
    if is_extreme(eqn):
        return bind_extreme(eqn, values)
    if _may_lose(eqn):
        (out,) = rebind(eqn, values)
        return [with_nans(out, _depends_on_nan(eqn, values))]

    # Sub-jaxprs are rebuilt only if an equation in them needs a rewrite.
    if eqn.primitive.name in HOLDERS and any(map(_is_changed, inside(eqn))):
        params = {name: _rewritten(value) for name, value in eqn.params.items()}
        return rebind(eqn, values, **params)
    return rebind(eqn, values)


def _counting(positions: jax.Array) -> jax.Array:
    """Convert positions to a dtype of at least 32 bits."""
    if dtypes.iinfo(positions.dtype).bits >= 32:
        return positions
    return lax.convert_element_type(positions, np.int32)


def _is_changed(eqn: JaxprEqn) -> bool:
    """Return whether an equation needs a rewrite."""
    if _may_lose(eqn):
        return True
    first, last = POSITIONED.get(eqn.primitive.name, (0, 0))
    positions = [atom.aval.dtype for atom in eqn.invars[first:last]]
    return any(dtypes.iinfo(dtype).bits < 32 for dtype in positions)


def _may_lose(eqn: JaxprEqn) -> bool:
    """Return whether an equation is a maximum or minimum of a dtype that has NaN."""
    # An extreme over mapped elements (`lax.pmax` under `vmap`) has positions as its axes.
    name = eqn.primitive.name
    is_over_mapped = name in _OVER_MAPPED and all(isinstance(k, int) for k in eqn.params["axes"])
    if is_extreme(eqn):
        return True
    return (is_over_mapped or name in _SCATTERS) and has_nan(eqn.outvars[0].aval.dtype)


def _depends_on_nan(eqn: JaxprEqn, values: Sequence[jax.Array]) -> jax.Array:
    """Mask of the results that depend on a NaN."""
    x, *rest = values
    if not rest:
        return meets_nan(x, eqn.params["axes"])

    # A scatter: count the NaN updates that reach each element, by a scatter of integers.
    indices, updates = rest
    flags = lax.convert_element_type(lax.ne(updates, updates), np.int32)
    none = lax.full(x.shape, np.int32(0))
    numbers, mode = eqn.params["dimension_numbers"], eqn.params["mode"]
    counts = lax.scatter_add(
        none,
        indices,
        flags,
        numbers,
        mode=mode,
    )
    return lax.bitwise_or(lax.ne(x, x), lax.gt(counts, none))


def _rewritten(value: object) -> Any:
    """A parameter of an equation, with the sub-jaxprs in it rewritten."""
    if isinstance(value, tuple):
        parts = [_rewritten(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if not hasattr(getattr(value, "jaxpr", value), "eqns"):
        return value
    if not any(map(_is_changed, equations(value))):
        return value
    avals = [abstract(atom.aval) for atom in open_jaxpr(value)[0].invars]

    def run(*arguments: jax.Array) -> list[jax.Array]:
        return interpret(value, arguments, bind_partition_safe)

    rewritten = make_jaxpr(run)(*avals)
    return rewritten if hasattr(value, "consts") else open_jaxpr(rewritten)[0]
