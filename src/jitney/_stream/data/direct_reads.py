"""Arrays whose bytes lie in files as they are, read without their library: Zarr's uncompressed
chunk files, and datasets of HDF5 that are one piece of their file.

Zarr decodes, checks and gathers each chunk in Python: of a sum over 160 MiB in the system's cache
that is three quarters of the time. The bytes of a chunk that has no codec are those of the array.
The array's own metadata say where they are, in the terms of the Zarr specification (versions 2 and
3). Whatever differs from the plain case is read by slices of the array, as before: codecs, shards,
another order of bytes or axes, a store that is no folder; and a chunk whose file is missing or has
another length.

HDF5 copies rows through its own layers: of the same sum that is a fifth of the time. A contiguous
dataset says where in the file its rows begin, and those bytes are the array. They are read from the
file that the library itself has open, so no other file can be in its place. Read by slices of the
dataset, as before, are chunks, filters, external and virtual storage, types that NumPy has in
another form, other drivers than that of plain files, and files that this process may write, whose
rows may still be in its buffers.
"""

from __future__ import annotations

import itertools
import math
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol, cast

import numpy as np

from ..._jax.typed import DType, NumPyArray
from .files import Descriptor, read_at
from .slices import Rows, Slice, check_slice


class _FolderStore(Protocol):
    root: Path


class _ArrayMetadata(Protocol):
    def to_dict(self) -> Mapping[str, object]: ...


class _StoredArray(Rows, Protocol):
    path: str
    store: _FolderStore
    metadata: _ArrayMetadata


class ChunkFiles:
    """Array of uncompressed chunk files.

    Args:
        array: The array, which reads what these files do not hold.
        folder: Folder of the array.
        chunks: Shape of a chunk.
        prefix: What the name of each chunk begins with.
        separator: What stands between the numbers of a chunk, in its name.
        name: Name of the argument.
    """

    def __init__(
        self,
        array: Rows,
        folder: Path,
        chunks: Sequence[int],
        prefix: str,
        separator: str,
        name: str,
    ):
        self.array = array
        self.shape = tuple(array.shape)
        self.dtype: DType = np.dtype(array.dtype)
        self.name = name
        self._chunks = tuple(chunks)
        self._begin = os.path.join(folder, prefix)  # noqa: PTH118 - a prefix, not a path
        self._separator = separator
        self._row = math.prod(chunks[1:])
        # Number of a chunk along each other axis, and the part of the axis that it has.
        self._beside = [
            [
                (number, slice(begin, min(begin + size, length)))
                for number, begin in enumerate(range(0, length, size))
            ]
            for size, length in zip(self._chunks[1:], self.shape[1:], strict=True)
        ]

    def __getitem__(self, where: Slice) -> NumPyArray:
        if isinstance(where, tuple):
            return np.asarray(self.array[where])
        rows = where.stop - where.start
        shape = (rows, *self.shape[1:])
        return self.read_into(where, np.empty(shape, self.dtype))

    def read_into(
        self,
        where: Slice,
        out: NumPyArray,
    ) -> NumPyArray:
        """Read rows into an array of their shape and dtype; return it, or rows in memory of their
        own.
        """
        # An array that was resized says itself what it has.
        is_same = tuple(self.array.shape) == self.shape
        if isinstance(where, tuple) or not is_same or where.stop > self.shape[0]:
            return np.asarray(self.array[where])
        # A file has `size` rows, and a part of the other axes: the files beside it have the rest.
        size = self._chunks[0]
        for k in range(where.start // size, -(-where.stop // size)):
            first, last = max(where.start, k * size), min(where.stop, k * size + size)
            own = out[first - where.start : last - where.start]
            for beside in itertools.product(*self._beside):
                numbers = [k, *(number for number, _ in beside)]
                rest = tuple(part for _, part in beside)
                place = own[(slice(None), *rest)]
                if not self._read(numbers, first - k * size, place):
                    rows = self.array[(slice(first, last), *rest)]
                    place[...] = check_slice(rows, place.shape, self.dtype, self.name)
        return out

    def _read(
        self,
        numbers: Sequence[int],
        row: int,
        place: NumPyArray,
    ) -> bool:
        """Read a part of a chunk, from a row on; False if its file is not as expected."""
        path = self._begin + self._separator.join(map(str, numbers))
        try:
            file = Descriptor(path)
        except FileNotFoundError:
            return False
        width = self._row * self.dtype.itemsize
        if os.fstat(file.number).st_size != self._chunks[0] * width:
            return False
        shape = (len(place), *self._chunks[1:])
        is_direct = place.shape == shape and place.flags.c_contiguous
        part = place if is_direct else np.empty(shape, self.dtype)
        content = part.reshape(-1).view(np.uint8).data
        if read_at(file.number, content, row * width) < len(content):
            return False
        if not is_direct:
            place[...] = part[tuple(map(slice, place.shape))]
        return True


def chunk_files_of(value: object, name: str) -> ChunkFiles | None:
    """Files of an array of Zarr that is stored in a folder without codecs; else None."""
    zarr = sys.modules.get("zarr")
    of_zarr = getattr(zarr, "Array", None)
    if zarr is None or type(value) is not of_zarr:
        return None
    array = cast("_StoredArray", value)
    # A class of its own may read other files than those of its root.
    if not hasattr(array, "metadata") or type(array.store) is not zarr.storage.LocalStore:
        return None
    dtype = np.dtype(array.dtype)
    layout = _layout(array.metadata.to_dict(), dtype)
    is_plain = dtype.kind in "biufc" and dtype.isnative
    if layout is None or not is_plain or not array.shape:
        return None
    return ChunkFiles(array, array.store.root / array.path, *layout, name)


def _layout(
    metadata: Mapping[str, object],
    dtype: DType,
) -> tuple[list[int], str, str] | None:
    """Shape of the chunks, and the prefix and the separator of their names; None if the chunks are
    not stored as they are.
    """
    match metadata:
        case {
            "zarr_format": 2,
            "dtype": str(stored),
            "compressor": None,
            "filters": None | [],
            "order": "C",
            "chunks": [*chunks],
            "dimension_separator": str(separator),
        } if np.dtype(stored) == dtype:
            return cast("list[int]", chunks), "", separator
        case {
            "zarr_format": 3,
            "codecs": [{"name": "bytes", **codec}],
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [*chunks]}},
            "chunk_key_encoding": {
                "name": "default" | "v2" as encoding,
                "configuration": {"separator": str(separator)},
            },
            "storage_transformers": [],
        } if dtype.itemsize == 1 or codec == {"configuration": {"endian": sys.byteorder}}:
            prefix = f"c{separator}" if encoding == "default" else ""
            return cast("list[int]", chunks), prefix, separator
        case _:
            return None


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
