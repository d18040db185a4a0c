"""Positions in types of 8 and 16 bits, in arrays that lie over several devices: the same elements
as on one, as NumPy has them.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jaxtyping import Array, Float, Int, UInt

import jitney

AT = [0, 3, 15, 30, 31, 7, 8, 64, 77, 5, 1, 2, 100, 4, 6, 31]  # those from 32 on lie outside


@pytest.fixture(scope="module")
def mesh():
    return jitney.mesh(data=8, devices=jax.devices()[:8])


def read(x: Float[Array, "n"], i: Int[Array, "k"] | UInt[Array, "k"]):
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(), collapsed_slice_dims=(0,), start_index_map=(0,)
    )
    slices = lax.map(lambda k: lax.dynamic_slice(x, (k,), (2,)), i)
    return (
        jnp.take(x, i, mode="clip"),
        jnp.take(x, i, mode="fill", fill_value=-1.0),
        lax.gather(x, i[:, None], numbers, (1,), mode="clip"),
        slices,
    )


def read_by_numpy(x, i):
    clipped = x[np.minimum(i, 31)]
    first = np.minimum(i, 30)
    return (
        clipped,
        np.where(i < 32, clipped, -1.0),
        clipped,
        np.stack([x[first], x[first + 1]], axis=1),
    )


def write(x: Float[Array, "n"], i: Int[Array, "k"] | UInt[Array, "k"]):
    inside = lax.cond(x.shape[0] > 0, lambda: x.at[i].max(40.0), lambda: x)
    return (
        x.at[i].add(1.0),
        inside,
        lax.dynamic_update_slice(x, jnp.full(2, -5.0, x.dtype), (i[2],)),
        x.at[i].set(7.0),
    )


def written_by_numpy(x, i):
    added, raised, put, replaced = (x.copy() for _ in range(4))
    inside = i[i < 32]
    np.add.at(added, inside, 1.0)
    raised[inside] = np.maximum(raised[inside], 40.0)
    put[min(i[2], 30) :][:2] = -5.0
    replaced[inside] = 7.0
    return added, raised, put, replaced


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32"])
@pytest.mark.parametrize("options", [{}, {"memory": "1GiB"}], ids=["shard", "memory"])
@pytest.mark.parametrize(
    ("fn", "reference"), [(read, read_by_numpy), (write, written_by_numpy)], ids=["read", "write"]
)
def test_narrow_positions_over_devices(mesh, fn, reference, options, dtype):
    """XLA's partitioner wraps them where a device's part begins, and for some operations ends the
    process.
    """
    x, i = np.arange(32.0, dtype=np.float32), np.array(AT, dtype)
    f = jitney.optimize(fn, shard={"n": "data"}, mesh=mesh, **options)
    for got, want in zip(f(x, i), reference(x, np.array(AT)), strict=True):
        np.testing.assert_array_equal(np.asarray(got), want)
