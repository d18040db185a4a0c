"""Arrays of low types as their bits, to be moved without a change.

On CPUs XLA moves and selects low types in wider ones, from which a NaN comes back without its sign
or its digits (jax 0.10.2 and 0.12.0.1). In the order of `top_k` a NaN with its sign set is the
last, and without it the first: a move of ours would change what is found.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .monoids import is_low
from .typed_jax import lax


def as_bits(x: Any) -> Any:
    """The bits of an array of a low type; any other as it is."""
    return lax.bitcast_convert_type(x, np.dtype(f"u{x.dtype.itemsize}")) if is_low(x.dtype) else x


def from_bits(x: Any, dtype: Any) -> Any:
    """The array of a type that `as_bits` was given."""
    return lax.bitcast_convert_type(x, dtype) if is_low(dtype) and x.dtype != dtype else x
