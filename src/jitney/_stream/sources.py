"""Sources of a stream: arrays, files and iterables, all read by slices of rows.

`source_of` turns each argument's value into an object with `shape`, `dtype` and `__getitem__`:

    np.ndarray, Zarr, HDF5            itself
    memory-mapped array               Mapped, which checks the length of the file
    "x.npy", stored member of .npz    FileSource, which checks that the file has not changed
    compressed member of .npz         FileSource around Sequential
    list of the above                 ConcatenatedSource
    object with `__iter__`            Sequential, which starts a new iteration to go back
"""

from __future__ import annotations

import math
import mmap
import time
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol, TypeGuard, overload

import jax
import numpy as np

from .._errors import ContractError, DataError
from .._jax.trees import canonicalize_dtype
from .._jax.typed import DType, NumPyArray

Slice = slice | tuple[slice, ...]
"""Rows of a source; or a slice of each axis, where another axis than the first is cut."""


class Rows(Protocol):
    """An array, or an object that is sliced like one: a Zarr array, an HDF5 dataset."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> DType: ...
    def __getitem__(self, where: Any, /) -> object: ...


@overload
def source_of(name: str, value: str | Path | Rows, where: str) -> Rows: ...
@overload
def source_of(name: str, value: object, where: str) -> object: ...
def source_of(name: str, value: object, where: str) -> object:
    """Turn an argument's value into an object that can be sliced; a value without rows stays as it
    is.

    Raises:
        ContractError: A file is of an unknown kind or lacks the array, or an iterable can be read
            only once.
    """
    if isinstance(value, (str, Path)):
        return _file(name, Path(value), where)
    if isinstance(value, np.ndarray) and map_of(value) is not None:
        return Mapped(value, name)
    if isinstance(value, (jax.Array, np.ndarray)):
        return value

    if _are_sources(value):
        parts = [source_of(name, part, where) for part in value]
        return ConcatenatedSource(parts, name, where)

    if (
        not is_sliceable(value)
        and isinstance(value, Iterable)
        and not isinstance(value, (dict, list, tuple, str, bytes, set, frozenset))
    ):
        return _from_iterable(name, value, where)
    return value


def is_sliceable(value: Any) -> TypeGuard[Rows]:
    """Return whether the value has rows: an array, or an object with the interface of one."""
    return (
        hasattr(value, "shape")
        and hasattr(value, "dtype")
        and hasattr(value, "__getitem__")
        and len(value.shape) > 0
    )


def is_read(value: object) -> TypeGuard[Rows]:
    """Return whether a value is read by slices: it has rows, and is not an array in memory."""
    return is_sliceable(value) and not isinstance(value, (jax.Array, np.ndarray))


def _are_sources(value: object) -> TypeGuard[Sequence[str | Path | Rows]]:
    """Return whether the value is a list of files and arrays."""
    return (
        isinstance(value, (list, tuple))
        and len(value) > 0
        and all(is_sliceable(part) or isinstance(part, (str, Path)) for part in value)
    )


def abstract(value: object) -> object:
    """Abstract value of a source; other values as they are."""
    if is_read(value):
        return jax.ShapeDtypeStruct(tuple(value.shape), canonicalize_dtype(value.dtype))
    return value


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


def read_whole(value: object, name: str) -> object:
    """Read all rows of a source; any other value stays as it is."""
    if not is_read(value):
        return value
    whole = value[0 : value.shape[0]]
    return check_slice(whole, tuple(value.shape), value.dtype, name)


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
        file = (
            status.st_dev,
            status.st_ino,
            status.st_size,
            status.st_mtime_ns,
            status.st_ctime_ns,
        )
        return cls((file,), settled)


def stamp_of(value: object) -> Stamp | None:
    """Stamp of data that were given by the paths of their files, else None."""
    if isinstance(value, FileSource):
        return value.stamp
    if not isinstance(value, ConcatenatedSource):
        return None
    stamps = [stamp_of(part) for part in value.parts]
    known = [stamp for stamp in stamps if stamp is not None]
    if len(known) < len(stamps):
        return None
    files = tuple(file for stamp in known for file in stamp.files)
    return Stamp(files, all(stamp.settled for stamp in known))


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
        _check_size(self.array, self.name)
        rows = np.array(self.array[where])
        # Within the last page, bytes after the new end of a cut file read as zeros without a
        # signal.
        _check_size(self.array, self.name)
        return rows


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
        self.shape = tuple(array.shape)
        self.dtype = array.dtype

    def __getitem__(self, where: Slice) -> NumPyArray:
        self._check()
        if isinstance(where, slice) and isinstance(self.array, np.memmap):
            rows = self._rows(where)
        else:
            rows = np.array(self.array[where])
        # Check after the reading as well: a file that is cut meanwhile reads as zeros where it is
        # mapped.
        self._check()
        return rows

    def _rows(self, where: slice) -> NumPyArray:
        """Read contiguous rows from the file instead of through the mapping.

        If the file is cut meanwhile, there are fewer rows, while a mapping would end the process.
        """
        array: Any = self.array
        if not array.flags.c_contiguous:
            _check_size(array, self.name)
            return np.array(array[where])

        start, stop, _ = where.indices(self.shape[0])
        row = math.prod(self.shape[1:])

        # `np.fromfile` takes an offset in bytes and a count of elements.
        offset = array.offset + start * row * array.itemsize
        count = max(0, stop - start) * row
        flat = np.fromfile(
            self.path,
            self.dtype,
            count,
            offset=offset,
        )
        if not row:
            return np.array(array[where])
        return flat.reshape(-1, *self.shape[1:])

    def _check(self) -> None:
        try:
            same = Stamp.of(self.path).files == self.stamp.files
        except FileNotFoundError:
            same = False
        if not same:
            raise DataError(
                f"reading {self.name!r}",
                f"{self.path} was changed, replaced or removed since it was opened.",
                "Rows of the old file would be mixed with rows of the new one.",
                "start again when nobody writes to it.",
            )


class ConcatenatedSource:
    """Arrays concatenated along their first axis, read as one."""

    def __init__(
        self,
        parts: Sequence[Rows],
        name: str,
        where: str,
    ):
        for i, part in enumerate(parts):
            if not part.shape:
                raise ContractError(
                    where,
                    f"part {i} of {name!r} is a single {part.dtype}, which has no rows.",
                    "A list of files is one array: the rows of each behind those before it.",
                    "write each number as an array of one row: np.save(..., np.array([x])).",
                    code="J218",
                )
        self.parts = parts
        self.name = name
        self.starts = np.cumsum([0, *(part.shape[0] for part in parts)])

        row = parts[0].shape[1:]
        self.shape = (int(self.starts[-1]), *row)
        self.dtype = parts[0].dtype
        expected = tuple(row), self.dtype
        for i, part in enumerate(parts):
            if (tuple(part.shape[1:]), part.dtype) != expected:
                raise _unlike(where, name, f"part {i}", part, self)

    def __getitem__(self, where: Slice) -> NumPyArray:
        # A tuple cuts another axis than the first: all rows, and a part of each.
        if isinstance(where, tuple):
            return np.concatenate([np.asarray(part[where]) for part in self.parts])

        row = self.shape[1:]
        pieces: list[NumPyArray] = []
        for part, start, stop in zip(
            self.parts,
            self.starts,
            self.starts[1:],
            strict=False,
        ):
            first = max(0, where.start - start)
            last = min(where.stop, stop) - start
            if first < last:
                rows = part[first:last]
                pieces.append(
                    check_slice(
                        rows,
                        (last - first, *row),
                        self.dtype,
                        self.name,
                    )
                )
        if not pieces:
            return np.empty((0, *row), self.dtype)
        return np.concatenate(pieces)


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


def is_reversible(value: object) -> bool:
    """Return whether chunks can be read from the last to the first without reading all rows before
    each.
    """
    if isinstance(value, ConcatenatedSource):
        return all(map(is_reversible, value.parts))
    if isinstance(value, FileSource):
        return is_reversible(value.array)
    return not isinstance(value, Sequential)


def _from_iterable(name: str, value: Iterable[Sized], where: str) -> Sequential:
    """Read an iterable of chunks once for its length, and return a source of it."""
    parts = iter(value)
    # An iterator returns itself from `__iter__`, so it cannot be read a second time.
    if parts is value:
        raise ContractError(
            where,
            f"the chunks of {name!r} can be read only once.",
            "A stream reads its data once for their length and once for each pass.",
            "pass an object whose `__iter__` starts again, or a list of files.",
            code="J218",
        )
    first, count = None, 0
    for part in parts:
        chunk = np.asarray(part)
        if first is None:
            first = chunk
        if chunk.ndim == 0 or (chunk.shape[1:], chunk.dtype) != (first.shape[1:], first.dtype):
            raise _unlike(where, name, "a chunk", chunk, first)
        count += len(chunk)
    if first is None:
        raise ContractError(
            where,
            f"{name!r} gave no chunk.",
            "The first chunk says of which dtype and shape the rows are.",
            "pass an empty array where there are no rows.",
            code="J218",
        )
    shape = (count, *first.shape[1:])
    return Sequential(lambda: iter(value), shape, first.dtype, name)


def _file(name: str, path: Path, where: str) -> FileSource | NumPyArray:
    if path.suffix in (".npy", ".npz"):
        stamp = Stamp.of(path)
        try:
            if path.suffix == ".npy":
                array = np.load(path, mmap_mode="r", allow_pickle=False)
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
        return np.memmap(path, dtype, "r", offset, shape, order)
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


def _unlike(
    where: str,
    name: str,
    what: str,
    part: Rows,
    first: Rows,
) -> ContractError:
    return ContractError(
        where,
        f"{what} of {name!r} is {part.dtype}{list(part.shape)}, the first is {first.dtype} with"
        f" rows of {list(first.shape[1:])}.",
        "Parts that are concatenated have rows of one shape and dtype.",
        "convert them before.",
        code="J218",
    )


_DAMAGED = (ValueError, EOFError, zipfile.BadZipFile, zlib.error)
# Nanoseconds; the coarsest step of a file system's times (FAT).
_SETTLED = 2_000_000_000
_READ = 2**20
"""Approximate number of bytes of a compressed array that are read at a time."""
