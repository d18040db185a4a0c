"""The one table of what adds up: of each monoid its identity in every dtype, the type it
accumulates in, how two results are put together, and which collective does so over devices.
Padding, chunks, streams, microbatches and devices read it.

An identity is a value of its dtype, and changes no bit of what it meets: of a sum it is -0.0, since
0.0 + -0.0 is 0.0. A type without infinity (float8_e4m3fn, float4) has its outermost number instead,
which no number is beyond. Low floating-point types accumulate in float32, as XLA's own reductions
do, and are rounded once, when all is added up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .typed_jax import dtypes, jnp, lax

_BYTE = 8  # bits
_NARROW = 4  # bytes; what is narrower accumulates in a type of so many


def is_low(dtype: Any) -> bool:
    """Whether it is a floating-point type of less than 32 bits, from whole bytes."""
    return (
        dtypes.issubdtype(dtype, np.floating) and 1 <= dtypes.finfo(dtype).bits // _BYTE < _NARROW
    )


def is_ordered(dtype: Any) -> bool:
    """Whether XLA finds the same extreme whatever the order it goes in.

    Not of complex numbers: it compares a NaN as it comes, and the NaN is dropped or drops what was
    before it. Not of float8_e8m0fnu: it begins with -infinity, which becomes a NaN there.
    """
    return not dtypes.issubdtype(dtype, np.complexfloating) and not (
        dtypes.issubdtype(dtype, np.floating) and float(lowest(dtype)) > 0
    )


def zero(dtype: Any) -> Any:
    """What a sum starts from: -0.0 where there is one."""
    if dtypes.issubdtype(dtype, np.complexfloating):
        return np.asarray(complex(-0.0, -0.0), dtype)
    if not dtypes.issubdtype(dtype, np.floating):
        return np.zeros((), dtype)
    minus_zero = np.asarray(-0.0, np.float32).astype(dtype)
    # float8_e8m0fnu has neither sign nor zero
    return np.zeros((), dtype) if np.isnan(minus_zero) else minus_zero


def one(dtype: Any) -> Any:
    """What a product starts from."""
    return np.ones((), dtype)


def lowest(dtype: Any) -> Any:
    """What no element is below, NaNs aside."""
    return _outermost(dtype, -1)


def highest(dtype: Any) -> Any:
    """What no element is above, NaNs aside."""
    return _outermost(dtype, 1)


def last_in_order(dtype: Any) -> Any:
    """What no element is behind in the descending order of `top_k`, in which a NaN with its sign
    set is the last.

    Among those NaNs XLA may look at the digits too (jax 0.12.0.1, and 0.10.2 in float16), so all of
    them are set. The types with one NaN only (`fnuz`) write it as -0.0, and have it last.
    """
    if not dtypes.issubdtype(dtype, np.floating):
        return lowest(dtype)
    if not is_ordered(dtype):
        return lowest(dtype)  # float8_e8m0fnu has no sign
    size = np.dtype(dtype).itemsize
    last = (
        np.frombuffer(b"\xff" * size, dtype)[0]
        if dtypes.finfo(dtype).bits == 8 * size
        else np.asarray(lowest(dtype))
    )
    if np.isnan(last):
        return np.asarray(last)
    last = np.asarray(np.nan, np.float32).astype(dtype)
    return last if np.isnan(last) else lowest(dtype)


def all_bits(dtype: Any) -> Any:
    """What a bitwise and starts from."""
    return np.asarray(True) if dtype == np.bool_ else np.asarray(-1).astype(dtype)  # noqa: FBT003


def _outermost(dtype: Any, sign: int) -> Any:
    if dtype == np.bool_:
        return np.asarray(sign > 0)
    if dtypes.issubdtype(dtype, np.integer):
        info = dtypes.iinfo(dtype)
        return np.asarray(int(info.max if sign > 0 else info.min)).astype(dtype)
    # compared by the real part, then by the imaginary one
    if dtypes.issubdtype(dtype, np.complexfloating):
        return np.asarray(complex(sign * np.inf, sign * np.inf), dtype)
    with np.errstate(all="ignore"):
        infinity = np.asarray(sign * np.inf, np.float32).astype(dtype)
    if np.isinf(infinity):
        return infinity
    info = dtypes.finfo(dtype)
    return np.asarray(info.max if sign > 0 else info.min, dtype)


@dataclass(frozen=True)
class Monoid:
    """One way to put values together, whatever their order.

    Args:
        word: For people.
        identity: Of a dtype, a value that changes nothing.
        combine: Of two.
        fold: Of all along axes of one array.
        collective: Over devices; `all_gather` and `fold` where JAX has none.
        rounds: Whether a result is rounded, so that a low type accumulates in a higher one.
    """

    word: str
    identity: Callable[[Any], Any]
    combine: Callable[[Any, Any], Any]
    fold: Any = None
    collective: str = "all_gather"
    rounds: bool = False

    def accumulator(self, dtype: Any) -> Any:
        """The type in which values of a dtype are accumulated: float32 at least where results are
        rounded.
        """
        low = (
            self.rounds
            and dtypes.issubdtype(dtype, np.floating)
            and np.dtype(dtype).itemsize < _NARROW
        )
        # float8_e8m0fnu: a NaN, as without
        return np.dtype(np.float32) if low and is_ordered(dtype) else dtype


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
    f"reduce_{name}": monoid
    for name, monoid in (
        ("sum", "add"),
        ("prod", "mul"),
        ("max", "max"),
        ("min", "min"),
        ("and", "and"),
        ("or", "or"),
        ("xor", "xor"),
    )
}
"""Primitive -> its monoid."""
CUMULATIVE: dict[str, str] = {
    "cumsum": "add",
    "cumprod": "mul",
    "cummax": "max",
    "cummin": "min",
    "cumlogsumexp": "logaddexp",
}
PLACES: dict[str, str] = {"argmax": "max", "argmin": "min"}
"""Primitive -> the monoid whose element it finds."""
SCATTERS: dict[str, str] = {
    f"scatter{dash}{name}": monoid
    for dash in "-_"
    for name, monoid in (
        ("add", "add"),
        ("sub", "add"),
        ("mul", "mul"),
        ("min", "min"),
        ("max", "max"),
    )
}


def sendable(dtype: Any) -> Any:
    """The type in which a value goes over devices; on CPUs XLA dies of a reduction over some of the
    devices in anything narrower than four bytes (jaxlib 0.10.0, 0.10.2, 0.12.0).
    """
    if np.dtype(dtype).itemsize >= _NARROW:
        return dtype
    if dtypes.issubdtype(dtype, np.floating):
        return np.dtype(np.float32)
    return np.dtype(np.uint32 if dtypes.issubdtype(dtype, np.unsignedinteger) else np.int32)
