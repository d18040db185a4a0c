"""`mesh="optional"`: the caller decides whether there are devices; and `"*"`, all axes of whatever
mesh there is.
"""

import contextlib

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney
from jitney import optimize
from jitney.errors import MeshError, OptionError

X = np.random.default_rng(0).normal(size=(16, 3)).astype(np.float32)
W = np.ones(3, np.float32)
OPTIONAL = {"shard": {"n": "*"}, "mesh": "optional"}


def f(x: Float[Array, "n k"], w: Float[Array, "k"]) -> Float[Array, "n"]:
    return jnp.tanh(x @ w) + jnp.mean(x)


def loss(x: Float[Array, "n k"], w: Float[Array, "k"]) -> Float[Array, ""]:
    return jnp.sum(jnp.tanh(x @ w) ** 2)


def meshes():
    """None, one axis, none again, two axes, and explicit ones."""
    none = contextlib.nullcontext()
    return [
        none,
        jitney.mesh(data=8),
        none,
        jitney.mesh(a=4, b=2),
        none,
        jitney.mesh(data=8, explicit=True),
        none,
    ]


def close(ours, plain):
    np.testing.assert_allclose(ours, plain, rtol=1e-5, atol=1e-6)


OPTIONS = [
    {},
    {"pad": {"n": "pow2"}},
    {"chunk": {"n": 4}},
    {"memory": "1MiB"},
    {"precision": "f32"},
    {"donate": "x"},
    {"cache": "program"},
    {"verify": True},
]


@pytest.mark.filterwarnings("ignore:Some donated buffers were not usable")
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_calls_with_and_without_a_mesh_in_turn(options):
    """Each is that of plain JAX, whatever mesh was around the one before."""
    program = optimize(**OPTIONAL, **options)(f)
    for mesh in meshes():
        with mesh:
            close(program(jnp.asarray(X), W), f(X, W))


@pytest.mark.parametrize("options", [each for each in OPTIONS if "donate" not in each], ids=str)
def test_gradients_with_and_without_a_mesh_in_turn(options):
    """Those of a derivative of jitney's, which has the same options."""
    program, plain = optimize(**OPTIONAL, **options)(loss), jax.grad(loss, 1)(X, W)
    for mesh in meshes():
        with mesh:
            close(program.grad(X, W, wrt="w"), plain)


@pytest.mark.filterwarnings("ignore:.*it is not (padded|cut into chunks):jitney.JitneyWarning")
@pytest.mark.parametrize("options", [{}, {"pad": {"n": "pow2"}}, {"chunk": {"n": 4}}], ids=str)
def test_under_transforms_of_jax(options):
    """With a mesh around and without."""
    program = optimize(**OPTIONAL, **options)(loss)
    for mesh in meshes()[:5]:
        with mesh:
            close(jax.grad(program, 1)(X, W), jax.grad(loss, 1)(X, W))
            close(jax.jit(program)(X, W), loss(X, W))
            close(
                jax.vmap(program, (None, 0))(X, np.stack([W, 2 * W])), [loss(X, W), loss(X, 2 * W)]
            )


def test_results_lie_along_all_axes_of_the_mesh_around():
    """Or where they are computed."""
    program = optimize(**OPTIONAL)(f)
    assert len(program(X, W).sharding.device_set) == 1
    with jitney.mesh(a=4, b=2):
        assert program(X, W).sharding.spec == jax.sharding.PartitionSpec(("a", "b"))
    assert len(program(X, W).sharding.device_set) == 1


def test_the_plan_says_which_it_is():
    """With the reason."""
    program = optimize(**OPTIONAL)(f)
    assert "no mesh is around, and mesh='optional' has it run without one" in " ".join(
        str(program.plan(X, W)).split()
    )
    with jitney.mesh(a=4, b=2):
        assert "x[a*b, -]" in str(program.plan(X, W))


def test_sizes_that_the_devices_do_not_divide_run_without_them():
    """And are refused within a mesh, as ever."""
    program = optimize(**OPTIONAL)(f)
    close(program(X[:5], W), f(X[:5], W))
    with jitney.mesh(data=8), pytest.raises(MeshError, match="'n' of x has size 5"):
        program(X[:5], W)


def test_without_a_mesh_a_padded_call_is_padded_under_a_derivative():
    """As it is without `shard`; over devices it would run at exact size, with a warning."""
    program = optimize(**OPTIONAL, pad={"n": "pow2"})(loss)
    close(jax.grad(program, 1)(X[:5], W), jax.grad(loss, 1)(X[:5], W))
    traces = program.stats.traces
    close(jax.grad(program, 1)(X[:7], W), jax.grad(loss, 1)(X[:7], W))
    assert program.stats.traces == traces


def test_checks_fail_as_they_do():
    """`eqx.error_if`, without a mesh."""

    @optimize(**OPTIONAL)
    def checked(x: Float[Array, "n"]) -> Float[Array, "n"]:
        return 2 * eqx.error_if(x, jnp.any(x < 0), "negative")

    x = np.arange(16, dtype=np.float32)
    close(checked(x), 2 * x)
    with pytest.raises(RuntimeError, match="negative"):
        checked(x - 3)


def test_streams_lie_over_the_devices_around():
    """Each piece; without a mesh on one."""
    total = optimize(**OPTIONAL)(summed)
    data = np.random.default_rng(1).normal(size=(1000, 3)).astype(np.float32)
    for mesh in meshes()[:3]:
        with mesh:
            close(
                jitney.stream(total, data, chunk={"n": 64}, progress=False).result,
                data.sum(0),
            )


def summed(x: Float[Array, "n k"]) -> Float[Array, "k"]:
    return jnp.sum(x, 0)


def test_a_tool_that_is_about_devices_needs_them():
    """What they would send cannot be told without."""
    program = optimize(**OPTIONAL)(summed)
    with pytest.raises(MeshError, match="`shard` has no mesh"):
        program.communication(X)
    with jitney.mesh(data=8):
        assert "all-reduce" in str(program.communication(X))


def test_an_axis_that_no_array_has_is_told_without_a_mesh_too():
    """At the first call, on whatever machine that is."""
    with pytest.raises(OptionError, match="`shard` names 'm', which no array of this call has"):
        optimize(shard={"m": "*"}, mesh="optional")(f)(X, W)


def test_every_axis_stands_alone():
    """Beside a name it would say that axis twice."""
    with pytest.raises(OptionError, match="does not say which axis is sharded over which"):
        optimize(shard={"n": ("*", "data")})(f)


def test_a_tree_is_placed_along_every_axis():
    """By `jitney.place`, as by `shard`."""

    class Model(eqx.Module):
        weight: Float[Array, "n k"]

    with jitney.mesh(a=4, b=2):
        placed = jitney.place(Model(jnp.asarray(X)), shard={"n": "*"})
    assert placed.weight.sharding.spec == jax.sharding.PartitionSpec(("a", "b"))


def test_axes_that_are_cut_over_every_axis():
    """Chunks through `shard_map`, along both axes of the mesh."""
    program = optimize(**OPTIONAL, chunk={"n": 4})(summed)
    for mesh in meshes()[:4]:
        with mesh:
            close(program(X), X.sum(0))
