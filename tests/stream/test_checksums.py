"""Checksums of the chunks of a stream: of the right bytes, each time, and all of them.

Reference: `xxhash` on the rows themselves.
"""

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xxhash
from jaxtyping import Array, Float

from jitney import optimize, stream
from jitney._stream.data.reading import ChunkReader
from jitney._stream.resume import Checkpoint
from jitney.errors import DataError
from tests.stream._sources import SOURCES, Stops, breaks_off, mean, variance
from tests.stream.test_stream import rows, saved

HEADER = 128


@optimize
def both(x: Float[Array, "n"], y: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.sum(x * y)


def marks(path):
    """The checksums in a checkpoint file."""
    content = path.read_bytes()
    start = content.index(b"PK")
    path.with_suffix(".npz").write_bytes(content[start:])
    with np.load(path.with_suffix(".npz")) as file:
        return file["rmarks"]


@pytest.mark.core("path")
@pytest.mark.parametrize("kind", ["NumPy", "path", "HDF5", "chunks"])
def test_checksums_are_of_the_chunks_that_were_read(kind, tmp_path, monkeypatch):
    """A chunk is read while the step of the one before runs, into memory that is used again."""
    x, y = rows(100), rows(100)[::-1].copy()
    path, reached, times = tmp_path / "run", Checkpoint.save_if_due, []

    def sixth(self, progress):
        times.append(1)
        if len(times) == 6:
            reached(self, progress)
            raise Stops

    monkeypatch.setattr(Checkpoint, "save_if_due", sixth)
    own = {"checkpoint": path, "checkpoint_every": 1, "progress": False}
    with pytest.raises(Stops):
        stream(both, SOURCES[kind](x, tmp_path), y, chunk={"n": 8}, **own)
    got = marks(path)
    for j in range(6):
        for i, of in enumerate((x, y)):
            assert got[i, j] == xxhash.xxh3_64_intdigest(of[8 * j : 8 * j + 8].tobytes())


@pytest.mark.core("path-47", "memory map-20")
@pytest.mark.parametrize("row", [0, 20, 47])
@pytest.mark.parametrize("kind", ["path", "memory map"])
def test_one_byte_that_changes_in_place_is_seen(kind, row, tmp_path, monkeypatch):
    """In the first chunk that was read, in one in the middle, and in the last one; the file has its
    size, its inode and its time of writing.
    """
    data, path = saved(rows(100), tmp_path), tmp_path / "run"
    made = data if kind == "path" else np.load(data, mmap_mode="r")
    breaks_off(monkeypatch, mean, {"x": made}, path, 6)
    status = data.stat()
    with data.open("r+b") as file:
        file.seek(HEADER + 4 * row + 1)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))
    os.utime(data, ns=(status.st_atime_ns, status.st_mtime_ns))
    start = row // 8 * 8
    with pytest.raises(DataError, match=rf"rows {start} to {start + 8} of 'x' are not what"):
        stream(mean, made, chunk={"n": 8}, checkpoint=path, progress=False)


@pytest.mark.parametrize("row", [0, 50, 99])
def test_a_change_between_two_passes_is_seen_wherever_it_is(row, monkeypatch):
    """The last chunk too, after which nothing is read."""
    x = rows(100)
    part, times = ChunkReader._part, []

    def changing(self, source, where, out=None):
        times.append(where)
        if len(times) == 14:
            x[row] += 1
        return part(self, source, where, out)

    monkeypatch.setattr(ChunkReader, "_part", changing)
    start = row // 8 * 8
    with pytest.raises(DataError, match=rf"rows {start} to {min(start + 8, 100)} of 'x' are not"):
        stream(variance, x, chunk={"n": 8}, progress=False)


def test_rows_in_another_dtype_have_the_checksum_of_what_is_stored(tmp_path, monkeypatch):
    """A reader of its own may fill one buffer again and again."""
    x, path = rows(100).astype(float), tmp_path / "run"

    class Buffered:
        shape, dtype, buffer = x.shape, x.dtype, np.empty(8)

        def __getitem__(self, where):
            part = self.buffer[: where.stop - where.start]
            part[:] = x[where]
            return part

    with jax.enable_x64(False):
        breaks_off(monkeypatch, mean, {"x": Buffered()}, path, 6)
    for j, got in enumerate(marks(path)[0, :6]):
        assert got == xxhash.xxh3_64_intdigest(x[8 * j : 8 * j + 8].tobytes())
