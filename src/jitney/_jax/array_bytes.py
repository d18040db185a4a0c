"""The bytes of arrays."""

from __future__ import annotations

import numpy as np

from .typed import NumPyArray


def bytes_of(array: object) -> NumPyArray:
    """Return the bytes of an array in a row: a view, unless its elements lie apart."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
