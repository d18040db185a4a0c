"""Data that change while a stream reads them, or before it goes on: never mixed, whatever they are read from."""

import errno
import os
import zipfile
from pathlib import Path

import h5py
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import zarr
from jaxtyping import Array, Float, Key

from jitney import DataError, JitneyError, JitneyWarning, optimize, stream
from jitney._stream.resume import Checkpoint
from tests.stream.test_stream import Chunks, Sliceable, archive, rows, saved

F = np.float32


@optimize
def mean(x: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.mean(x)


@optimize
def variance(x: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.var(x)


class Stops(BaseException):
    """The run is broken off."""


def hdf5(x, folder):
    path = folder / f"{len(list(folder.glob('*.h5')))}.h5"
    with h5py.File(path, "w") as file:
        file["data"] = x
    return h5py.File(path, "r")["data"]


def mapped(x, folder):
    return np.load(saved(x, folder), mmap_mode="r")


SOURCES = {
    "NumPy": lambda x, folder: x.copy(),
    "device": lambda x, folder: jnp.asarray(x),
    "memory map": mapped,
    "path": saved,
    "parts": lambda x, folder: [x[:30].copy(), x[30:].copy()],
    "paths": lambda x, folder: [saved(x[:30], folder, "a"), saved(x[30:], folder, "b")],
    "sliceable": lambda x, folder: Sliceable(x.copy()),
    "HDF5": hdf5,
    "Zarr": lambda x, folder: zarr.create_array(str(folder / "z"), data=x, chunks=(8,), overwrite=True),
    "Zarr in memory": lambda x, folder: zarr.array(x, chunks=(8,)),
    "npz": lambda x, folder: archive(x[:, None], folder, np.savez),
    "compressed npz": lambda x, folder: archive(x[:, None], folder, np.savez_compressed),
    "chunks": lambda x, folder: Chunks(x.copy(), 7),
}


def breaks_off(monkeypatch, program, data, path, after):
    """Run until so many chunks are done and written."""
    reached, times = Checkpoint.reached, []

    def stop(self, progress):
        reached(self, progress)
        times.append(1)
        if len(times) == after:
            raise Stops

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "reached", stop)
        with pytest.raises(Stops):
            stream(program, data, chunk={"n": 8}, checkpoint=path, checkpoint_every=1, progress=False)


def of_rows(program, kind):
    """`npz` sources hold columns, as their helper names them."""
    if "npz" not in kind:
        return program

    @optimize
    def of_column(x: Float[Array, "n 1"]) -> Float[Array, ""]:
        return program(x[:, 0])

    return of_column


@pytest.mark.parametrize("old", [True, False], ids=["old file", "new file"])
@pytest.mark.parametrize("after", [6, 18], ids=["first pass", "second pass"])
@pytest.mark.parametrize("kind", SOURCES)
def test_changed_data_are_not_mixed_with_what_they_were(kind, after, old, tmp_path, monkeypatch):
    """Another value in a row that was read before the break: a run does not go on, and its file stays."""
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
    with pytest.raises(JitneyError, match=r"rows 0 to 8 of 'x' are not what they were when the checkpoint was written"):
        stream(program, {"x": changed}, chunk={"n": 8}, checkpoint=path, progress=False)
    assert path.read_bytes() == before


def age(folder):
    """Files that nobody has written for long."""
    for path in Path(folder).rglob("*"):
        os.utime(path, (1, 1))


@pytest.mark.parametrize("after", [6, 18], ids=["first pass", "second pass"])
@pytest.mark.parametrize("kind", SOURCES)
def test_data_that_are_the_same_are_gone_on_with(kind, after, tmp_path, monkeypatch):
    """Opened, written or copied anew: what counts is what they hold."""
    x, made = rows(100), SOURCES[kind]
    program = of_rows(variance, kind)
    path = tmp_path / "run"
    breaks_off(monkeypatch, program, {"x": made(x, tmp_path)}, path, after)
    got, stats = stream(program, {"x": made(x, tmp_path)}, chunk={"n": 8}, checkpoint=path, progress=False)
    np.testing.assert_allclose(got, x.astype(float).var(), rtol=1e-5)
    assert stats.chunks == 26 - after


def test_an_untouched_file_is_not_read_again(tmp_path, monkeypatch):
    """Its size, number and times say that it is the same."""
    from jitney._stream.sources import Stored

    monkeypatch.setattr("jitney._stream.sources._SETTLED", -1)
    data, path, reads = saved(rows(100), tmp_path), tmp_path / "run", []
    breaks_off(monkeypatch, mean, {"x": data}, path, 6)
    read = Stored.__getitem__
    monkeypatch.setattr(Stored, "__getitem__", lambda self, where: reads.append(where) or read(self, where))
    stream(mean, {"x": data}, chunk={"n": 8}, checkpoint=path, progress=False)
    assert [where.start for where in reads] == list(range(48, 100, 8))


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
@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: [rows(8), x, rows(8)]], ids=["alone", "part"])
def test_a_reading_of_other_rows_is_an_error(spoil, wrap):
    """A slice has as many rows as were asked for, of the shape and dtype that were said."""
    with pytest.raises(DataError, match=r"reading 'x': a slice of float32\[\d\] came as"):
        stream(mean, {"x": wrap(Wrong(rows(100), SPOILS[spoil]))}, chunk={"n": 8}, progress=False, retries=0)


