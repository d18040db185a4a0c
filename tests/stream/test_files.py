"""Files that a stream reads from: opened once, and only the one that was looked at."""

import os

import numpy as np
import pytest

from jitney import stream
from jitney._stream.data import files
from jitney.errors import DataError
from tests.stream._sources import mean
from tests.stream.test_stream import rows, saved


@pytest.fixture
def opened(monkeypatch):
    """Paths that were opened for their rows, in order."""
    seen = []
    begin = files.Descriptor.__init__
    monkeypatch.setattr(
        files.Descriptor, "__init__", lambda self, path: seen.append(path) or begin(self, path)
    )
    return seen


def test_a_file_is_opened_once(opened, tmp_path):
    path = saved(rows(100), tmp_path)
    stream(mean, path, chunk={"n": 8}, progress=False)
    assert opened == [path]


def test_of_very_many_files_none_stays_open(opened, monkeypatch, tmp_path):
    """A process may have a thousand open, and a map of each counts already."""
    x, paths = rows(130), []
    for i in range(65):
        paths.append(tmp_path / f"{i}.npy")
        np.save(paths[-1], x[2 * i : 2 * i + 2])
    held = []
    make = files.FileSource._opened
    monkeypatch.setattr(
        files.FileSource,
        "_opened",
        lambda self: (make(self), held.extend([self._file] if self._file else []))[0],
    )
    got = stream(mean, paths, chunk={"n": 1}, progress=False).result
    np.testing.assert_allclose(got, x.mean(), rtol=1e-5)
    assert opened == [path for path in paths for _ in range(2)]
    assert not held


def test_a_file_that_stood_there_for_a_moment_is_not_read(monkeypatch, tmp_path):
    """The path has the right file before and after, and another one when it is opened."""
    path, other = saved(rows(100), tmp_path), tmp_path / "other.npy"
    np.save(other, rows(100) + 1)
    begin = files.Descriptor.__init__
    monkeypatch.setattr(files.Descriptor, "__init__", lambda self, _path: begin(self, other))
    with pytest.raises(DataError, match="was changed, replaced or removed since it was opened"):
        stream(mean, path, chunk={"n": 8}, progress=False)


def test_a_system_that_reads_from_the_place_of_a_file_only(monkeypatch, tmp_path):
    """As Windows does."""
    monkeypatch.delattr(os, "preadv")
    x = rows(100)
    got = stream(mean, saved(x, tmp_path), chunk={"n": 8}, progress=False).result
    np.testing.assert_allclose(got, x.mean(), rtol=1e-5)


def test_a_reading_that_fails_opens_the_file_again(monkeypatch, opened, tmp_path):
    monkeypatch.setattr("jitney._stream.data.reading._PAUSE", 0.0)
    x, read, times = rows(100), files._read_at, []

    def fails(*where):
        times.append(where)
        if len(times) == 3:
            raise OSError("the disk is gone")
        return read(*where)

    monkeypatch.setattr(files, "_read_at", fails)
    value, stats = stream(mean, saved(x, tmp_path), chunk={"n": 8}, progress=False)
    np.testing.assert_allclose(value, x.mean(), rtol=1e-5)
    assert (stats.retries, len(opened)) == (1, 2)
