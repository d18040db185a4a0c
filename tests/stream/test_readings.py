"""Readings that fail, or give other rows than were asked for: made again, or an error."""

import zipfile

import h5py
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from jitney import optimize, stream
from jitney.errors import DataError, OptionError
from tests.stream._sources import SOURCES, F, Iterations, mean, of_rows, variance
from tests.stream.test_stream import Sliceable, archive, rows


class Wrong:
    """Returns what `spoil` makes of a slice, for slices that begin behind row 20."""

    def __init__(self, data, spoil):
        self.data, self.shape, self.dtype, self.spoil = data, data.shape, data.dtype, spoil

    def __getitem__(self, where):
        part = self.data[where]
        return part if where.start < 20 else self.spoil(part)


SPOILS = {
    "fewer": lambda part: part[:-1],
    "none": lambda part: part[:0],
    "more": lambda part: np.append(part, part[:1]),
    "other dtype": lambda part: part.astype("f8"),
    "columns": lambda part: part[:, None],
    "one": lambda part: part[0],
}


@pytest.mark.parametrize("spoil", SPOILS)
@pytest.mark.parametrize(
    "wrap", [lambda x: x, lambda x: [rows(8), x, rows(8)]], ids=["alone", "part"]
)
def test_a_reading_of_other_rows_is_an_error(spoil, wrap):
    """A slice has as many rows as were asked for, of the shape and dtype that were said."""
    with pytest.raises(DataError, match=r"reading 'x': a slice of float32\[\d\] came as"):
        stream(
            mean,
            wrap(Wrong(rows(100), SPOILS[spoil])),
            chunk={"n": 8},
            progress=False,
            retries=0,
        )


def test_parts_that_shift_rows_are_an_error():
    """One part gives a row less and the next one more: together they are as many as were asked
    for.
    """
    parts = [Wrong(rows(40), SPOILS["fewer"]), Wrong(rows(40), SPOILS["more"])]
    with pytest.raises(DataError, match="came as"):
        stream(mean, parts, chunk={"n": 80 - 1}, progress=False, retries=0)


def test_one_chunk_is_checked_too():
    """All rows at once."""

    class Short(Sliceable):
        def __getitem__(self, where):
            return self.data[where][:-1]

    with pytest.raises(DataError, match=r"a slice of float32\[9\] came as float32\[8\]"):
        stream(mean, Short(rows(9)), chunk={"n": 80}, progress=False)


def test_a_reading_that_was_short_once_is_made_again(monkeypatch):
    """A disk far away may do so."""
    monkeypatch.setattr("jitney._stream.data.reading._PAUSE", 0.0)
    times = []
    data = Wrong(np.ones(100, F), lambda part: part if times else times.append(1) or part[:-1])
    value, stats = stream(mean, data, chunk={"n": 8}, progress=False)
    assert (value, stats.retries) == (1, 1)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ([np.ones(10, F)] * 4, "gave more than 30 rows"),
        ([np.ones(10, F)] * 2 + [np.ones(11, F)], "gave more than 30 rows"),
        ([np.ones(10, F)] * 2, "end after 20"),
        ([np.ones(10)] * 3, r"came as float64"),
        ([np.ones((10, 1), F)] * 3, r"came as float32\[8, 1\]"),
    ],
    ids=["more", "longer", "fewer", "dtype", "shape"],
)
def test_an_iteration_unlike_the_first_is_an_error(second, message):
    """The first one says how many rows there are."""
    with pytest.raises(DataError, match=message):
        stream(
            mean,
            Iterations([np.ones(10, F)] * 3, second),
            chunk={"n": 8},
            progress=False,
            retries=0,
        )


def test_an_iteration_that_fails_begins_anew(monkeypatch):
    """A generator that has raised does not go on."""
    monkeypatch.setattr("jitney._stream.data.reading._PAUSE", 0.0)
    x, failures = rows(50), []

    class Fails:
        def __iter__(self):
            for start in range(0, 50, 5):
                if start == 25 and len(failures) < 2:
                    failures.append(start)
                    if len(failures) == 2:
                        raise OSError
                yield x[start : start + 5]

    value, stats = stream(mean, Fails(), chunk={"n": 8}, progress=False)
    np.testing.assert_allclose(value, x.mean(), rtol=1e-5)
    assert stats.retries == 1


def test_a_first_iteration_that_fails_begins_anew(monkeypatch):
    """The one for the length too."""
    monkeypatch.setattr("jitney._stream.data.reading._PAUSE", 0.0)
    x, times = rows(50), []

    class Fails:
        def __iter__(self):
            times.append(1)
            yield x[:30]
            if len(times) < 3:
                raise OSError("the disk is gone")
            yield x[30:]

    value, stats = stream(mean, Fails(), chunk={"n": 8}, progress=False)
    np.testing.assert_allclose(value, x.mean(), rtol=1e-5)
    assert stats.retries == 2
    times.clear()
    with pytest.raises(OSError, match="the disk is gone") as error:
        stream(mean, Fails(), chunk={"n": 8}, progress=False, retries=1)
    assert error.value.__notes__ == ["Opening 'x' failed, 2 times."]


