"""`jitney.stream`: the results of one call, from data that are read chunk by chunk."""

import signal
import subprocess
import sys

import h5py
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float, Key

from jitney import JitneyError, optimize, stream
from jitney.errors import AxisError, ContractError, DataError, NonFiniteError, OptionError

RNG = np.random.default_rng(0)
F = np.float32


def in_zarr(x, chunks):
    import zarr  # here, since importing it is slow

    return zarr.array(x, chunks=chunks)


def rows(*shape):
    return RNG.normal(size=shape).astype(F)


@optimize
def summary(w: Float[Array, "k"], x: Float[Array, "n k"], y: Float[Array, "n"]):
    """A variance (two passes), elements divided by a sum of theirs (three), a maximum, and a
    word.
    """
    r = x @ w - y
    return {
        "variance": jnp.var(r),
        "shares": jax.nn.softmax(r),
        "top": jnp.max(x, 0),
        "name": "summary",
    }


@optimize
def moments(x: Float[Array, "n"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    return jnp.mean(x), jnp.var(x)


class Sliceable:
    """What Zarr and HDF5 arrays have in common."""

    def __init__(self, data):
        self.data, self.shape, self.dtype, self.longest = data, data.shape, data.dtype, 0

    def __getitem__(self, where):
        part = self.data[where]
        self.longest = max(self.longest, len(part))
        return part


class Rereads(Sliceable):
    """It fills the same memory for each slice."""

    def __getitem__(self, where):
        part = np.asarray(self.data[where])
        self.memory = getattr(self, "memory", np.empty(self.shape, self.dtype))
        self.memory[: len(part)] = part
        return self.memory[: len(part)]


SOURCES = {
    "NumPy": lambda x, folder: x,
    "device": lambda x, folder: jnp.asarray(x),
    "memory map": lambda x, folder: np.load(saved(x, folder), mmap_mode="r"),
    "path": lambda x, folder: saved(x, folder),
    "text path": lambda x, folder: str(saved(x, folder)),
    "parts": lambda x, folder: [x[:3], x[3:4], x[4:]],
    "sliceable": lambda x, folder: Sliceable(x),
    "HDF5": (
        lambda x, folder: h5py.File(folder / f"{x.ndim}.h5", "w").create_dataset(
            "data", data=x, chunks=True
        )
    ),
    "Zarr": lambda x, folder: in_zarr(x, (4,) * x.ndim),
    "npz": lambda x, folder: archive(x, folder, np.savez),
    "npz by column": lambda x, folder: archive(np.asfortranarray(x), folder, np.savez),
    "compressed npz": lambda x, folder: archive(x, folder, np.savez_compressed),
    "chunks": lambda x, folder: Chunks(x, 4),
    "uneven chunks": lambda x, folder: Chunks(x, 1, 2),
    "long chunks": lambda x, folder: Chunks(x, 20),
    "slices in one memory": lambda x, folder: Rereads(x),
    "chunks in one memory": lambda x, folder: Chunks(Rereads(x), 4, 1),
    "paths": lambda x, folder: [saved(x[:5], folder, "a"), saved(x[5:], folder, "b")],
}


class Chunks:
    """Chunks of the lengths, in turn; each iteration begins anew."""

    def __init__(self, x, *lengths):
        self.x, self.lengths = x, lengths

    def __iter__(self):
        at, turn = 0, 0
        while at < self.x.shape[0]:
            count = self.lengths[turn % len(self.lengths)]
            yield self.x[at : at + count]
            at, turn = at + count, turn + 1


def archive(x, folder, save):
    """Both arguments are read from a file of this kind, each by its name."""
    path = folder / f"{x.ndim}.npz"
    save(path, other=np.zeros(100), **{"x" if x.ndim == 2 else "y": x})
    return path


def saved(x, folder, name="x"):
    path = folder / f"{name}{x.ndim}.npy"
    np.save(path, x)
    return path


def test_a_bar_writes_nothing_where_nobody_looks(capsys):
    """Neither lines nor blank ones go into the file of a job."""

    @optimize
    def total(x: Float[Array, "n"]) -> Float[Array, ""]:
        return jnp.sum(x)

    stream(total, rows(100), chunk={"n": 7})
    assert capsys.readouterr() == ("", "")


@pytest.mark.core(
    "23-NumPy", "23-path", "23-HDF5", "23-npz by column", "23-uneven chunks", "21-parts", "7-Zarr"
)
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("n", [23, 21, 7])
def test_any_source_gives_the_results_of_one_call(source, n, tmp_path):
    """With a rest, without one, and all of it in one chunk."""
    w, x, y = rows(3), rows(n, 3), rows(n)
    made = SOURCES[source]
    got = stream(
        summary,
        w=w,
        x=made(x, tmp_path),
        y=made(y, tmp_path),
        chunk={"n": 7},
        progress=False,
    ).result
    want = summary(w, x, y)
    assert got["name"] == "summary"
    for key in ("variance", "shares", "top"):
        np.testing.assert_allclose(got[key], want[key], rtol=1e-4, atol=1e-6)


@pytest.mark.rest
@pytest.mark.parametrize("chunk", [500, 1000])
def test_a_run_that_is_over_reads_no_data(chunk):
    """Its results are there: whoever gave the data may write to them."""

    @optimize(verify=False)
    def slow(w: Float[Array, "k k"], x: Float[Array, "n k"]):
        return jax.lax.fori_loop(0, 20, lambda _, y: jnp.tanh(y @ w), x).sum(0)

    value, _ = stream(slow, w=rows(300, 300), x=rows(1000, 300), chunk={"n": chunk}, progress=False)
    assert value.is_ready()


def test_only_a_chunk_is_read_at_a_time():
    """Never more than asked. `verify` reads all of it to compare."""
    data = Sliceable(rows(1000))
    stream(optimize(verify=False)(moments.__wrapped__), data, chunk={"n": 64}, progress=False)
    assert data.longest == 64


@pytest.mark.rest
def test_each_pass_has_one_program():
    """However many chunks, and one for the last chunk, which is shorter; a second run over data of
    that length compiles nothing.
    """
    from tests._monitor import listening

    with listening() as few:
        stream(moments, rows(100), chunk={"n": 7}, progress=False)
    with listening() as many:
        stream(moments, rows(7700), chunk={"n": 7}, progress=False)
    with listening() as even:
        stream(moments, rows(700), chunk={"n": 7}, progress=False)
    assert (
        many.count("compile", "step"),
        few.count("compile", "step"),
        even.count("compile", "step"),
    ) == (2, 4, 2)
    with listening() as again:
        value, _ = stream(moments, np.ones(7700, F), chunk={"n": 7}, progress=False)
    assert again.count("compile") == again.count("trace") == 0
    assert [float(a) for a in value] == [1, 0]


def test_float64_and_another_axis():
    """Data that are cut along their second axis, in double precision."""

    @optimize(precision="f64")
    def f(x: Float[Array, "k n"]) -> Float[Array, "k"]:
        return jnp.var(x, axis=1)

    x = RNG.normal(size=(3, 50)) + 1e4
    np.testing.assert_allclose(
        stream(f, x, chunk={"n": 8}, progress=False).result, x.var(1), rtol=1e-6
    )


class Fails(Sliceable):
    """Cannot be read from the given reading on, so many times."""

    def __init__(self, data, after, times=10**9, error=OSError):
        super().__init__(data)
        self.after, self.times, self.error, self.reads = after, times, error, 0

    def __getitem__(self, where):
        self.reads += 1
        if self.reads > self.after and self.times:
            self.times -= 1
            raise self.error("the disk is gone")
        return super().__getitem__(where)


def broken(path, x, after=20, error=OSError, **options):
    with pytest.raises(error, match="the disk is gone"):
        stream(
            moments,
            Fails(x, after, error=error),
            chunk={"n": 8},
            checkpoint=path,
            progress=False,
            retries=0,
            **options,
        )


@pytest.mark.core("0s-13", "1-1", "1-20", "5-13", "5-25")
@pytest.mark.parametrize("after", [1, 12, 13, 20, 25])
@pytest.mark.parametrize("every", [1, "0s", 5])
def test_a_run_that_breaks_off_goes_on(tmp_path, every, after):
    """From the last checkpoint, in either pass, to the bits of an unbroken run; the file is gone
    then.
    """
    path, x = tmp_path / "run", rows(100)
    want = stream(moments, x, chunk={"n": 8}, progress=False).result
    broken(path, x, after, checkpoint_every=every)
    assert path.exists() == (after >= (5 if every == 5 else 1))
    data = Fails(x, 10**9)
    got = stream(moments, data, chunk={"n": 8}, checkpoint=path, progress=False)
    assert [float(a) for a in got.result] == [float(a) for a in want]
    assert got.stats.chunks <= 26 - after + 1 + (5 if every == 5 else 1)
    # rows that were read before the break are read again, to compare
    assert got.stats.chunks + 13 >= data.reads
    assert not any(tmp_path.iterdir())


def test_ctrl_c_writes_the_checkpoint(tmp_path):
    """Though none was due; the message names it."""
    path, x = tmp_path / "run", rows(100)
    with pytest.raises(KeyboardInterrupt) as stop:
        stream(
            moments,
            Fails(x, 20, error=KeyboardInterrupt),
            chunk={"n": 8},
            checkpoint=path,
            progress=False,
        )
    assert str(path) in stop.value.__notes__[0]
    got = stream(moments, x, chunk={"n": 8}, checkpoint=path, progress=False)
    assert got.stats.chunks == 26 - 20


KILLED = """
import os, sys, signal
import numpy as np, jax.numpy as jnp, jitney
from jaxtyping import Array, Float

@jitney.optimize
def moments(x: Float[Array, "n"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    return jnp.mean(x), jnp.var(x)

class Data:
    x, reads = np.random.default_rng(0).normal(size=1000).astype("f4"), 0
    shape, dtype = x.shape, x.dtype
    def __getitem__(self, where):
        self.reads += 1
        if self.reads == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
        return self.x[where]

out = jitney.stream(moments, Data(), chunk={"n": 8}, checkpoint=sys.argv[1], checkpoint_every=1, progress=False)
print(out.stats.chunks, [np.asarray(a).tobytes().hex() for a in out.result])
"""


@pytest.mark.rest
def test_a_killed_process_goes_on_to_the_same_bits(tmp_path):
    """kill -9 in either pass; the process after it makes the rest only."""

    def run(path, kill):
        command = [sys.executable, "-c", KILLED, str(path), str(kill)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    want = run(tmp_path / "whole", 0).stdout.split(maxsplit=1)
    assert (
        run(tmp_path / "run", 60).returncode
        == run(tmp_path / "run", 180).returncode
        == -signal.SIGKILL
    )
    chunks, bits = run(tmp_path / "run", 0).stdout.split(maxsplit=1)
    assert bits == want[1]
    assert int(want[0]) == 250
    assert int(chunks) < 100


@pytest.mark.parametrize(
    "other", ["chunk", "length", "argument", "function", "exponent", "constant"]
)
def test_a_checkpoint_of_another_run_is_refused(tmp_path, other):
    """The file stays as it was."""

    def made(power, constant):
        """Functions of one line and with the same operations."""

        @optimize
        def scaled(x: Float[Array, "n"], by: Float[Array, ""]) -> Float[Array, ""]:
            return jnp.sum(x**power * by * constant)

        return scaled

    @optimize
    def shifted(x: Float[Array, "n"], by: Float[Array, ""]) -> Float[Array, ""]:
        return jnp.sum(x - by)

    scaled = made(2, np.ones(1, F))
    functions = {
        "function": shifted,
        "exponent": made(3, np.ones(1, F)),
        "constant": made(2, np.full(1, 2, F)),
    }
    path, x = tmp_path / "run", rows(100)
    file = saved(x, tmp_path)
    broken_data = [np.load(file, mmap_mode="r"), Fails(rows(8), 0)]
    with pytest.raises(OSError, match="the disk is gone"):
        stream(
            scaled,
            x=broken_data,
            by=F(2),
            chunk={"n": 8},
            checkpoint=path,
            checkpoint_every=1,
            retries=0,
            progress=False,
        )
    before = path.read_bytes()
    data = [np.load(file, mmap_mode="r"), rows(8)]
    given = {
        "length": {"x": [*data, rows(8)], "by": F(2)},
        "argument": {"x": data, "by": F(3)},
    }.get(other, {"x": data, "by": F(2)})
    with pytest.raises(JitneyError, match="is of another run"):
        stream(
            functions.get(other, scaled),
            **given,
            chunk={"n": 9 if other == "chunk" else 8},
            checkpoint=path,
            progress=False,
        )
    assert path.read_bytes() == before


@pytest.mark.parametrize("damage", ["cut", "flip", "foreign", "empty"])
def test_a_damaged_checkpoint_is_refused(tmp_path, damage):
    """Whatever it is that is wrong with it."""
    path, x = tmp_path / "run", rows(100)
    broken(path, x, checkpoint_every=1)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(
        {"cut": content[:-1], "flip": content, "foreign": b"PK\x03\x04 something", "empty": b""}[
            damage
        ]
    )
    with pytest.raises(JitneyError, match="not a checkpoint, or it is damaged"):
        stream(moments, x, chunk={"n": 8}, checkpoint=path, progress=False)


def test_a_checkpoint_of_another_version_is_refused(tmp_path):
    """Its checksums are others."""
    path, x = tmp_path / "run", rows(100)
    broken(path, x, checkpoint_every=1)
    path.write_bytes(path.read_bytes().replace(b"jitney checkpoint 3", b"jitney checkpoint 2", 1))
    with pytest.raises(JitneyError, match="is of another version of jitney"):
        stream(moments, x, chunk={"n": 8}, checkpoint=path, progress=False)


def test_narrow_floats_are_kept(tmp_path):
    """NumPy's files do not know bfloat16."""

    @optimize
    def top(x: Float[Array, "n"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        m = jnp.max(x)
        return m, jnp.sum((x - m).astype(jnp.float32))

    path, x = tmp_path / "run", jnp.asarray(rows(100)).astype(jnp.bfloat16)
    want = stream(top, x, chunk={"n": 8}, progress=False).result
    for after in (5, 20):
        with pytest.raises(OSError, match="the disk is gone"):
            stream(
                top,
                Fails(x, after),
                chunk={"n": 8},
                checkpoint=path,
                checkpoint_every=1,
                progress=False,
                retries=0,
            )
    got = stream(top, x, chunk={"n": 8}, checkpoint=path, progress=False).result
    assert [float(a) for a in got] == [float(a) for a in want]
    assert got[0].dtype == jnp.bfloat16


@pytest.mark.parametrize("every", [0, -1, 1.5, "often", True, "-1s"])
def test_intervals_that_make_no_sense_are_refused(tmp_path, every):
    """With a sentence that says what to write."""
    with pytest.raises(OptionError, match="checkpoint_every"):
        stream(
            moments,
            rows(100),
            chunk={"n": 8},
            checkpoint=tmp_path / "a",
            checkpoint_every=every,
            progress=False,
        )


def test_a_wrong_size_of_a_chunk_is_mended_along_its_axis():
    """The fix names the axis that was given, not the first of the signature."""

    @optimize
    def energy(x: Float[Array, "row k"]) -> Float[Array, ""]:
        return jnp.sum(x**2)

    with pytest.raises(ContractError, match=r'Fix: write chunk=\{"row": 65536\}'):
        stream(energy, rows(9, 3), chunk={"row": 0}, progress=False)


def test_a_checkpoint_without_a_folder_is_refused(tmp_path):
    """Before anything is read."""
    data = Sliceable(rows(100))
    with pytest.raises(JitneyError, match="there is no folder"):
        stream(moments, data, chunk={"n": 8}, checkpoint=tmp_path / "no" / "a", progress=False)
    assert data.longest == 0


def test_a_reading_that_fails_is_made_again(monkeypatch):
    """So often as asked, then it is named: the argument, the rows, how often."""
    monkeypatch.setattr("jitney._stream.data.reading._PAUSE", 0.0)
    x = rows(100)
    got = stream(moments, Fails(x, 3, times=2), chunk={"n": 8}, progress=False)
    np.testing.assert_allclose(got.result[0], x.mean(), rtol=1e-5, atol=1e-7)
    assert got.stats.retries == 2
    with pytest.raises(OSError, match="the disk is gone") as error:
        stream(moments, Fails(x, 3), chunk={"n": 8}, retries=1, progress=False)
    assert error.value.__notes__ == ["Reading rows 24 to 32 of 'x' failed, 2 times."]


def test_other_errors_are_not_tried_again():
    """A mistake in a reader is none of the disk."""
    data = Fails(rows(100), 3, error=ZeroDivisionError)
    with pytest.raises(ZeroDivisionError):
        stream(moments, data, chunk={"n": 8}, progress=False)
    assert data.reads == 4


def test_a_run_says_what_it_did():
    """Chunks over both passes, rows, seconds, rate."""
    value, stats = stream(moments, rows(100), chunk={"n": 8}, progress=False)
    assert (stats.chunks, stats.rows, stats.passes, stats.retries, stats.saves) == (
        26,
        100,
        2,
        0,
        0,
    )
    assert stats.rate == pytest.approx(200 / stats.seconds)
    assert "100 rows in 26 chunks, 2 passes" in str(stats)
    assert stream(moments, rows(5), chunk={"n": 8}, progress=False).stats.chunks == 1
    assert len(value) == 2


def test_the_rate_of_a_run_that_resumed_counts_its_own_rows(tmp_path):
    """Of 26 chunks 13, a whole pass, and 7 more were done before."""
    path, x = tmp_path / "run", rows(100)
    broken(path, x, 20, checkpoint_every=1)
    stats = stream(moments, x, chunk={"n": 8}, checkpoint=path, progress=False).stats
    assert (stats.rows, stats.passes) == (100, 2)
    assert 0 < stats.read <= 8 * stats.chunks < 100
    assert stats.rate == pytest.approx(stats.read / stats.seconds)
    assert "2 passes, resumed, " in str(stats)


def test_results_with_the_axis_have_no_checkpoint(tmp_path):
    """They would have to be found again."""
    with pytest.raises(JitneyError, match="a result has the axis 'n'"):
        stream(
            summary,
            w=rows(3),
            x=rows(9, 3),
            y=rows(9),
            chunk={"n": 2},
            checkpoint=tmp_path / "a",
            progress=False,
        )


def test_what_cannot_be_cut_is_an_error():
    """Before anything is read."""
    data = Sliceable(rows(50))
    with pytest.raises(AxisError, match="transforms"):
        stream(waves, data, chunk={"n": 8}, progress=False)
    assert data.longest == 0


@optimize
def waves(x: Float[Array, "n"]) -> Float[Array, "n"]:
    return jnp.abs(jnp.fft.fft(x))


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda x, folder: iter([x, x]), "can be read only once"),
        (lambda x, folder: iter_of([]), "gave no chunk"),
        (lambda x, folder: iter_of([x, x.astype("f8")]), "a chunk of 'x' is float64"),
        (lambda x, folder: [x, x[:, None]], "part 1 of 'x' is float32"),
        (lambda x, folder: archive(x, folder, np.savez), "holds no array 'x'; it holds other, y"),
        (lambda x, folder: folder / "x.csv", "of no kind that is read here"),
    ],
    ids=["iterator", "empty", "dtype", "shape", "npz", "csv"],
)
def test_data_that_cannot_be_read_are_refused(made, message, tmp_path):
    """With a sentence that names the argument."""
    with pytest.raises(ContractError, match=message):
        stream(moments, made(rows(9), tmp_path), chunk={"n": 4}, progress=False)


def iter_of(parts):
    class Parts:
        def __iter__(self):
            return iter(parts)

    return Parts()


def test_chunks_that_become_fewer_are_an_error():
    """The data changed while they were read."""

    class Shrinks:
        times = 0

        def __iter__(self):
            self.times += 1
            return iter([rows(10)] * (4 - self.times))

    with pytest.raises(OSError, match="the rows of 'x' end after 20; there were 30"):
        stream(moments, Shrinks(), chunk={"n": 4}, progress=False, retries=0)


@pytest.mark.parametrize(
    ("chunk", "message"),
    [
        ({"m": 4}, "no array has an axis 'm'"),
        ({}, "does not say"),
        ({"n": 4, "m": 4}, "does not say"),
        (True, "does not say"),
        ("all", "does not say"),
        ({"n": 0}, "does not say"),
    ],
)
def test_chunks_that_make_no_sense_are_refused(chunk, message):
    """With a sentence."""
    with pytest.raises(ContractError, match=message):
        stream(moments, rows(9), chunk=chunk, progress=False)


def test_the_contract_holds():
    """Two lengths of one axis are an error that names both."""
    with pytest.raises(ContractError, match="two sizes"):
        stream(summary, w=rows(3), x=rows(9, 3), y=rows(8), chunk={"n": 2}, progress=False)


def test_a_run_can_be_silent(capsys):
    """No word with progress=False."""
    stream(moments, rows(100), chunk={"n": 8}, progress=False)
    out = capsys.readouterr()
    assert out.out + out.err == ""


@optimize
def remaining(x: Float[Array, "n"]):
    """Two passes: the sum, and shares of it from the end, with the largest share that is left and
    where.
    """
    left = jax.lax.cumsum(x / jnp.sum(jnp.abs(x)), reverse=True)
    folded = jax.lax.scan(lambda c, a: (c / 2 + a, None), jnp.float32(0), left, reverse=True)[0]
    return jnp.max(left), jnp.argmax(left), folded


def whole(x):
    """The same in NumPy."""
    left = np.cumsum((x.astype(float) / np.abs(x.astype(float)).sum())[::-1])[::-1]
    return left.max(), left.argmax(), sum(a / 2.0**i for i, a in enumerate(left))


@pytest.mark.core("100-8")
@pytest.mark.parametrize(("size", "chunk"), [(100, 8), (96, 8), (9, 1)])
def test_a_pass_may_run_from_the_end(size, chunk):
    """Chunks of each pass are read once, in the order that it needs; results with the axis land in
    their places.
    """

    @optimize
    def both(x: Float[Array, "n"]):
        return jnp.cumsum(x), jax.lax.cumsum(x, reverse=True)

    x = rows(size)
    got, stats = stream(remaining, x, chunk={"n": chunk}, progress=False)
    np.testing.assert_allclose(got, whole(x), rtol=1e-4)
    assert (stats.passes, stats.chunks) == (2, 2 * -(-size // chunk))
    value = stream(both, x, chunk={"n": chunk}, progress=False).result
    np.testing.assert_allclose(
        value, (np.cumsum(x), np.cumsum(x[::-1])[::-1]), rtol=1e-3, atol=1e-4
    )


@pytest.mark.core("3", "14")
@pytest.mark.parametrize("after", [3, 13, 14, 15, 20, 25])
def test_a_broken_pass_from_the_end_goes_on(tmp_path, after):
    """In the pass from the front or in the one from the end, of which the short chunk is the
    first.
    """
    path, x = tmp_path / "run", rows(100)
    with pytest.raises(OSError, match="the disk is gone"):
        stream(
            remaining,
            Fails(x, after),
            chunk={"n": 8},
            checkpoint=path,
            checkpoint_every=1,
            progress=False,
            retries=0,
        )
    got, stats = stream(remaining, x, chunk={"n": 8}, checkpoint=path, progress=False)
    want = stream(remaining, x, chunk={"n": 8}, progress=False).result
    assert [np.asarray(a).tobytes() for a in got] == [np.asarray(a).tobytes() for a in want]
    assert stats.chunks <= 26 - after + 2


@pytest.mark.rest
def test_rows_that_come_in_order_cannot_be_read_from_the_end():
    """Each chunk would be found by reading all before it."""
    with pytest.raises(
        AxisError,
        match="'x' can only be read from its first row on, and a pass over 'n' runs from the end",
    ):
        stream(remaining, Chunks(rows(20), 4), chunk={"n": 8}, progress=False)


@pytest.mark.rest
def test_a_number_or_key_in_an_array_is_passed_whole():
    """Arrays without axes are no iterables of chunks."""

    @optimize
    def f(
        x: Float[Array, "n"], scale: Float[Array, ""], offset: Float[Array, ""], key: Key[Array, ""]
    ) -> Float[Array, ""]:
        return jnp.sum(x) * scale + offset + jax.random.normal(key)

    x, key = np.arange(5, dtype=np.float32), jax.random.key(0)
    data = {"x": x, "scale": jnp.float32(2), "offset": np.array(3, np.float32), "key": key}
    got, _ = stream(f, **data, chunk={"n": 2}, progress=False)
    np.testing.assert_allclose(got, 23 + jax.random.normal(key), rtol=1e-6)


@optimize
def drawn(x: Float[Array, "n"], keys: Key[Array, "n 2"]) -> tuple[Float[Array, ""], Array]:
    """A loss of two passes, and numbers that are drawn for each element."""
    noise = jax.vmap(jax.vmap(jax.random.normal))(keys)
    return jnp.var(x * jnp.sum(noise, 1)), noise


@pytest.mark.core("{}")
@pytest.mark.parametrize("options", [{}, {"cache": "program"}], ids=str)
def test_keys_along_the_axis_are_those_of_the_whole(options):
    """A chunk has the keys of its elements, in each pass; an array of them is in memory."""
    x, keys = rows(7), jax.random.split(jax.random.key(0), (7, 2))
    program = optimize(drawn.__wrapped__, **options)
    loss, noise = stream(program, x, keys, chunk={"n": 3}, progress=False).result
    want = jax.jit(drawn.__wrapped__)(x, keys)
    np.testing.assert_allclose(loss, want[0], rtol=1e-5)
    np.testing.assert_array_equal(noise, want[1])


@pytest.mark.rest
def test_a_checkpoint_of_keys_knows_others(tmp_path):
    """A run that goes on with other keys is refused, since their words are checked."""

    class Stops(Sliceable):
        def __getitem__(self, where):
            if where.start >= 4:
                raise ValueError("stopped")
            return super().__getitem__(where)

    def one(x: Float[Array, "n"], keys: Key[Array, "n 2"]) -> Float[Array, ""]:
        return jnp.sum(x * jax.vmap(jax.vmap(jax.random.normal))(keys)[:, 0])

    x, keys = rows(8), jax.random.split(jax.random.key(0), (8, 2))
    how = {"chunk": {"n": 2}, "checkpoint": tmp_path / "run", "progress": False}
    program = optimize(one)
    with pytest.raises(ValueError, match="stopped"):
        stream(program, Stops(x), keys, checkpoint_every=1, **how)
    with pytest.raises(DataError, match="of 'keys' are not what they were"):
        stream(program, Sliceable(x), keys[::-1], **how)
    got = stream(program, Sliceable(x), keys, **how).result
    np.testing.assert_allclose(got, one(x, keys), rtol=1e-5)


def test_keys_that_chunks_return_are_refused():
    """NumPy has no arrays of them; with what to do instead."""

    @optimize
    def f(x: Float[Array, "n"], key: Key[Array, "n"]) -> tuple[Float[Array, ""], Key[Array, "n"]]:
        return jnp.sum(x), key

    with pytest.raises(ContractError, match="its chunks make an array of random keys along 'n'"):
        stream(
            f,
            x=np.ones(5, np.float32),
            key=jax.random.split(jax.random.key(0), 5),
            chunk={"n": 2},
        )


def test_progress_is_true_or_false():
    """An array has no truth of its own."""
    with pytest.raises(OptionError, match="progress="):
        stream(moments, np.ones((8, 2), np.float32), chunk={"n": 8}, progress=np.ones(2))


@pytest.mark.parametrize("axis", [True, False], ids=["collected", "summed"])
def test_debug_nans_looks_at_the_results_of_a_stream(axis):
    """Of several chunks too; finite ones pass."""

    @optimize(debug_nans=True)
    def f(x: Float[Array, "n"]):
        return jnp.log(x) if axis else jnp.sum(jnp.log(x))

    run = lambda x: stream(f, x, chunk={"n": 3}, progress=False).result
    np.testing.assert_allclose(run(np.ones(8, F)), np.zeros(8) if axis else 0)
    with pytest.raises(
        NonFiniteError, match=r"a result has a NaN or an infinity.(.|\n)*on a part of the data"
    ):
        run(np.arange(8, dtype=F))
