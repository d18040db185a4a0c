"""Calls of a program of a bucket: arrays are filled, the true sizes follow them, and results are
cut, as a padded call does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from .._jax.typed import Array
from .._program.runners.filling import FILLING
from .._serialized.padded_cuts import read as read_cuts
from .._view.layout import aval_parts
from .._view.result_padding import Cut, unpadded_shape
from .header import PaddingEntry, ProgramEntry
from .running import RunFlat
from .sizes import fits, sizes_of
from .values import Data, value_of


def takes(
    told: ProgramEntry,
    arrays: Sequence[object],
    bound: Collection[int],
) -> bool:
    """Return whether a program takes the arrays of a call; that of a bucket may leave out sizes."""
    return fits(told, arrays, bound) and not lacks_numbers(told, arrays)


def lacks_numbers(told: ProgramEntry, arrays: Sequence[object]) -> bool:
    """Return whether a file does not have what Python computes from the sizes of a call that fits a
    program.
    """
    padding = told.get("padding")
    return padding is not None and _numbers_at(padding, sizes_of(told, arrays)) is None


def _numbers_at(
    padding: PaddingEntry,
    sizes: Mapping[str, int],
) -> Sequence[Data] | None:
    """The numbers that Python computes from sizes; None if the file does not have them."""
    numbers = padding["numbers"]
    if numbers is None:
        return []
    own = [sizes[name] for name in padding["axes"]]
    return next((values for at, values in numbers if at == own), None)


def padded_runner(
    run: RunFlat,
    told: ProgramEntry,
    padding: PaddingEntry,
    arrays: Sequence[object],
) -> RunFlat:
    """Return the function from the arrays of calls of one size to those of their results.

    Args:
        run: The program of the bucket.
        told: Its entry in the header.
        padding: Its padding.
        arrays: Arrays of such a call.
    """
    sizes = sizes_of(told, arrays)
    shapes = [tuple(shape) for shape in padding["shapes"]]
    cuts = read_cuts(padding["cuts"])
    numbers = [value_of(value) for value in _numbers_at(padding, sizes) or ()]
    behind = [*(np.asarray(sizes[name], np.int32) for name in padding["axes"]), *numbers]

    fills = [
        None if aval_parts(array)[0] == shape else shape
        for array, shape in zip(arrays, shapes, strict=True)
    ]
    # By the shapes of results, which the first call shows.
    ends: list[list[tuple[int, ...] | None]] = []

    def end_of(result: Array, cut: Cut) -> tuple[int, ...] | None:
        was = np.shape(result)
        shape = tuple(unpadded_shape(was, cut, sizes))
        return None if shape == was else shape

    def padded(given: Sequence[object]) -> Sequence[Array]:
        filled = [
            array if shape is None else FILLING.fill(array, shape)
            for array, shape in zip(given, fills, strict=True)
        ]
        results = run([*filled, *behind])
        if not ends:
            ends.append([end_of(each, cut) for each, cut in zip(results, cuts, strict=True)])
        return [
            result if shape is None else FILLING.cut(result, shape)
            for result, shape in zip(results, ends[0], strict=True)
        ]

    return padded
