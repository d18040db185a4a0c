"""Causes that take several devices: where arrays lie, and which mesh there is."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from jaxtyping import Array, Float

import jitney
from jitney import optimize


def mesh_of(kind=AxisType.Auto):
    return jax.make_mesh((8,), ("data",), axis_types=(kind,))


def spread(x, *spec, kind=AxisType.Auto):
    return jax.device_put(x, NamedSharding(mesh_of(kind), PartitionSpec(*spec)))


def doubled():
    @optimize
    def f(x: Float[Array, "n"]):
        return x * 2

    return f


def last(program):
    return [
        (cause.kind, cause.argument, cause.old, cause.new) for cause in program.stats.causes[-1]
    ]


def called(program, *arrays):
    for x in arrays:
        program(x)
    return program


X = np.ones(8, np.float32)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_arrays_spread_and_not(kind):
    """With a trace of explicit axes, and without one."""
    f = called(doubled(), spread(X, "data", kind=kind), spread(X, kind=kind))
    ((kind_, argument, old, new),) = last(f)
    assert (kind_, argument) == ("sharding", "x")
    assert "'data'" in old
    assert "'data'" not in new
    assert "data=8" in new
    assert "jax.device_put(x, sharding)" in f.stats.causes[-1][0].remedy


def test_its_remedy():
    """The same sharding for each call, which is put once."""
    f = called(doubled(), *[spread(X, "data")] * 2)
    assert len(f.stats.causes) == 1


def test_the_same_place_in_other_words():
    """`P(None)` is where `P()` is."""
    f = called(doubled(), spread(X), spread(X, None))
    assert len(f.stats.causes) == 1


def test_another_device():
    """Which is told by its name."""
    devices = jax.devices()
    f = called(doubled(), *(jax.device_put(X, device) for device in devices[:2]))
    assert last(f) == [
        ("sharding", "x", f"committed to {devices[0]}", f"committed to {devices[1]}")
    ]


def test_another_device_and_size():
    """Two things, and no third."""
    devices = jax.devices()
    f = called(doubled(), jax.device_put(X, devices[0]), jax.device_put(X[:5], devices[1]))
    assert {cause[:2] for cause in last(f)} == {("sharding", "x"), ("shape", "x")}


def test_a_default_device():
    """A setting, and not what arrays are held by."""
    f = doubled()
    f(X)
    with jax.default_device(jax.devices()[1]):
        f(X)
    assert [cause[:2] for cause in last(f)] == [("setting", "jax_default_device")]


def test_a_mesh_of_another_size():
    """For a function that shards along it."""

    @optimize(shard={"n": "data"})
    def f(x: Float[Array, "n"]):
        return x * 2

    for size in (8, 4):
        with jitney.mesh(data=size):
            f(X)
    assert last(f) == [("mesh", None, "data=8", "data=4")]
    assert "one mesh" in f.stats.causes[-1][0].remedy


def test_a_size_of_a_sharded_axis():
    """Where its arrays lay does not count: the program places them."""

    @optimize(shard={"n": "data"})
    def f(x: Float[Array, "n"]):
        return x * 2

    with jitney.mesh(data=8):
        f(X)
        f(jax.device_put(np.ones(16, np.float32), jax.devices()[1]))
    assert last(f) == [("shape", "x", "8", "16")]


def test_a_result_that_comes_back_in():
    """The classic: the second call gets what the first returned, which lies elsewhere."""
    f = doubled()
    sharded = jax.jit(lambda x: x, out_shardings=NamedSharding(mesh_of(), PartitionSpec("data")))
    called(f, jnp.asarray(X), sharded(X))
    assert [cause[:2] for cause in last(f)] == [("sharding", "x")]
