"""`shard=`: named axes along the axes of a mesh, on eight virtual devices, against one."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float, Num

import jitney
from tests._examples import examples

X = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
W = np.random.default_rng(1).standard_normal((4, 6)).astype(np.float32)


@pytest.fixture
def mesh():
    return jitney.mesh(data=4, model=2, devices=jax.devices()[:8])


def layer(x: Float[Array, "batch n"], w: Float[Array, "n hidden"]) -> Float[Array, "batch hidden"]:
    return jnp.tanh(x @ w)


def lies(array, mesh, *spec):
    return array.sharding.is_equivalent_to(NamedSharding(mesh.mesh, P(*spec)), array.ndim)


def test_results_lie_where_their_annotation_says(mesh):
    """And are those of one device."""
    y = jitney.optimize(layer, shard={"batch": "data", "hidden": "model"}, mesh=mesh)(X, W)
    assert lies(y, mesh, "data", "model")
    np.testing.assert_allclose(y, np.tanh(X @ W), rtol=1e-5)


def test_an_axis_may_lie_along_several(mesh):
    """Of the mesh."""
    y = jitney.optimize(layer, shard={"batch": ("data", "model")}, mesh=mesh)(X, W)
    assert lies(y, mesh, ("data", "model"))


def test_the_mesh_of_the_context_counts(mesh):
    """Where the decoration names none."""
    f = jitney.optimize(layer, shard={"batch": "data"})
    with mesh:
        assert lies(f(X, W), mesh, "data")
    smaller = jitney.mesh(data=2)
    with smaller:
        assert lies(f(X, W), smaller, "data")


def test_a_mesh_given_wins_over_that_of_the_context(mesh):
    """Inside the block of another."""
    f = jitney.optimize(layer, shard={"batch": "data"}, mesh=mesh)
    with jitney.mesh(other=8):
        assert lies(f(X, W), mesh, "data")


def test_arrays_that_lie_right_are_not_moved(mesh):
    """JAX's own guard against transfers agrees."""
    f = jitney.optimize(layer, shard={"batch": "data", "hidden": "model"}, mesh=mesh)
    x = jax.device_put(X, NamedSharding(mesh.mesh, P("data")))
    w = jax.device_put(W, NamedSharding(mesh.mesh, P(None, "model")))
    f(x, w)
    with jax.transfer_guard("disallow"):
        f(x, w)


def test_arrays_that_were_put_elsewhere_are_moved(mesh):
    """Where `jax.jit` would refuse."""
    f = jitney.optimize(layer, shard={"batch": "data"}, mesh=mesh)
    for x in (
        jax.device_put(X, jax.devices()[3]),
        jax.device_put(X, NamedSharding(mesh.mesh, P("model"))),
    ):
        np.testing.assert_allclose(f(x, W), np.tanh(X @ W), rtol=1e-5)


@pytest.mark.parametrize(
    "words",
    [
        "no such thing",
        "Received incompatible devices for jitted computation",
        "does not match the sharding on the respective arg",
    ],
)
@pytest.mark.parametrize(
    "options", [{}, {"compiler": "fast"}, {"cache": False}, {"donate": "x"}], ids=str
)
def test_a_body_that_fails_is_not_run_again_on_arrays_that_are_moved(mesh, options, words):
    """Only a refusal of JAX, before anything has run, has them moved: not an error of the body, be
    it in JAX's words.
    """
    runs = []

    def positive(x: Num[Array, "batch n"]) -> Num[Array, "batch n"]:
        runs.append(x.dtype)
        if x.dtype == jnp.int32:
            raise ValueError(words)
        return x + 1

    f = jitney.optimize(positive, shard={"batch": "data"}, mesh=mesh, **options)
    f(jax.device_put(X, jax.devices()[3]))
    runs.clear()
    with pytest.raises(ValueError, match=words):
        f(jax.device_put(X.astype(np.int32), jax.devices()[3]))
    assert len(runs) == 1


def test_the_plan_says_what_is_moved(mesh):
    """With bytes and names; what lies right costs nothing."""
    f = jitney.optimize(layer, shard={"batch": "data"}, mesh=mesh)
    right = jax.device_put(X, NamedSharding(mesh.mesh, P("data")))
    lines = [line.why for line in f.plan(right, W).lines if line.name == "transfer"]
    assert lines == ["96 B from the host straight to the devices that hold it: w"]
    lines = [
        line.why
        for line in f.plan(jax.device_put(X, jax.devices()[3]), W).lines
        if line.name == "transfer"
    ]
    assert lines[1] == "128 B from other devices: x"


