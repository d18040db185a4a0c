"""Comparison of results to the bit, for `auto="exact"`.

Two NaNs of the same bits are equal here, and 0.0 and -0.0 are not, so arrays are compared as bytes.
"""

from __future__ import annotations

import jax
import numpy as np

from ..._jax.trees import extended, issubdtype, tree_flatten
from ..._jax.typed import Array


def are_equal(ours: object, theirs: object, rows: slice | None = None) -> bool:
    """Return whether results are equal to the bit, of all elements or of some of `theirs`."""
    pairs = zip(tree_flatten(ours)[0], tree_flatten(theirs)[0], strict=True)
    return all(bits(a) == bits(b if rows is None else b[rows]) for a, b in pairs)


def bits(array: Array) -> tuple[object, ...]:
    """Return the type and the bytes of an array; of keys, those of their data."""
    if issubdtype(array.dtype, extended):
        array = jax.random.key_data(array)
    host = np.asarray(array)
    return host.dtype, host.shape, host.tobytes()
