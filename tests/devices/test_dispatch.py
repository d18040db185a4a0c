"""Which program a call of a sharded function finds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney


def doubling():
    """A function of its own for each test, since equal ones share programs."""

    def doubled(x: Float[Array, "batch n"]) -> Float[Array, "batch n"]:
        return 2 * x

    return jitney.optimize(doubled, shard={"batch": "data"})


def test_other_shapes_find_their_own_program():
    """Shapes that come in turn are traced once each."""
    program = doubling()
    with jitney.mesh(data=4):
        for shape in ((8, 2), (16, 3), (8, 2), (24, 2), (16, 3)):
            x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
            np.testing.assert_array_equal(jax.block_until_ready(program(x)), 2 * x)
    assert program.stats.traces == 3


def test_other_dtypes_are_no_other_shapes():
    """Shapes say what lies where; a dtype is JAX's to tell apart."""

    def doubled_number(x) -> Float[Array, "batch"]:
        return x * 2

    program = jitney.optimize(doubled_number, shard={"batch": "data"}, contracts=False)
    with jitney.mesh(data=4):
        assert program(jnp.ones(8, jnp.float32)).dtype == jnp.float32
        assert program(jnp.ones(8, jnp.float16)).dtype == jnp.float16


def test_other_meshes_find_their_own_program():
    """A call in another mesh lies along it, and the first mesh is found again."""
    program = doubling()
    x = np.ones((8, 2), np.float32)
    for size in (4, 2, 4):
        with jitney.mesh(data=size):
            assert len(jax.block_until_ready(program(x)).sharding.device_set) == size
    assert program.stats.traces == 2


def test_a_size_that_does_not_divide_is_named_after_one_that_does():
    """The error is jitney's own, not that of the program of other shapes."""
    program = doubling()
    with jitney.mesh(data=4):
        jax.block_until_ready(program(np.ones((8, 2), np.float32)))
        with pytest.raises(jitney.errors.MeshError, match="'batch' of x has size 9"):
            program(np.ones((9, 2), np.float32))
        jax.block_until_ready(program(np.ones((8, 2), np.float32)))
    assert program.stats.traces == 1