@pytest.mark.parametrize("whole", [True, False])
def test_members_of_an_ensemble_lie_on_devices(mesh, whole):
    """Each with its part of the stack; a shared part lies on all of them."""

    class Net(eqx.Module):
        trunk: Array
        head: Array

    def apply(model: Net, x: Float[Array, "n"]):
        return jnp.tanh(model.head @ (model.trunk @ x))

    rng = np.random.default_rng(3)
    trunks, heads = rng.standard_normal((8, 6, 4)), rng.standard_normal((8, 2, 6))
    if not whole:
        trunks[:] = trunks[0]
    model = Net(np.float32(trunks if whole else trunks[0]), np.float32(heads))
    axes = {"model": 0} if whole else {"model.head": 0}
    f = jitney.optimize(apply, vmap={"member": axes}, shard={"member": "data"}, mesh=mesh)
    y = f(model, X[0])
    assert lies(y, mesh, "data")
    np.testing.assert_allclose(y, np.tanh(heads @ trunks @ X[0]), rtol=1e-4)
    (placed,) = [d for d in f.plan(model, X[0]).to_dict()["decisions"] if d["name"] == "place"]
    assert "model.head[data, -, -]" in placed["why"]
    assert ("model.trunk[data, -, -]" in placed["why"]) == whole


def test_a_mapped_axis(mesh):
    """`vmap` adds it in front of arguments and results."""

    @jitney.optimize(vmap="example", shard={"example": "data"}, mesh=mesh)
    def one(x: Float[Array, "n"], w: Float[Array, "n hidden"]) -> Float[Array, "hidden"]:
        return jnp.tanh(x @ w)

    assert lies(one(X, W), mesh, "data")
    assert one(X[0], W).shape == (6,)


def test_explicit_axes(mesh):
    """Arrays of a mesh with explicit types come and go as such."""
    explicit = jitney.mesh(data=4, model=2, explicit=True, devices=jax.devices()[:8])
    f = jitney.optimize(layer, shard={"batch": "data"})
    with explicit:
        y = f(jax.device_put(X, NamedSharding(explicit.mesh, P("data"))), W)
        assert jax.typeof(y).sharding.spec == P("data", None)
        np.testing.assert_allclose(np.asarray(y), np.tanh(X @ W), rtol=1e-5)


def test_under_an_outer_jit_it_places_too(mesh):
    """With the mesh of the context or its own."""
    f = jitney.optimize(layer, shard={"batch": "data"}, mesh=mesh)
    y = jax.jit(lambda x: f(x, W))(X)
    assert lies(y, mesh, "data")


def test_derivatives_outside_and_inside(mesh):
    """`jax.grad` over the program, and the program's own."""

    @jitney.optimize(shard={"batch": "data"}, mesh=mesh)
    def loss(x: Float[Array, "batch n"], w: Float[Array, "n hidden"]) -> Float[Array, ""]:
        return jnp.sum(jnp.tanh(x @ w) ** 2)

    expected = 2 * X.T @ (np.tanh(X @ W) * (1 - np.tanh(X @ W) ** 2))
    np.testing.assert_allclose(
        jax.grad(loss, 1)(jnp.asarray(X), jnp.asarray(W)), expected, rtol=2e-4, atol=1e-4
    )
    np.testing.assert_allclose(loss.grad(X, W, wrt="w"), expected, rtol=2e-4, atol=1e-4)


def test_padding_makes_sizes_divide(mesh):
    """Buckets are rounded up to the number of devices, and sizes share programs."""

    @jitney.optimize(shard={"batch": "data"}, mesh=mesh, pad={"batch": "pow2"})
    def centred(x: Float[Array, "batch n"]) -> Float[Array, "batch n"]:
        return x - jnp.mean(x, 0)

    for n in (2, 3, 5, 6, 7, 8):
        np.testing.assert_allclose(centred(X[:n]), X[:n] - X[:n].mean(0), atol=1e-6)
    assert centred.stats.traces == 2


# Modules


class Dense(eqx.Module):
    weight: Float[Array, "wide n"]
    bias: Array

    def __call__(self, x):
        return self.weight @ x + self.bias


def dense():
    return Dense(jnp.ones((8, 4)), jnp.ones(8))


def kept(mesh, shard):
    @jitney.optimize(shard=shard, mesh=mesh)
    def keep(tree):
        return jax.tree.map(lambda leaf: leaf * 1 if eqx.is_array(leaf) else leaf, tree)

    return keep


def test_fields_say_where_parameters_lie(mesh):
    """Whatever the signature calls the module."""
    found = kept(mesh, {"wide": "data"})(dense())
    assert lies(found.weight, mesh, "data")
    assert lies(found.bias, mesh)


def test_a_module_inside_containers_keeps_its_axes(mesh):
    """An optimiser's state holds modules of the same class."""
    found = kept(mesh, {"wide": "data"})({"mean": (dense(), 3), "count": jnp.int32(1)})
    assert lies(found["mean"][0].weight, mesh, "data")


