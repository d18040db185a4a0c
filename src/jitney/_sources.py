"""Where the chunks of a stream come from: arrays, files, and iterables, all read by the same slices."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ._errors import ContractError, sentence
from ._trees import canonicalize_dtype, is_a

Host = np.ndarray[Any, Any]


def source_of(name: str, value: Any, where: str) -> Any:
    """What can be sliced, of what was given for an argument; a value that has no rows stays what it is.

    Raises:
        ContractError: A file is of no known kind or lacks the array, or an iterable is read up by its first reader.
    """
    if is_a(value, (str, Path)):
        return _file(name, Path(value), where)
    if is_a(value, (jax.Array, np.ndarray)):
        return value
    if is_a(value, (list, tuple)) and len(value) > 0 and all(is_sliceable(part) or is_a(part, (str, Path)) for part in value):
        return Joined([source_of(name, part, where) for part in value], name, where)
    if not is_sliceable(value) and is_a(value, Iterable) and not is_a(value, (dict, list, tuple, str, bytes, set, frozenset)):
        return _iterated(name, value, where)
    return value


def is_sliceable(value: Any) -> bool:
    """Whether it has rows: an array, or something that reads like one."""
    return hasattr(value, "shape") and hasattr(value, "dtype") and hasattr(value, "__getitem__") and len(value.shape) > 0


def abstract(value: Any) -> Any:
    """What stands for a source where only its shape and dtype count."""
    if is_sliceable(value) and not is_a(value, (jax.Array, np.ndarray)):
        return jax.ShapeDtypeStruct(tuple(value.shape), canonicalize_dtype(value.dtype))
    return value


def identity(value: Any) -> tuple[Any, ...]:
    """What tells one source from another without reading it whole: shape, dtype, and of files their names, sizes and times of change."""
    parts = value.parts if is_a(value, Joined) else [value]
    return (tuple(value.shape), str(value.dtype), *map(_file_identity, parts))


def _file_identity(part: Any) -> tuple[Any, ...]:
    path: Any = getattr(part, "filename", None) or getattr(part, "path", None)
    if not is_a(path, (str, Path)) or not Path(path).is_file():
        return ()
    found = Path(path).stat()
    return (Path(path).name, found.st_size, found.st_mtime_ns)


class Joined:
    """Arrays that lie one behind the other, read as one."""

    def __init__(self, parts: Sequence[Any], name: str, where: str):
        self.parts = parts
        self.starts = np.cumsum([0, *(part.shape[0] for part in parts)])
        self.shape = (int(self.starts[-1]), *parts[0].shape[1:])
        self.dtype = parts[0].dtype
        for i, part in enumerate(parts):
            if (tuple(part.shape[1:]), part.dtype) != (tuple(self.shape[1:]), self.dtype):
                raise _unlike(where, name, f"part {i}", part, self)

    def __getitem__(self, where: slice) -> Host:
        found = [
            np.asarray(part[max(0, where.start - start) : where.stop - start])
            for part, start in zip(self.parts, self.starts, strict=False)
            if start < where.stop and start + part.shape[0] > where.start
        ]
        return np.concatenate(found) if found else np.empty((0, *self.shape[1:]), self.dtype)


class Sequential:
    """Rows that can only be read from the first one on. Reading backwards begins anew.

    Args:
        begin: Gives the rows from the first one on, as arrays of any length.
        shape: Of all of them.
        dtype: Of each.
        name: Of the argument.
    """

    def __init__(self, begin: Callable[[], Iterator[Any]], shape: tuple[int, ...], dtype: Any, name: str):
        self.begin = begin
        self.shape = shape
        self.dtype = np.dtype(dtype)
        self.name = name
        self._rows: Iterator[Any] = iter(())
        self._at = shape[0] + 1  # of the first row in `_held`; none is
        self._held: list[Host] = []

    def __getitem__(self, where: slice) -> Host:
        if where.start < self._at:
            self._rows, self._at, self._held = self.begin(), 0, []
        self._skip_to(where.start)
        missing = where.stop - self._at - sum(map(len, self._held))
        while missing > 0:
            part = next(self._rows, None)
            if part is None:
                raise OSError(f"the rows of {self.name!r} end after {self._at + sum(map(len, self._held))}; there were {self.shape[0]}")
            self._held.append(np.asarray(part))
            missing -= len(part)
        rows = self._held[0] if len(self._held) == 1 else np.concatenate(self._held)
        self._held = [rows]
        return rows[: where.stop - where.start]

    def _skip_to(self, row: int) -> None:
        while self._at < row:
            if not self._held:
                part = next(self._rows, None)
                if part is None:
                    return
                self._held = [np.asarray(part)]
            first = self._held[0]
            gone = min(len(first), row - self._at)
            self._held[0] = first[gone:]
            self._at += gone
            if gone == len(first):
                del self._held[0]


def is_reversible(value: Any) -> bool:
    """Whether chunks can be read from the last to the first without reading all rows before each."""
    return all(map(is_reversible, value.parts)) if is_a(value, Joined) else not is_a(value, Sequential)


def _iterated(name: str, value: Any, where: str) -> Sequential:
    """An iterable of chunks is read once for its length."""
    parts = iter(value)
    if parts is value:
        raise ContractError(
            sentence(where, f"the chunks of {name!r} can be read only once.",
                 "A stream reads its data once for their length and once for each pass.",
                     "pass an object whose `__iter__` begins anew, or a list of files.")
        )  # fmt: skip
    first, count = None, 0
    for part in parts:
        chunk: Host = np.asarray(part)
        if first is None:
            first = chunk
        if chunk.ndim == 0 or (chunk.shape[1:], chunk.dtype) != (first.shape[1:], first.dtype):
            raise _unlike(where, name, "a chunk", chunk, first)
        count += len(chunk)
    if first is None:
        raise ContractError(
            sentence(where, f"{name!r} gave no chunk.", "The first chunk says of which dtype and shape the rows are.",
                     "pass an empty array where there are no rows.")
        )  # fmt: skip
    return Sequential(lambda: iter(value), (count, *first.shape[1:]), first.dtype, name)


def _file(name: str, path: Path, where: str) -> Any:
    if path.suffix == ".npy":
        return np.load(path, mmap_mode="r", allow_pickle=False)
    if path.suffix == ".npz":
        return _member(name, path, where)
    raise ContractError(
        sentence(where, f"{path} is of no kind that is read here.", "Paths are of `.npy` and `.npz` files.",
                 "open it, and pass the array: an HDF5 dataset, a Zarr array, a NumPy memory map.")
    )  # fmt: skip


def _member(name: str, path: Path, where: str) -> Any:
    """The array of the argument's name in an `.npz` file: mapped where it lies there as it is, read through where it is compressed."""
    with zipfile.ZipFile(path) as archive:
        inside = f"{name}.npy"
        if inside not in archive.namelist():
            held = ", ".join(other.removesuffix(".npy") for other in archive.namelist())
            raise ContractError(
                sentence(where, f"{path} holds no array {name!r}; it holds {held}.",
                         "Of an `.npz` file each argument takes the array of its own name.",
                         f"save it with np.savez(..., {name}=...).")
            )  # fmt: skip
        info = archive.getinfo(inside)
        with archive.open(info) as file:
            shape, by_column, dtype = _header(file)
            start = file.tell()
    if info.compress_type == zipfile.ZIP_STORED:
        with path.open("rb") as raw:
            raw.seek(info.header_offset + 26)
            lengths = np.frombuffer(raw.read(4), "<u2")
        at = info.header_offset + 30 + int(lengths.sum()) + start
        return np.memmap(path, dtype, "r", at, shape, "F" if by_column else "C")
    if by_column:
        raise ContractError(
            sentence(where, f"{name!r} in {path} is compressed and lies column by column.", "Rows are read from the first to the last.",
                     "save it row by row (np.ascontiguousarray), or not compressed.")
        )  # fmt: skip
    return Sequential(lambda: _rows_of(path, inside), shape, dtype, name)


def _rows_of(path: Path, inside: str) -> Iterator[Host]:
    with zipfile.ZipFile(path) as archive, archive.open(inside) as file:
        shape, _, dtype = _header(file)
        width = int(np.prod(shape[1:])) * dtype.itemsize
        many = max(1, _READ // max(1, width))
        for start in range(0, shape[0], many):
            count = min(many, shape[0] - start)
            yield np.frombuffer(file.read(count * width), dtype).reshape(count, *shape[1:])


def _header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    return np.lib.format.read_array_header_1_0(file) if version == (1, 0) else np.lib.format.read_array_header_2_0(file)


def _unlike(where: str, name: str, what: str, part: Any, first: Any) -> ContractError:
    return ContractError(
        sentence(where,
                 f"{what} of {name!r} is {part.dtype}{list(part.shape)}, the first is {first.dtype} with rows of {list(first.shape[1:])}.",
                 "Parts that lie one behind the other have rows of one shape and dtype.", "convert them before.")
    )  # fmt: skip


_READ = 2**20
"""About how many bytes of a compressed array are read at a time."""
