"""Names of JAX's operations that several parts of jitney have to know alike.

What only one part says of an operation stands there, beside the reason. Names of all versions from jax 0.10.2 to 0.12.0.1 stand together.
"""

from __future__ import annotations

from typing import Final

_ARITHMETIC = (
    "abs acos acosh add add_any asin asinh atan atan2 atanh cbrt ceil clamp complex conj convert_element_type copy cos cosh digamma "
    "div erf erf_inv erfc exp exp2 expm1 floor imag integer_pow lgamma log log1p log2 logistic max min mul neg nextafter pow real rem "
    "round rsqrt sign sin sinh sqrt square stop_gradient sub tan tanh"
)
ARITHMETIC: Final = frozenset(_ARITHMETIC.split())
"""Each element of the result is made of the elements at its place, in one step of arithmetic: the same to the bit in arrays of any shape,
and a NaN in it is of that step or of these elements."""

LOGIC: Final = frozenset(("and", "eq", "ge", "gt", "is_finite", "le", "lt", "ne", "not", "or", "select_n", "xor"))
"""Each element of the result compares, combines or chooses the elements at its place: nothing is rounded."""

PRODUCTS: Final = ("dot_general", "conv_general_dilated", "ragged_dot_general")
"""Sums of products of two arrays, which a library or the matrix units of a device compute."""