def test_axes_can_be_registered_for_a_class(mesh):
    """Of one's own or of a library, for subclasses too."""

    class Foreign(eqx.Module):
        table: Array

    class Sub(Foreign):
        pass

    jitney.register_axes(Foreign, table="rows ...")
    assert lies(kept(mesh, {"rows": "data"})(Sub(jnp.ones((4, 3)))).table, mesh, "data")


def test_layers_of_equinox_come_registered(mesh):
    """`out` and `in` of a linear layer."""
    found = kept(mesh, {"out": "model"})(eqx.nn.MLP(4, 2, 6, 1, key=jax.random.key(0)))
    assert lies(found.layers[0].weight, mesh, "model")
    assert lies(found.layers[1].bias, mesh, "model")


def test_fsdp_spreads_the_largest_axis_that_divides(mesh):
    """And leaves whole what does not."""
    found = kept(mesh, "fsdp")(eqx.nn.MLP(3, 2, 16, 1, key=jax.random.key(0)))
    assert lies(found.layers[0].weight, mesh, "data")
    assert lies(found.layers[1].weight, mesh, None, "data")
    assert lies(found.layers[1].bias, mesh)


def test_fsdp_goes_with_named_axes(mesh):
    """The data lie along the same axis of the mesh."""

    @jitney.optimize(shard=("fsdp", {"batch": "data"}), mesh=mesh)
    def forward(model, x: Float[Array, "batch n"]) -> Float[Array, "batch m"]:
        return jax.vmap(model)(x)

    model = eqx.nn.MLP(4, 4, 16, 1, key=jax.random.key(0))
    y = forward(model, X)
    assert lies(y, mesh, "data")
    np.testing.assert_allclose(y, jax.vmap(model)(X), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shard", [{"batch": "data"}, ("fsdp", {"batch": "data"})])
@pytest.mark.parametrize("pad", [None, {"batch": "pow2"}])
def test_a_state_that_comes_back_meets_the_same_program(mesh, shard, pad):
    """From the host in the first call, from the devices in the second: one trace, ahead of time or
    not.
    """

    @jitney.optimize(donate="model", shard=shard, pad=pad, mesh=mesh)
    def step(model, x: Float[Array, "batch n"]) -> tuple[eqx.nn.MLP, Array]:
        value, gradient = eqx.filter_value_and_grad(
            lambda model: jnp.mean(jax.vmap(model)(x) ** 2)
        )(model)
        return eqx.apply_updates(model, jax.tree.map(lambda slope: -0.1 * slope, gradient)), value

    model, values = eqx.nn.MLP(4, 4, 8, 1, key=jax.random.key(0)), []
    step.compile(model, X)
    for _ in range(3):
        model, value = step(model, X)
        values.append(float(value))
    assert values[0] > values[1] > values[2]
    assert step.stats.traces == 1


def test_a_plan_of_what_is_donated(mesh):
    """In the mesh of the context; many buffers are a short line."""
    keep = jitney.optimize(lambda model: model, donate="model", shard="fsdp")
    with mesh:
        plan = keep.plan(eqx.nn.MLP(4, 4, 8, 1, key=jax.random.key(0)))
    lines = {line.name: line.why for line in plan.lines}
    assert lines["donation"].endswith("results take over 4 buffers of model")
    assert lines["jit"].startswith("donates model.layers[0].weight, ")


# Errors


@pytest.mark.parametrize(
    ("shard", "kind", "message"),
    [
        (
            {"batch": "rows"},
            jitney.errors.MeshError,
            "'rows', which the mesh does not have(.|\n)*data=4, model=2",
        ),
        (
            {"bach": "data"},
            jitney.errors.OptionError,
            "'bach', which no array of this call has(.|\n)*did you mean 'batch'",
        ),
        (
            {"hidden": "data"},
            jitney.errors.MeshError,
            (
                "axis 'hidden' of w has size 6, which the 4 devices along 'data' do not"
                " divide(.|\n)*make it 8"
            ),
        ),
    ],
)
def test_what_cannot_be_placed_says_so(mesh, shard, kind, message):
    """With the axis, the sizes, and what to do."""
    f = jitney.optimize(layer, shard=shard, mesh=mesh)
    with pytest.raises(kind, match=message):
        f(X, W)


def test_without_a_mesh_it_says_where_to_get_one():
    """Not a run on one device."""
    with pytest.raises(
        jitney.errors.MeshError, match=r"`shard` has no mesh(.|\n)*with jitney.mesh"
    ):
        jitney.optimize(layer, shard={"batch": "data"})(X, W)


def test_registered_axes_are_checked():
    """The class, the field, and the text."""
    with pytest.raises(jitney.errors.OptionError, match="no field 'w'"):
        jitney.register_axes(eqx.nn.Linear, w="out in")
    with pytest.raises(jitney.errors.OptionError, match="not a class of modules"):
        jitney.register_axes(int, w="out in")


# Everything together


@settings(max_examples=12)
@given(
    batch=st.sampled_from([None, "data", "model", ("data", "model")]),
    hidden=st.sampled_from([None, "model"]),
    donate=st.booleans(),
    mapped=st.booleans(),
    remat=st.booleans(),
    precision=st.sampled_from([None, "bf16", "bf16-all", "f32"]),
)
@examples(
    # "fsdp"
    {
        "batch": None,
        "hidden": None,
        "donate": False,
        "mapped": False,
        "remat": False,
        "precision": None,
    },
    {
        "batch": "data",
        "hidden": "model",
        "donate": True,
        "mapped": False,
        "remat": False,
        "precision": "f32",
    },
    {
        "batch": ("data", "model"),
        "hidden": None,
        "donate": True,
        "mapped": True,
        "remat": True,
        "precision": None,
    },
    {
        "batch": "model",
        "hidden": None,
        "donate": False,
        "mapped": True,
        "remat": True,
        "precision": "bf16",
    },
    {
        "batch": None,
        "hidden": "model",
        "donate": True,
        "mapped": False,
        "remat": True,
        "precision": "bf16-all",
    },
    # "fsdp"
    {
        "batch": None,
        "hidden": None,
        "donate": True,
        "mapped": True,
        "remat": False,
        "precision": "bf16",
    },
)
def test_any_combination_equals_one_device(batch, hidden, donate, mapped, remat, precision):
    """Placement changes where numbers are computed, not which."""
    shard = {
        name: along for name, along in (("batch", batch), ("n", hidden)) if along is not None
    } or "fsdp"
    options = {"donate": "x" if donate else None, "remat": remat, "precision": precision}

    def body(x: Float[Array, "batch n"], w: Float[Array, "n n"]) -> Float[Array, "batch n"]:
        return jnp.tanh(x @ w) - jnp.mean(x, 0)

    x = np.random.default_rng(2).standard_normal((3, 8, 4) if mapped else (8, 4)).astype(np.float32)
    w = W[:, :4]
    if mapped:
        options["vmap"] = "copies"
    one = jitney.optimize(body, **options)
    many = jitney.optimize(
        body, shard=shard, mesh=jitney.mesh(data=4, model=2, devices=jax.devices()[:8]), **options
    )
    np.testing.assert_allclose(
        many(jnp.asarray(x), w),
        one(jnp.asarray(x), w),
        atol=2e-2 if "bf16" in str(precision) else 1e-6,
    )


def test_what_lies_whole_has_its_bytes_and_what_fsdp_would_leave():
    """A layer of 16 x 4 and 16 weights, and a number that nobody divides: 324 bytes, of which 8
    devices keep a part.
    """
    layer = eqx.nn.Linear(4, 16, key=jax.random.key(0))

    def loss(
        model: eqx.nn.Linear, scale: Float[Array, ""], x: Float[Array, "batch n"]
    ) -> Float[Array, ""]:
        return jnp.sum(jax.vmap(model)(x)) * scale

    def place(**options):
        with jitney.mesh(data=8):
            return (
                jitney.optimize(**options)(loss)
                .plan(layer, jnp.ones(()), np.ones((16, 4), np.float32))
                .plan.stage("place")
                .why
            )

    whole = place(shard={"batch": "data"})
    assert whole.endswith(
        '3 arrays whole on each device, 324 B, of which "fsdp" in `shard` would leave 44 B'
    )
    assert place(shard=("fsdp", {"batch": "data"})).endswith("1 array whole on each device, 4 B")


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Rows:
    """Data in a class, whose fields alone name the axis."""

    x: Float[Array, "batch d"]
    y: Float[Array, "batch"]


@pytest.mark.parametrize(
    "options", [{}, {"pad": {"batch": [16]}}, {"chunk": {"batch": 1}}], ids=str
)
def test_data_in_a_class_are_sharded_by_the_axes_of_its_fields(options):
    """In arguments and in the result; `"fsdp"` is for parameters, and leaves them whole."""

    def f(data: Rows) -> Rows:
        return Rows(data.x * 2, data.x.sum(1) + data.y)

    data = Rows(jnp.arange(32.0).reshape(16, 2), jnp.ones(16))
    with jitney.mesh(data=8):
        out = jitney.optimize(shard={"batch": "data"}, **options)(f)(data)
        whole = jitney.optimize(shard="fsdp")(f).plan(data)
    for got, want in zip(jax.tree.leaves(out), jax.tree.leaves(f(data)), strict=True):
        np.testing.assert_allclose(got, want)
        assert got.sharding.spec[0] == "data"
    assert "2 arrays whole on each device" in str(whole)
