"""Contiguous datasets of HDF5, whose bytes are read without it, beside what its slices give."""

import os

import h5py
import numpy as np
import pytest

from jitney import stream
from jitney._stream.data import files
from jitney._stream.data.direct_reads import contiguous_dataset_of
from jitney._stream.data.sources import source_of
from jitney.errors import DataError
from tests.stream._sources import mean

X = np.random.default_rng(0).normal(size=(23, 3)).astype(np.float32)
SLICES = [slice(0, 5), slice(5, 23), slice(22, 23), slice(0, 23), slice(7, 7)]


class NoSlices:
    """A dataset of which nothing but its state can be asked."""

    def __init__(self, data):
        self.id = data.id


def written(folder, x=X, **how):
    """A dataset that is only read."""
    of_file = {key: how.pop(key) for key in ("userblock_size", "libver") if key in how}
    with h5py.File(folder / "x.h5", "w", **of_file) as file:
        file.create_dataset("first", data=np.arange(5))
        file.create_dataset("x", data=x, **how)
    return h5py.File(folder / "x.h5", "r")["x"]


@pytest.mark.parametrize("how", [{}, {"userblock_size": 512}, {"libver": "latest"}])
@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i1", "u2", "i8"])
def test_bytes_of_the_file_are_the_rows(dtype, how, tmp_path):
    x = (100 * X).astype(dtype)
    source = contiguous_dataset_of(written(tmp_path, x, **how))
    source.array = NoSlices(source.array)
    for rows in SLICES[:-1]:
        np.testing.assert_array_equal(source[rows], x[rows], strict=True)


@pytest.mark.parametrize("rows", [*SLICES, (slice(None), slice(1, 3))])
def test_slices_are_those_of_the_dataset(rows, tmp_path):
    data = written(tmp_path)
    np.testing.assert_array_equal(contiguous_dataset_of(data)[rows], data[rows], strict=True)


def in_pieces(folder, *, virtual):
    """A dataset whose rows are in another file."""
    if not virtual:
        return written(folder, external=[(folder / "x.raw", 0, X.nbytes)])
    written(folder).file.close()
    layout = h5py.VirtualLayout(X.shape, X.dtype)
    layout[:] = h5py.VirtualSource(str(folder / "x.h5"), "x", X.shape)
    with h5py.File(folder / "v.h5", "w") as file:
        file.create_virtual_dataset("v", layout)
    return h5py.File(folder / "v.h5", "r")["v"]


def of_type(folder, stored):
    """A dataset of a type that NumPy has in another form."""
    with h5py.File(folder / "x.h5", "w") as file:
        space = h5py.h5s.create_simple(X.shape)
        data = h5py.h5d.create(file.id, b"x", stored, space)
        data.write(h5py.h5s.ALL, h5py.h5s.ALL, (100 * X).astype(np.int32))
    return h5py.File(folder / "x.h5", "r")["x"]


def narrow():
    """Whole numbers of 24 bits, from the 5th of 32 on."""
    stored = h5py.h5t.STD_I32LE.copy()
    stored.set_precision(24)
    stored.set_offset(4)
    return stored


class OfItsOwn(h5py.Dataset):
    """A dataset whose slices may be others."""


def never_written(folder):
    with h5py.File(folder / "x.h5", "w") as file:
        file.create_dataset("x", X.shape, X.dtype, fillvalue=1.5)
    return h5py.File(folder / "x.h5", "r")["x"]


def beside_a_writer(folder):
    """Opened for reading only, while the same file, by another name, has rows that are not written
    yet.
    """
    written(folder).file.close()
    os.link(folder / "x.h5", folder / "same.h5")
    WRITERS.append(h5py.File(folder / "same.h5", "r+"))
    WRITERS[-1]["x"][3] = 99
    return h5py.File(folder / "x.h5", "r")["x"]


WRITERS: list[h5py.File] = []
OTHERS = {
    "chunks": lambda folder: written(folder, chunks=(4, 3)),
    "compressed": lambda folder: written(folder, compression="gzip"),
    "external": lambda folder: in_pieces(folder, virtual=False),
    "virtual": lambda folder: in_pieces(folder, virtual=True),
    "other bytes": lambda folder: written(folder, X.astype(">f4")),
    "truth values": lambda folder: written(folder, X > 0),
    "24 bits": lambda folder: of_type(folder, narrow()),
    "never written": never_written,
    "another class": lambda folder: OfItsOwn(written(folder).id),
    "may be written": lambda folder: h5py.File(folder / "x.h5", "w").create_dataset("x", data=X),
    "beside a writer": beside_a_writer,
    "in memory": lambda folder: h5py.File(written(folder).file.filename, "r", driver="core")["x"],
}


@pytest.mark.core("chunks", "may be written")
@pytest.mark.parametrize("kind", OTHERS)
def test_others_are_read_by_their_slices(kind, tmp_path):
    data = OTHERS[kind](tmp_path)
    assert contiguous_dataset_of(data) is None
    assert source_of("x", data, "f") is data
    assert len(data[3:5]) == 2


def test_the_place_in_the_file_stays(tmp_path, monkeypatch):
    """A system that reads from the place of a file only would move it under HDF5."""
    data = written(tmp_path)
    place = os.lseek(data.file.id.get_vfd_handle(), 0, os.SEEK_CUR)
    contiguous_dataset_of(data)[0:5]
    assert os.lseek(data.file.id.get_vfd_handle(), 0, os.SEEK_CUR) == place
    monkeypatch.delattr(os, "preadv")
    assert contiguous_dataset_of(data) is None


def test_a_file_that_has_taken_its_place_is_not_read(tmp_path):
    """The rows are those of the file that was opened."""
    data = written(tmp_path)
    source = contiguous_dataset_of(data)
    (tmp_path / "x.h5").rename(tmp_path / "old.h5")
    written(tmp_path, -X)
    np.testing.assert_array_equal(source[0:23], X)


def test_rows_behind_four_gigabytes_are_those_of_the_dataset(tmp_path):
    """Of a file with a hole."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("hole", (2**32 + 5,), "i1")[-1:] = 1
        file["x"] = X
    data = h5py.File(tmp_path / "x.h5", "r")["x"]
    assert data.id.get_offset() > 2**32
    np.testing.assert_array_equal(contiguous_dataset_of(data)[2:23], X[2:])


def test_a_file_is_closed_when_python_ends(tmp_path, monkeypatch):
    """Its module may have no names by then."""
    source = contiguous_dataset_of(written(tmp_path))
    number = source._file.number
    with monkeypatch.context() as patch:
        patch.setattr(files, "os", None)
        source._file.__del__()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)
    source._file.number = -1


def test_a_closed_file_is_not_read(tmp_path):
    data = written(tmp_path)
    source = contiguous_dataset_of(data)
    data.file.close()
    with pytest.raises(ValueError, match=r"[Nn]ot a|[Ii]nvalid"):
        source[0:5]


def test_a_file_that_was_cut_is_an_error(tmp_path):
    """HDF5 itself reads zeros there."""
    data = written(tmp_path, np.ones(40_000, np.float32))
    os.truncate(tmp_path / "x.h5", 80_000)
    assert data[39_999] == 0
    with pytest.raises(DataError, match="came as"):
        stream(mean, data, chunk={"n": 1000}, progress=False)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_a_stream_of_one_has_the_mean_of_its_rows(dtype, tmp_path):
    x = X[:, 0].astype(dtype)
    got = stream(mean, written(tmp_path, x), chunk={"n": 5}, progress=False).result
    np.testing.assert_allclose(got, x.mean(), rtol=1e-6)
