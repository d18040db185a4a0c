"""`jitney.stream`: the results of one call, from data that are read chunk by chunk."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from jitney import AxisError, ContractError, JitneyError, optimize, stream

RNG = np.random.default_rng(0)
F = np.float32


def rows(*shape):
    return RNG.normal(size=shape).astype(F)


@optimize
def summary(w: Float[Array, "k"], x: Float[Array, "n k"], y: Float[Array, "n"]):
    """A variance (two passes), elements divided by a sum of theirs (three), a maximum, and a word."""
    r = x @ w - y
    return {"variance": jnp.var(r), "shares": jax.nn.softmax(r), "top": jnp.max(x, 0), "name": "summary"}


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


SOURCES = {
    "NumPy": lambda x, folder: x,
    "device": lambda x, folder: jnp.asarray(x),
    "memory map": lambda x, folder: np.load(saved(x, folder), mmap_mode="r"),
    "path": lambda x, folder: saved(x, folder),
    "text path": lambda x, folder: str(saved(x, folder)),
    "parts": lambda x, folder: [x[:3], x[3:4], x[4:]],
    "sliceable": lambda x, folder: Sliceable(x),
    "paths": lambda x, folder: [saved(x[:5], folder, "a"), saved(x[5:], folder, "b")],
}


def saved(x, folder, name="x"):
    path = folder / f"{name}{x.ndim}.npy"
    np.save(path, x)
    return path


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("n", [23, 21, 7])
def test_any_source_gives_the_results_of_one_call(source, n, tmp_path):
    """With a rest, without one, and all of it in one chunk."""
    w, x, y = rows(3), rows(n, 3), rows(n)
    made = SOURCES[source]
    got = stream(summary, {"w": w, "x": made(x, tmp_path), "y": made(y, tmp_path)}, chunk={"n": 7}, progress=False)
    want = summary(w, x, y)
    assert got["name"] == "summary"
    for key in ("variance", "shares", "top"):
        np.testing.assert_allclose(got[key], want[key], rtol=1e-4, atol=1e-6)


def test_only_a_chunk_is_read_at_a_time():
    """Never more than asked."""
    data = Sliceable(rows(1000))
    stream(moments, {"x": data}, chunk={"n": 64}, progress=False)
    assert data.longest == 64


def test_each_pass_has_one_program():
    """However many chunks, and a rest."""
    from tests._monitor import listening

    stream(moments, {"x": rows(100)}, chunk={"n": 7}, progress=False)
    with listening() as few:
        stream(moments, {"x": rows(100)}, chunk={"n": 7}, progress=False)
    with listening() as many:
        stream(moments, {"x": rows(7000)}, chunk={"n": 7}, progress=False)
    assert many.count("compile", "step") == few.count("compile", "step")


def test_float64_and_another_axis():
    """Data that are cut along their second axis, in double precision."""

    @optimize(precision="f64")
    def f(x: Float[Array, "k n"]) -> Float[Array, "k"]:
        return jnp.var(x, axis=1)

    x = RNG.normal(size=(3, 50)) + 1e4
    np.testing.assert_allclose(stream(f, {"x": x}, chunk={"n": 8}, progress=False), x.var(1), rtol=1e-6)


def test_a_run_that_breaks_off_goes_on(tmp_path, monkeypatch):
    """From the last checkpoint, in the second pass too, to the result of an unbroken run; the file is gone then."""
    monkeypatch.setattr("jitney._stream._SECONDS", 0.0)
    path, x = tmp_path / "run.npz", rows(100)
    want = stream(moments, {"x": x}, chunk={"n": 8}, progress=False)

    class Breaks(Sliceable):
        left = 20

        def __getitem__(self, where):
            self.left -= 1
            if not self.left:
                raise OSError("the disk is gone")
            return super().__getitem__(where)

    with pytest.raises(OSError, match="the disk is gone"):
        stream(moments, {"x": Breaks(x)}, chunk={"n": 8}, checkpoint=path, progress=False)
    assert path.exists()
    read = []

    class Counts(Sliceable):
        def __getitem__(self, where):
            read.append(where)
            return super().__getitem__(where)

    got = stream(moments, {"x": Counts(x)}, chunk={"n": 8}, checkpoint=path, progress=False)
    assert [float(a) for a in got] == [float(a) for a in want]
    assert len(read) < 10
    assert not path.exists()


def test_a_checkpoint_of_another_run_is_refused(tmp_path, monkeypatch):
    """Another chunk size, here; the file stays."""
    monkeypatch.setattr("jitney._stream._SECONDS", 0.0)
    path, x = tmp_path / "run.npz", rows(100)

    class Breaks(Sliceable):
        def __getitem__(self, where):
            if where.start > 50:
                raise OSError("gone")
            return super().__getitem__(where)

    with pytest.raises(OSError, match="gone"):
        stream(moments, {"x": Breaks(x)}, chunk={"n": 8}, checkpoint=path, progress=False)
    with pytest.raises(JitneyError, match="is of another run"):
        stream(moments, {"x": x}, chunk={"n": 9}, checkpoint=path, progress=False)
    assert path.exists()


def test_results_with_the_axis_have_no_checkpoint(tmp_path):
    """They would have to be found again."""
    with pytest.raises(JitneyError, match="a result has the axis 'n'"):
        stream(summary, {"w": rows(3), "x": rows(9, 3), "y": rows(9)}, chunk={"n": 2}, checkpoint=tmp_path / "a", progress=False)


def test_what_cannot_be_cut_is_an_error():
    """Before anything is read."""
    data = Sliceable(rows(50))
    with pytest.raises(AxisError, match="sorted"):
        stream(ordered, {"x": data}, chunk={"n": 8}, progress=False)
    assert data.longest == 0


@optimize
def ordered(x: Float[Array, "n"]) -> Float[Array, "n"]:
    return jnp.sort(x)


@pytest.mark.parametrize(
    ("chunk", "message"), [({"m": 4}, "no array has an axis 'm'"), ({}, "does not say"), (4, "does not say"), ({"n": 0}, "does not say")]
)
def test_chunks_that_make_no_sense_are_refused(chunk, message):
    """With a sentence."""
    with pytest.raises(ContractError, match=message):
        stream(moments, {"x": rows(9)}, chunk=chunk, progress=False)


def test_the_contract_holds():
    """Two lengths of one axis are an error that names both."""
    with pytest.raises(ContractError, match="two sizes"):
        stream(summary, {"w": rows(3), "x": rows(9, 3), "y": rows(8)}, chunk={"n": 2}, progress=False)


def test_a_run_can_be_silent(capsys):
    """No word with progress=False."""
    stream(moments, {"x": rows(100)}, chunk={"n": 8}, progress=False)
    out = capsys.readouterr()
    assert out.out + out.err == ""
