"""Data that change while a stream reads them, or before it goes on: never mixed, whatever they are
read from.
"""

import os

import numpy as np
import pytest

from jitney import JitneyError, stream
from jitney.errors import DataError
from tests.stream._sources import SOURCES, F, Iterations, age, breaks_off, mean, of_rows, variance
from tests.stream.test_stream import rows, saved


@pytest.mark.core(
    "NumPy-second pass-new file",
    "path-first pass-old file",
    "HDF5-second pass-new file",
    "chunks-first pass-new file",
)
@pytest.mark.parametrize("old", [True, False], ids=["old file", "new file"])
@pytest.mark.parametrize("after", [6, 18], ids=["first pass", "second pass"])
@pytest.mark.parametrize("kind", SOURCES)
def test_changed_data_are_not_mixed_with_what_they_were(kind, after, old, tmp_path, monkeypatch):
    """Another value in a row that was read before the break: a run does not go on, and its file
    stays.
    """
    x, made = rows(100), SOURCES[kind]
    program = of_rows(variance, kind)
    data = made(x, tmp_path)
    if old:
        age(tmp_path)
    path = tmp_path / "run"
    breaks_off(monkeypatch, program, {"x": data}, path, after)
    before = path.read_bytes()
    x[3] += 1
    changed = made(x, tmp_path)
    with pytest.raises(
        JitneyError,
        match=r"rows 0 to 8 of 'x' are not what they were when the checkpoint was written",
    ):
        stream(program, changed, chunk={"n": 8}, checkpoint=path, progress=False)
    assert path.read_bytes() == before


@pytest.mark.core(
    "NumPy-first pass",
    "memory map-first pass",
    "parts-first pass",
    "npz-first pass",
    "chunks-first pass",
)
@pytest.mark.parametrize("after", [6, 18], ids=["first pass", "second pass"])
@pytest.mark.parametrize("kind", SOURCES)
def test_data_that_are_the_same_are_gone_on_with(kind, after, tmp_path, monkeypatch):
    """Opened, written or copied anew: what counts is what they hold."""
    x, made = rows(100), SOURCES[kind]
    program = of_rows(variance, kind)
    path = tmp_path / "run"
    breaks_off(monkeypatch, program, {"x": made(x, tmp_path)}, path, after)
    got, stats = stream(program, made(x, tmp_path), chunk={"n": 8}, checkpoint=path, progress=False)
    np.testing.assert_allclose(got, x.astype(float).var(), rtol=1e-5)
    assert stats.chunks == 26 - after


def test_an_untouched_file_is_not_read_again(tmp_path, monkeypatch):
    """Its size, number and times say that it is the same."""
    from jitney._stream.data.files import FileSource

    monkeypatch.setattr("jitney._stream.data.files._SETTLED", -1)
    data, path, reads = saved(rows(100), tmp_path), tmp_path / "run", []
    breaks_off(monkeypatch, mean, {"x": data}, path, 6)
    read = FileSource.read_into
    monkeypatch.setattr(
        FileSource,
        "read_into",
        lambda self, where, out: reads.append(where) or read(self, where, out),
    )
    stream(mean, data, chunk={"n": 8}, checkpoint=path, progress=False)
    assert [where.start for where in reads] == list(range(48, 100, 8))


MAPPED = {
    "whole": lambda x: x,
    "slice": lambda x: x[10:],
    "view": lambda x: np.asarray(x)[::2].view(np.ndarray),
    "parts": lambda x: [x[:1000], x[1000:]],
}


@pytest.mark.parametrize("made", MAPPED)
def test_a_mapped_file_that_is_cut_is_an_error(made, tmp_path, monkeypatch):
    """The system would end the process (SIGBUS) at a page that is no longer in the file."""
    import jitney._stream.data.reading

    path = saved(rows(100_000), tmp_path)
    data = MAPPED[made](np.load(path, mmap_mode="r"))
    part, times = jitney._stream.data.reading.ChunkReader._part, []

    def cutting(self, source, where, out):
        times.append(1)
        if len(times) == 3:
            os.truncate(path, 5000)
        return part(self, source, where, out)

    monkeypatch.setattr(jitney._stream.data.reading.ChunkReader, "_part", cutting)
    with pytest.raises(DataError, match="its file was cut to 5000 bytes; 400128 were mapped"):
        stream(mean, data, chunk={"n": 10_000}, progress=False, retries=0)


def test_a_file_that_is_cut_within_a_reading_does_not_end_the_process(tmp_path, monkeypatch):
    """After the look at its size, too: files that are given by their paths are read, not mapped."""
    from jitney._stream.data.files import FileSource

    path = saved(rows(100_000), tmp_path)
    rows_of, times = FileSource._rows, []

    def cutting(self, where, out):
        times.append(1)
        if len(times) == 3:
            os.truncate(path, 5000)
        return rows_of(self, where, out)

    monkeypatch.setattr(FileSource, "_rows", cutting)
    with pytest.raises(DataError, match="was changed, replaced or removed"):
        stream(mean, path, chunk={"n": 10_000}, progress=False, retries=0)


def test_rows_that_change_between_two_passes_are_an_error():
    """The variance would be of neither."""
    shuffled = [np.arange(30, dtype=F)], [np.arange(30, dtype=F)], [np.arange(30, dtype=F)[::-1]]
    with pytest.raises(
        DataError, match=r"rows 0 to 8 of 'x' are not what they were in the pass before"
    ):
        stream(variance, Iterations(*shuffled), chunk={"n": 8}, progress=False)


@pytest.mark.core(
    "path-cut",
    "path-removed",
    "paths-cut",
    "paths-removed",
    "npz-cut",
    "npz-removed",
    "compressed npz-cut",
    "compressed npz-removed",
)
@pytest.mark.parametrize("how", ["cut", "replaced", "removed", "overwritten"])
@pytest.mark.parametrize("kind", ["path", "paths", "npz", "compressed npz"])
def test_a_file_that_changes_while_it_is_read_is_an_error(kind, how, tmp_path, monkeypatch):
    """A file that is cut within a page reads as zeros there; one that is replaced is another
    one.
    """
    import jitney._stream.data.reading

    data, program = SOURCES[kind](rows(100), tmp_path), of_rows(mean, kind)
    age(tmp_path)
    file = data[0] if kind == "paths" else data
    part, times = jitney._stream.data.reading.ChunkReader._part, []

    def changing(self, source, where, out):
        times.append(1)
        if len(times) == 3:
            content = file.read_bytes()
            if how == "replaced":
                file.with_suffix(".new").write_bytes(content)
                file.with_suffix(".new").replace(file)
            elif how == "removed":
                file.unlink()
            else:
                file.write_bytes(content[:-40] if how == "cut" else content[:-4] + b"abcd")
        return part(self, source, where, out)

    monkeypatch.setattr(jitney._stream.data.reading.ChunkReader, "_part", changing)
    with pytest.raises(DataError, match="was changed, replaced or removed since it was opened"):
        stream(program, data, chunk={"n": 8}, progress=False, retries=0)
