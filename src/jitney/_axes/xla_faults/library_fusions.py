"""Elementwise operations that XLA's library of CPU kernels computes in another way.

XLA for CPUs makes one kernel of YNNPACK's of a reduction over 4,096 and more elements and of the
elementwise operations beside it (jaxlib 0.10.2 and 0.12.0.1; in 0.10.0 the first of these was right
in arrays of 600 to 6,000 rows, the others were not tried). There

- `max` and `min` of floats lose a NaN: the sum of `relu(x)` is a number;
- arithmetic of int8 and uint8 saturates instead of wrapping, and a quotient keeps its fraction;
- a conversion to int8 or uint8 rounds instead of truncating, or is left out;
- a conversion to bfloat16 is left out where one to float32 follows;
- `exp2(x)` and `exp(2 * x)` of bfloat16 have elements of other rows (0.10.2 alone).

A padded array has that many elements where the one of exact size has not. So these operations have
an operation before and behind them that such a kernel cannot hold, and that changes no value: a
`clamp` to all integers, or a choice of NaN where there is NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy
import numpy as np

from ..._jax.programs.jaxprs import is_literal
from ..._jax.typed import DType, JaxprEqn, Value, Values
from ..typed_jax import dtypes, lax
from .lost_nans import has_nan, with_nans

_EXTREMES = ("max", "min")
_EXPONENTIALS = ("exp", "exp2")
_OF_BYTES = (
    "abs",
    "add",
    "div",
    "integer_pow",
    "mul",
    "neg",
    "pow",
    "sign",
    "square",
    "sub",
)
CONVERSION = "convert_element_type"
CHANGED = (
    *_EXTREMES,
    *_EXPONENTIALS,
    *_OF_BYTES,
    CONVERSION,
)
"""Primitives that are computed in another way in some dtype."""

_BFLOAT16 = np.dtype(jax.numpy.bfloat16)
_WIDER = (np.dtype(np.float32), np.dtype(np.float64))
_BYTES = (np.dtype(np.int8), np.dtype(np.uint8))


def outside_fusions(
    eqn: JaxprEqn,
    values: Sequence[Value],
    bind: Callable[[Sequence[Value]], Values],
) -> Values:
    """Evaluate one of these operations so that no kernel of the library holds it.

    Args:
        eqn: The operation.
        values: Its operands.
        bind: Evaluates it on operands.
    """
    name, dtype = eqn.primitive.name, eqn.outvars[0].aval.dtype
    if name in _EXTREMES and has_nan(dtype):
        return [_with_nan(eqn, values, bind(values)[0])]
    is_exponential = name in _EXPONENTIALS and dtype == _BFLOAT16
    is_of_bytes = name in (*_OF_BYTES, CONVERSION) and dtype in _BYTES
    if is_exponential or is_of_bytes:
        fenced = [_fence(jax.numpy.asarray(x)) for x in values]
        return [_fence(x) for x in bind(fenced)]
    if name == CONVERSION and dtype == _BFLOAT16 and _is_wider(eqn.invars[0].aval.dtype):
        rounded = lax.reduce_precision(
            values[0],
            exponent_bits=8,
            mantissa_bits=7,
        )
        return bind([rounded])
    return bind(values)


def _is_wider(dtype: DType) -> bool:
    return dtype in _WIDER


def _with_nan(
    eqn: JaxprEqn,
    values: Sequence[Value],
    extreme: jax.Array,
) -> jax.Array:
    """An extreme that is NaN where an operand is."""
    for x, atom in zip(values, eqn.invars, strict=True):
        # The bound of a `relu` or of a clip is a number.
        if is_literal(atom) and not np.isnan(np.asarray(atom.val, np.float64)).any():
            continue
        is_nan = jax.numpy.broadcast_to(lax.ne(x, x), extreme.shape)
        extreme = with_nans(extreme, is_nan)
    return extreme


def _fence(x: jax.Array) -> jax.Array:
    """The same array, by an operation that the library does not have."""
    if dtypes.issubdtype(x.dtype, np.integer):
        info = dtypes.iinfo(x.dtype)
        least = np.asarray(info.min, x.dtype)
        most = np.asarray(info.max, x.dtype)
        return lax.clamp(
            least,
            x,
            most,
        )
    return with_nans(x, lax.ne(x, x)) if has_nan(x.dtype) else x