def test_parts_that_shift_rows_are_an_error():
    """One part gives a row less and the next one more: together they are as many as were asked for."""
    parts = [Wrong(rows(40), SPOILS["fewer"]), Wrong(rows(40), SPOILS["more"])]
    with pytest.raises(DataError, match="came as"):
        stream(mean, {"x": parts}, chunk={"n": 80 - 1}, progress=False, retries=0)


def test_one_chunk_is_checked_too():
    """All rows at once."""

    class Short(Sliceable):
        def __getitem__(self, where):
            return self.data[where][:-1]

    with pytest.raises(DataError, match=r"a slice of float32\[9\] came as float32\[8\]"):
        stream(mean, {"x": Short(rows(9))}, chunk={"n": 80}, progress=False)


def test_a_reading_that_was_short_once_is_made_again(monkeypatch):
    """A disk far away may do so."""
    monkeypatch.setattr("jitney._stream.reading._PAUSE", 0.0)
    times = []
    data = Wrong(np.ones(100, F), lambda part: part if times else times.append(1) or part[:-1])
    value, stats = stream(mean, {"x": data}, chunk={"n": 8}, progress=False)
    assert (value, stats.retries) == (1, 1)


class Iterations:
    """Each iteration gives the next of these, the last one again and again."""

    def __init__(self, *contents):
        self.contents, self.times = contents, 0

    def __iter__(self):
        self.times += 1
        return iter(self.contents[min(self.times, len(self.contents)) - 1])


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
        stream(mean, {"x": Iterations([np.ones(10, F)] * 3, second)}, chunk={"n": 8}, progress=False, retries=0)


def test_an_iteration_that_fails_begins_anew(monkeypatch):
    """A generator that has raised does not go on."""
    monkeypatch.setattr("jitney._stream.reading._PAUSE", 0.0)
    x, failures = rows(50), []

    class Fails:
        def __iter__(self):
            for start in range(0, 50, 5):
                if start == 25 and len(failures) < 2:
                    failures.append(start)
                    if len(failures) == 2:
                        raise OSError
                yield x[start : start + 5]

    value, stats = stream(mean, {"x": Fails()}, chunk={"n": 8}, progress=False)
    np.testing.assert_allclose(value, x.mean(), rtol=1e-5)
    assert stats.retries == 1


def test_a_first_iteration_that_fails_begins_anew(monkeypatch):
    """The one for the length too."""
    monkeypatch.setattr("jitney._stream.reading._PAUSE", 0.0)
    x, times = rows(50), []

    class Fails:
        def __iter__(self):
            times.append(1)
            yield x[:30]
            if len(times) < 3:
                raise OSError("the disk is gone")
            yield x[30:]

    value, stats = stream(mean, {"x": Fails()}, chunk={"n": 8}, progress=False)
    np.testing.assert_allclose(value, x.mean(), rtol=1e-5)
    assert stats.retries == 2
    times.clear()
    with pytest.raises(OSError, match="the disk is gone") as error:
        stream(mean, {"x": Fails()}, chunk={"n": 8}, progress=False, retries=1)
    assert error.value.__notes__ == ["Opening 'x' failed, 2 times."]


@pytest.mark.parametrize("at", range(1, 4))
def test_a_compressed_archive_that_fails_is_opened_anew(at, tmp_path, monkeypatch):
    """At whichever opening, and in the middle."""
    monkeypatch.setattr("jitney._stream.reading._PAUSE", 0.0)
    x, opened, times = rows(100), zipfile.ZipFile.open, []
    path = archive(x[:, None], tmp_path, np.savez_compressed)

    def fails(self, *args, **options):
        times.append(1)
        if len(times) == at:
            raise OSError("the disk is gone")
        return opened(self, *args, **options)

    monkeypatch.setattr(zipfile.ZipFile, "open", fails)
    value, stats = stream(of_rows(variance, "npz"), {"x": path}, chunk={"n": 8}, progress=False)
    np.testing.assert_allclose(value, x.astype(float).var(), rtol=1e-5)
    assert stats.retries == 1


