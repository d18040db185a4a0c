"""Sources of a stream: arrays, files and iterables, all read by slices of rows.

`source_of` turns each argument's value into an object with `shape`, `dtype` and `__getitem__`:

    np.ndarray                        itself
    HDF5                              itself; ContiguousDataset if it is one piece of its file
    Zarr                              itself; ChunkFiles if it is a folder without codecs
    memory-mapped array               Mapped, which checks the length of the file
    "x.npy", stored member of .npz    FileSource, which checks that the file has not changed
    compressed member of .npz         FileSource around Sequential
    list of the above                 ConcatenatedSource
    object with `__iter__`            Sequential, which starts a new iteration to go back
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized
from pathlib import Path
from typing import Protocol, TypeGuard, cast, overload

import jax
import numpy as np

from ..._errors import ContractError
from ..._jax.trees import canonicalize_dtype
from ..._jax.typed import NumPyArray
from .direct_reads import (
    ChunkFiles,
    ContiguousDataset,
    chunk_files_of,
    contiguous_dataset_of,
)
from .files import FileSource, Mapped, Stamp, map_of, open_file
from .slices import Rows, Sequential, Slice, check_slice


@overload
def source_of(
    name: str,
    value: str | Path | Rows,
    where: str,
) -> Rows: ...
@overload
def source_of(
    name: str,
    value: object,
    where: str,
) -> object: ...
def source_of(
    name: str,
    value: object,
    where: str,
) -> object:
    """Turn an argument's value into an object that can be sliced; a value without rows stays as it
    is.

    Raises:
        ContractError: A file is of an unknown kind or lacks the array, or an iterable can be read
            only once.
    """
    if isinstance(value, (str, Path)):
        return open_file(name, Path(value), where)
    if isinstance(value, np.ndarray) and map_of(value) is not None:
        return Mapped(value, name)
    if isinstance(value, (jax.Array, np.ndarray)):
        return value
    stored = chunk_files_of(value, name) or contiguous_dataset_of(value)
    if stored is not None:
        return stored

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


def is_sliceable(value: object) -> TypeGuard[Rows]:
    """Return whether the value has rows: an array, or an object with the interface of one."""
    return (
        hasattr(value, "dtype")
        and hasattr(value, "__getitem__")
        and len(getattr(value, "shape", ())) > 0
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


def read_rows(
    data: Rows,
    where: Slice,
    out: NumPyArray,
) -> object:
    """Read rows of a source, into an array of their shape and dtype if that saves a copy."""
    if isinstance(data, _READ_INTO):
        return data.read_into(where, out)
    if isinstance(where, slice) and _reads_directly(data) and 0 < where.stop <= data.shape[0]:
        cast("_Direct", data).read_direct(out, where)
        return out
    return data[where]


def reads_by_offset(data: object) -> bool:
    """Return whether rows come from a file as they lie, so that few at a time cost no more."""
    if isinstance(data, ConcatenatedSource):
        return all(map(reads_by_offset, data.parts))
    if isinstance(data, FileSource):
        return isinstance(data.array, np.memmap)
    return isinstance(data, (Mapped, ChunkFiles, ContiguousDataset))


class _Direct(Protocol):
    """What reads rows into an array, as an HDF5 dataset does. It raises where there are fewer."""

    def read_direct(self, dest: NumPyArray, source_sel: slice, /) -> None: ...


def _reads_directly(data: object) -> bool:
    """Return whether the class itself has both ways of reading: one that hands attributes on, or
    changes only what slices give, would read other rows.
    """
    return {"__getitem__", "read_direct"} <= vars(type(data)).keys()


def read_whole(value: object, name: str) -> object:
    """Read all rows of a source; any other value stays as it is."""
    if not is_read(value):
        return value
    whole = value[0 : value.shape[0]]
    return check_slice(whole, tuple(value.shape), value.dtype, name)


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
        if len(parts) > _MOST_OPEN:
            for part in parts:
                if isinstance(part, FileSource):
                    part.close_after_each_read()
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
        return self.read_into(
            where, np.empty((where.stop - where.start, *self.shape[1:]), self.dtype)
        )

    def read_into(
        self,
        where: Slice,
        out: NumPyArray,
    ) -> NumPyArray:
        """Read rows into an array of their shape and dtype, and return it."""
        if isinstance(where, tuple):
            return self[where]
        for part, start, stop in zip(
            self.parts,
            self.starts,
            self.starts[1:],
            strict=False,
        ):
            first, last = max(where.start, start), min(where.stop, stop)
            if first < last:
                place = out[first - where.start : last - where.start]
                rows = read_rows(part, slice(first - start, last - start), place)
                rows = check_slice(
                    rows,
                    place.shape,
                    self.dtype,
                    self.name,
                )
                if rows is not place:
                    np.copyto(place, rows)
        return out


def is_reversible(value: object) -> bool:
    """Return whether chunks can be read from the last to the first without reading all rows before
    each.
    """
    if isinstance(value, ConcatenatedSource):
        return all(map(is_reversible, value.parts))
    if isinstance(value, FileSource):
        return is_reversible(value.array)
    return not isinstance(value, Sequential)


def _from_iterable(
    name: str,
    value: Iterable[Sized],
    where: str,
) -> Sequential:
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
        is_like = chunk.shape[1:] == first.shape[1:] and chunk.dtype == first.dtype
        if chunk.ndim == 0 or not is_like:
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


_READ_INTO = (Mapped, FileSource, ConcatenatedSource, ChunkFiles, ContiguousDataset)
_MOST_OPEN = 64
"""Files of a list that stay open; of more, each is opened for each reading."""
