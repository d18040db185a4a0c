"""Reader of the chunks of a stream, with checksums of those that are read twice.

A chunk has exactly the requested rows, in the dtype of its source. A chunk that is read again, by a
later pass or by a run that resumes from a checkpoint, must have the checksum of the first reading.
Otherwise results of the old rows would be mixed with results of the new ones.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import jax
import numpy as np
import xxhash

from ..._errors import DataError
from ..._jax.arrays import bytes_of
from ..._jax.settings import x64_is_on
from ..._jax.typed import DType, NumPyArray
from ..._view.fitting import WHOLE, demand_whole_numbers_fit
from .chunk_memory import ChunkMemory
from .slices import Rows, check_slice
from .sources import read_rows, reads_by_offset, source_of, stamp_of

T = TypeVar("T")


class SourceOpener:
    """Opener of sources, which counts its failed attempts.

    Args:
        where: The function, for messages.
        retries: Number of times that opening one is tried again.
    """

    def __init__(self, where: str, retries: int):
        self.failures = 0
        self._where = where
        self._retries = retries

    def __call__(self, name: str, value: object) -> object:
        """Open a source.

        Raises:
            ContractError: The value is not a source.
            OSError: It cannot be opened, or its rows cannot be counted.
        """
        return retry(
            lambda: source_of(name, value, self._where),
            self._retries,
            f"Opening {name!r} failed",
            self._count_failure,
        )

    def _count_failure(self) -> None:
        self.failures += 1


def retry(
    read: Callable[[], T],
    retries: int,
    note: str,
    failed: Callable[[], None],
) -> T:
    """Call `read`, with retries after an `OSError`; a missing or forbidden file is not retried."""
    for tried in range(retries + 1):
        try:
            return read()
        except OSError as error:
            if tried == retries or isinstance(error, _FINAL):
                times = f", {tried + 1} times" if tried else ""
                error.add_note(f"{note}{times}.")
                raise
            failed()
            # Exponential backoff: 0.1 s, 0.2 s, 0.4 s, ...
            time.sleep(_PAUSE * 2**tried)
    raise AssertionError("the last try returns or raises")


@dataclass(frozen=True)
class Source:
    """Array that is read in chunks.

    Args:
        name: Name of the argument.
        data: Object that is sliced.
        axis: Axis along which it is cut.
        dtype: Dtype in which the program takes it.
    """

    name: str
    data: Rows
    axis: int
    dtype: DType

    # Looked up once: a dataset of HDF5 asks its file each time.
    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole."""
        return tuple(self.data.shape)

    @cached_property
    def held(self) -> DType:
        """Dtype in which the rows are stored."""
        return np.dtype(self.data.dtype)

    @cached_property
    def is_direct(self) -> bool:
        """Whether the rows are stored in the dtype of the program."""
        return self.held == np.dtype(self.dtype)

    @cached_property
    def is_read_in_pieces(self) -> bool:
        """True if rows are read a piece at a time, and converted into the chunk."""
        return not (self.is_direct or self.axis) and reads_by_offset(self.data)

    def pieces(self, rows: slice) -> list[slice]:
        """Rows that are read at a time, one after the other."""
        if not self.is_read_in_pieces:
            return [rows]
        width = math.prod(self.shape[1:]) * self.held.itemsize
        count = max(1, _PIECE // max(1, width))
        starts = range(rows.start, rows.stop, count)
        return [slice(start, min(start + count, rows.stop)) for start in starts]

    def shape_of(self, count: int) -> tuple[int, ...]:
        """Shape of so many rows."""
        return (*self.shape[: self.axis], count, *self.shape[self.axis + 1 :])


class ChunkReader:
    """Reader of several arrays; a chunk is named by its first row.

    Args:
        sources: The sources, by the number of their value in the program.
        pieces: Start and length of each chunk.
        retries: Number of times that a failed reading is repeated.
        where: The function, for messages.
        passes: Number of passes over the data.
        kept: Whether a checkpoint is written.
        memory: Memory of the chunks.
    """

    def __init__(
        self,
        sources: Mapping[int, Source],
        pieces: Sequence[tuple[int, int]],
        retries: int,
        where: str,
        *,
        passes: int,
        kept: bool,
        memory: ChunkMemory,
    ):
        self.sources = sources
        self.memory = memory
        self.pieces = pieces
        self.retries = retries
        self.failures = 0
        self._where = where
        self._numbers = {start: j for j, (start, _) in enumerate(pieces)}
        data = [source.data for source in sources.values()]
        self._stamps = list(map(stamp_of, data))
        # Checksums cost a pass over the bytes, so they are taken only where a chunk may be read
        # twice from data that can change.
        self._marked = [kept or (passes > 1 and not _is_fixed(rows)) for rows in data]
        self._marks = np.zeros((len(sources), len(pieces)), np.uint64)
        self._seen = np.zeros(len(pieces), np.bool_)
        # The caller's setting: chunks are read in the 64-bit context of the schedule.
        self._wide: bool = x64_is_on()

    def __call__(
        self,
        start: int,
        count: int,
    ) -> dict[int, NumPyArray]:
        """Read one chunk of each array.

        Raises:
            OSError: It could not be read.
            DataError: Its rows are not those of the first reading.
        """
        j = self._numbers[start]
        rows = slice(start, start + count)
        parts: dict[int, NumPyArray] = {}
        self.memory.next_chunk()
        for i, (n, source) in enumerate(self.sources.items()):
            chunk = parts[n] = self.memory.array(n, source.shape_of(count), source.dtype)
            is_known = self._marked[i] and self._seen[j]
            content = self._fill(
                source,
                rows,
                chunk,
                is_marked=self._marked[i],
                is_known=is_known,
            )
            mark = content.intdigest()
            if is_known and mark != self._marks[i, j]:
                raise self._change_error(source, start, count, "in the pass before")
            self._marks[i, j] = mark
        self._seen[j] = True
        return parts

    def _fill(
        self,
        source: Source,
        rows: slice,
        chunk: NumPyArray,
        *,
        is_marked: bool,
        is_known: bool,
    ) -> xxhash.xxh3_64:
        """Read rows into a chunk, in the dtype of the program; return the checksum of what was
        read, or of nothing.
        """
        content = xxhash.xxh3_64()
        for piece in source.pieces(rows):
            place = chunk
            if piece is not rows:
                first, last = piece.start - rows.start, piece.stop - rows.start
                place = chunk[first:last]
            out = place if source.is_direct else None
            if out is None and source.is_read_in_pieces:
                out = self.memory.piece(place.shape, source.held)
            part = self._part(source, piece, out)
            if is_marked:
                content.update(bytes_of(part).data)
            # Of rows that have been read before, the checksum says that they are the same.
            if source.held in WHOLE and not (source.is_direct or is_known):
                self._demand_fit(source, part)
            # Copied, because an iterator may reuse its buffer for the next chunk.
            if part is not place:
                np.copyto(place, part, casting="unsafe")
        return content

    def _demand_fit(
        self,
        source: Source,
        part: object,
    ) -> None:
        """Check that whole numbers fit the program's dtype, under the caller's `jax_enable_x64`."""
        with jax.enable_x64(self._wide):
            demand_whole_numbers_fit(self._where, [source.name], [np.asarray(part)])

    def checkpoint_data(self, done: Sequence[bool]) -> Mapping[str, NumPyArray]:
        """Checksums and file stamps of the chunks that are done, for a checkpoint."""
        return {
            "marks": self._marks,
            "done": np.asarray(done),
            "stamps": np.asarray([repr(stamp) for stamp in self._stamps]),
        }

    def resume(
        self,
        known: Mapping[str, NumPyArray],
    ) -> None:
        """Continue after the chunks of a checkpoint, once their rows are found unchanged.

        Rows of files with an unchanged, settled stamp are not read again.

        Raises:
            DataError: Rows are not those that the checkpoint was computed from.
        """
        marks, done, stamps = known["marks"], known["done"], known["stamps"]
        for i, (source, stamp) in enumerate(zip(self.sources.values(), self._stamps, strict=True)):
            # Rows of untouched files cannot have changed.
            if stamp is not None and stamp.settled and str(stamps[i]) == repr(stamp):
                continue
            for j, (start, count) in enumerate(self.pieces):
                if not done[j]:
                    continue
                part = self._part(source, slice(start, start + count))
                if _mark(part) != marks[i, j]:
                    raise self._change_error(
                        source, start, count, "when the checkpoint was written"
                    )
        self._marks = np.array(marks)
        self._seen = np.array(done)

    def _part(
        self,
        source: Source,
        rows: slice,
        out: NumPyArray | None = None,
    ) -> NumPyArray:
        """Read the rows of one source, with retries; into `out` if that saves a copy."""
        data, axis = source.data, source.axis
        place = (*[slice(None)] * axis, rows) if axis else rows
        shape = source.shape_of(rows.stop - rows.start)

        def read() -> NumPyArray:
            part = data[place] if out is None else read_rows(data, place, out)
            return check_slice(
                part,
                shape,
                source.held,
                source.name,
            )

        def in_callers_setting() -> NumPyArray:
            with jax.enable_x64(self._wide):
                return read()

        read_once = read if x64_is_on() == self._wide else in_callers_setting
        note = f"Reading rows {rows.start} to {rows.stop} of {source.name!r} failed"
        return retry(
            read_once,
            self.retries,
            note,
            self._count_failure,
        )

    def _count_failure(self) -> None:
        self.failures += 1

    def _change_error(
        self,
        source: Source,
        start: int,
        count: int,
        when: str,
    ) -> DataError:
        return DataError(
            self._where,
            f"rows {start} to {start + count} of {source.name!r} are not what they were {when}.",
            "What was computed of them would be mixed with what they are now.",
            "start again: without the checkpoint, and with data that do not change between"
            " readings.",
        )


def _is_fixed(data: object) -> bool:
    """Return whether the data cannot change without notice."""
    stamp = stamp_of(data)
    return isinstance(data, jax.Array) or (stamp is not None and stamp.settled)


def _mark(part: NumPyArray) -> int:
    """Checksum of the bytes of a chunk."""
    return xxhash.xxh3_64_intdigest(bytes_of(part).data)


# Errors that reading again does not mend.
_FINAL = (FileNotFoundError, PermissionError, IsADirectoryError)
# Seconds before the first retry of a reading.
_PAUSE = 0.1
_PIECE = 2 * 2**20
"""Bytes that are read before they are converted: few enough for the caches, and many enough that
the system copies them at the speed of memory.
"""
