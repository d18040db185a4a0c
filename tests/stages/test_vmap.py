"""`vmap`: the rank rule, the explicit form, and the numbers of a Python loop."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from jitney import optimize
from jitney.errors import ContractError, OptionError
from tests._arrays import array
from tests._examples import examples
from tests._tracing import count_traces


def rows(*shape, start=0.0):
    return array(
        np.linspace(start, start + 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)
    )


def decision(program, *args, **keywords):
    """The reason of the vmap stage, and whether it was taken."""
    (found,) = [
        d for d in program.plan(*args, **keywords).to_dict()["decisions"] if d["name"] == "vmap"
    ]
    return found["taken"], found["why"]


class Scale(eqx.Module):
    weight: Float[Array, "out in"]
    shift: Float[Array, "out"]

    def __call__(self, x: Float[Array, "in"]) -> Float[Array, "out"]:
        return self.weight @ x + self.shift


MODEL = Scale(rows(2, 3), rows(2))


@optimize(vmap="batch")
def affine(x: Float[Array, "n"], y: Float[Array, "n"]) -> Float[Array, "n"]:
    assert x.ndim == 1
    return 2 * x + y


def test_an_array_one_above_its_annotation_is_mapped():
    """Both arguments have the axis."""
    x, y = rows(4, 3), rows(4, 3, start=5)
    np.testing.assert_allclose(affine(x, y), 2 * np.asarray(x) + np.asarray(y), rtol=1e-6)
    assert decision(affine, x, y) == (True, "batch=4 over x, y; 0 arrays broadcast")


def test_an_array_as_annotated_is_broadcast():
    """One of the two has the axis; each element meets the same other."""
    x, y = rows(4, 3), rows(3, start=5)
    np.testing.assert_allclose(affine(x, y), 2 * np.asarray(x) + np.asarray(y), rtol=1e-6)
    np.testing.assert_allclose(affine(y, x), 2 * np.asarray(y) + np.asarray(x), rtol=1e-6)
    assert decision(affine, x, y) == (True, "batch=4 over x; 1 array broadcast")


def test_without_the_axis_the_stage_is_skipped_and_says_why():
    """A single element through the same function."""
    x = rows(3)
    np.testing.assert_allclose(affine(x, x), 3 * np.asarray(x), rtol=1e-6)
    taken, why = decision(affine, x, x)
    assert not taken
    assert "'batch'" in why


def test_two_extra_axes_are_an_error():
    """The rank rule adds one axis, so a rank of two more fits nothing."""
    with pytest.raises(ContractError, match="'x'"):
        affine(rows(2, 4, 3), rows(3))


def test_a_float_has_rank_0():
    """An array of one axis for a `float` is mapped; a number is broadcast."""

    @optimize(vmap="fit")
    def decay(x: Float[Array, "n"], rate: float):
        assert jnp.ndim(rate) == 0
        return jnp.exp(-rate * x)

    x, rates = rows(3), rows(5, start=1)
    np.testing.assert_allclose(decay(x, rates), np.exp(-np.outer(rates, x)), rtol=1e-6)
    np.testing.assert_allclose(
        decay(rows(5, 3), 2.0), np.exp(-2 * np.asarray(rows(5, 3))), rtol=1e-6
    )
    np.testing.assert_allclose(decay(x, 2.0), np.exp(-2 * np.asarray(x)), rtol=1e-6)


def test_one_module_is_shared():
    """Its fields have the ranks of their annotations."""

    @optimize(vmap="batch")
    def apply(model: Scale, x: Float[Array, "in"]):
        return model(x)

    x = rows(4, 3)
    np.testing.assert_allclose(
        apply(MODEL, x),
        np.asarray(x) @ np.asarray(MODEL.weight).T + np.asarray(MODEL.shift),
        rtol=1e-5,
    )
    assert decision(apply, MODEL, x) == (True, "batch=4 over x; 2 arrays broadcast")


class Observation(eqx.Module):
    at: Float[Array, "n"]
    seen: Float[Array, "n"]
    name: str = eqx.field(static=True, default="")


def misfit(observation: Observation, rate: float) -> Float[Array, ""]:
    return jnp.mean((jnp.exp(-rate * observation.at) - observation.seen) ** 2)


def test_a_stack_of_modules_is_mapped():
    """As `filter_vmap` maps it; each element of the stack meets each number, or its own."""
    rates = rows(3, start=1)
    at = rows(3, 5)
    stack = Observation(at, jnp.exp(-rates[:, None] * at))
    fits = optimize(vmap="member")(misfit)
    np.testing.assert_allclose(fits(stack, rates), np.zeros(3), atol=1e-12)
    np.testing.assert_allclose(
        fits(stack, rates), eqx.filter_vmap(misfit)(stack, rates), atol=1e-12
    )
    np.testing.assert_allclose(
        fits(stack, 1.5),
        [misfit(Observation(stack.at[i], stack.seen[i]), 1.5) for i in range(3)],
        rtol=1e-6,
    )
    assert decision(fits, stack, rates) == (
        True,
        "member=3 over observation.at, observation.seen, rate; 0 arrays broadcast",
    )


@pytest.mark.rest
def test_a_stack_of_layers_of_equinox_is_mapped():
    """Their axes are registered, and the signature names none of them."""
    model = eqx.filter_vmap(lambda key: eqx.nn.MLP(2, 3, 4, 1, key=key))(
        jax.random.split(jax.random.key(0), 5)
    )

    @optimize(vmap="member")
    def apply(model: eqx.nn.MLP, x: Float[Array, "in"]):
        return model(x)

    x = rows(2)
    np.testing.assert_allclose(apply(model, x), eqx.filter_vmap(lambda m: m(x))(model), rtol=1e-6)
    one = eqx.nn.MLP(2, 3, 4, 1, key=jax.random.key(0))
    np.testing.assert_allclose(apply(one, rows(6, 2)), jax.vmap(one)(rows(6, 2)), rtol=1e-5)


class Half(eqx.Module):
    named: Float[Array, "n"]
    other: Array


def test_a_field_that_may_have_the_axis_is_an_error():
    """Mapping it, and sharing it, would each be a guess."""
    total = optimize(vmap="member")(half_total)
    with pytest.raises(ContractError, match=r"may be in half\.other \(3, 2\)"):
        total(Half(rows(3, 2), rows(3, 2)))
    np.testing.assert_allclose(
        total(Half(rows(3, 2), rows(2))), (rows(3, 2) * rows(2)).sum(1), rtol=1e-6
    )
    said = optimize(vmap={"member": {"half": 0}})(half_total)
    np.testing.assert_allclose(
        said(Half(rows(3, 2), rows(3, 2))), (rows(3, 2) ** 2).sum(1), rtol=1e-6
    )


def half_total(half: Half) -> Float[Array, ""]:
    return jnp.sum(half.named * half.other)


def test_unannotated_arguments_are_broadcast():
    """Whatever their rank."""

    @optimize(vmap="batch")
    def add(x: Float[Array, "n"], table):
        return x + table.sum()

    np.testing.assert_allclose(
        add(rows(4, 3), rows(2, 3, 4)), np.asarray(rows(4, 3)) + np.sum(rows(2, 3, 4)), rtol=1e-6
    )


def test_of_a_tree_all_arrays_are_mapped():
    """A dict of arrays, each with the axis."""

    @optimize(vmap="batch")
    def total(tree: PyTree[Float[Array, "_"]]):
        return tree["a"].sum() + tree["b"].sum()

    tree = {"a": rows(4, 3), "b": rows(4, 5)}
    np.testing.assert_allclose(total(tree), np.sum(tree["a"], 1) + np.sum(tree["b"], 1), rtol=1e-6)


def test_a_tree_with_the_axis_in_some_arrays_only_is_an_error_that_names_two():
    """Which of them is wrong, jitney cannot know."""

    @optimize(vmap="batch")
    def total(tree: PyTree[Float[Array, "n"]]):
        return tree["a"].sum() + tree["b"].sum()

    with pytest.raises(ContractError, match="mapped or none") as caught:
        total({"a": rows(4, 3), "b": rows(5)})
    assert "tree['a'] (4, 3)" in str(caught.value)
    assert "tree['b'] (5,)" in str(caught.value)


def test_two_sizes_of_the_axis_are_an_error_that_names_both():
    """4 from x and 5 from y."""
    with pytest.raises(
        ContractError, match="axis 'batch' has two sizes, 4 from 'x' and 5 from 'y'"
    ):
        affine(rows(4, 3), rows(5, 3))


@pytest.mark.parametrize("size", [0, 1])
def test_batches_of_none_and_of_one(size):
    """The axis stays in the result."""
    out = affine(rows(size, 3), rows(3))
    assert out.shape == (size, 3)
    np.testing.assert_allclose(out, 2 * np.asarray(rows(size, 3)) + np.asarray(rows(3)), rtol=1e-6)


def test_an_axis_of_the_signature_is_refused_at_decoration():
    """An annotation says what the body sees."""
    with pytest.raises(OptionError, match="axis that the signature has already"):
        optimize(vmap="n")(affine.__wrapped__)


@pytest.mark.parametrize("dim", [1, -1])
def test_the_dict_form_says_the_position(dim):
    """Counted from either end."""

    @optimize(vmap={"batch": {"x": dim}})
    def total(x: Float[Array, "n"], y: Float[Array, "n"]):
        return (x * y).sum()

    x, y = rows(3, 4), rows(3)
    np.testing.assert_allclose(total(x, y), np.asarray(x).T @ np.asarray(y), rtol=1e-6)


def test_a_position_that_the_array_does_not_have_is_an_error():
    """Position 2 of an array of two axes."""

    @optimize(vmap={"batch": {"x": 2}})
    def same(x):
        return x

    with pytest.raises(
        ContractError, match=r"axis 'batch' is at position 2 of x, which has shape \(3, 4\)"
    ):
        same(rows(3, 4))


def test_the_dict_form_maps_a_module():
    """An ensemble: every array of the module has the axis in front."""

    @optimize(vmap={"member": {"model": 0}})
    def apply(model: Scale, x: Float[Array, "in"]):
        return model(x)

    ensemble = jax.tree.map(lambda leaf: jnp.stack([leaf, 2 * leaf]), MODEL)
    one = np.asarray(MODEL.weight) @ np.asarray(rows(3)) + np.asarray(MODEL.shift)
    np.testing.assert_allclose(apply(ensemble, rows(3)), np.stack([one, 2 * one]), rtol=1e-5)


def test_a_module_without_the_axis_in_one_array_is_an_error_with_its_path():
    """The bias of the ensemble was not stacked, and has another size in front."""

    @optimize(vmap={"member": {"model": 0}})
    def apply(model: Scale, x: Float[Array, "in"]):
        return model(x)

    broken = eqx.tree_at(lambda m: m.weight, MODEL, jnp.stack([MODEL.weight] * 5))
    with pytest.raises(ContractError, match=r"5 from 'model.weight' and 2 from 'model.shift'"):
        apply(broken, rows(3))


def test_several_axes_are_outermost_first():
    """rates x amplitudes, in the order of the dict."""

    @optimize(vmap={"rate": {"k": 0}, "amplitude": {"a": 0}})
    def decay(t: Float[Array, "n"], k: Float[Array, ""], a: Float[Array, ""]):
        return a * jnp.exp(-k * t)

    t, k, a = rows(3), rows(4, start=1), rows(5, start=2)
    expected = np.exp(-np.asarray(k)[:, None, None] * np.asarray(t)) * np.asarray(a)[:, None]
    np.testing.assert_allclose(decay(t, k, a), expected, rtol=1e-6)
    assert (
        decision(decay, t, k, a)[1]
        == "rate=4 over k; 2 arrays broadcast; amplitude=5 over a; 2 arrays broadcast"
    )


def test_two_axes_of_one_argument():
    """The second position counts what is left after the first is taken."""

    @optimize(vmap={"outer": {"x": 2}, "inner": {"x": 0}})
    def total(x: Float[Array, "n"]):
        return x.sum()

    x = rows(4, 3, 5)
    np.testing.assert_allclose(total(x), np.asarray(x).sum(1).T, rtol=1e-6)


def test_several_names_need_the_dict():
    """The rank rule knows one axis."""
    with pytest.raises(OptionError):
        optimize(vmap=("a", "b"))(affine.__wrapped__)


@pytest.mark.parametrize("axes", ["*any n", "... n"])
def test_annotations_of_any_rank_take_the_dict_only(axes):
    """A rank that the annotation leaves open cannot be exceeded by one."""

    def total(x: Float[Array, axes], y: Float[Array, ""]):
        return x.sum() + y

    x = rows(4, 2, 3)
    ruled = optimize(vmap="batch")(total)
    assert not decision(ruled, x, jnp.float32(1))[0]
    np.testing.assert_allclose(ruled(x, jnp.float32(1)), np.sum(x) + 1, rtol=1e-6)
    said = optimize(vmap={"batch": {"x": 0}})(total)
    np.testing.assert_allclose(said(x, jnp.float32(1)), np.sum(x, (1, 2)) + 1, rtol=1e-6)


def test_nothing_to_go_by_is_refused_at_decoration():
    """Without any annotation the rank rule could never act."""
    with pytest.raises(OptionError, match="no annotation to go by"):
        optimize(vmap="batch")(lambda x: x)


def test_every_result_gains_the_axis_and_what_is_no_array_passes():
    """A constant result is repeated; a string is itself."""

    @optimize(vmap="batch")
    def several(x: Float[Array, "n"]) -> Any:
        return {"sum": x.sum(), "constant": jnp.arange(2), "nested": (x, None, "text", 3)}

    out = several(rows(4, 3))
    assert out["sum"].shape == (4,)
    np.testing.assert_array_equal(out["constant"], np.tile(np.arange(2), (4, 1)))
    assert out["nested"][0].shape == (4, 3)
    assert out["nested"][1:] == (None, "text", 3)


def test_the_result_is_checked_for_one_element():
    """An annotated result says what the body returns."""

    @optimize(vmap="batch")
    def wrong(x: Float[Array, "n"]) -> Float[Array, "n"]:
        return x[1:]

    with pytest.raises(ContractError, match="'n'"):
        wrong(rows(4, 3))


def test_integers_are_mapped_by_the_same_rule():
    """Labels with features."""

    @optimize(vmap="batch")
    def pick(x: Float[Array, "n"], i: Int[Array, ""]):
        return x[i]

    np.testing.assert_allclose(pick(rows(3, 3), jnp.arange(3)), np.diag(rows(3, 3)), rtol=1e-6)


def test_batched_and_single_calls_are_two_programs_of_one_function():
    """One trace each, however often they take turns."""
    body = count_traces(affine.__wrapped__)
    f = optimize(vmap="batch")(body)
    for _ in range(3):
        f(rows(4, 3), rows(3))
        f(rows(3), rows(3))
    assert body.traces == 2


def test_gradients_pass_through():
    """The gradient of a broadcast argument is the sum over the axis."""
    grad = jax.grad(lambda y: affine(rows(4, 3), y).sum())(rows(3))
    np.testing.assert_allclose(grad, np.full(3, 4.0), rtol=1e-6)


@settings(max_examples=20, deadline=None)
@given(
    size=st.integers(0, 4),
    n=st.integers(1, 4),
    which=st.tuples(st.booleans(), st.booleans(), st.booleans()),
)
@examples(
    {"size": 0, "n": 2, "which": (True, True, True)},
    {"size": 0, "n": 4, "which": (False, True, False)},
    {"size": 1, "n": 1, "which": (True, True, True)},
    {"size": 4, "n": 3, "which": (False, False, False)},
    {"size": 3, "n": 3, "which": (True, False, False)},  # the size is that of another axis
    {"size": 2, "n": 4, "which": (False, True, True)},
)
def test_equals_a_loop_that_stacks(size, n, which):
    """For each choice of mapped arguments, including none."""
    shapes = [(n, n), (n,), ()]
    args = [
        np.float32(1) + np.asarray(rows(*((size,) if m else ()), *shape))
        for m, shape in zip(which, shapes, strict=True)
    ]

    def body(a: Float[Array, "n n"], b: Float[Array, "n"], c: Float[Array, ""]):
        return jnp.tanh(a @ b) * c, c + b.sum()

    out = optimize(vmap="batch")(body)(*map(jnp.asarray, args))

    def reference(a, b, c):
        return np.tanh(a @ b) * c, c + b.sum()

    if not any(which):
        expected = reference(*args)
    else:
        each = [
            reference(*[arg[i] if m else arg for m, arg in zip(which, args, strict=True)])
            for i in range(size)
        ]
        expected = (
            [np.stack(part) for part in zip(*each, strict=True)]
            if each
            else [np.zeros((0, n)), np.zeros(0)]
        )
    for got, wanted in zip(out, expected, strict=True):
        assert got.shape == wanted.shape
        np.testing.assert_allclose(got, wanted, rtol=1e-5)


@pytest.mark.parametrize("make", [jax.random.key, jax.random.PRNGKey], ids=["typed", "raw"])
def test_a_stack_of_keys_is_mapped(make):
    """One draw for each key, as `PRNGKeyArray` is annotated in any library; one key is shared."""

    @optimize(vmap="draw")
    def noisy(key: PRNGKeyArray, x: Float[Array, "n"]):
        return x + jax.random.normal(key, x.shape)

    keys, x = jax.random.split(make(0), 4), rows(3)
    np.testing.assert_allclose(
        noisy(keys, x), np.stack([x + jax.random.normal(key, (3,)) for key in keys]), rtol=1e-6
    )
    np.testing.assert_allclose(
        noisy(keys[0], rows(2, 3)), rows(2, 3) + jax.random.normal(keys[0], (3,)), rtol=1e-6
    )