@pytest.mark.core("1")
@pytest.mark.parametrize("at", range(1, 4))
def test_a_compressed_archive_that_fails_is_opened_anew(at, tmp_path, monkeypatch):
    """At whichever opening, and in the middle."""
    monkeypatch.setattr("jitney._stream.data.reading._PAUSE", 0.0)
    x, opened, times = rows(100), zipfile.ZipFile.open, []
    path = archive(x[:, None], tmp_path, np.savez_compressed)

    def fails(self, *args, **options):
        times.append(1)
        if len(times) == at:
            raise OSError("the disk is gone")
        return opened(self, *args, **options)

    monkeypatch.setattr(zipfile.ZipFile, "open", fails)
    value, stats = stream(of_rows(variance, "npz"), path, chunk={"n": 8}, progress=False)
    np.testing.assert_allclose(value, x.astype(float).var(), rtol=1e-5)
    assert stats.retries == 1


@pytest.mark.parametrize(
    "content",
    [b"", b"PK", b"\x93NUMPY\x01\x00v\x00{'descr'", None],
    ids=["empty", "foreign", "header", "cut"],
)
@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_a_damaged_file_is_a_sentence(content, suffix, tmp_path, monkeypatch):
    """Not whatever NumPy or zipfile make of it."""
    monkeypatch.setattr("jitney._stream.data.reading._PAUSE", 0.0)
    path = tmp_path / f"data{suffix}"
    {".npy": np.save, ".npz": lambda path, x: np.savez_compressed(path, x=x)}[suffix](
        path, rows(100)
    )
    path.write_bytes(path.read_bytes()[:-30] if content is None else content)
    with pytest.raises(
        DataError, match=rf"reading 'x': .*data{suffix} is not a whole `{suffix}` file"
    ):
        stream(mean, path, chunk={"n": 8}, progress=False)


@pytest.mark.core("path", "paths", "sliceable")
@pytest.mark.parametrize("kind", ["path", "paths", "sliceable", "HDF5", "Zarr"])
def test_an_argument_without_the_axis_is_read_whole(kind, tmp_path):
    """From whatever it is in."""

    @optimize
    def weighted(x: Float[Array, "n"], w: Float[Array, "k"]) -> Float[Array, ""]:
        return jnp.sum(x) * jnp.sum(w)

    x, w = rows(40), rows(60)
    data = {"x": x, "w": SOURCES[kind](w, tmp_path)}
    got, _ = stream(weighted, **data, chunk={"n": 8}, checkpoint=tmp_path / "run", progress=False)
    np.testing.assert_allclose(got, x.sum() * w.sum(), rtol=1e-4)


def test_parts_are_cut_along_another_axis_too():
    """All of them have it."""

    @optimize
    def f(x: Float[Array, "k n"]) -> Float[Array, "k"]:
        return jnp.sum(x, 1)

    x = rows(6, 20)
    np.testing.assert_allclose(
        stream(f, [x[:2], x[2:]], chunk={"n": 8}, progress=False).result, x.sum(1), rtol=1e-5
    )


@pytest.mark.parametrize("retries", [True, -1, 1.5])
def test_what_is_no_number_of_retries_is_an_error(retries):
    """A bool neither, as with the other numbers."""
    with pytest.raises(OptionError, match=rf"retries={retries!r} is not a number of times"):
        stream(mean, rows(8), chunk={"n": 4}, progress=False, retries=retries)


class Doubled:
    """A view of a dataset, which hands the other attributes on."""

    def __init__(self, data):
        self._data = data

    def __getattr__(self, name):
        return getattr(self._data, name)

    def __getitem__(self, where):
        return self._data[where] * 2


class Halved(h5py.Dataset):
    """A dataset whose slices alone are others."""

    def __getitem__(self, where):
        return super().__getitem__(where) / 2


@pytest.mark.parametrize(("kind", "times"), [("plain", 1), (Doubled, 2), (Halved, 0.5)])
def test_a_dataset_is_read_as_its_slices_say(kind, times, tmp_path):
    """HDF5 reads into the memory of a chunk; what changes its slices does not."""
    x = np.arange(23, dtype=np.float32)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        data = file.create_dataset("x", data=x)
        if kind is Doubled:
            data = Doubled(data)
        elif kind is Halved:
            data = Halved(data.id)
        got = stream(mean, data, chunk={"n": 5}, progress=False).result
    np.testing.assert_allclose(got, x.mean() * times)
