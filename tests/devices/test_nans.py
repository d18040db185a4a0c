"""NaN among numbers that lie over several devices: an extreme of them is NaN, as on one device."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney

V = Float[Array, "n"]


@pytest.fixture(scope="module")
def mesh():
    return jitney.mesh(data=4, model=2, devices=jax.devices()[:8])


def extremes(x: V):
    by = jnp.arange(x.shape[0]) % 3
    return (
        jnp.max(x),
        jnp.min(x),
        jnp.argmax(x),
        jnp.argmin(x),
        jnp.full(3, -9.0, x.dtype).at[by].max(x),
        jax.ops.segment_min(x, by, 3),
    )


def rows(x: V):
    return (
        jnp.max(x[:, None] * jnp.ones((1, 3), x.dtype), axis=0),
        jnp.ptp(x),
        jax.nn.relu(jnp.linalg.norm(x, ord=np.inf)),
    )


def inside(x: V):
    """In calls, branches, loops, rules of one's own, and what is made anew in a backward pass."""
    mapped = jax.lax.map(lambda k: jnp.max(x * k), jnp.arange(1.0, 3.0, dtype=x.dtype))
    branch = jax.lax.cond(x.shape[0] > 0, lambda: jnp.min(x), lambda: x[0])
    loop = jax.lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, jnp.max(x)), (0, x[0] * 0))[
        1
    ]
    kept = jax.checkpoint(jnp.max)(x)
    soft = jax.nn.softmax(x)
    return (
        mapped,
        branch,
        loop,
        kept,
        jax.jit(jnp.min)(x),
        soft,
        jax.grad(lambda x: jax.checkpoint(jnp.max)(jnp.sin(x)))(x),
    )


def plain(fn, x):
    return jax.tree.leaves(jax.jit(fn)(x))


def mapped(x: V):
    """Over the elements of a `vmap` that has a name."""
    lowest, highest = jax.vmap(
        lambda a: (jax.lax.pmin(a, "k"), jax.lax.pmax(a, "k")), axis_name="k"
    )(x)
    return jnp.cumsum(lowest)[:3], highest + 1


WAYS = {
    "shard": {},
    "one chunk": {"chunk": {"n": 8}},
    "chunks": {"chunk": {"n": 3}},
    "memory": {"memory": "1GiB"},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("along", ["data", ("data", "model")])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float8_e4m3fn"])
def test_an_extreme_of_a_nan_is_one(mesh, way, along, dtype):
    """Wherever it lies, whether chunks are worked on or a device's part is one."""
    f = jitney.optimize(extremes, shard={"n": along}, mesh=mesh, **WAYS[way])
    for at in (0, 13, 31, None):
        x = np.arange(32).astype(dtype)
        if at is not None:
            x[at] = np.nan
        for got, want in zip(jax.tree.leaves(f(x)), plain(extremes, x), strict=True):
            np.testing.assert_array_equal(np.asarray(got, np.float32), np.asarray(want, np.float32))


@pytest.mark.parametrize("fn", [rows, inside, mapped], ids=lambda fn: fn.__name__)
def test_wherever_the_extreme_stands(mesh, fn):
    """The NaN reaches what is made of it."""
    f = jitney.optimize(fn, shard={"n": "data"}, mesh=mesh)
    for at in (5, 31, None):
        x = np.arange(32, dtype=np.float32)
        if at is not None:
            x[at] = np.nan
        for got, want in zip(jax.tree.leaves(f(x)), plain(fn, x), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-6)


def test_a_gradient_from_outside(mesh):
    """Through the flag, to the largest."""
    f = jitney.optimize(largest, shard={"n": "data"}, mesh=mesh)
    x = jnp.arange(32.0)
    np.testing.assert_array_equal(jax.grad(f)(x), jax.grad(largest)(x))


def largest(x: V):
    return jnp.max(x)


def test_low_sums_over_devices_are_rounded_once(mesh):
    """4,096 ones of bfloat16, of which each device has a part."""

    def total(x: V):
        return jax.lax.reduce_sum(x, axes=(0,)), x @ x

    x = np.ones(4096, jnp.bfloat16)
    for got in jitney.optimize(total, shard={"n": ("data", "model")}, mesh=mesh, chunk={"n": 1})(x):
        assert (got.dtype, float(got)) == (jnp.bfloat16, 4096)


def by_row(x: Float[Array, "n k"]) -> tuple[Float[Array, "n"], Float[Array, ""]]:
    return jnp.max(x, axis=1), jnp.max(jnp.min(x, axis=1))


@pytest.mark.parametrize(
    "shard", [{"k": "model"}, {"n": "data", "k": "model"}], ids=["another", "both"]
)
@pytest.mark.parametrize("streamed", [False, True])
def test_an_extreme_along_another_axis_than_the_one_that_is_cut(mesh, shard, streamed):
    """XLA lays that one over devices, inside the loop over the chunks."""
    x = np.arange(64, dtype=np.float32).reshape(16, 4)
    x[3, 1] = np.nan
    options = {} if streamed else {"chunk": {"n": 4}}
    f = jitney.optimize(by_row, shard=shard, mesh=mesh, **options)
    got = jitney.stream(f, x, chunk={"n": 4}, progress=False).result if streamed else f(x)
    for a, b in zip(got, jax.jit(by_row)(x), strict=True):
        np.testing.assert_array_equal(a, b)
