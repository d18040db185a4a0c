"""Maxima and minima that keep a NaN.

XLA for CPUs gives a maximum or minimum of an array of 4,096 and more floats to a library that drops
NaNs (`__ynn_fusion` in the compiled program; jaxlib 0.10.2 and 0.12.0.1; of one axis 0.10.0 keeps
them at 8,192 elements and drops them at 100,000):

    jax.jit(jnp.max)(jnp.full(4096, jnp.nan))      # -inf

At exact size a few elements are a NaN, padded to such an array they are not. So the NaN is reduced
besides, as a flag. The library stays in use: on a million floats the maximum with its flag takes
three to four times as long as without, XLA's own loop ten times and more.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np

from ..._jax.programs.jaxprs import rebind
from ..._jax.typed import DType, JaxprEqn
from ..monoids import MONOIDS, REDUCTIONS, Monoid
from ..typed_jax import dtypes, lax

EXTREMES = (MONOIDS["max"], MONOIDS["min"])
_REDUCTIONS = [name for name, monoid in REDUCTIONS.items() if MONOIDS[monoid] in EXTREMES]


def has_nan(dtype: DType) -> bool:
    """Return whether a dtype of real numbers has a NaN. Floats of 4 bits have none."""
    return dtypes.issubdtype(dtype, np.floating) and dtypes.finfo(dtype).bits > 4


def is_extreme(eqn: JaxprEqn) -> bool:
    """Return whether an equation reduces an array to a maximum or minimum that may be a NaN."""
    return eqn.primitive.name in _REDUCTIONS and has_nan(eqn.outvars[0].aval.dtype)


def bind_extreme(eqn: JaxprEqn, values: Sequence[jax.Array]) -> list[jax.Array]:
    """Evaluate an equation of `is_extreme`."""
    (x,) = values
    (out,) = rebind(eqn, values)
    return [with_nans(out, meets_nan(x, eqn.params["axes"]))]


def fold(monoid: Monoid, x: jax.Array, axes: tuple[int, ...]) -> jax.Array:
    """Reduce an array along axes by a monoid."""
    out = monoid.fold(x, axes=axes)
    if monoid not in EXTREMES or not has_nan(x.dtype):
        return out
    return with_nans(out, meets_nan(x, axes))


def with_nans(x: jax.Array, is_nan: jax.Array) -> jax.Array:
    """`x`, with NaN where the mask says so."""
    return lax.select(is_nan, lax.full(x.shape, np.nan, x.dtype), x)


def meets_nan(x: jax.Array, axes: tuple[int, ...]) -> jax.Array:
    """Mask of the elements of a reduction that meet a NaN."""
    return lax.reduce_or(lax.ne(x, x), axes=axes)
