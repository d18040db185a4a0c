"""Checksums that a thread takes beside the reading: of the right bytes, each time, and all of them.

Reference: `xxhash` on the rows themselves.
"""

import gc
import os
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xxhash
from jaxtyping import Array, Float

from jitney import optimize, stream
from jitney._stream import checksums
from jitney._stream.reading import ChunkReader
from jitney._stream.resume import Checkpoint
from jitney.errors import DataError
from tests.stream._sources import SOURCES, Stops, breaks_off, mean, variance
from tests.stream.test_stream import rows, saved

HEADER = 128
WAYS = {"reader": False, "thread": True}


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    """Who takes the checksums, which is otherwise a question of time."""
    monkeypatch.setattr(checksums.Checksums, "_in_thread", lambda self: WAYS[request.param])


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
    """The thread comes to each of them as late as it can: when the reader waits for it."""
    x, y = rows(100), rows(100)[::-1].copy()
    monkeypatch.setattr(checksums.Checksums, "_in_thread", lambda self: True)
    waits, compute = threading.Semaphore(0), checksums.PendingChecksums.compute
    wait = checksums.PendingChecksums.wait
    monkeypatch.setattr(
        checksums.PendingChecksums, "compute", lambda self: (waits.acquire(), compute(self))[1]
    )
    monkeypatch.setattr(
        checksums.PendingChecksums, "wait", lambda self: (waits.release(), wait(self))[1]
    )
    # No save before the last chunk: only the memory of the chunks makes the reader wait.
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


@pytest.mark.core("thread-path-47", "reader-memory map-20")
@pytest.mark.usefixtures("way")
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


@pytest.mark.usefixtures("way")
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


@pytest.mark.usefixtures("way")
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


@pytest.mark.parametrize("quicker", WAYS)
def test_the_quicker_way_is_gone_on_with(quicker, monkeypatch):
    """A clock says how long each chunk takes; both ways are tried first."""
    now, ways = [0.0], []
    monkeypatch.setattr(checksums.time, "perf_counter", lambda: now[0])
    both = checksums.Checksums()
    for _ in range(40):
        ways.append(both._in_thread())
        now[0] += 1.0 if ways[-1] == WAYS[quicker] else 2.0
    assert ways[:11] == [False] * 6 + [True] * 5
    assert set(ways[11:]) == {WAYS[quicker]}


@pytest.mark.usefixtures("way")
def test_the_thread_ends_with_the_run(tmp_path):
    path = saved(rows(100), tmp_path)
    stream(mean, path, chunk={"n": 8}, checkpoint=tmp_path / "run", progress=False)
    gc.collect()
    for thread in threading.enumerate():
        if thread.name == "jitney-checksums":
            thread.join(10)
            assert not thread.is_alive()