@pytest.mark.parametrize("content", [b"", b"PK", b"\x93NUMPY\x01\x00v\x00{'descr'", None], ids=["empty", "foreign", "header", "cut"])
@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_a_damaged_file_is_a_sentence(content, suffix, tmp_path, monkeypatch):
    """Not whatever NumPy or zipfile make of it."""
    monkeypatch.setattr("jitney._stream.reading._PAUSE", 0.0)
    path = tmp_path / f"data{suffix}"
    {".npy": np.save, ".npz": lambda path, x: np.savez_compressed(path, x=x)}[suffix](path, rows(100))
    path.write_bytes(path.read_bytes()[:-30] if content is None else content)
    with pytest.raises(DataError, match=rf"reading 'x': .*data{suffix} is no whole `{suffix}` file"):
        stream(mean, {"x": path}, chunk={"n": 8}, progress=False)


MAPPED = {
    "whole": lambda x: x,
    "slice": lambda x: x[10:],
    "view": lambda x: np.asarray(x)[::2].view(np.ndarray),
    "parts": lambda x: [x[:1000], x[1000:]],
}


@pytest.mark.parametrize("made", MAPPED)
def test_a_mapped_file_that_is_cut_is_an_error(made, tmp_path, monkeypatch):
    """The system would end the process (SIGBUS) at a page that is no longer in the file."""
    import jitney._stream.reading

    path = saved(rows(100_000), tmp_path)
    data = MAPPED[made](np.load(path, mmap_mode="r"))
    part, times = jitney._stream.reading.Reader._part, []

    def cutting(self, source, where):
        times.append(1)
        if len(times) == 3:
            os.truncate(path, 5000)
        return part(self, source, where)

    monkeypatch.setattr(jitney._stream.reading.Reader, "_part", cutting)
    with pytest.raises(DataError, match="its file was cut to 5000 bytes; 400128 were mapped"):
        stream(mean, {"x": data}, chunk={"n": 10_000}, progress=False, retries=0)


def test_a_file_that_is_cut_within_a_reading_does_not_end_the_process(tmp_path, monkeypatch):
    """After the look at its size, too: files that are given by their paths are read, not mapped."""
    from jitney._stream.sources import Stored

    path = saved(rows(100_000), tmp_path)
    rows_of, times = Stored._rows, []

    def cutting(self, where):
        times.append(1)
        if len(times) == 3:
            os.truncate(path, 5000)
        return rows_of(self, where)

    monkeypatch.setattr(Stored, "_rows", cutting)
    with pytest.raises(DataError, match="was changed, replaced or removed"):
        stream(mean, {"x": path}, chunk={"n": 10_000}, progress=False, retries=0)


def test_a_full_disk_leaves_the_checkpoint_before(tmp_path, monkeypatch):
    """The run goes on with one warning; what broke off later goes on from the file that was whole."""
    path, x, synced, times = tmp_path / "run", rows(100), os.fsync, []

    def full(handle):
        times.append(1)
        if len(times) > 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        synced(handle)

    monkeypatch.setattr("jitney._stream.resume.os.fsync", full)
    with pytest.warns(JitneyWarning, match=r"could not be written \(No space left on device\); the one from before stays") as said:
        breaks_off(monkeypatch, mean, {"x": x}, path, 10)
    assert len(said) == 1
    assert [file.name for file in tmp_path.iterdir()] == ["run"]
    monkeypatch.undo()
    got, stats = stream(mean, {"x": x}, chunk={"n": 8}, checkpoint=path, progress=False)
    np.testing.assert_allclose(got, x.astype(float).mean(), rtol=1e-5)
    assert stats.chunks == 13 - 4


def test_what_a_killed_run_left_is_removed(tmp_path, monkeypatch):
    """A process that is killed while it writes leaves a file beside the checkpoint; those of others stay."""

    def killed(handle):
        raise Stops

    path, data = tmp_path / "run", {"x": rows(100)}
    (tmp_path / "run2.unfinished-0").write_text("")
    with monkeypatch.context() as patch:
        patch.setattr("jitney._stream.resume.os.fsync", killed)
        patch.setattr(Path, "unlink", lambda *_, **__: None)
        with pytest.raises(Stops):
            stream(mean, data, chunk={"n": 8}, checkpoint=path, checkpoint_every=1, progress=False)
    assert len(list(tmp_path.iterdir())) == 2
    breaks_off(monkeypatch, mean, data, path, 3)
    assert {file.name for file in tmp_path.iterdir()} == {"run", "run2.unfinished-0"}


