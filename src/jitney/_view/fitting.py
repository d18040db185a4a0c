"""Checks of NumPy's 64-bit numbers that JAX converts to 32 bits, so that a loss is never silent.

An integer that needs more than 32 bits would become another integer, and a float beyond float32's
range an infinity: both are errors. Floats that are too close together for float32, such as seconds
since 1970, lose their differences: a warning, since every float loses a little.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from .._errors import ContractError, PrecisionWarning, Where, format_error
from .._jax.trees import canonicalize_dtype
from .._jax.typed import Array, DType, NumPyArray
from .._owners import users_level

_RULE = "Without x64 JAX takes NumPy's numbers of 64 bits in 32."
_WIDER = (
    'decorate with precision="f64", or set `jax.config.update("jax_enable_x64", True)` before the'
    " first array"
)
_LOST = 1e-3
"""Largest shift of a number by rounding that is accepted, relative to the spread of its array."""


WHOLE = frozenset((np.dtype(np.int64), np.dtype(np.uint64)))
"""Dtypes of arrays that are checked in each call; `call_codegen.py` tests for them."""


def demand_floats_fit(
    where: Where,
    paths: Sequence[str],
    arrays: Sequence[Array],
) -> None:
    """Check floats in the first call of a program, and warn if they lose their differences.

    Raises:
        ContractError: A float is beyond the range of 32 bits.
    """
    for path, array in zip(paths, arrays, strict=False):
        if (
            isinstance(array, (np.ndarray, np.generic))
            and array.dtype.kind in "fc"
            and array.size
            and is_narrowed(array.dtype)
        ):
            _demand_floats(where, path, np.asarray(array))


def demand_whole_numbers_fit(
    where: Where | str,
    paths: Sequence[str],
    arrays: Sequence[Array],
) -> None:
    """Check integers.

    Raises:
        ContractError: An integer is beyond the range of 32 bits.
    """
    for path, array in zip(paths, arrays, strict=False):
        if (
            isinstance(array, (np.ndarray, np.generic))
            and array.dtype in WHOLE
            and array.size
            and is_narrowed(array.dtype)
        ):
            low = np.dtype(canonicalize_dtype(array.dtype))
            limits, least, most = np.iinfo(low), array.min(), array.max()
            if least < limits.min or most > limits.max:
                raise _range_error(
                    where, path, array.dtype, least if least < limits.min else most, low
                )


def demand_number_fits(where: Where, paths: Sequence[str], arrays: Sequence[object]) -> None:
    """Check whole numbers of Python, of which JAX refuses one.

    Raises:
        ContractError: One fits into 64 bits, and not into those of this context.
    """
    wide = np.dtype(np.int64)
    low = np.dtype(canonicalize_dtype(int))
    for path, number in zip(paths, arrays, strict=False):
        if type(number) is not int:
            continue
        if _holds(wide, number) and not _holds(low, number):
            raise _range_error(where, path, wide, number, low)


def _holds(dtype: DType, number: int) -> bool:
    limits = np.iinfo(dtype)
    return bool(limits.min <= number <= limits.max)


def is_narrowed(dtype: DType) -> bool:
    """Return whether JAX converts a dtype to fewer bits under the current configuration."""
    return dtype.itemsize >= 8 and canonicalize_dtype(dtype) != dtype


def _demand_floats(where: Where, path: str, array: NumPyArray) -> None:
    low = np.dtype(canonicalize_dtype(array.dtype))
    with np.errstate(over="ignore"):
        rounded = array.astype(low)
    # An infinity in the argument stays one, and is not a loss.
    kept = np.isfinite(array)
    lost = kept & ~np.isfinite(rounded)
    if lost.any():
        raise _range_error(
            where,
            path,
            array.dtype,
            array[lost].ravel()[0],
            low,
        )
    if low.kind == "f" and kept.any():
        _warn_of_spread(where, path, array[kept], rounded[kept])


def _warn_of_spread(
    where: Where,
    path: str,
    numbers: NumPyArray,
    rounded: NumPyArray,
) -> None:
    least, most = numbers.min(), numbers.max()
    moved = np.abs(numbers - rounded).max()
    # A constant array has no spread, hence no differences to lose.
    if moved > _LOST * (most - least) > 0:
        text = format_error(
            where,
            f"{path!r} has float64 numbers between {least:.17g} and {most:.17g}, which move by up"
            f" to {moved:.3g} as float32.",
            _RULE,
            f"subtract the first of them on the host, in float64; or {_WIDER}.",
        )
        warnings.warn(text, PrecisionWarning, stacklevel=users_level())


def _range_error(
    where: Where | str,
    path: str,
    dtype: DType,
    number: object,
    low: DType,
) -> ContractError:
    return ContractError(
        where,
        f"{path!r} has dtype {dtype} and holds {number}, which {low} does not hold.",
        _RULE,
        f"{_WIDER}; or make them smaller on the host.",
        code="J212",
    )
