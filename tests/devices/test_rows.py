"""Rows of unlike lengths, shared by eight virtual devices. References: calls of each row."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney
from jitney.errors import AxisError, OptionError

RNG = np.random.default_rng(0)
SIZES = (3, 8, 1, 20, 5, 0, 3, *range(30, 60), *[6] * 20)
ROWS = [RNG.normal(size=n).astype(np.float32) for n in SIZES]
W = np.float32(2)


@pytest.fixture
def mesh():
    return jitney.mesh(data=4, model=2, devices=jax.devices()[:8])


def body(w: Float[Array, ""], y: Float[Array, "n"]):
    return w * jnp.sum(y) / (1 + y.shape[0]), jnp.cumsum(y) * w


def mapped(mesh, **options):
    return jitney.optimize(
        **{"vmap": "row", "pad": {"n": "pow2"}, "shard": {"row": "data"}, "mesh": mesh, **options}
    )(body)


def holds(got, rows):
    mean, sums = got
    np.testing.assert_allclose(
        mean, [2 * y.sum() / (1 + len(y)) for y in rows], rtol=1e-5, atol=1e-6
    )
    for a, y in zip(sums, rows, strict=True):
        np.testing.assert_allclose(a, 2 * np.cumsum(y), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("along", ["data", ("data", "model"), "*"], ids=str)
def test_devices_share_the_rows_of_each_bucket(mesh, along):
    """Whatever their number is."""
    f = mapped(mesh, shard={"row": along})
    for rows in (ROWS, ROWS[:5], ROWS[:1]):
        holds(f(W, rows), rows)


def test_the_plan_says_that_devices_share_the_rows(mesh):
    """The plan of one row has a place instead, and one row has none."""
    lines = mapped(mesh).plan(W, ROWS).lines
    assert [(x.taken, x.why) for x in lines if x.name == "shard"] == [
        (True, "each block over 4 devices")
    ]
    assert not [line for line in lines if line.name == "place"]


def test_each_device_has_its_rows(mesh):
    """Of a block each has as many as the others."""
    f = mapped(mesh)
    holds(f(W, ROWS), ROWS)
    (entry,) = f.core.row_calls.row.entries.values()
    (groups,) = entry.row_groups.values()
    rungs = {rung for group in groups.groups.values() for rung in group.programs}
    assert rungs
    assert all(rung % 4 == 0 for rung in rungs)


def test_the_mesh_of_the_context_counts(mesh):
    with jax.set_mesh(mesh.mesh):
        holds(mapped(None)(W, ROWS), ROWS)


def test_chunks_and_memory_go_with_devices(mesh):
    holds(mapped(mesh, chunk={"row": 8})(W, ROWS), ROWS)
    holds(mapped(mesh, memory="64KiB")(W, ROWS), ROWS)


def test_a_gradient_around_it_runs_on_one_device(mesh):
    f = mapped(mesh)
    got = jax.grad(lambda w: jnp.sum(f(w, ROWS)[0]))(jnp.float32(2))
    np.testing.assert_allclose(got, sum(y.sum() / (1 + len(y)) for y in ROWS), rtol=1e-4)


def test_other_axes_and_effects_are_refused(mesh):
    with pytest.raises(OptionError, match="sharded over 'row' alone"):
        mapped(mesh, shard={"n": "data"})(W, ROWS)

    def printed(y: Float[Array, "n"]) -> Float[Array, ""]:
        jax.debug.callback(lambda total: None, jnp.sum(y))
        return jnp.sum(y)

    f = jitney.optimize(vmap="row", pad={"n": "pow2"}, shard={"row": "data"}, mesh=mesh)(printed)
    with pytest.raises(AxisError, match="shared by devices, and the function has effects"):
        f(ROWS)
