"""`remat`: the same gradients from fewer kept values."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float

from jitney import optimize
from jitney._jax.xla.memory import text
from jitney.errors import OptionError
from tests._arrays import array

W = array(np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8))
X = array(np.linspace(0, 1, 8, dtype=np.float32))


def deep(w: Float[Array, "n n"], x: Float[Array, "n"]) -> Float[Array, ""]:
    for _ in range(4):
        x = checkpoint_name(jnp.sin(w @ x), "s")
    return x.sum()


def kept(fn):
    """How many numbers the backward pass of `fn` holds besides the arguments and what they are made
    of.
    """
    _, back = jax.vjp(fn, W, X)
    return sum(leaf.size for leaf in jax.tree.leaves(back))


def count(fn, name):
    """How often a primitive stands in the gradient, at any depth."""
    return str(jax.make_jaxpr(jax.grad(fn))(W, X)).count(f"= {name}[") + str(
        jax.make_jaxpr(jax.grad(fn))(W, X)
    ).count(f"= {name} ")


def reference():
    """The gradient in float64, by the chain rule in numpy."""
    w, x = np.asarray(W, np.float64), np.asarray(X, np.float64)
    steps = [x]
    for _ in range(4):
        steps.append(np.sin(w @ steps[-1]))
    back, grad = np.ones(8), np.zeros_like(w)
    for before in reversed(steps[:-1]):
        back = back * np.cos(w @ before)
        grad += np.outer(back, before)
        back = w.T @ back
    return grad


@pytest.mark.core("True", "everything_saveable")
@pytest.mark.parametrize(
    "policy",
    [
        False,
        True,
        "everything_saveable",
        "nothing_saveable",
        "dots_saveable",
        "checkpoint_dots",
        "dots_with_no_batch_dims_saveable",
        "checkpoint_dots_with_no_batch_dims",
        jax.checkpoint_policies.dots_saveable,
        jax.checkpoint_policies.save_only_these_names("s"),
        lambda primitive, *_, **__: primitive.name == "sin",
    ],
)
def test_gradients_are_the_same_under_every_policy(policy):
    """What is recomputed comes out equal."""
    np.testing.assert_allclose(
        jax.grad(optimize(remat=policy)(deep))(W, X), reference(), rtol=2e-5, atol=1e-6
    )


def test_true_keeps_the_arguments_only():
    """The plain function keeps its intermediate values too."""
    assert kept(optimize(remat=True)(deep)) == W.size + X.size
    assert kept(optimize(deep)) > W.size + X.size


def test_the_forward_pass_is_computed_again():
    """Four sines forward; with `remat` they are also in the backward pass, which stands apart."""
    assert count(optimize(remat=True)(deep), "sin") > count(optimize(deep), "sin")


def test_a_derivative_of_the_function_computes_it_again_too():
    """The program of `f.grad` holds more sines than without `remat`."""

    def sines(**options):
        return str(jax.make_jaxpr(optimize(**options)(deep).grad)(W, X)).count("= sin")

    assert sines(remat=True) > sines() >= 4


def test_a_policy_by_name_decides_what_is_kept():
    """`dots_saveable` keeps the products that `nothing_saveable` computes again."""
    assert count(optimize(remat="dots_saveable")(deep), "dot_general") < count(
        optimize(remat="nothing_saveable")(deep), "dot_general"
    )


def test_a_policy_of_a_factory_decides_what_is_kept():
    """The sine that has the name is not computed again, inside `f.grad` and where JAX takes the
    gradient; the plan says which policy.
    """

    def named(x: Float[Array, "n"]) -> Float[Array, ""]:
        return jnp.sum(checkpoint_name(jnp.sin(x), "s") ** 3 + jnp.sin(2 * x) ** 3)

    def sines(name):
        policy = jax.checkpoint_policies.save_only_these_names(name)
        f = optimize(remat=policy)(named)
        assert name in str(f.plan(X))
        of_grad = str(jax.make_jaxpr(f.grad)(X)).count("= sin")
        assert str(jax.make_jaxpr(jax.grad(f))(X)).count("= sin") == of_grad
        return of_grad

    assert sines("s") < sines("t")


POLICIES = jax.checkpoint_policies
FACTORIES = {
    "save_only_these_names": lambda make: make("s"),
    "save_any_names_but_these": lambda make: make("s"),
    "save_anything_except_these_names": lambda make: make("s"),
    "save_from_both_policies": lambda make: make(
        POLICIES.dots_saveable, POLICIES.save_only_these_names("s")
    ),
    "save_and_offload_only_these_names": lambda make: make(
        names_which_can_be_saved=[],
        names_which_can_be_offloaded=["s"],
        offload_src="device",
        offload_dst="pinned_host",
    ),
    "offload_dot_with_no_batch_dims": lambda make: make("device", "pinned_host"),
}


@pytest.mark.rest
@pytest.mark.parametrize("name", FACTORIES)
def test_gradients_are_the_same_under_what_every_factory_makes(name):
    """To the bit here, where no fusion differs; what is offloaded comes back."""
    policy = FACTORIES[name](getattr(POLICIES, name))
    gradient = optimize(remat=policy)(deep).grad(W, X, wrt="w")
    np.testing.assert_array_equal(gradient, jax.jit(jax.grad(deep))(W, X))


class Sine(eqx.Module):
    w: Float[Array, "n n"]

    def __call__(self, x):
        return jnp.sin(self.w @ x)


class Net(eqx.Module):
    layers: list[Sine]

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


@pytest.mark.parametrize("policy", [None, pytest.param("dots", marks=pytest.mark.rest)])
def test_every_second_layer_is_recomputed_by_a_line_in_the_body(policy):
    """The gradient has the module's own structure and the same bits. Less is kept for it; with a
    policy that keeps products, one array for another here.
    """
    net = Net([Sine(W * scale) for scale in (1.0, 0.5, 0.25, 2.0)])
    part = partial(eqx.filter_checkpoint, policy=policy and POLICIES.dots_saveable)

    def plain(net: Net, x: Float[Array, "n"]) -> Float[Array, ""]:
        return jnp.sum(net(x))

    def every_second(net: Net, x: Float[Array, "n"]) -> Float[Array, ""]:
        return plain(eqx.tree_at(lambda net: net.layers[::2], net, replace_fn=part), x)

    want, got = (optimize(f).grad(net, X, wrt="net") for f in (plain, every_second))
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_array_equal(a, b)
    sizes = [
        sum(leaf.size for leaf in jax.tree.leaves(jax.vjp(optimize(f), net, X)[1]))
        for f in (plain, every_second)
    ]
    assert sizes[1] < sizes[0] if policy is None else sizes[1] == sizes[0]


@pytest.mark.parametrize("policy", ["everything", 3])
def test_what_is_no_policy_is_refused(policy):
    with pytest.raises(OptionError, match="is not a policy"):
        optimize(remat=policy)(deep)


@pytest.mark.parametrize(
    "policy", ["save_from_both_policies", jax.checkpoint_policies.save_only_these_names]
)
def test_what_makes_a_policy_is_none(policy):
    """By name, and the function itself: as a policy it would keep everything."""
    with pytest.raises(OptionError, match="is no policy, but makes one"):
        optimize(remat=policy)(deep)


def test_the_plan_says_what_is_kept():
    """Taken with its policy, or skipped."""
    (line,) = [
        d
        for d in optimize(remat=True)(deep).plan(W, X).to_dict()["decisions"]
        if d["name"] == "remat"
    ]
    assert line["taken"]
    assert "`nothing_saveable`" in line["why"]
    (line,) = [d for d in optimize(deep).plan(W, X).to_dict()["decisions"] if d["name"] == "remat"]
    assert (line["taken"], line["why"]) == (False, "no `remat` policy given")


@pytest.mark.rest
def test_acts_on_the_body_of_a_mapped_function():
    """Each element keeps its arguments only, and the gradient is that of a loop."""
    f = optimize(remat=True, vmap="batch")(deep)
    xs = jnp.stack([X, 2 * X, 3 * X])
    expected = sum(np.asarray(jax.grad(deep)(W, x)) for x in xs)
    np.testing.assert_allclose(
        jax.grad(lambda w: f(w, xs).sum())(W), expected, rtol=2e-5, atol=1e-5
    )


@pytest.mark.rest
@pytest.mark.parametrize("policy", [True, pytest.param("dots_saveable", marks=pytest.mark.rest)])
def test_the_plan_of_a_gradient_says_what_a_policy_gains(policy):
    """By the compiler, with it and without; around a whole body nothing, and then it says so."""

    def gradient(f):
        compiled = jax.jit(jax.grad(f)).lower(W, X).compile().memory_analysis()
        return compiled.temp_size_in_bytes + compiled.argument_size_in_bytes

    f = optimize(remat=policy)(deep)
    (said,) = [
        d["why"] for d in f.grad.plan(W, X, wrt="w").to_dict()["decisions"] if d["name"] == "remat"
    ]
    kept = getattr(jax.checkpoint_policies, "nothing_saveable" if policy is True else policy)
    with_it, without = gradient(jax.checkpoint(deep, policy=kept)), gradient(deep)
    assert f"; {text(with_it)} with it, {text(without)} without" in said
    assert ("it gains nothing around the whole body" in said) is (with_it > 0.98 * without)
    assert ("`memory` in its place" in said) is (with_it > 0.9 * without)
    assert f.grad.stats.compiles == 0
