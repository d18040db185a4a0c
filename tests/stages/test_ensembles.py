"""Ensembles: stacks of modules and of parameters under `vmap`, whole and in part, beside
`jax.vmap` of the same body.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from jitney import optimize
from jitney.errors import AnnotationWarning, ContractError, OptionError
from tests._arrays import array

X = array(np.linspace(-1, 1, 21).reshape(7, 3), np.float32)
WHOLE = {"member": {"model": 0}}
HEADS = {"member": {"model.head": 0}}


class Net(eqx.Module):
    trunk: eqx.nn.Linear
    head: eqx.nn.Linear
    table: Array
    last: eqx.nn.Linear | None = None
    activation: object = jnp.tanh
    name: str = eqx.field(static=True, default="net")

    def __call__(self, x):
        return self.head(self.activation(self.trunk(x))) * jnp.mean(self.table)


@functools.cache
def abstract_net():
    """The net, with shapes in place of its arrays."""

    def made(key):
        return Net(eqx.nn.Linear(3, 4, key=key), eqx.nn.Linear(4, 2, key=key), jnp.ones(6))

    return eqx.filter_eval_shape(made, jax.random.key(0))


def net(*lead, seed=0):
    """A net with these axes in front of each array."""
    rng = np.random.default_rng(seed)

    def made(leaf):
        is_shape = isinstance(leaf, jax.ShapeDtypeStruct)
        return array(rng.standard_normal((*lead, *leaf.shape)), np.float32) if is_shape else leaf

    return jax.tree.map(made, abstract_net())


def stack(count):
    return net(count)


def with_heads(count):
    """One trunk, and a stack of heads."""
    return eqx.tree_at(lambda model: model.head, net(seed=7), stack(count).head)


def loss(model: Net, x: Float[Array, "b n"]) -> Float[Array, ""]:
    return jnp.mean(jax.vmap(model)(x) ** 2)


def by_equinox(fn, *axes):
    """`filter_vmap` of the body, compiled."""
    return eqx.filter_jit(eqx.filter_vmap(fn, in_axes=axes))


def heads_of(model):
    """The `in_axes` of one part."""
    axes = jax.tree.map(lambda leaf: None, model)
    return eqx.tree_at(
        lambda tree: (tree.head.weight, tree.head.bias), axes, (0, 0), is_leaf=lambda x: x is None
    )


MEMBERS = eqx.if_array(0)


def decision(program, *args, stage="vmap"):
    decisions = program.plan(*args).to_dict()["decisions"]
    (found,) = [each for each in decisions if each["name"] == stage]
    return found


def why(program, *args):
    return decision(program, *args)["why"]


def assert_same(ours, theirs, *, exact=True, rtol=1e-6):
    """Compare all arrays: to the bit, or within rounding."""
    assert jax.tree.structure(eqx.filter(ours, eqx.is_array)) == jax.tree.structure(
        eqx.filter(theirs, eqx.is_array)
    )
    for got, wanted in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        if not eqx.is_array(got):
            assert got is wanted
        elif exact:
            np.testing.assert_array_equal(got, wanted)
        else:
            np.testing.assert_allclose(got, wanted, rtol=rtol, atol=rtol)
        assert not eqx.is_array(got) or got.dtype == wanted.dtype


@pytest.mark.core("5", "0")
@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_stack_has_the_values_of_filter_vmap(count):
    """Of none, of one and of some; the functions in it are shared."""
    models = stack(count)
    assert_same(optimize(vmap=WHOLE)(loss)(models, X), by_equinox(loss, MEMBERS, None)(models, X))


@pytest.mark.core("5", "0")
@pytest.mark.parametrize("count", [0, 1, 5])
def test_the_gradient_is_a_stack_of_the_same_structure(count):
    """Each member's own, as Equinox's."""
    models = stack(count)
    ours = optimize(vmap=WHOLE)(loss).value_and_grad(models, X, wrt="model")
    theirs = by_equinox(eqx.filter_value_and_grad(loss), MEMBERS, None)(models, X)
    assert_same(ours, theirs)


def in_double(tree):
    return jax.tree.map(lambda leaf: leaf.astype("float64") if eqx.is_array(leaf) else leaf, tree)


@pytest.mark.rest
def test_a_stack_in_float64():
    """Value and gradient, of numbers that are float64 everywhere."""
    with jax.enable_x64(True):
        models, x = in_double(stack(3)), X.astype("float64")
        f = optimize(vmap=WHOLE)(loss)
        value_and_grad = eqx.filter_value_and_grad(loss)
        assert f(models, x).dtype == jnp.float64
        assert_same(f(models, x), by_equinox(loss, MEMBERS, None)(models, x))
        assert_same(
            f.value_and_grad(models, x, wrt="model"),
            by_equinox(value_and_grad, MEMBERS, None)(models, x),
        )


@pytest.mark.rest
@pytest.mark.parametrize(
    ("options", "stage"),
    [
        ({"pad": {"b": "pow2"}}, "fill"),
        ({"pad": {"member": "pow2"}}, "fill"),
        ({"chunk": {"b": 3}}, "chunk"),
        ({"chunk": {"member": 2}}, "chunk"),
        ({"chunk": {"member": 1}}, "chunk"),
        ({"remat": True}, "remat"),
    ],
    ids=str,
)
@pytest.mark.parametrize("axes", [WHOLE, HEADS], ids=["whole", "part"])
def test_other_options_stand_around_a_stack(axes, options, stage):
    """Other axes are padded and cut inside of the mapped one, and that one too."""
    models = stack(5) if axes is WHOLE else with_heads(5)
    members = MEMBERS if axes is WHOLE else heads_of(models)
    f = optimize(vmap=axes, verify=True, **options)(loss)
    both = by_equinox(eqx.filter_value_and_grad(loss), members, None)(models, X)
    assert_same(f(models, X), both[0], exact=False)
    assert decision(f, models, X, stage=stage)["taken"]
    assert_same(f.value_and_grad(models, X, wrt="model"), both, exact=False, rtol=1e-5)


def test_sizes_of_a_padded_axis_share_a_program_of_the_stack():
    """5, 6 and 7 rows beside five members."""
    f = optimize(vmap=HEADS, pad={"b": "pow2"})(loss)
    models = with_heads(5)
    for count in (5, 6, 7):
        theirs = by_equinox(loss, heads_of(models), None)(models, X[:count])
        np.testing.assert_allclose(f(models, X[:count]), theirs, rtol=1e-6)
    assert f.stats.traces == 1


def test_a_part_of_a_module_is_mapped():
    """The heads of an ensemble on one trunk; each other array is shared."""
    models = with_heads(5)
    f = optimize(vmap=HEADS)(loss)
    assert_same(f(models, X), by_equinox(loss, heads_of(models), None)(models, X))
    assert (
        why(f, models, X) == "member=5 over model.head.weight, model.head.bias; 4 arrays broadcast"
    )


def test_the_gradient_of_a_shared_part_is_each_members():
    """A mapped function maps everything it returns, so the trunk has one gradient a member."""
    models = with_heads(5)
    _, grads = optimize(vmap=HEADS)(loss).value_and_grad(models, X, wrt="model")
    assert grads.trunk.weight.shape == (5, 4, 3)
    theirs = by_equinox(eqx.filter_grad(loss), heads_of(models), None)(models, X)
    assert_same(grads, theirs, exact=False)


def test_a_part_is_left_out_of_a_stack():
    """By None; the longest path counts."""
    models = stack(5)
    shared = eqx.tree_at(lambda model: model.table, models, models.table[0])
    f = optimize(vmap={"member": {"model": 0, "model.table": None}})(loss)
    axes = jax.tree.map(lambda leaf: 0 if eqx.is_array(leaf) else None, models)
    axes = eqx.tree_at(lambda model: model.table, axes, None)
    assert_same(f(shared, X), by_equinox(loss, axes, None)(shared, X))


@pytest.mark.core("{'params.layers.0.w': 0, *", "{'params': 0*")
@pytest.mark.parametrize(
    "paths",
    [
        {"params['layers'][0]": 0, "rate": 0},
        {"params.layers[0]": 0, "rate": 0},
        {"params.layers.0.w": 0, "params['layers'][0].b": -1, "rate": 0},
        {"params": 0, "params.layers[1]": None, "rate": 0},
    ],
    ids=str,
)
def test_a_part_of_nested_dicts_and_lists_is_mapped(paths):
    """Written as the body reaches it, or with dots; a number is shared, as it has no axis."""

    def apply(params, x: Float[Array, "n"], rate):
        first, second = params["layers"]
        return second["w"] @ (first["w"] @ x + first["b"]) * params["scale"] * rate

    first = {"w": X[:4, None] * jnp.ones((4, 2, 1)), "b": jnp.ones((2, 4)).at[:, 1].set(3.0)}
    b = first["b"].T if paths.get("params['layers'][0].b") != -1 else first["b"]
    params = {"layers": [{**first, "b": b}, {"w": jnp.ones((3, 2))}], "scale": 0.5}
    rate = jnp.arange(4.0)
    ours = optimize(vmap={"member": paths})(apply)(params, X[0], rate)
    each = [
        params["layers"][1]["w"] @ (first["w"][i] @ X[0] + first["b"][:, i]) * 0.5 * rate[i]
        for i in range(4)
    ]
    np.testing.assert_allclose(ours, each, rtol=1e-6)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Registered:
    weight: Any
    scale: Any


class Named(NamedTuple):
    weight: Any
    scale: Any


@pytest.mark.core("Named")
@pytest.mark.parametrize("kind", [Registered, Named])
def test_a_field_of_other_classes_is_a_part(kind):
    """Of whatever JAX takes apart by the names of its fields."""

    def apply(params, x: Float[Array, "n"]):
        return params.weight @ x * params.scale

    f = optimize(vmap={"member": {"params.weight": 0}})(apply)
    weight = jnp.arange(30.0).reshape(5, 2, 3)
    np.testing.assert_allclose(f(kind(weight, jnp.float32(2)), X[0]), weight @ X[0] * 2, rtol=1e-6)
    whole = optimize(vmap={"member": {"params": 0}})(apply)
    scale = jnp.arange(5.0)
    ours = whole(kind(weight, scale), X[0])
    np.testing.assert_allclose(ours, weight @ X[0] * scale[:, None], rtol=1e-6)


@pytest.mark.rest
def test_items_of_open_parameters_have_paths():
    """Of `*args` and of `**kwargs`."""

    def apply(*args, **more):
        return args[0]["w"] * args[1] + more["table"]["b"]

    f = optimize(vmap={"member": {"args[0]": 0, "table.b": 1}})(apply)
    w, b = X[:, 0], X[:3].reshape(1, 9)[:, :7]
    np.testing.assert_allclose(f({"w": w}, 2.0, table={"b": b}), 2 * w[:, None] + b.T, rtol=1e-6)


@pytest.mark.rest
def test_two_axes_of_one_stack():
    """Members of the whole and, inside, of a part."""
    outer = jax.tree.map(
        lambda leaf: jnp.stack([leaf, 2 * leaf, 3 * leaf]) if eqx.is_array(leaf) else leaf,
        with_heads(5),
    )
    f = optimize(vmap={"run": {"model": 0}, "member": {"model.head": 0}})(loss)
    theirs = eqx.filter_vmap(
        eqx.filter_vmap(loss, in_axes=(heads_of(outer), None)), in_axes=(MEMBERS, None)
    )
    out = f(outer, X)
    assert out.shape == (3, 5)
    np.testing.assert_allclose(out, theirs(outer, X), rtol=1e-6)


class Momentum(NamedTuple):
    count: Array
    mean: Any


def started(model):
    mean = jax.tree.map(jnp.zeros_like, eqx.filter(model, eqx.is_array))
    return Momentum(jnp.zeros((), "int32"), mean)


def step(model: Net, state, x: Float[Array, "b n"]):
    value, grads = eqx.filter_value_and_grad(loss)(model, x)
    count = state.count + 1
    mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state.mean, grads)
    updates = jax.tree.map(lambda m: -0.5 * m / (1 - 0.9 ** count.astype(m.dtype)), mean)
    return eqx.apply_updates(model, updates), Momentum(count, mean), value


def test_a_step_returns_the_stacks_that_it_took():
    """The module and the state of the optimizer, donated; as Equinox's step, twice."""
    ours = theirs = (stack(5), eqx.filter_vmap(started)(stack(5)))
    f = optimize(vmap={"member": {"model": 0, "state": 0}}, donate=("model", "state"))(step)
    by_hand = by_equinox(step, MEMBERS, MEMBERS, None)
    for _ in range(2):
        *theirs, wanted = by_hand(*theirs, X)
        *ours, value = f(*ours, X)
        assert_same(value, wanted)
    assert_same(ours, theirs)
    assert ours[0].activation is jnp.tanh
    assert ours[0].name == "net"


