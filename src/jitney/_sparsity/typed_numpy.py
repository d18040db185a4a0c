"""NumPy, for positions and patterns. Values of a program are computed by JAX alone: NumPy has other
types and other conversions.
"""

from __future__ import annotations

from typing import Any

import numpy

np: Any = numpy
"""NumPy, whose types are partly unknown where shapes are."""
