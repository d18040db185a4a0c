"""Rows that files hold in another dtype than the program's, which are read and converted in pieces.

References: NumPy's conversion of the whole, and `xxhash` on the rows as they are stored.
"""

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xxhash
from jaxtyping import Array, Float, Int

from jitney import optimize, stream
from jitney._stream.data import reading
from jitney._stream.data.files import FileSource
from jitney.errors import ContractError, DataError
from tests.stream._sources import SOURCES, breaks_off, mean, variance
from tests.stream.test_checksums import marks
from tests.stream.test_stream import saved

X = np.random.default_rng(7).normal(size=100)
KINDS = ["path", "paths", "memory map", "HDF5", "chunk files", "npz", "Zarr", "NumPy"]


@pytest.fixture(autouse=True)
def pieces_of_three(monkeypatch):
    """A chunk of 8 rows is three pieces; the last one is shorter."""
    monkeypatch.setattr(reading, "_PIECE", 3 * 8)
    with jax.enable_x64(False):
        yield


@optimize
def same(x: Float[Array, "n"]) -> Float[Array, "n"]:
    return x


@optimize
def columns(x: Float[Array, "n k"]) -> Float[Array, "n k"]:
    return x


@optimize
def whole(x: Int[Array, "n"]) -> Int[Array, "n"]:
    return x


def run(program, data, **options):
    return stream(program, data, chunk={"n": 8}, progress=False, **options).result


@pytest.mark.parametrize("kind", KINDS)
def test_each_row_is_that_of_numpy(kind, tmp_path):
    data = SOURCES[kind](X, tmp_path)
    program = columns if kind == "npz" else same
    got = run(program, data).reshape(-1)
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, X.astype(np.float32))


def test_files_of_a_list_end_within_pieces(tmp_path):
    cuts = [0, 1, 2, 13, 16, 47, 100]
    names = [f"p{i}" for i in range(6)]
    paths = [saved(X[a:b], tmp_path, n) for a, b, n in zip(cuts, cuts[1:], names, strict=False)]
    np.testing.assert_array_equal(run(same, paths), X.astype(np.float32))


@pytest.mark.parametrize("width", [1, 2, 7])
def test_a_row_may_be_longer_than_a_piece(width, tmp_path):
    x = np.random.default_rng(1).normal(size=(20, width))
    np.testing.assert_array_equal(run(columns, saved(x, tmp_path)), x.astype(np.float32))


def test_another_axis_is_cut_in_whole_chunks(tmp_path):
    @optimize
    def across(x: Float[Array, "k n"]) -> Float[Array, "k n"]:
        return x

    x = X.reshape(4, 25)
    np.testing.assert_array_equal(run(across, saved(x, tmp_path)), x.astype(np.float32))


@pytest.mark.parametrize("row", [0, 20, 50, 99])
@pytest.mark.parametrize("number", [2**31, -(2**31) - 1])
def test_a_whole_number_that_does_not_fit_is_an_error(row, number, tmp_path):
    """In whichever piece it is."""
    x = np.arange(100)
    np.testing.assert_array_equal(run(whole, saved(x, tmp_path)), x)
    x[row] = number
    with pytest.raises(ContractError, match=rf"{number}"):
        run(whole, saved(x, tmp_path))


@pytest.mark.parametrize("kind", ["path", "memory map", "HDF5"])
def test_the_checksum_is_of_the_rows_as_they_are_stored(kind, tmp_path, monkeypatch):
    path = tmp_path / "run"
    breaks_off(monkeypatch, mean, {"x": SOURCES[kind](X, tmp_path)}, path, 6)
    for j, got in enumerate(marks(path)[0, :6]):
        assert got == xxhash.xxh3_64_intdigest(X[8 * j : 8 * j + 8].tobytes())


@pytest.mark.parametrize("row", [0, 20, 47])
def test_a_change_that_the_conversion_hides_is_seen(row, tmp_path, monkeypatch):
    """The last bit of a number in float64 makes no other float32."""
    data, path = saved(X, tmp_path), tmp_path / "run"
    made = np.load(data, mmap_mode="r")
    breaks_off(monkeypatch, mean, {"x": made}, path, 6)
    with data.open("r+b") as file:
        file.seek(128 + 8 * row)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))
    start = row // 8 * 8
    with pytest.raises(DataError, match=rf"rows {start} to {start + 8} of 'x' are not what"):
        stream(mean, made, chunk={"n": 8}, checkpoint=path, progress=False)


def test_a_change_between_two_passes_is_an_error_of_the_data(tmp_path, monkeypatch):
    """Also where the changed number does not fit."""

    @optimize
    def centred(x: Int[Array, "n"]) -> Int[Array, ""]:
        return jnp.sum(x - jnp.max(x))

    path = saved(np.arange(100), tmp_path)
    data = np.load(path, mmap_mode="r+")
    made, part, times = np.load(path, mmap_mode="r"), reading.ChunkReader._part, []

    def changing(self, source, where, out=None):
        times.append(where.start)
        if len(times) == 39:
            data[50] = 2**40
            data.flush()
        return part(self, source, where, out)

    monkeypatch.setattr(reading.ChunkReader, "_part", changing)
    with pytest.raises(DataError, match="rows 48 to 56 of 'x' are not what they were"):
        run(centred, made)
    assert times[:4] == [0, 3, 6, 8]


def test_a_file_that_is_cut_between_two_pieces_is_an_error(tmp_path, monkeypatch):
    path, rows_of, times = saved(X, tmp_path), FileSource._rows, []

    def cutting(self, where, out):
        times.append(1)
        if len(times) == 5:
            os.truncate(path, 128 + 8 * 12)
        return rows_of(self, where, out)

    monkeypatch.setattr(FileSource, "_rows", cutting)
    with pytest.raises(DataError, match="was changed, replaced or removed"):
        run(mean, path, retries=0)


def test_a_piece_that_failed_is_read_again(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "_PAUSE", 0.0)
    path, fill, times = saved(X, tmp_path), FileSource._fill, []

    def failing(self, offset, out):
        times.append(offset)
        if len(times) == 5:
            out[...] = np.nan
            raise OSError("gone")
        return fill(self, offset, out)

    monkeypatch.setattr(FileSource, "_fill", failing)
    got, stats = stream(variance, path, chunk={"n": 8}, progress=False)
    np.testing.assert_allclose(got, X.astype(np.float32).var(), rtol=1e-5)
    assert stats.retries == 1
    assert times[4] == times[5]


def test_a_derivative_around_a_stream_has_each_chunk(tmp_path):
    """Its chunks are kept; the memory of a piece is used again all the same."""

    @optimize
    def moment(w: Float[Array, ""], x: Float[Array, "n"]) -> Float[Array, ""]:
        return jnp.sum(jnp.sin(w * x))

    path = saved(X, tmp_path)
    got = jax.grad(lambda w: stream(moment, w, path, chunk={"n": 8}, progress=False).result)(0.5)
    np.testing.assert_allclose(got, np.sum(X * np.cos(0.5 * X)), rtol=1e-5)