@pytest.mark.rest
def test_a_state_of_one_count_for_all_members_is_shared_in_that_part():
    """As `init` of the whole stack makes it; the error of the whole names the part."""
    models = stack(5)
    state = started(models)
    whole = optimize(vmap={"member": {"model": 0, "state": 0}})(step)
    with pytest.raises(ContractError, match=r"position 0 of state\.count, .* shape \(\)") as e:
        whole(models, state, X)
    assert 'or say that it is shared: "state.count": None' in str(e.value)
    paths = {"model": 0, "state": 0, "state.count": None}
    ours = optimize(vmap={"member": paths})(step)(models, state, X)
    theirs = by_equinox(step, MEMBERS, MEMBERS, None)(models, eqx.filter_vmap(started)(models), X)
    assert_same(ours, theirs)


def test_two_stacks_of_unlike_sizes_are_an_error_that_names_both():
    """Five modules, and four states."""
    f = optimize(vmap={"member": {"model": 0, "state": 0}})(step)
    with pytest.raises(
        ContractError, match=r"5 from 'model\.trunk\.weight' and 4 from 'state\.count'"
    ):
        f(stack(5), eqx.filter_vmap(started)(stack(4)), X)


def test_the_rank_rule_maps_a_stack_whose_fields_say_their_ranks():
    """All with one axis more; what has no annotation differs in size, and is shared."""
    models = stack(5)
    shared = eqx.tree_at(lambda model: model.table, models, models.table[0])
    f = optimize(vmap="member")(loss)
    said = optimize(vmap={"member": {"model": 0, "model.table": None}})(loss)
    assert_same(f(shared, X), said(shared, X))


