"""Arrays in files, which are opened by their paths or were mapped into memory."""

from __future__ import annotations

import mmap
import os
import threading
import time
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

import numpy as np

from ..._errors import ContractError, DataError
from ..._jax.typed import DType, NumPyArray
from .slices import Rows, Sequential, Slice


@dataclass(frozen=True)
class Stamp:
    """Identity of files by their metadata: device, inode, size and times.

    Args:
        files: Metadata of each file.
        settled: Whether every later change of a file would change its times.
    """

    files: tuple[tuple[int, ...], ...]
    settled: bool

    @classmethod
    def of(cls, path: Path) -> Stamp:
        """Stamp of a file now; unsettled if it was written so recently that a change may keep its
        times.
        """
        status = path.stat()
        last = max(status.st_mtime_ns, status.st_ctime_ns)
        # File times advance in steps, of up to two seconds on FAT.
        settled = time.time_ns() - last > _SETTLED
        return cls((_metadata(status),), settled)


def _metadata(status: os.stat_result) -> tuple[int, ...]:
    return (
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


def map_of(value: object) -> mmap.mmap | None:
    """The mapped file under an array, through any number of views."""
    while isinstance(value, (np.ndarray, memoryview)):
        value = value.base if isinstance(value, np.ndarray) else value.obj
    return value if isinstance(value, mmap.mmap) else None


def _check_size(array: object, name: str) -> None:
    """Check that a mapped file is still as long as its mapping.

    Raises:
        DataError: The file has become shorter.
    """
    # Reading a mapped page that is no longer in the file ends the process with SIGBUS.
    file = map_of(array)
    if file is not None and file.size() < len(file):
        raise DataError(
            f"reading {name!r}",
            f"its file was cut to {file.size()} bytes; {len(file)} were mapped.",
            "Rows that are no longer there cannot be read.",
            "start again when nobody writes to it.",
        )


class Mapped:
    """Array in a mapped file, whose length is checked around each reading.

    Args:
        array: The rows.
        name: Name of the argument.
    """

    def __init__(self, array: NumPyArray, name: str):
        self.array = array
        self.name = name
        self.shape = array.shape
        self.dtype = array.dtype

    def __getitem__(self, where: Slice) -> NumPyArray:
        rows = np.empty(self.array[where].shape, self.dtype)
        return self.read_into(where, rows)

    def read_into(
        self,
        where: Slice,
        out: NumPyArray,
    ) -> NumPyArray:
        """Read rows into an array of their shape and dtype, and return it."""
        _check_size(self.array, self.name)
        np.copyto(out, self.array[where])
        # Within the last page, bytes after the new end of a cut file read as zeros without a
        # signal.
        _check_size(self.array, self.name)
        return out


class FileSource:
    """Array of a file that was given by its path; each reading checks that the file has not
    changed.

    Args:
        array: The rows.
        path: Path of the file.
        stamp: Stamp of the file, from before it was opened.
        name: Name of the argument.
    """

    def __init__(
        self,
        array: Rows,
        path: Path,
        stamp: Stamp,
        name: str,
    ):
        self.array = array
        self.path = path
        self.stamp = stamp
        self.name = name
        self._place = str(path)
        self._stays_open = True
        self._file: Descriptor | None = None
        self.shape = tuple(array.shape)
        self.dtype = array.dtype

    def __getitem__(self, where: Slice) -> NumPyArray:
        return self._read(where, None)

    def read_into(
        self,
        where: Slice,
        out: NumPyArray,
    ) -> NumPyArray:
        """Read rows into an array of their shape and dtype; return it, or rows in memory of their
        own. There are fewer rows if the file has become shorter.
        """
        return self._read(where, out)

    def _read(
        self,
        where: Slice,
        out: NumPyArray | None,
    ) -> NumPyArray:
        if isinstance(where, slice) and isinstance(self.array, np.memmap):
            rows = self._rows(where, out)
        else:
            self._check()
            rows = np.array(self.array[where])
        # After the reading: a file that is cut meanwhile reads as zeros where it is mapped.
        self._check()
        return rows

    def _rows(
        self,
        where: slice,
        out: NumPyArray | None,
    ) -> NumPyArray:
        """Read contiguous rows from the file instead of through the mapping.

        If the file is cut meanwhile, there are fewer rows, while a mapping would end the process.
        """
        array: Any = self.array
        if not array.flags.c_contiguous:
            _check_size(array, self.name)
            return np.array(array[where])

        start, stop, _ = where.indices(self.shape[0])
        if out is None:
            out = np.empty((max(0, stop - start), *self.shape[1:]), self.dtype)
        if not out.size:
            return out
        count = self._fill(array.offset + start * (out.nbytes // len(out)), out)
        return out if count == len(out) else out[:count]

    def _fill(self, offset: int, out: NumPyArray) -> int:
        """Read the bytes from an offset on into an array; return how many of its rows."""
        file = self._opened()
        content = out.reshape(-1).view(np.uint8).data
        try:
            done = read_at(file.number, content, offset)
        except OSError:
            # A file far away may be gone for this descriptor only.
            self._file = None
            raise
        return done * len(out) // len(content)

    def _opened(self) -> Descriptor:
        """The file, which is opened once where it stays open.

        Raises:
            DataError: It is another one than that of the stamp.
        """
        file = self._file
        if file is None:
            try:
                file = Descriptor(self.path)
            except FileNotFoundError:
                raise self._change_error() from None
            # Another file may have been in its place just now, and be gone again.
            if _metadata(os.fstat(file.number)) not in self.stamp.files:
                raise self._change_error()
            if self._stays_open:
                self._file = file
        return file

    def close_after_each_read(self) -> None:
        """Do not stay open: among so many files that a process may not have all of them open."""
        self._stays_open = False

    def _check(self) -> None:
        try:
            status = os.stat(self._place)  # noqa: PTH116 - of a `Path` it takes three times as long
            same = (_metadata(status),) == self.stamp.files
        except FileNotFoundError:
            same = False
        if not same:
            raise self._change_error()

    def _change_error(self) -> DataError:
        return DataError(
            f"reading {self.name!r}",
            f"{self.path} was changed, replaced or removed since it was opened.",
            "Rows of the old file would be mixed with rows of the new one.",
            "start again when nobody writes to it.",
        )


class Descriptor:
    """File that is open for reading, until nobody has it any more."""

    # When Python ends, this module may have lost its names before the last file is closed.
    _close = staticmethod(os.close)

    def __init__(self, path: str | Path):
        self.number = -1
        self.number = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))

    @classmethod
    def duplicate(cls, number: int) -> Self:
        """The same open file, which stays open when the other descriptor is closed."""
        same = cls.__new__(cls)
        same.number = -1
        same.number = os.dup(number)
        return same

    def __del__(self) -> None:
        if self.number >= 0:
            self._close(self.number)


def read_at(
    number: int,
    content: memoryview,
    offset: int,
) -> int:
    """Read bytes of a file from an offset on; return how many there were."""
    done = 0
    # The system may read less than it is asked for.
    while done < len(content) and (count := _read_at(number, content[done:], offset + done)):
        done += count
    return done


def _read_at(
    number: int,
    content: memoryview,
    offset: int,
) -> int:
    """Read bytes of a file from an offset on, at least one if it is there; return how many."""
    if hasattr(os, "preadv"):
        return os.preadv(number, [content], offset)
    with _SEEKING:
        os.lseek(number, offset, os.SEEK_SET)
        part = os.read(number, len(content))
    content[: len(part)] = part
    return len(part)


def open_file(
    name: str,
    path: Path,
    where: str,
) -> FileSource | NumPyArray:
    if path.suffix in (".npy", ".npz"):
        stamp = Stamp.of(path)
        try:
            if path.suffix == ".npy":
                array = np.load(
                    path,
                    mmap_mode="r",
                    allow_pickle=False,
                )
            else:
                array = _member(name, path, where)
        except _DAMAGED as error:
            raise DataError(
                f"reading {name!r}",
                f"{path} is not a whole `{path.suffix}` file of numbers ({error}).",
                "Rows are read from files as NumPy writes them.",
                "write it again, with np.save or np.savez.",
                code="J313",
            ) from error
        if not array.shape:
            # Without rows it is passed whole.
            return np.array(array[()])
        return FileSource(array, path.absolute(), stamp, name)
    raise ContractError(
        where,
        f"{path} is of no kind that is read here.",
        "Paths are of `.npy` and `.npz` files.",
        "open it, and pass the array: an HDF5 dataset, a Zarr array, a NumPy memory map.",
        code="J218",
    )


def _member(name: str, path: Path, where: str) -> Rows:
    """Array of the argument's name in an `.npz` file: mapped if stored, else read by
    decompression.
    """
    with zipfile.ZipFile(path) as archive:
        inside = f"{name}.npy"
        if inside not in archive.namelist():
            names = ", ".join(other.removesuffix(".npy") for other in archive.namelist())
            raise ContractError(
                where,
                f"{path} holds no array {name!r}; it holds {names}.",
                "Of an `.npz` file each argument takes the array of its own name.",
                f"save it with np.savez(..., {name}=...).",
                code="J218",
            )
        info = archive.getinfo(inside)
        with archive.open(info) as file:
            shape, by_column, dtype = _header(file)
            start = file.tell()
            if not shape:
                return np.frombuffer(file.read(dtype.itemsize), dtype).reshape(())
    if info.compress_type == zipfile.ZIP_STORED:
        # Offset of the data in the archive. The local header has 30 bytes, then the name and an
        # extra field, whose lengths are at byte 26. The central directory may give another extra
        # field, so the lengths are read here.
        with path.open("rb") as raw:
            raw.seek(info.header_offset + 26)
            lengths = np.frombuffer(raw.read(4), "<u2")
        offset = info.header_offset + 30 + int(lengths.sum()) + start
        order = "F" if by_column else "C"
        return np.memmap(
            path,
            dtype,
            "r",
            offset,
            shape,
            order,
        )
    if by_column:
        raise ContractError(
            where,
            f"{name!r} in {path} is compressed and stored column by column.",
            "Rows are read from the first to the last.",
            "save it row by row (np.ascontiguousarray), or not compressed.",
            code="J218",
        )
    return Sequential(lambda: _rows_of(path, inside), shape, dtype, name)


def _rows_of(path: Path, inside: str) -> Iterator[NumPyArray]:
    try:
        with zipfile.ZipFile(path) as archive, archive.open(inside) as file:
            shape, _, dtype = _header(file)
            total, row = shape[0], shape[1:]
            width = int(np.prod(row)) * dtype.itemsize
            many = max(1, _READ // max(1, width))

            for start in range(0, total, many):
                count = min(many, total - start)
                # Without a name, nothing here holds the rows while the next ones are read.
                yield np.frombuffer(file.read(count * width), dtype).reshape(count, *row)
    # An `OSError`, so that it is retried: a later iteration may read another file.
    except (*_DAMAGED, KeyError) as error:
        raise OSError(f"{path} is damaged, or was changed while it was read: {error}") from error


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, DType]:
    """Shape, whether it is stored by columns, and dtype."""
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(file)
    return np.lib.format.read_array_header_2_0(file)


_DAMAGED = (ValueError, EOFError, zipfile.BadZipFile, zlib.error)
_SEEKING = threading.Lock()
"""Held where a system reads from the place of a file only, as Windows does."""
# Nanoseconds; the coarsest step of a file system's times (FAT).
_SETTLED = 2_000_000_000
_READ = 2**20
"""Approximate number of bytes of a compressed array that are read at a time."""
