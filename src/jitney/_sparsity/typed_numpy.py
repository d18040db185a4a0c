"""NumPy for positions and patterns. Values of a program are computed by JAX only, because NumPy
has other dtypes and other conversions.
"""

from __future__ import annotations

from typing import Any

import numpy
import numpy.typing as npt

np: Any = numpy
"""NumPy as `Any`: its types are partly unknown where shapes are."""
Ints = npt.NDArray[numpy.int64]
"""Positions, indices, counts or colours."""
Bools = npt.NDArray[numpy.bool_]
"""Mask over positions."""
