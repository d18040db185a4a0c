"""What devices send each other, as `jitney.analysis.communication` and
`jitney.analysis.visualize` tell it.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney

pytestmark = pytest.mark.real_xla

X = np.ones((8, 4), np.float32)


def sharded(fn):
    return jitney.optimize(
        fn, shard={"batch": "data"}, mesh=jitney.mesh(data=4, model=2, devices=jax.devices()[:8])
    )


def test_a_pointwise_axis_costs_nothing():
    """No collective at all."""

    @sharded
    def f(x: Float[Array, "batch n"]) -> Float[Array, "batch n"]:
        return jnp.sin(x) + jnp.sum(x, 1, keepdims=True)

    assert jitney.analysis.communication(f, X).collectives == ()


def test_a_reduction_is_an_all_reduce_with_its_axis_and_line():
    """Of one number a column."""

    @sharded
    def f(x: Float[Array, "batch n"]) -> Float[Array, "n"]:
        return jnp.mean(x, 0)

    (found,) = jitney.analysis.communication(f, X).collectives
    assert (found.kind, found.count, found.along, found.axes, found.bytes) == (
        "all-reduce",
        1,
        ("data",),
        ("batch",),
        16,
    )
    assert found.line.startswith("test_communication.py:")


def test_a_gradient_can_be_asked_about():
    """As any program."""

    @sharded
    def f(x: Float[Array, "batch n"], w: Float[Array, "n"]) -> Float[Array, ""]:
        return jnp.sum(jnp.tanh(x @ w))

    found = jitney.analysis.communication(f.grad, X, X[0], wrt="w")
    assert found.bytes["all-reduce"] >= 16


def test_a_full_gather_is_flagged():
    """Every device gets all of the argument."""

    @sharded
    def f(x: Float[Array, "batch n"]) -> Float[Array, "batch other"]:
        return x @ x.T

    found = jitney.analysis.communication(f, X)
    assert "x" in [each.whole for each in found.collectives]
    assert "brings all of 'x'" in " ".join(str(found).split())


def test_parameters_that_are_gathered_on_purpose_say_so():
    """`fsdp` asks for it, and nothing is flagged."""

    @jitney.optimize(
        shard=("fsdp", {"batch": "data"}), mesh=jitney.mesh(data=8, devices=jax.devices()[:8])
    )
    def f(model, x: Float[Array, "batch n"]) -> Float[Array, "batch m"]:
        return jax.vmap(model)(x)

    found = jitney.analysis.communication(f, eqx.nn.Linear(4, 16, key=jax.random.key(0)), X)
    gathers = [each for each in found.collectives if each.kind == "all-gather"]
    assert gathers
    assert all(each.axes == ("fsdp",) and each.whole is None for each in gathers)


def test_a_collective_in_a_loop_says_so():
    """Its bytes are those of one turn."""

    @sharded
    def f(x: Float[Array, "batch n"]) -> Float[Array, "batch n"]:
        return jax.lax.fori_loop(0, 10, lambda _, y: jnp.tanh(y - jnp.mean(y, 0)), x)

    assert any(each.in_loop for each in jitney.analysis.communication(f, X).collectives)


def test_a_padded_program_is_that_of_its_bucket():
    """Whatever size the arrays have."""

    @jitney.optimize(
        shard={"batch": "data"},
        mesh=jitney.mesh(data=4, devices=jax.devices()[:8]),
        pad={"batch": "pow2"},
    )
    def f(x: Float[Array, "batch n"]) -> Float[Array, "n"]:
        return jnp.mean(x, 0)

    assert jitney.analysis.communication(f, X[:7]).bytes == {"all-reduce": 16}


def test_a_function_that_is_not_sharded_is_refused():
    """With what to do."""
    with pytest.raises(jitney.errors.OptionError, match="not sharded"):
        jitney.analysis.communication(jitney.optimize(lambda x: x), X)


def test_who_holds_what():
    """Parts, copies and bytes of each array and device."""

    @sharded
    def f(x: Float[Array, "batch n"]) -> Float[Array, "batch n"]:
        return x + 1.0

    placed = jitney.analysis.visualize({"y": f(X), "z": jnp.ones(3), "name": "a"})
    y, z = placed.arrays
    assert (y.spec, y.part, y.parts, y.devices, y.bytes) == (("data", "-"), (2, 4), 4, 8, 32)
    assert (z.devices, z.bytes) == (1, 12)
    assert placed.bytes["cpu 0"] == 44
    assert "each on 2 devices" in str(placed)
