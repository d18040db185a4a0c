"""`jitney.stream` of a sharded function: chunks over eight virtual devices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float, Int

import jitney
from tests._examples import examples

RNG = np.random.default_rng(0)
MESH = {"data": 4, "model": 2}


def rows(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def made(fn, shard, **options):
    return jitney.optimize(
        fn, shard=shard, mesh=jitney.mesh(**MESH, devices=jax.devices()[:8]), **options
    )


def summary(
    w: Float[Array, "k"], x: Float[Array, "n k"], i: Int[Array, "n"], begin: Float[Array, "5"]
):
    """Sums in several passes, elements that come out, extremes and their places, and sums at
    places.
    """
    r = x @ w
    return {
        "variance": jnp.var(r),
        "shares": jax.nn.softmax(r) * jnp.arange(x.shape[0], dtype=r.dtype),
        "top": (jnp.max(x, 0), jnp.argmin(x, 0)),
        "places": begin.at[i].add(r),
        "mean": i.sum() / i.shape[0],
    }


SUMMARY = (
    {along: made(summary, {"n": along}) for along in ("data", ("data", "model"))}
    if len(jax.devices()) >= 8
    else {}
)


@settings(max_examples=6, deadline=None)
@given(
    n=st.integers(2, 40),
    chunk=st.sampled_from([1, 6, 16]),
    along=st.sampled_from(["data", ("data", "model")]),
    odd=st.sampled_from([0.0, np.nan, -np.inf]),
)
@examples(
    {"n": 2, "chunk": 1, "along": "data", "odd": 0.0},  # fewer rows than devices
    {"n": 7, "chunk": 6, "along": ("data", "model"), "odd": np.nan},  # a rest of one
    # chunks that fit, and that the devices divide
    {"n": 32, "chunk": 16, "along": "data", "odd": -np.inf},
    {"n": 13, "chunk": 16, "along": ("data", "model"), "odd": 0.0},  # all in one chunk
    {"n": 40, "chunk": 6, "along": "data", "odd": np.nan},
)
def test_any_length_in_any_chunks_is_what_numpy_has(n, chunk, along, odd):
    """Rests that the devices do not divide too."""
    w, x, i, begin = rows(3), rows(n, 3), RNG.integers(0, 5, n).astype(np.int32), rows(5)
    x[n // 2, 1] = odd
    got, _ = jitney.stream(
        SUMMARY[along], w=w, x=x, i=i, begin=begin, chunk={"n": chunk}, progress=False
    )
    with np.errstate(all="ignore"):
        r = x.astype(np.float64) @ w
        e = np.exp(r - r.max())
        places = begin + np.array([r[i == k].sum() for k in range(5)])
        want = r.var(), e / e.sum() * np.arange(n), x.max(0), x.argmin(0), places, i.mean()
    for a, b in zip(
        (got["variance"], got["shares"], *got["top"], got["places"], got["mean"]), want, strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)


def moments(x: Float[Array, "n k"]) -> tuple[Float[Array, "k"], Float[Array, "k"]]:
    return jnp.mean(x, 0), jnp.var(x, 0)


def test_a_run_that_was_stopped_goes_on_to_the_same_bits(tmp_path):
    """What each device has accumulated is kept; a run on another mesh is another run."""
    x, path, f = rows(43, 4), tmp_path / "kept", made(moments, {"n": "data", "k": "model"})

    class Stopping:
        shape, dtype, reads = x.shape, x.dtype, 0

        def __getitem__(self, where):
            self.reads += 1
            if self.reads == 7:
                raise KeyboardInterrupt
            return x[where]

    want, _ = jitney.stream(f, Sliceable(x), chunk={"n": 8}, progress=False)
    with pytest.raises(KeyboardInterrupt):
        jitney.stream(
            f,
            Stopping(),
            chunk={"n": 8},
            checkpoint=path,
            checkpoint_every=1,
            progress=False,
        )
    assert path.exists()
    other = jitney.optimize(moments, shard={"n": "data"}, mesh=jitney.mesh(data=2))
    with pytest.raises(jitney.JitneyError, match="of another run"):
        jitney.stream(other, Sliceable(x), chunk={"n": 8}, checkpoint=path, progress=False)
    got, stats = jitney.stream(f, Sliceable(x), chunk={"n": 8}, checkpoint=path, progress=False)
    assert stats.chunks < 14
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_allclose(got[1], x.astype(np.float64).var(0), rtol=1e-4)


class Sliceable:
    """An array that is read by slices."""

    def __init__(self, data):
        self.data, self.shape, self.dtype = data, data.shape, data.dtype

    def __getitem__(self, where):
        return self.data[where]


def test_memory_of_a_step_is_that_of_one_device():
    """Four devices take chunks about four times as long."""

    def f(x: Float[Array, "n"]) -> Float[Array, ""]:
        return jnp.sum(jnp.sort(jnp.outer(jnp.ones(32), jnp.ones(32)) * x[:, None, None], axis=1))

    x, counts = rows(1000), []
    for program in (jitney.optimize(f, memory="400KiB"), made(f, {"n": "data"}, memory="400KiB")):
        value, stats = jitney.stream(program, x, chunk={"n": "auto"}, progress=False)
        np.testing.assert_allclose(value, x.sum() * 32 * 32, rtol=1e-3)
        counts.append(stats.chunks)
    assert counts[0] / 6 < counts[1] < counts[0] / 3


def test_gradients_stream_and_another_axis_lies_along_the_mesh():
    """Parameters along `model`, the data cut by hand along `data` or whole on each device."""

    def loss(w: Float[Array, "k hidden"], x: Float[Array, "n k"]) -> Float[Array, ""]:
        return jnp.mean(jnp.tanh(x @ w) ** 2)

    w, x = rows(3, 4), rows(30, 3)
    want = jax.grad(loss)(w, x)
    for shard in ({"n": "data", "hidden": "model"}, {"hidden": "model"}):
        got, _ = jitney.stream(made(loss, shard).grad, w=w, x=x, chunk={"n": 8}, progress=False)
        np.testing.assert_allclose(
            got["w"] if isinstance(got, dict) else got, want, rtol=1e-4, atol=1e-6
        )


def test_what_goes_on_from_device_to_device_is_refused():
    """As for `chunk`."""

    def f(x: Float[Array, "n"]) -> Float[Array, "n"]:
        return jnp.cumsum(x)

    with pytest.raises(jitney.errors.AxisError, match="where it is sharded over 'data'"):
        jitney.stream(made(f, {"n": "data"}), rows(30), chunk={"n": 8})


def test_without_a_mesh_it_says_so():
    """As a call does."""

    @jitney.optimize(shard={"n": "data"})
    def f(x: Float[Array, "n"]) -> Float[Array, ""]:
        return jnp.sum(x)

    with pytest.raises(jitney.errors.MeshError, match="no mesh"):
        jitney.stream(f, rows(30), chunk={"n": 8})


def test_data_that_lie_on_devices_stream_too():
    """Of a mesh with explicit axes: read as what the host has."""
    mesh = jitney.mesh(**MESH, explicit=True, devices=jax.devices()[:8])
    x = rows(40, 4)
    with mesh:
        spread = jax.device_put(x, NamedSharding(mesh.mesh, P("data")))
        got, _ = jitney.stream(
            jitney.optimize(moments, shard={"n": "data"}),
            spread,
            chunk={"n": 12},
            progress=False,
        )
    np.testing.assert_allclose(got[0], x.mean(0), rtol=1e-4, atol=1e-6)


def test_of_equal_elements_the_first_is_found_whichever_device_holds_it():
    """The front of a later chunk lies on a device before that of the end of an earlier one; NaNs
    are equal.
    """

    def f(
        x: Float[Array, "n k"], i: Int[Array, "n"]
    ) -> tuple[Int[Array, "k"], Int[Array, "k"], Int[Array, ""]]:
        return jnp.argmax(x, 0), jnp.argmin(x, 0), jnp.argmax(i)

    x, i = np.zeros((24, 3), np.float32), np.zeros(24, np.int32)
    x[[6, 8], 0] = 1, 1
    x[[7, 16], 1] = np.nan, np.nan
    x[[5, 9], 2] = -np.inf, -np.inf
    i[[3, 8]] = 7
    got, _ = jitney.stream(made(f, {"n": "data"}), x=x, i=i, chunk={"n": 8}, progress=False)
    for a, b in zip(got, (x.argmax(0), x.argmin(0), i.argmax()), strict=True):
        np.testing.assert_array_equal(a, b)


def test_one_row_is_worked_on_though_devices_cannot_share_it():
    """As any rest that is smaller than the devices are many; of a gradient too."""
    x, w = rows(1, 3), rows(3)

    def loss(w: Float[Array, "k"], x: Float[Array, "n k"]) -> Float[Array, ""]:
        return jnp.mean((x @ w) ** 2)

    program = made(loss, {"n": "data"})
    value = jitney.stream(program, w=w, x=x, chunk={"n": 8}, progress=False).result
    np.testing.assert_allclose(value, (x @ w).item() ** 2, rtol=1e-5)
    gradient = jitney.stream(program.grad, w=w, x=x, chunk={"n": 8}, progress=False).result
    np.testing.assert_allclose(gradient["w"], 2 * (x @ w).item() * x[0], rtol=1e-5)
