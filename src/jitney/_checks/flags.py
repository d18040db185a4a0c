"""The flag of a program with checks: the number of the check that failed first, as an int32 of the
program.

    none has failed          0, or None before the first check
    the third check failed   3 << 16, with the index of the message in the lower 16 bits
    two checks in a row      the flag of the first, where that is not 0, else of the second
"""

from __future__ import annotations

import jax
import numpy as np
from jax.typing import ArrayLike

from .table import (
    LEAST_INDEX,
    MASK,
    MOST_INDEX,
    message_bits,
)

Code = jax.Array | np.int32
"""An int32 of the program: the number of the check that failed first, with its message."""
Flag = Code | None
"""The code so far; None before the first check."""


def code_of(flag: Flag) -> Code:
    """Return a flag as a number."""
    return np.int32(0) if flag is None else flag


def goes_well(flag: Code) -> jax.Array:
    """Return whether no check has failed."""
    return jax.lax.eq(flag, np.int32(0))


def first_failed(flag: Flag, failed: jax.Array) -> jax.Array:
    """Return the flag behind one more check, of which this is the code, or 0."""
    if flag is None:
        return failed
    has_failed = jax.lax.ne(flag, np.int32(0))
    return jax.lax.select(has_failed, flag, failed)


def failed_code(branch: jax.Array, number: int, index: int | jax.Array) -> jax.Array:
    """Return the code of a check where it fails, else 0.

    Args:
        branch: The operand of its `cond`: branch 0 is the one in which the check holds.
        number: Number of the check, in the upper bits of the code.
        index: Index of its message, in the lower bits. It is traced if the message is chosen at
            run time.
    """
    if isinstance(index, jax.Array):
        least, most = clamp_to_dtype(LEAST_INDEX, index), clamp_to_dtype(MOST_INDEX, index)
        index = jax.lax.clamp(least, index, most)
        lower = jax.lax.convert_element_type(index, np.int32)
        lower = jax.lax.bitwise_and(lower, np.int32(MASK))
        code = jax.lax.bitwise_or(np.int32(number), lower)
    else:
        code = np.int32(number | message_bits(int(index)))
    has_failed = jax.lax.ne(branch, clamp_to_dtype(0, branch))
    return jax.lax.select(has_failed, code, np.int32(0))


def clamp_to_dtype(number: int, like: jax.Array) -> ArrayLike:
    """Return a number in the dtype of another value, clamped to its limits."""
    dtype = jax.typeof(like).dtype
    if dtype == np.bool_:
        return np.bool_(number)
    limits = np.iinfo(dtype)
    least, most = int(limits.min), int(limits.max)
    return dtype.type(min(max(number, least), most))
