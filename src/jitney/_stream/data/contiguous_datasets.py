"""Datasets of HDF5 that are one piece of their file, read without their library.

The library copies rows through its own layers: of a sum over 160 MiB in the system's cache that is
a fifth of the time. A contiguous dataset says where in the file its rows begin, and those bytes are
the array. They are read from the file that the library itself has open, so no other file can be in
its place. Whatever differs from the plain case is read by slices of the dataset, as before: chunks,
filters, external and virtual storage, types that NumPy has in another form, other drivers than that
of plain files, and files that this process may write, whose rows may still be in its buffers.
"""

from __future__ import annotations

import os
import sys
from typing import Protocol, cast

import numpy as np

from ..._jax.typed import DType, NumPyArray
from .files import Descriptor, read_at
from .slices import Rows, Slice


class _DatasetID(Protocol):
    valid: bool

    def get_offset(self) -> int | None: ...
    def get_storage_size(self) -> int: ...
    def get_type(self) -> object: ...


class _FileID(Protocol):
    def get_vfd_handle(self) -> int: ...


class _File(Protocol):
    driver: str
    mode: str
    swmr_mode: bool
    id: _FileID


class _Dataset(Rows, Protocol):
    id: _DatasetID
    file: _File
    size: int


class ContiguousDataset:
    """Dataset whose rows lie in a file one behind the other.

    Args:
        dataset: The dataset, which reads what the file does not hold.
        file: The file.
        offset: Where the first row begins, in bytes.
    """

    def __init__(
        self,
        dataset: _Dataset,
        file: Descriptor,
        offset: int,
    ):
        self.array = dataset
        self.shape = tuple(dataset.shape)
        self.dtype: DType = np.dtype(dataset.dtype)
        self._file = file
        self._offset = offset

    def __getitem__(self, where: Slice) -> NumPyArray:
        if isinstance(where, tuple):
            return np.asarray(self.array[where])
        shape = where.stop - where.start, *self.shape[1:]
        out = np.empty(shape, self.dtype)
        return self.read_into(where, out)

    def read_into(
        self,
        where: Slice,
        out: NumPyArray,
    ) -> NumPyArray:
        """Read rows into an array of their shape and dtype; return it, or rows in memory of their
        own. There are fewer rows if the file has become shorter, where the library gives zeros.
        """
        # Of a dataset that was closed, the library says so itself.
        is_plain = out.size and out.flags.c_contiguous and self.array.id.valid
        if is_plain and isinstance(where, slice) and where.stop <= self.shape[0]:
            content = out.reshape(-1).view(np.uint8).data
            width = out.nbytes // len(out)
            start = self._offset + where.start * width
            done = read_at(
                self._file.number,
                content,
                start,
            )
            if done == len(content):
                return out
            return out[: done // width]
        return np.asarray(self.array[where])


def contiguous_dataset_of(value: object) -> ContiguousDataset | None:
    """Rows of a dataset of HDF5 that is one piece of a file; else None."""
    package = sys.modules.get("h5py")
    # A class of its own may change what slices give.
    if package is None or type(value) is not getattr(package, "Dataset", None):
        return None
    # Without this call a reading would move the place in the file, which HDF5 remembers.
    if not hasattr(os, "preadv"):
        return None
    dataset = cast("_Dataset", value)
    if not dataset.id.valid or not dataset.shape:
        return None
    file = dataset.file
    if file.mode != "r" or file.swmr_mode:
        return None
    if file.driver != "sec2":
        return None

    # The bytes of a row are those of NumPy.
    dtype = np.dtype(dataset.dtype)
    if dtype.kind not in "iuf" or not dtype.isnative:
        return None
    as_numpy_stores = package.h5t.py_create(dtype)
    if dataset.id.get_type() != as_numpy_stores:
        return None

    # They are in one piece, of which each byte is there.
    offset = dataset.id.get_offset()
    size = dataset.size * dtype.itemsize
    if offset is None or dataset.id.get_storage_size() != size:
        return None
    number = file.id.get_vfd_handle()
    descriptor = Descriptor.duplicate(number)
    return ContiguousDataset(dataset, descriptor, offset)
