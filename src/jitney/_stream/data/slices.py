"""What is read by slices of rows: its interface, and rows that come one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sized
from typing import Any, Protocol

import numpy as np

from ..._errors import DataError
from ..._jax.typed import DType, NumPyArray

Slice = slice | tuple[slice, ...]
"""Rows of a source; or a slice of each axis, where another axis than the first is cut."""


class Rows(Protocol):
    """An array, or an object that is sliced like one: a Zarr array, an HDF5 dataset."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> DType: ...
    def __getitem__(self, where: Any, /) -> object: ...


def check_slice(
    part: object,
    shape: tuple[int, ...],
    dtype: DType,
    name: str,
) -> NumPyArray:
    """Return the rows that were read, if they have the requested shape and dtype.

    Raises:
        DataError: There are fewer or more rows, or they have another dtype.
    """
    array = np.asarray(part)
    if array.shape != shape or array.dtype != np.dtype(dtype):
        requested = f"{np.dtype(dtype)}{list(map(int, shape))}"
        raise DataError(
            f"reading {name!r}",
            f"a slice of {requested} came as {array.dtype}{list(array.shape)}.",
            "Data keep their shape and dtype while they are read.",
            "keep them unchanged meanwhile; a reader of your own returns the rows that it is"
            " asked for.",
        )
    return array


class Sequential:
    """Rows that can be read only forwards; reading backwards starts a new iteration.

    Args:
        begin: Starts an iteration; gives the rows from the first one on, in arrays of any length.
        shape: Shape of all rows together.
        dtype: Dtype of the rows.
        name: Name of the argument.
    """

    def __init__(
        self,
        begin: Callable[[], Iterator[Sized]],
        shape: tuple[int, ...],
        dtype: DType,
        name: str,
    ):
        self.begin = begin
        self.shape = shape
        self.dtype = np.dtype(dtype)
        self.name = name
        self._rows: Iterator[Sized] = iter(())
        # Row number of the first row in `_held`. Past the end, so that the first reading starts an
        # iteration.
        self._at = shape[0] + 1
        self._held: list[NumPyArray] = []

    def __getitem__(self, where: slice) -> NumPyArray:
        try:
            return self._slice(where)
        except OSError:
            # A failed iterator cannot continue, so the retry starts a new iteration.
            self._at = self.shape[0] + 1
            raise

    def _slice(self, where: slice) -> NumPyArray:
        if where.start < self._at:
            self._rows = self.begin()
            self._at = 0
            self._held = []
        self._skip_to(where.start)

        missing = where.stop - self._at - sum(map(len, self._held))
        while missing > 0:
            # Copy the last part before the next one is taken: an iterator may fill the same buffer
            # again.
            if self._held:
                self._held[-1] = np.array(self._held[-1])
            part = next(self._rows, None)
            if part is None:
                end = self._at + sum(map(len, self._held))
                raise DataError(
                    f"reading {self.name!r}",
                    f"the rows of {self.name!r} end after {end}; there were {self.shape[0]}.",
                    "Data keep their length while they are read.",
                    "let each iteration give the same chunks.",
                )
            self._held.append(np.asarray(part))
            missing -= len(part)

        rows = self._held[0] if len(self._held) == 1 else np.concatenate(self._held)
        # Keep the rows after the slice: the next slice usually starts there.
        self._held = [rows]
        count = where.stop - where.start
        is_last = where.stop == self.shape[0]
        if is_last and (len(rows) > count or any(map(len, self._rows))):
            raise DataError(
                f"reading {self.name!r}",
                f"it gave more than {self.shape[0]} rows, which it had before.",
                "Data keep their length while they are read.",
                "let each iteration give the same chunks.",
            )
        return rows[:count]

    def _skip_to(self, row: int) -> None:
        while self._at < row:
            if not self._held:
                part = next(self._rows, None)
                if part is None:
                    return
                self._held = [np.asarray(part)]
            first = self._held[0]
            # Drop rows before the slice: a part of the array at hand, or all of it.
            gone = min(len(first), row - self._at)
            self._held[0] = first[gone:]
            self._at += gone
            if gone == len(first):
                del self._held[0]
