"""`shard` where there is one device: what it needs and says, wherever axes lie. Several devices are
in `tests/devices`.
"""

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney
from jitney import optimize
from jitney.errors import MeshError, OptionError

X = np.arange(4, dtype=np.float32)


def doubled(x: Float[Array, "n"]) -> Float[Array, "n"]:
    return 2 * x


def test_without_a_mesh_it_is_an_error_that_says_where_one_comes_from():
    """At the call, since the mesh is that of the context."""
    with pytest.raises(
        MeshError,
        match=r"`shard` has no mesh\.(.|\n)*Fix: call it inside `with jitney\.mesh\(data=-1\):`",
    ) as error:
        optimize(shard={"n": "data"})(doubled)(X)
    assert error.value.code == "J250"


def test_an_optional_mesh_may_be_missing():
    """The numbers are the same, and the plan says that nothing is laid out."""
    f = optimize(shard={"n": "data"}, mesh="optional")(doubled)
    np.testing.assert_array_equal(f(X), 2 * X)
    assert "no mesh is around" in str(f.plan(jnp.asarray(X)))


def test_an_axis_that_the_mesh_does_not_have_is_named():
    """With those that it has."""
    f = optimize(shard={"n": "model"})(doubled)
    with (
        jitney.mesh(data=1),
        pytest.raises(
            MeshError,
            match=r"'n' is to be sharded over 'model', which the mesh does not have\.\n.*data",
        ),
    ):
        f(X)


def test_an_axis_that_no_array_has_is_named():
    """At the call, since a module may bring it."""
    f = optimize(shard={"m": "data"})(doubled)
    with (
        jitney.mesh(data=1),
        pytest.raises(OptionError, match="`shard` names 'm', which no array of this call has"),
    ):
        f(X)


def test_within_a_mesh_the_numbers_are_the_same():
    """The plan says along which of its axes an array lies."""
    f = optimize(shard={"n": "data"})(doubled)
    with jitney.mesh(data=1):
        np.testing.assert_array_equal(f(X), 2 * X)
        assert "x[data]" in " ".join(str(f.plan(jnp.asarray(X))).split())
