"""Zarr arrays whose chunk files are read without Zarr, and those that are not. References: the
arrays that were written, and Zarr.
"""

import itertools

import numpy as np
import pytest
import zarr
from zarr.codecs import BytesCodec, TransposeCodec
from zarr.storage import LocalStore, MemoryStore

from jitney import stream
from jitney._stream.data.direct_reads import ChunkFiles
from jitney._stream.data.sources import source_of
from jitney.errors import DataError
from tests.stream._sources import mean
from tests.stream.test_stream import rows

X = rows(23, 5, 4)


class NoSlices:
    """The array, of which nothing may be read."""

    def __init__(self, array):
        self.shape, self.dtype = array.shape, array.dtype


def written(folder, x=X, **options):
    own = {"chunks": (6, *x.shape[1:]), "compressors": None, **options}
    return zarr.create_array(str(folder / "z"), data=x, **own)


def opened(array):
    source = source_of("x", array, "f()")
    assert type(source) is ChunkFiles
    return source


def demand_equal(source, x):
    for start, stop in [(0, 23), (0, 6), (5, 7), (7, 11), (18, 23), (22, 23), (4, 4)]:
        got = source[start:stop]
        assert got.dtype == x.dtype
        np.testing.assert_array_equal(got, x[start:stop])
        out = np.empty_like(x[start:stop])
        np.testing.assert_array_equal(source.read_into(slice(start, stop), out), x[start:stop])


KEYS = {
    "v2": {"zarr_format": 2},
    "v2 with slashes": {
        "zarr_format": 2,
        "chunk_key_encoding": {"name": "v2", "separator": "/"},
    },
    "v3": {"zarr_format": 3},
    "v3 with points": {"chunk_key_encoding": {"name": "default", "separator": "."}},
    "v3 with names of v2": {"chunk_key_encoding": {"name": "v2", "separator": "."}},
}


@pytest.mark.core("chunks0-v2", "chunks1-v3")
@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("chunks", [(6, 5, 4), (6, 2, 3), (30, 5, 1)])
def test_chunk_files_hold_the_rows_of_the_array(chunks, keys, tmp_path):
    source = opened(written(tmp_path, chunks=chunks, **KEYS[keys]))
    source.array = NoSlices(source.array)
    demand_equal(source, X)


@pytest.mark.parametrize("dtype", ["f8", "f2", "c8", "i1", "u2", "i8", "?"])
@pytest.mark.parametrize("version", [2, 3])
def test_every_dtype_is_as_it_was_written(version, dtype, tmp_path):
    x = (100 * X).astype(dtype)
    source = opened(written(tmp_path, x, zarr_format=version))
    source.array = NoSlices(source.array)
    demand_equal(source, x)


def test_an_array_of_a_group_is_in_its_folder(tmp_path):
    group = zarr.open_group(str(tmp_path / "g"), mode="w")
    array = group.create_array("u/v", data=X, chunks=(6, 5, 4), compressors=None)
    source = opened(array)
    source.array = NoSlices(array)
    demand_equal(source, X)


@pytest.mark.core("3--1.5")
@pytest.mark.parametrize("fill", [0, -1.5, np.nan])
@pytest.mark.parametrize("version", [2, 3])
def test_a_chunk_without_a_file_is_the_fill_value(version, fill, tmp_path):
    array = zarr.create_array(
        str(tmp_path / "z"),
        shape=X.shape,
        dtype=X.dtype,
        chunks=(6, 2, 4),
        compressors=None,
        fill_value=fill,
        zarr_format=version,
    )
    x = np.full_like(X, fill)
    array[7:11, 1:3] = x[7:11, 1:3] = X[7:11, 1:3]
    demand_equal(opened(array), x)


class OfItsOwn(zarr.Array):
    """An array whose slices are others."""


class Elsewhere(LocalStore):
    """A store that may read other files."""


OTHERS = {
    "compressed": lambda folder: written(folder, compressors="auto"),
    "filtered": lambda folder: written(folder, filters=TransposeCodec(order=(2, 0, 1))),
    "filtered, v2": lambda folder: written(folder, zarr_format=2, compressors="auto"),
    "sharded": lambda folder: written(folder, shards=(12, 5, 4)),
    "other bytes": lambda folder: written(folder, serializer=BytesCodec(endian="big")),
    "other bytes, v2": lambda folder: written(folder, X.astype(">f4"), zarr_format=2),
    "other bytes, v3": lambda folder: written(folder, X.astype(">f4")),
    "by columns, v2": lambda folder: written(folder, order="F", zarr_format=2),
    "in memory": lambda folder: zarr.create_array(MemoryStore(), data=X, compressors=None),
    "another store": lambda folder: zarr.create_array(
        Elsewhere(folder / "e"), data=X, compressors=None
    ),
    "another class": lambda folder: OfItsOwn(written(folder).async_array),
}


@pytest.mark.core("sharded", "other bytes", "by columns, v2")
@pytest.mark.parametrize("kind", OTHERS)
def test_what_is_not_plain_is_read_by_its_slices(kind, tmp_path):
    array = OTHERS[kind](tmp_path)
    source = source_of("x", array, "f()")
    assert source is array
    np.testing.assert_array_equal(source[3:9], X[3:9])


@pytest.mark.parametrize("spoil", [lambda content: content[:-4], lambda content: content * 2])
def test_a_chunk_of_another_length_is_what_zarr_says(spoil, tmp_path):
    """An error, and not other rows."""
    source = opened(written(tmp_path))
    path = tmp_path / "z" / "c" / "1" / "0" / "0"
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(ValueError, match=r"reshape|size|shape|buffer"):
        source[0:12]
    np.testing.assert_array_equal(source[12:23], X[12:23])


def test_an_array_that_was_resized_is_an_error(tmp_path):
    """Its files are gone, and are not read as fill values."""
    x = rows(40)
    array = written(tmp_path, x, chunks=(8,))
    source = source_of("x", array, "f()")
    array.resize(20)
    with pytest.raises(DataError, match="a slice of"):
        stream(mean, source, chunk={"n": 8}, progress=False)


@pytest.mark.core("True")
@pytest.mark.parametrize("alone", [True, False])
def test_a_stream_reads_chunk_files(alone, tmp_path, monkeypatch):
    """Chunks of the stream begin and end within those of the array."""
    x, seen = rows(103), []
    array = written(tmp_path, x, chunks=(7,))
    read = ChunkFiles.read_into
    monkeypatch.setattr(
        ChunkFiles, "read_into", lambda self, *place: seen.append(place) or read(self, *place)
    )
    data, whole = (array, x) if alone else ([array, x[:9]], np.concatenate([x, x[:9]]))
    got = stream(mean, data, chunk={"n": 10}, progress=False).result
    np.testing.assert_allclose(got, whole.mean(), rtol=1e-5)
    assert seen


def test_another_axis_is_cut_by_slices(tmp_path):
    source = opened(written(tmp_path))
    for place in itertools.product([slice(0, 23), slice(3, 8)], [slice(1, 4)]):
        np.testing.assert_array_equal(source[place], X[place])