def test_a_comment_or_a_moved_line_is_the_same_run(tmp_path, monkeypatch):
    """What counts is what is computed."""

    def before():
        @optimize
        def total(x: Float[Array, "n"]) -> Float[Array, ""]:
            return jnp.sum(jnp.sin(x))

        return total

    def after():
        @optimize
        def total(x: Float[Array, "n"]) -> Float[Array, ""]:
            # moved, and with a comment
            angle = x
            return jnp.sum(jnp.sin(angle))

        return total

    path, data = tmp_path / "run", {"x": rows(100)}
    breaks_off(monkeypatch, before(), data, path, 6)
    assert stream(after(), data, chunk={"n": 8}, checkpoint=path, progress=False).stats.chunks == 13 - 6


def test_other_code_on_the_host_is_another_run(tmp_path, monkeypatch):
    """JAX prints a callback by its name."""

    def made(factor):
        @optimize
        def total(x: Float[Array, "n"], by: Float[Array, ""]) -> Float[Array, ""]:
            def host(b):
                return (factor * b).astype(F)

            return jnp.sum(x) * jax.pure_callback(host, by, by, vmap_method="sequential")

        return total

    path, data = tmp_path / "run", {"x": rows(100), "by": F(2)}
    breaks_off(monkeypatch, made(2), data, path, 6)
    with pytest.raises(JitneyError, match="of another run: the function"):
        stream(made(3), data, chunk={"n": 8}, checkpoint=path, progress=False)
    assert stream(made(2), data, chunk={"n": 8}, checkpoint=path, progress=False).stats.chunks == 13 - 6


def test_rows_that_change_between_two_passes_are_an_error():
    """The variance would be of neither."""
    shuffled = [np.arange(30, dtype=F)], [np.arange(30, dtype=F)], [np.arange(30, dtype=F)[::-1]]
    with pytest.raises(DataError, match=r"rows 0 to 8 of 'x' are not what they were in the pass before"):
        stream(variance, {"x": Iterations(*shuffled)}, chunk={"n": 8}, progress=False)


@pytest.mark.parametrize("how", ["cut", "replaced", "removed", "overwritten"])
@pytest.mark.parametrize("kind", ["path", "paths", "npz", "compressed npz"])
def test_a_file_that_changes_while_it_is_read_is_an_error(kind, how, tmp_path, monkeypatch):
    """A file that is cut within a page reads as zeros there; one that is replaced is another one."""
    import jitney._stream.reading

    data, program = SOURCES[kind](rows(100), tmp_path), of_rows(mean, kind)
    age(tmp_path)
    file = data[0] if kind == "paths" else data
    part, times = jitney._stream.reading.Reader._part, []

    def changing(self, source, where):
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
        return part(self, source, where)

    monkeypatch.setattr(jitney._stream.reading.Reader, "_part", changing)
    with pytest.raises(DataError, match="was changed, replaced or removed since it was opened"):
        stream(program, {"x": data}, chunk={"n": 8}, progress=False, retries=0)


def scopes():
    """Settings of JAX under which numbers are others."""
    return {
        "x64": lambda: jax.enable_x64(True),
        "matmul precision": lambda: jax.default_matmul_precision("highest"),
        "generator": lambda: jax.default_prng_impl("rbg"),
        "partitionable": lambda: jax.threefry_partitionable(not jax.config.jax_threefry_partitionable),
        "promotion": lambda: jax.numpy_dtype_promotion("standard" if jax.config.jax_numpy_dtype_promotion == "strict" else "strict"),
    }


@pytest.mark.parametrize("name", scopes())
def test_other_settings_do_not_go_on(name, tmp_path, monkeypatch):
    """What was accumulated under the old ones would be mixed with the new."""
    path, data = tmp_path / "run", {"x": rows(100)}
    breaks_off(monkeypatch, mean, data, path, 6)
    with scopes()[name](), pytest.raises(JitneyError, match=r"of another run: .*the settings and the version of JAX"):
        stream(mean, data, chunk={"n": 8}, checkpoint=path, progress=False)


def test_another_version_of_jax_does_not_go_on(tmp_path, monkeypatch):
    """It may compute otherwise."""
    path, data = tmp_path / "run", {"x": rows(100)}
    breaks_off(monkeypatch, mean, data, path, 6)
    monkeypatch.setattr(jax, "__version__", "0.0.0")
    with pytest.raises(JitneyError, match="of another run: the settings and the version of JAX"):
        stream(mean, data, chunk={"n": 8}, checkpoint=path, progress=False)


