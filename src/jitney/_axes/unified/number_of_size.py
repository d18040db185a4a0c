"""Placeholder of a value that Python computes from the sizes, in a program that is made from traces
at known sizes: a number, or an array whose length may depend on them.

The witness of a size records the value there, and the interpreter takes it as an argument. There is
no other way to evaluate it: a program in which no value was recorded is refused.

    np.hanning(n)    traces    [0., 0.5, 1., 0.5, 0.], [0., 0.41, ...]
                     unified   c:f32[n] = number_of_size[]
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..._jax.typed import Aval, DType, NumPyArray, Primitive
from ..dims import Dim
from ..rules.shape import NUMBER_OF_SIZE as NUMBER_OF_SIZE

_PRIMITIVE = Primitive(NUMBER_OF_SIZE)


def _abstract(
    *,
    shape: Sequence[Dim],
    dtype: DType,
) -> Aval:
    return Aval(tuple(shape), dtype)


_PRIMITIVE.def_abstract_eval(_abstract)


def number_of_size(
    shape: Sequence[Dim],
    dtype: DType,
) -> object:
    """Make a placeholder."""
    return _PRIMITIVE.bind(shape=tuple(shape), dtype=dtype)


def fill_up(
    number: NumPyArray,
    shape: Sequence[int],
) -> NumPyArray:
    """Fill a value up to the allocated shape, with zeros."""
    if number.shape == tuple(shape):
        return number
    whole = np.zeros(shape, number.dtype)
    whole[tuple(map(slice, number.shape))] = number
    return whole
