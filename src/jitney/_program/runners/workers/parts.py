"""Parts of a call along its mapped axis: their arrays, and the whole that their results make.

All parts have one width, so that no size takes a second program for a remainder, and two sizes may
share one: the last part begins earlier, and what the part before it has computed is left out.

    size 9, two parts of 5:     [0, 1, 2, 3, 4] and [(4), 5, 6, 7, 8]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import jax
import numpy as np

from ...._jax.trees import device_put, extended, issubdtype
from ...._jax.typed import Array, DType, NumPyArray
from ...._view.layout import aval_parts

_ALIGNMENT = 64
"""Bytes at whose multiples XLA takes an array of the host as it is."""
ArrayType = tuple[tuple[int, ...], DType, bool]
"""Shape, dtype and weak type."""


@dataclass(frozen=True)
class Division:
    """Division of a mapped axis into parts of one width.

    Args:
        axis: The axis.
        size: Its elements.
        dims: Its position in each array; None where an array does not have it.
        width: Elements of a part.
    """

    axis: str
    size: int
    dims: tuple[int | None, ...]
    width: int

    @property
    def parts(self) -> tuple[tuple[int, int], ...]:
        """Where each part begins, and how many of its elements the part before it has too."""
        begins = [*range(0, self.size, self.width)]
        last = self.size - self.width
        return (*((begin, 0) for begin in begins[:-1]), (last, begins[-1] - last))

    def cut(self, arrays: Sequence[Array]) -> list[list[Array]]:
        """Return the arrays of each part. Nothing is copied that the host can show a part of."""
        shown = [
            array if dim is None else _shown(array)
            for array, dim in zip(arrays, self.dims, strict=True)
        ]
        return [
            [
                array if dim is None else _put_like(array, _slice(show, dim, begin, self.width))
                for array, show, dim in zip(arrays, shown, self.dims, strict=True)
            ]
            for begin, _ in self.parts
        ]

    def first(self, arrays: Sequence[Array]) -> Sequence[Array]:
        """Return the arrays of the first part, without values where these have none."""
        if not any(isinstance(array, jax.ShapeDtypeStruct) for array in arrays):
            return self.cut(arrays)[0]
        out: list[Array] = []
        for array, dim in zip(arrays, self.dims, strict=True):
            if dim is not None:
                shape, dtype, weak = aval_parts(array)
                narrow = (*shape[:dim], self.width, *shape[dim + 1 :])
                part = jax.ShapeDtypeStruct(narrow, dtype, weak_type=weak)
                out.append(cast("Array", part))
            else:
                out.append(array)
        return out


@dataclass(frozen=True)
class Spread:
    """Elements of a mapped axis from all over it, as many as a count.

    Args:
        size: The elements of the axis.
        count: How many of them.
        dims: The position of the axis in each array.
    """

    size: int
    count: int
    dims: tuple[int | None, ...]

    @property
    def rows(self) -> slice:
        """Where the elements are."""
        step = self.size // self.count
        return slice(0, step * self.count, step)

    @property
    def is_whole(self) -> bool:
        return self.count == self.size

    def of(self, arrays: Sequence[Array]) -> list[Array]:
        """Return the arrays of these elements."""
        if self.is_whole:
            return [*arrays]
        return [
            array
            if dim is None
            else _put_like(array, _shown(array)[(*[slice(None)] * dim, self.rows)])
            for array, dim in zip(arrays, self.dims, strict=True)
        ]


def _shown(array: Array) -> Array:
    """Return an array as it is cut: on the host, where a part is no copy, if the host has such an
    array.
    """
    _, dtype, weak = aval_parts(array)
    return np.asarray(array) if isinstance(array, jax.Array) and is_hosted(dtype, weak) else array


def is_hosted(dtype: DType, weak: bool) -> bool:  # noqa: FBT001
    """Return whether an array of the host can stand for one of this type."""
    return not weak and not issubdtype(dtype, extended)


def _slice(
    array: Array,
    dim: int,
    begin: int,
    width: int,
) -> Array:
    return array[(*[slice(None)] * dim, slice(begin, begin + width))]


def _put_like(array: Array, part: Array) -> Array:
    """Put a part where its array is, if that was put there on purpose."""
    if isinstance(array, jax.Array) and array.committed:
        return device_put(part, array.sharding)
    return part


class PartialResult:
    """One array of the result of a call, which is whole when all parts have added theirs.

    Args:
        division: The parts.
        type_: The type of the array of one part.
    """

    def __init__(self, division: Division, type_: ArrayType):
        shape, dtype, weak = type_
        if shape[:1] != (division.width,):
            raise AssertionError(f"vmap returns {shape} for a part of {division.width}")
        self._division = division
        self._parts: list[Array | None] = [None] * len(division.parts)
        self._host: NumPyArray | None = None
        if is_hosted(dtype, weak):
            self._host = _aligned((division.size, *shape[1:]), dtype)

    def add(self, number: int, part: Array) -> None:
        """Take the array of a part, and wait for it."""
        self._parts[number] = part
        if self._host is None:
            jax.block_until_ready(part)
            return
        begin, known = self._division.parts[number]
        end = begin + self._division.width
        self._host[begin + known : end] = np.asarray(part)[known:]

    def whole(self) -> Array:
        """Return the array of the whole call, of the type and in the place of one that was not
        divided.
        """
        parts = [part for part in self._parts if part is not None]
        if self._host is None:
            starts = [known for _, known in self._division.parts]
            return jax.lax.concatenate(
                [part[start:] for part, start in zip(parts, starts, strict=True)], 0
            )
        first = parts[0]
        if not isinstance(first, jax.Array):  # of `float0`, which JAX leaves on the host
            return self._host
        if first.committed:
            return device_put(self._host, first.sharding)
        return device_put(self._host)


def _aligned(shape: tuple[int, ...], dtype: DType) -> NumPyArray:
    """Return an array of the host that XLA takes as it is."""
    dtype = np.dtype(dtype)
    if dtype.itemsize == 0:
        return np.zeros(shape, dtype)
    size = math.prod(shape) * dtype.itemsize
    buffer = np.empty(size + _ALIGNMENT, np.uint8)
    begin = -buffer.ctypes.data % _ALIGNMENT
    return buffer[begin : begin + size].view(dtype).reshape(shape)