def test_the_rank_rule_names_the_whole_of_what_to_write():
    """What has no rank may be a stack too; what is mapped already belongs into the dict form."""
    f = optimize(vmap="member")(step)
    with pytest.raises(ContractError, match=r"may be in model\.table \(5, 6\)") as error:
        f(stack(5), eqx.filter_vmap(started)(stack(5)), X)
    written = 'vmap={"member": {"model": 0, "state.mean.trunk.weight": 0'
    assert written in str(error.value)


class Bare(eqx.Module):
    weight: Array
    shift: Array


def energy(model: Bare, x: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.sum(model.weight * x) + jnp.sum(model.shift)


BARE = Bare(array(np.asarray(X)[:5]), array(np.asarray(X)[:5, 0]))
SHARED = (
    "is shared, since no annotation says how many axes an element has: for a stack write"
    ' vmap={"member": {"model": 0'
)


def test_a_module_without_ranks_is_shared_and_the_plan_says_what_to_write():
    """It may be a stack of five, or one with arrays of five."""
    f = optimize(vmap="member")(energy)
    np.testing.assert_allclose(f(BARE, X[0]), energy(BARE, X[0]), rtol=1e-6)
    assert why(f, BARE, X[0]).endswith(f"model {SHARED}}}}}")
    assert why(f, BARE, X[:5]).endswith(f'model {SHARED}, "x": 0}}}}')
    said = optimize(vmap=WHOLE)(energy)
    each = [energy(Bare(BARE.weight[i], BARE.shift[i]), X[0]) for i in range(5)]
    np.testing.assert_allclose(said(BARE, X[0]), each, rtol=1e-6)


def scaled(model: eqx.nn.Linear, scale, x: Float[Array, "n"]):
    return model(x) * scale["a"]


def test_what_looks_like_a_stack_beside_one_is_a_warning():
    """Once; the dict form says which it is, and what is not as long is shared in silence."""
    models = stack(5).trunk
    f = optimize(vmap="member")(scaled)
    shared = np.asarray(f(models, {"a": jnp.ones(4)}, X[0]))
    with pytest.warns(AnnotationWarning, match="'scale' is shared, and all its arrays") as caught:
        f(models, {"a": jnp.ones((5, 4))}, X[0])
    text = str(caught[0].message)
    assert "begin with 5, as do those of 'model', which 'member' maps" in text
    assert 'vmap={"member": {"model": 0, "scale": 0}}, or vmap={"member": {"model": 0}}' in text
    f(models, {"a": jnp.ones((5, 1))}, X[0])
    paths = {"model": 0, "scale": 0}
    said = optimize(vmap={"member": paths})(scaled)(models, {"a": jnp.ones((5, 4))}, X[0])
    np.testing.assert_array_equal(said, shared)
    assert optimize(vmap={"member": {"model": 0}})(scaled)(
        models, {"a": jnp.ones((5, 4))}, X[0]
    ).shape == (5, 5, 4)


def test_a_batch_as_long_as_a_layer_is_wide_is_no_warning():
    """Its items have annotations, and are no module; the plan says what it says."""

    @optimize(vmap="example")
    def fit(model: Bare, batch: dict[str, Float[Array, "n"]]) -> Float[Array, ""]:
        return energy(model, batch["x"])

    assert fit(BARE, {"x": X[:5]}).shape == (5,)
    assert "model is shared" in why(fit, BARE, {"x": X[:5]})


def test_what_is_no_stack_has_no_such_line():
    """Arrays of another size than the axis, or of several sizes, or a single array."""
    f = optimize(vmap="member")(energy)
    assert "shared" not in why(f, BARE, X[:4])
    assert "shared" not in why(f, Bare(X[:5], X[:4, 0]), X[0])
    assert "shared" not in why(f, Bare(X[:5], jnp.float32(1)), X[0])

    @optimize(vmap="member")
    def add(x: Float[Array, "n"], table):
        return x + jnp.sum(table)

    assert "shared" not in why(add, X[:5], X[:5])


def test_a_part_that_is_not_there_is_an_error_with_the_nearest():
    """Misspelt, or without an array."""
    f = optimize(vmap={"member": {"model.heads": 0}})(loss)
    with pytest.raises(ContractError, match=r"'model\.heads', which holds no array") as error:
        f(stack(5), X)
    assert "did you mean 'model.head'?" in str(error.value)
    with pytest.raises(ContractError, match=r"'model\.last', which holds no array"):
        optimize(vmap={"member": {"model": 0, "model.last": None}})(loss)(stack(5), X)


def test_an_argument_that_holds_no_arrays_may_have_a_part():
    """It is optional; nothing of it is mapped."""

    @optimize(vmap={"member": {"x": 0, "model.head": 0}})
    def apply(x: Float[Array, "n"], model=None):
        return jnp.sum(x) if model is None else jnp.sum(model.head(x))

    np.testing.assert_allclose(apply(X), np.sum(X, 1), rtol=1e-6)


@pytest.mark.parametrize(
    ("paths", "what"),
    [
        ({"model.head[": 0}, "'model.head[', which is not a path"),
        ({"model.head": 0, "model['head']": 1}, "which are one part"),
        ({"net.head": 0}, "names 'net', which is not a parameter"),
        ({"model": None}, "does not say which argument has axis 'member' where"),
    ],
)
def test_paths_are_read_at_decoration(paths, what):
    """Before any call."""
    with pytest.raises(OptionError) as error:
        optimize(vmap={"member": paths})(loss)
    assert what in str(error.value)


def test_a_part_of_a_static_argument_is_refused():
    """A static value is one value."""
    with pytest.raises(OptionError, match="'model' cannot be static and mapped"):
        optimize(static="model", vmap=HEADS)(loss)


def directions(models):
    return eqx.filter(
        jax.tree.map(lambda leaf: leaf + 1 if eqx.is_array(leaf) else leaf, models), eqx.is_array
    )


@pytest.mark.core("part")
@pytest.mark.parametrize("axes", [WHOLE, HEADS, "member"], ids=["whole", "part", "rank"])
def test_derivatives_along_directions_of_a_stack(axes):
    """A tangent is mapped as its primal, and a cotangent as the result."""
    models = with_heads(4) if axes is HEADS else stack(4)
    if axes == "member":
        models = eqx.tree_at(lambda model: model.table, models, models.table[0])
    members = heads_of(models) if axes is HEADS else MEMBERS
    if axes == "member":
        members = jax.tree.map(lambda leaf: 0 if eqx.is_array(leaf) else None, models)
        members = eqx.tree_at(lambda model: model.table, members, None)
    tangents = directions(models)

    def jvp(model, tangent):
        given, rest = eqx.partition(model, eqx.is_array)
        return jax.jvp(lambda at: loss(eqx.combine(at, rest), X), (given,), (tangent,))

    def vjp(model, cotangent):
        given, rest = eqx.partition(model, eqx.is_array)
        value, back = jax.vjp(lambda at: loss(eqx.combine(at, rest), X), given)
        return value, back(cotangent)[0]

    f = optimize(vmap=axes)(loss)
    towards = jax.tree.map(lambda leaf: leaf, members)
    theirs = by_equinox(jvp, members, towards)(models, tangents)
    assert_same(f.jvp(models, X, wrt="model", tangents=tangents), theirs, exact=False)
    back = jnp.arange(1.0, 5)
    theirs = by_equinox(vjp, members, 0)(models, back)
    assert_same(f.vjp(models, X, wrt="model", cotangent=back), theirs, exact=False)


def test_a_stack_in_the_field_of_a_contract_is_seen_without_its_axis():
    """The annotation says what the body sees; an element that does not fit is an error."""

    class Affine(eqx.Module):
        weight: Float[Array, "out in"]
        shift: Float[Array, "out"]

    def apply(model: Affine, x: Float[Array, "n"]):
        return model.weight @ x + model.shift

    f = optimize(vmap=WHOLE)(apply)
    models = Affine(jnp.ones((5, 2, 3)), jnp.ones((5, 2)))
    np.testing.assert_allclose(f(models, X[0]), np.tile(np.sum(X[0]) + 1, (5, 2)), rtol=1e-6)
    with pytest.raises(ContractError, match=r"axis 'out' has two sizes, 2 .* and 3"):
        f(Affine(jnp.ones((5, 2, 3)), jnp.ones((5, 3))), X[0])
    shared = optimize(vmap={"member": {"model.weight": 0}})(apply)
    with pytest.raises(ContractError, match=r"'model\.shift' has 2 axes"):
        shared(models, X[0])


def test_a_compiled_stack_is_called():
    """Ahead of time, by the shapes of the members."""
    models = stack(5)
    abstract = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) if eqx.is_array(leaf) else leaf,
        models,
    )
    f = optimize(vmap=WHOLE)(loss)
    f.compile(abstract, sizes={"b": 7, "n": 3})
    np.testing.assert_allclose(f(models, X), by_equinox(loss, MEMBERS, None)(models, X), rtol=1e-6)
    assert f.stats.traces == 1


class Affine(NamedTuple):
    weight: Float[Array, "out n"]
    shift: Float[Array, "out"]


@pytest.mark.parametrize("axes", ["member", {"model": 0}, {"model.weight": -1}], ids=str)
def test_sizes_say_what_a_stack_is(axes):
    """Of a class whose fields have annotations, without an example; of a part alone too."""

    def apply(model: Affine, x: Float[Array, "n"]):
        return model.weight @ x + model.shift

    f = optimize(vmap=axes if axes == "member" else {"member": axes})(apply)
    f.compile(x=jax.ShapeDtypeStruct((3,), "float32"), sizes={"member": 5, "out": 2})
    weight, shift = jnp.arange(30.0).reshape(5, 2, 3), jnp.ones(2)
    part = axes == {"model.weight": -1}
    given = Affine(jnp.moveaxis(weight, 0, -1), shift) if part else Affine(weight, jnp.ones((5, 2)))
    np.testing.assert_allclose(f(given, X[0]), weight @ X[0] + shift, rtol=1e-6)
    assert f.stats.traces == 1
