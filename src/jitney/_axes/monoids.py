"""Table of the monoids: for each its identity element in every dtype, the dtype it accumulates in,
how two results combine, and the collective that combines them over devices. Padding, chunks,
streams, microbatches and devices read it.

An identity changes no bit of the value that it meets. For a sum it is -0.0, not 0.0:

    -0.0 + -0.0 = -0.0      -0.0 + 0.0 = 0.0

A dtype without infinity (float8_e4m3fn, float4) has its outermost number as the identity of a
maximum. Low floating-point dtypes accumulate in float32, as XLA's own reductions do, and are
rounded once, at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from .._jax.typed import DType, NumPyArray
from .typed_jax import dtypes, jnp, lax

# Bits of a byte, and bytes of float32: dtypes narrower than it accumulate in it.
_BYTE = 8
_NARROW = 4


def is_low(dtype: DType) -> bool:
    """Return whether a dtype is a floating-point type of 8 or 16 bits."""
    if not dtypes.issubdtype(dtype, np.floating):
        return False
    size = dtypes.finfo(dtype).bits // _BYTE
    return 1 <= size < _NARROW


def is_ordered(dtype: DType) -> bool:
    """Return whether XLA's maximum and minimum of a dtype do not depend on the order of evaluation.

    They do for complex numbers, where a NaN is dropped, or drops the value before it, depending on
    the order; and for float8_e8m0fnu, where XLA starts from -infinity, a NaN in that dtype.
    """
    return not dtypes.issubdtype(dtype, np.complexfloating) and not (
        dtypes.issubdtype(dtype, np.floating) and float(lowest(dtype)) > 0
    )


def zero(dtype: DType) -> NumPyArray:
    """Identity of a sum: -0.0 if the dtype has one."""
    if dtypes.issubdtype(dtype, np.complexfloating):
        return np.asarray(complex(-0.0, -0.0), dtype)
    if not dtypes.issubdtype(dtype, np.floating):
        return np.zeros((), dtype)
    minus_zero = np.asarray(-0.0, np.float32).astype(dtype)
    # float8_e8m0fnu has neither a sign nor a zero: -0.0 becomes a NaN.
    return np.zeros((), dtype) if np.isnan(minus_zero) else minus_zero


def one(dtype: DType) -> NumPyArray:
    """Identity of a product."""
    return np.ones((), dtype)


def lowest(dtype: DType) -> NumPyArray:
    """Identity of a maximum: no element is below it, NaNs aside."""
    return _outermost(dtype, -1)


def highest(dtype: DType) -> NumPyArray:
    """Identity of a minimum: no element is above it, NaNs aside."""
    return _outermost(dtype, 1)


def last_in_order(dtype: DType) -> NumPyArray:
    """The last value in the descending order of `top_k`: a NaN with its sign bit set, if the dtype
    has one.

    XLA may compare the payloads of such NaNs as well (jax 0.12.0.1, and 0.10.2 in float16), so all
    payload bits are set. Dtypes with a single NaN (`fnuz`) encode it as -0.0, and order it last.
    """
    # float8_e8m0fnu has no sign.
    if not dtypes.issubdtype(dtype, np.floating) or not is_ordered(dtype):
        return lowest(dtype)

    # All bits set is a negative NaN in IEEE formats of whole bytes.
    size = np.dtype(dtype).itemsize
    if dtypes.finfo(dtype).bits == 8 * size:
        all_set = np.frombuffer(b"\xff" * size, dtype)[0]
    else:
        all_set = lowest(dtype)
    if np.isnan(all_set):
        return np.asarray(all_set)

    # Not one here: the dtype's single NaN, or else its lowest number.
    nan = np.asarray(np.nan, np.float32).astype(dtype)
    return nan if np.isnan(nan) else lowest(dtype)


def all_bits(dtype: DType) -> NumPyArray:
    """Identity of a bitwise and: all bits set."""
    if dtype == np.bool_:
        return np.asarray(True)  # noqa: FBT003
    return np.asarray(-1).astype(dtype)


def _outermost(dtype: DType, sign: int) -> NumPyArray:
    """The largest value of a dtype, or the smallest if `sign` is negative."""
    if dtype == np.bool_:
        return np.asarray(sign > 0)
    if dtypes.issubdtype(dtype, np.integer):
        info = dtypes.iinfo(dtype)
        end = int(info.max if sign > 0 else info.min)
        return np.asarray(end).astype(dtype)

    # XLA compares complex numbers by the real part, then by the imaginary one.
    if dtypes.issubdtype(dtype, np.complexfloating):
        part = sign * np.inf
        return np.asarray(complex(part, part), dtype)

    # A dtype without infinity turns it into a NaN or its outermost number.
    with np.errstate(all="ignore"):
        infinity = np.asarray(sign * np.inf, np.float32).astype(dtype)
    if np.isinf(infinity):
        return infinity
    info = dtypes.finfo(dtype)
    return np.asarray(info.max if sign > 0 else info.min, dtype)


@dataclass(frozen=True)
class Monoid:
    """A commutative monoid on the values of a dtype.

    Args:
        word: Its name in messages.
        identity: From a dtype to the identity element.
        combine: The operation on two arrays.
        fold: The reduction of an array along axes.
        collective: The collective over devices; `all_gather`, then `fold`, where JAX has none.
        rounds: True if the operation rounds, so that a low dtype accumulates in float32.
    """

    word: str
    identity: Callable[[DType], NumPyArray]
    combine: Callable[..., jax.Array]
    fold: Any = None
    collective: str = "all_gather"
    rounds: bool = False

    def accumulator(self, dtype: DType) -> DType:
        """The dtype that values of a dtype accumulate in: at least float32 if the monoid rounds."""
        if not self.rounds or not dtypes.issubdtype(dtype, np.floating):
            return dtype
        # A float8_e8m0fnu accumulates in itself, where plain JAX gives a NaN too.
        is_narrow = np.dtype(dtype).itemsize < _NARROW
        return np.dtype(np.float32) if is_narrow and is_ordered(dtype) else dtype

    def filled(self, shape: Sequence[int], dtype: DType) -> jax.Array:
        """An array of the identity."""
        return lax.full(shape, self.identity(dtype), dtype)


def to_dtype(x: jax.Array, dtype: DType) -> jax.Array:
    """Convert an array to a dtype, with no operation if it has it."""
    return x if x.dtype == dtype else lax.convert_element_type(x, dtype)


MONOIDS: dict[str, Monoid] = {
    "add": Monoid("sum", zero, lax.add, lax.reduce_sum, "psum", rounds=True),
    "mul": Monoid("product", one, lax.mul, lax.reduce_prod, rounds=True),
    "max": Monoid("max", lowest, lax.max, lax.reduce_max, "pmax"),
    "min": Monoid("min", highest, lax.min, lax.reduce_min, "pmin"),
    "and": Monoid("and", all_bits, lax.bitwise_and, lax.reduce_and),
    "or": Monoid("or", zero, lax.bitwise_or, lax.reduce_or),
    "xor": Monoid("xor", zero, lax.bitwise_xor, lax.reduce_xor),
    "logaddexp": Monoid("log-sum-exp", lowest, jnp.logaddexp, rounds=True),
}
REDUCTIONS: dict[str, str] = {
    "reduce_sum": "add",
    "reduce_prod": "mul",
    "reduce_max": "max",
    "reduce_min": "min",
    "reduce_and": "and",
    "reduce_or": "or",
    "reduce_xor": "xor",
}
"""Primitive -> the name of its monoid."""
CUMULATIVE: dict[str, str] = {
    "cumsum": "add",
    "cumprod": "mul",
    "cummax": "max",
    "cummin": "min",
    "cumlogsumexp": "logaddexp",
}
PLACES: dict[str, str] = {"argmax": "max", "argmin": "min"}
"""Primitive -> the monoid whose result it locates."""
_SCATTERED: dict[str, str] = {
    "add": "add",
    "sub": "add",
    "mul": "mul",
    "min": "min",
    "max": "max",
}
SCATTERS: dict[str, str] = {
    f"scatter{dash}{name}": monoid for dash in "-_" for name, monoid in _SCATTERED.items()
}


def sendable(dtype: DType) -> DType:
    """The dtype in which a value is sent over devices: four bytes at least.

    XLA for CPUs crashes in a reduction of narrower values over some of the devices (jaxlib 0.10.0,
    0.10.2, 0.12.0).
    """
    if np.dtype(dtype).itemsize >= _NARROW:
        return dtype
    if dtypes.issubdtype(dtype, np.floating):
        return np.dtype(np.float32)
    if dtypes.issubdtype(dtype, np.unsignedinteger):
        return np.dtype(np.uint32)
    return np.dtype(np.int32)
