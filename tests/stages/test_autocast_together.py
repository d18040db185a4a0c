"""Products in a low type beside other options, on a CPU, and what the plan says of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney
from jitney import optimize
from jitney.errors import OptionError
from tests.stages._products import NET, W, X, lines, loss, rounded
from tests.stages._products import native as native

pytestmark = pytest.mark.usefixtures("native")


@pytest.mark.rest
def test_with_a_mapped_axis_and_remat():
    """Each element has products of its own, batched."""
    f = optimize(precision="bf16", vmap="batch", remat=True)(lambda_of_one)
    xs = jnp.stack([X[0], X[1]])
    np.testing.assert_allclose(f(xs, W), np.tanh(rounded(xs) @ rounded(W)), rtol=1e-5, atol=1e-5)
    grad = jax.grad(lambda w: f(xs, w).sum())(W)
    assert grad.dtype == jnp.float32
    np.testing.assert_allclose(
        grad, jax.grad(lambda w: jnp.tanh(xs @ w).sum())(W), rtol=0.03, atol=0.03
    )


def lambda_of_one(x: Float[Array, "k"], w: Float[Array, "k m"]) -> Float[Array, "m"]:
    return jnp.tanh(x @ w)


def gram(x: Float[Array, "n k"], w: Float[Array, "k m"]) -> Float[Array, "k m"]:
    return jnp.einsum("nk,nm->km", x, jnp.tanh(x @ w)) / x.shape[0]


@pytest.mark.core("options0")
@pytest.mark.parametrize("options", [{"pad": {"n": [8]}}, {"chunk": {"n": 2}}])
def test_with_padding_and_with_chunks(options):
    """The same products of rounded factors, over the true size."""
    f = optimize(precision="bf16", **options)(gram)
    for x in (X, jnp.concatenate([X, X])[:5]):
        y = rounded(np.tanh(rounded(x) @ rounded(W)).astype(np.float32))
        np.testing.assert_allclose(f(x, W), rounded(x).T @ y / len(x), rtol=2e-3, atol=2e-3)
    assert f.stats.eager == 0
    assert any(
        d["name"] == ("mask" if "pad" in options else "chunk") and d["taken"]
        for d in f.plan(X, W).to_dict()["decisions"]
    )


def test_un_jitted_it_does_the_same():
    """Inside `jax.disable_jit`."""
    f = optimize(precision="bf16")(lambda x, w: x @ w)
    with jax.disable_jit():
        np.testing.assert_allclose(f(X, W), rounded(X) @ rounded(W), rtol=2e-6, atol=2e-6)


def test_a_branch_on_a_value_is_explained_as_ever():
    """The argument has its name although the body is traced on its own."""

    @optimize(precision="bf16")
    def body(rate, w):
        return w if rate > 0 else w @ w

    with pytest.raises(Exception, match="'rate'"):
        body(jnp.float32(1.0), W)


@pytest.mark.rest
def test_operations_keep_their_lines():
    """What `debug_nans` names is the line of the user's body, of a cast that overflows too."""

    def body(x, w):
        return jnp.log(x) @ w

    line = body.__code__.co_firstlineno + 1
    for policy, x, made in (
        ("bf16", -jnp.ones((1, 6)), "log"),
        ("fp16", jnp.exp(jnp.full((1, 6), 80.0)), ""),
    ):
        with pytest.raises(
            jitney.errors.NonFiniteError,
            match=rf"`{made}.*test_autocast_together.py:{line} \(body\)",
        ):
            optimize(precision=policy, debug_nans=True)(body)(x, 1e5 * W)


def attention(layers, x):
    for q, k, v in layers:
        x = x + jax.nn.softmax((x @ q) @ (x @ k).T) @ jnp.tanh(x @ v)
    return jnp.mean(x**2)


@pytest.mark.rest
def test_on_a_cpu_rounded_factors_are_multiplied_in_float32(monkeypatch):
    """The same numbers; gradients and padded Gram matrices, for some of which XLA has no low kernel
    there, run. The plan says so.
    """
    monkeypatch.undo()

    def gram(x: Float[Array, "n k"], w: Float[Array, "k m"]) -> Float[Array, "m m"]:
        y = jnp.tanh(x @ w)
        return y.T @ y

    f = optimize(precision="bf16", pad={"n": [8]})(gram)
    y = rounded(np.tanh(rounded(X) @ rounded(W)).astype(np.float32))
    np.testing.assert_allclose(f(X, W), y.T @ y, rtol=1e-2, atol=1e-2)
    layers = [tuple(0.3 * X[:, :3] + i for i in range(3))] * 2
    g = optimize(precision="bf16")(attention)
    for grad in (g.grad(layers, X[:, :3], wrt="layers"), jax.jit(jax.grad(g))(layers, X[:, :3])):
        for leaf, exact in zip(
            jax.tree.leaves(grad),
            jax.tree.leaves(jax.jit(jax.grad(attention))(layers, X[:, :3])),
            strict=True,
        ):
            np.testing.assert_allclose(leaf, exact, rtol=0.1, atol=0.02)
    (why,) = [
        d["why"]
        for d in g.plan(layers, X[:, :3]).to_dict()["decisions"]
        if d["name"] == "precision"
    ]
    assert "rounded to bfloat16 and multiplied in float32" in why


def test_the_plan_counts_products():
    """What is pinned is counted by the name that pins it. The body was run for it, which is no
    trace in `stats`.
    """
    f = optimize(precision={"default": "bf16", "head": "f32"})(lambda model, x: loss(model, x))
    assert lines(f, NET, X) == ["2 products in bfloat16", "1 product in float32, by `head`"]
    assert f.stats.traces == 0


@pytest.mark.parametrize(
    ("flags", "text"),
    [("avx2", "this CPU emulates"), ("avx512_bf16", None), ("", "most CPUs emulate")],
)
def test_the_plan_says_that_a_low_type_is_emulated(monkeypatch, flags, text):
    """By what the system says of the CPU; where it says nothing, by what most are."""
    monkeypatch.setattr("jitney._stages.autocast._cpu_flags", lambda: frozenset(flags.split()))
    (why,) = [
        d["why"]
        for d in optimize(precision="bf16")(loss).plan(NET, X).to_dict()["decisions"]
        if d["name"] == "precision"
    ]
    assert "emulate" not in why if text is None else text in why


def test_a_body_that_cannot_be_traced_has_no_products_to_cast():
    """So `on_trace_error="eager"` contradicts it."""
    with pytest.raises(OptionError, match="contradict"):
        optimize(precision="bf16", on_trace_error="eager")(loss)
