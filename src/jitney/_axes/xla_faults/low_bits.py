"""Arrays of 8- and 16-bit floats as their bits, so that moving them changes no NaN.

XLA for CPUs moves and selects low types by way of a wider type, which drops the sign or the payload
of a NaN (jax 0.10.2 and 0.12.0.1). `top_k` orders a NaN with its sign set last and one without it
first, so a move that jitney adds would change the result.
"""

from __future__ import annotations

import jax
import numpy as np

from ..._jax.typed import DType
from ..monoids import is_low
from ..typed_jax import lax


def as_bits(x: jax.Array) -> jax.Array:
    """The bits of an array of a low type as unsigned integers; any other array as it is."""
    if not is_low(x.dtype):
        return x
    return lax.bitcast_convert_type(x, np.dtype(f"u{x.dtype.itemsize}"))


def from_bits(x: jax.Array, dtype: DType) -> jax.Array:
    """Inverse of `as_bits`, for an array of the given dtype."""
    if not is_low(dtype) or x.dtype == dtype:
        return x
    return lax.bitcast_convert_type(x, dtype)