@pytest.mark.parametrize("wrap", ["jit", "scan", "cond", "custom_jvp", "checkpoint"])
def test_a_constant_inside_a_call_or_loop_is_part_of_the_function(wrap, tmp_path, monkeypatch):
    """JAX prints a program without the numbers of its constants."""

    def made(constant):
        def inner(x):
            return x * constant

        def body(x):
            match wrap:
                case "scan":
                    return jax.lax.scan(lambda c, _: (inner(c), None), x, length=2)[0]
                case "cond":
                    return jax.lax.cond(jnp.sum(constant) > 0, inner, lambda x: x, x)
                case "custom_jvp":
                    outer = jax.custom_jvp(inner)
                    outer.defjvp(lambda x, t: (inner(*x), inner(*t)))
                    return outer(x)
            return {"jit": jax.jit, "checkpoint": jax.checkpoint}[wrap](inner)(x)

        @optimize
        def total(x: Float[Array, "n k"]) -> Float[Array, ""]:
            return jnp.sum(jax.vmap(body)(x))

        return total

    path, data = tmp_path / "run", {"x": rows(100, 3)}
    breaks_off(monkeypatch, made(np.array([1, 2, 3], F)), data, path, 6)
    with pytest.raises(JitneyError, match="of another run: the function"):
        stream(made(np.array([1, 2, 4], F)), data, chunk={"n": 8}, checkpoint=path, progress=False)


def test_a_scope_between_two_streams_is_seen():
    """The steps of the first one are not those of the second, in double precision."""

    @optimize
    def total(x: Float[Array, "n"]):
        return jnp.sum(x.astype(float)) * jnp.asarray(1 / 3)

    x = rows(100)
    single, _ = stream(total, {"x": x}, chunk={"n": 8}, progress=False)
    with jax.enable_x64(True):
        double, _ = stream(total, {"x": x}, chunk={"n": 8}, progress=False)
    assert (single.dtype, double.dtype) == (np.float32, np.float64)
    np.testing.assert_allclose(double, x.astype(float).sum() / 3, rtol=1e-14)


def test_double_precision_reaches_the_thread_that_reads():
    """A scope holds for one thread; chunks are cut in another."""
    x = np.arange(100) / 3 + 1e9
    with jax.enable_x64(True):
        value, _ = stream(mean, {"x": jnp.asarray(x)}, chunk={"n": 8}, progress=False)
    np.testing.assert_allclose(value, x.mean(), rtol=1e-15)


@pytest.mark.parametrize("kind", ["path", "paths", "sliceable", "HDF5", "Zarr"])
def test_an_argument_without_the_axis_is_read_whole(kind, tmp_path):
    """From whatever it is in."""

    @optimize
    def weighted(x: Float[Array, "n"], w: Float[Array, "k"]) -> Float[Array, ""]:
        return jnp.sum(x) * jnp.sum(w)

    x, w = rows(40), rows(60)
    data = {"x": x, "w": SOURCES[kind](w, tmp_path)}
    got, _ = stream(weighted, data, chunk={"n": 8}, checkpoint=tmp_path / "run", progress=False)
    np.testing.assert_allclose(got, x.sum() * w.sum(), rtol=1e-4)


def test_a_key_goes_into_a_checkpoint(tmp_path, monkeypatch):
    """NumPy has no keys; another one is another run."""

    @optimize
    def f(x: Float[Array, "n"], key: Key[Array, ""]) -> Float[Array, ""]:
        return jnp.sum(x) * jax.random.normal(key)

    path, x = tmp_path / "run", rows(100)
    breaks_off(monkeypatch, f, {"x": x, "key": jax.random.key(0)}, path, 6)
    with pytest.raises(JitneyError, match="of another run: the arguments"):
        stream(f, {"x": x, "key": jax.random.key(1)}, chunk={"n": 8}, checkpoint=path, progress=False)
    got, _ = stream(f, {"x": x, "key": jax.random.key(0)}, chunk={"n": 8}, checkpoint=path, progress=False)
    np.testing.assert_allclose(got, x.sum() * jax.random.normal(jax.random.key(0)), rtol=1e-5)


def test_parts_are_cut_along_another_axis_too():
    """All of them have it."""

    @optimize
    def f(x: Float[Array, "k n"]) -> Float[Array, "k"]:
        return jnp.sum(x, 1)

    x = rows(6, 20)
    np.testing.assert_allclose(stream(f, {"x": [x[:2], x[2:]]}, chunk={"n": 8}, progress=False).value, x.sum(1), rtol=1e-5)
