"""Meshes with explicit axes, `shard_map`, `pmap` and `checkify` around what jitney does: as JAX
alone, or a sentence.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import checkify
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float

import jitney

X = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
W = np.random.default_rng(1).standard_normal((4, 6)).astype(np.float32)
Y = np.tanh(X @ W)


def layer(x: Float[Array, "batch n"], w: Float[Array, "n hidden"]) -> Float[Array, "batch hidden"]:
    return jnp.tanh(x @ w)


def loss(x: Float[Array, "batch n"], w: Float[Array, "n hidden"]) -> Float[Array, ""]:
    return jnp.mean(jnp.tanh(x @ w) ** 2)


def slope():
    """Of the loss, by the weights, in float64 on the host."""
    x, w = X.astype(np.float64), W.astype(np.float64)
    y = np.tanh(x @ w)
    return x.T @ (2 * y * (1 - y**2) / y.size)


@pytest.fixture
def explicit():
    return jitney.mesh(data=4, model=2, explicit=True, devices=jax.devices()[:8])


@pytest.fixture
def automatic():
    return jitney.mesh(data=4, model=2, devices=jax.devices()[:8])


def on(mesh, array, *along):
    return jax.device_put(array, NamedSharding(mesh.mesh, P(*along)))


def test_shard_under_an_outer_jit(explicit):
    """Arguments that lie elsewhere are laid out anew, and results have their place as a part of
    their type.
    """
    f = jitney.optimize(layer, shard={"batch": "model"})
    with explicit:
        y = jax.jit(lambda x, w: f(x, w))(on(explicit, X, "data"), on(explicit, W))
    np.testing.assert_allclose(y, Y, rtol=1e-5, atol=1e-6)
    assert jax.typeof(y).sharding.spec == P("model", None)


@pytest.mark.parametrize("transform", [lambda f: jax.grad(f, 1), lambda f: jax.jit(jax.grad(f, 1))])
@pytest.mark.parametrize(
    "options", [{"shard": {"batch": "data"}}, {"pad": {"batch": [16]}}, {"chunk": {"batch": 2}}]
)
@pytest.mark.filterwarnings("ignore:.*it is not (padded|cut)")
def test_under_an_outer_derivative(explicit, options, transform):
    """Of arrays that lie nowhere yet, too."""
    f = jitney.optimize(loss, **options)
    with explicit:
        found = transform(lambda x, w: f(x, w))(X, on(explicit, W))
    np.testing.assert_allclose(found, slope(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "options",
    [
        {"chunk": {"batch": 3}},
        {"chunk": {"n": 2}},
        {"pad": {"batch": [8]}},
        {"pad": {"batch": [16]}},
    ],
)
@pytest.mark.parametrize("inside", [True, False])
def test_chunks_and_buckets(explicit, options, inside):
    """In the block of the mesh and outside; the result lies as the argument along the axis of that
    name.
    """
    x, w = on(explicit, X, "data"), on(explicit, W)
    f = jitney.optimize(layer, **options)
    if inside:
        with explicit:
            y = f(x, w)
    else:
        y = f(x, w)
    np.testing.assert_allclose(y, Y, rtol=1e-5, atol=1e-6)
    # that one is filled on the host
    assert tuple(y.sharding.spec)[:1] == ("data",) or options == {"pad": {"batch": [16]}}


def test_a_size_that_the_mesh_does_not_divide_is_padded_under_a_derivative():
    """3 of 4 in a bucket on two devices, cut again."""
    mesh = jitney.mesh(data=2, explicit=True, devices=jax.devices()[:2])
    f = jitney.optimize(layer, pad={"batch": [4]})
    with mesh:
        y, pull = jax.vjp(lambda x: f(x, W), on(mesh, X[:3]))
        np.testing.assert_allclose(
            pull(jnp.ones_like(y))[0], (1 - Y[:3] ** 2) @ W.T, rtol=1e-4, atol=1e-5
        )
    np.testing.assert_allclose(y, Y[:3], rtol=1e-5)


@pytest.mark.parametrize("options", [{}, {"chunk": {"batch": 2}}])
def test_jacobian_and_hessian(explicit, options):
    """The last axes lie as the argument."""
    x, w = on(explicit, X, "data"), on(explicit, W)
    found = jitney.optimize(layer).jacobian(x, w, wrt="x")
    np.testing.assert_allclose(found, jax.jacobian(layer)(X, W), rtol=1e-4, atol=1e-6)
    assert found.sharding.spec[2] == "data"
    found = jitney.optimize(layer, **options).jacobian(x, w, wrt="w")
    np.testing.assert_allclose(found, jax.jacobian(layer, 1)(X, W), rtol=1e-4, atol=1e-6)
    with explicit:
        found = jitney.optimize(loss, **options).hessian(x, w, wrt="w")
    np.testing.assert_allclose(found, jax.hessian(loss, 1)(X, W), rtol=1e-3, atol=1e-5)


def test_a_tree_on_its_way_to_the_host(explicit, automatic):
    """Whatever devices its arrays lie on."""
    with explicit:
        found = jitney.host(
            [
                on(explicit, X, "data"),
                on(automatic, X),
                jax.device_put(X, jax.devices()[3]),
                jnp.ones(2),
            ]
        ).result()
    for array, expected in zip(found, [X, X, X, np.ones(2)], strict=True):
        np.testing.assert_array_equal(array, expected)


def test_a_deleted_array_has_no_way_to_the_host():
    """With its place in the tree."""
    gone = jnp.ones(3)
    gone.delete()
    with pytest.raises(
        jitney.errors.DonationError,
        match=r"\['loss'\] was deleted(.|\n)*Fix: call jitney.host before",
    ):
        jitney.host({"loss": gone})


@pytest.mark.parametrize(
    "options",
    [
        {"shard": {"batch": "data"}},
        {"shard": {"batch": "data"}, "pad": {"batch": [16]}},
        {"pad": {"batch": [16]}},
    ],
)
@pytest.mark.filterwarnings("ignore:.*it is not padded")
def test_checkify_and_known_arrays_in_a_trace(automatic, options):
    """Which are no tracers where `checkify` closes over them."""
    f = jitney.optimize(layer, **options)
    with automatic:
        error, y = checkify.checkify(lambda x, w: f(x, w))(X, W)
        error.throw()
        np.testing.assert_allclose(y, Y, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(jax.jit(lambda y: y + f(X, W))(Y), 2 * Y, rtol=1e-5)
        np.testing.assert_allclose(jax.grad(lambda y: jnp.sum(y * f(X, W)))(Y), Y, rtol=1e-5)
        np.testing.assert_allclose(f(X, W), Y, rtol=1e-5)


@pytest.mark.parametrize("kind", ["explicit", "automatic"])
@pytest.mark.parametrize("shard", [{"batch": "data"}, {"batch": "data", "hidden": "model"}, "fsdp"])
@pytest.mark.parametrize("names", [{"data"}, {"data", "model"}])
def test_shard_inside_shard_map(request, kind, shard, names):
    """What it has divided is divided; other axes of the mesh are as ever."""
    mesh = request.getfixturevalue(kind)
    f = jitney.optimize(layer, shard=shard)
    with mesh:
        over = jax.shard_map(
            lambda x, w: f(x, w), in_specs=(P("data"), P()), out_specs=P("data"), axis_names=names
        )
        y = jax.jit(over)(on(mesh, X, "data"), on(mesh, W))
    np.testing.assert_allclose(y, Y, rtol=1e-5, atol=1e-6)


def test_shard_inside_shard_map_over_another_mesh_is_refused(automatic):
    """As inside `pmap`: the devices are taken."""
    f = jitney.optimize(layer, shard={"batch": "data"}, mesh=automatic)
    with pytest.raises(
        jitney.errors.MeshError,
        match=(
            r"data=4, model=2 is asked for inside `shard_map` or `pmap`(.|\n)*Fix: call the"
            r" function"
        ),
    ):
        jax.pmap(lambda x, w: f(x, w), in_axes=(0, None), devices=jax.devices()[:4])(
            X.reshape(4, 2, 4), W
        )


class Block(eqx.Module):
    w: Array

    def __call__(self, x):
        return jnp.tanh(self.w @ x)


BLOCKS = [Block(w) for w in np.random.default_rng(3).standard_normal((4, 4, 4)).astype(np.float32)]


@pytest.mark.parametrize("given", [True, False])
def test_a_pipeline_on_explicit_axes(given):
    """As `jax.set_mesh(jax.make_mesh(...))` makes them; NumPy's arrays in modules too."""
    mesh = jax.make_mesh(
        (2, 2),
        ("stage", "data"),
        axis_types=(jax.sharding.AxisType.Explicit,) * 2,
        devices=jax.devices()[:4],
    )
    piped = jitney.pipeline(BLOCKS, microbatches=2, batch="data", mesh=mesh if given else None)
    expected = X
    for block in BLOCKS:
        expected = np.tanh(expected @ block.w.T)
    with jax.set_mesh(mesh):
        x = jax.device_put(X, NamedSharding(mesh, P("data")))
        np.testing.assert_allclose(piped(x), expected, rtol=1e-4, atol=1e-6)
        assert eqx.filter_jit(piped)(x).sharding.spec[0] == "data"
    with (
        jitney.mesh(other=4, devices=jax.devices()[:4]),
        pytest.raises(jitney.errors.MeshError, match=r"inside another: other=4|no axis 'stage'"),
    ):
        piped(X)
