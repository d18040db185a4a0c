"""Which products `precision` casts: by the path of a module, a line of source, an annotation."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jaxtyping import Array, Float, Float32

from jitney import optimize
from jitney.errors import OptionError
from tests._arrays import array
from tests.stages._products import NET, W, X, loss, products
from tests.stages._products import native as native

pytestmark = pytest.mark.usefixtures("native")


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({"default": "bf16", "head": "f32"}, ["bfloat16", "bfloat16", "float32"]),
        ({"default": "bf16", "model.body[0]": "f32"}, ["float32", "bfloat16", "bfloat16"]),
        ({"body": "bf16"}, ["bfloat16", "bfloat16", "float32"]),
        ({"default": "bf16", "body": "f32", "body[1]": "fp16"}, ["float32", "float16", "bfloat16"]),
    ],
)
def test_a_module_by_its_path(policy, expected):
    """The part of a path that is named; the longest that fits wins; without a default only what is
    named is cast.
    """
    f = optimize(precision=policy)(loss)
    assert [factors for factors, _ in products(f, NET, X)] == expected


def test_the_backward_pass_of_a_module_follows_its_path():
    """In `jax.grad` of a program, and in a program that takes the gradient itself."""
    for fn in (
        eqx.filter_grad(optimize(precision={"default": "bf16", "head": "f32"})(loss)),
        optimize(precision={"default": "bf16", "head": "f32"})(eqx.filter_grad(loss)),
    ):
        factors = [
            factors
            for factors, _ in products(
                lambda model, x, fn=fn: eqx.filter(fn(model, x), eqx.is_array), NET, X
            )
        ]
        assert factors.count("float32") == 3  # of the head: forward, its weight's, and its input's
        assert factors.count("bfloat16") == 5


def test_layers_stacked_for_a_scan_have_the_path_of_the_stack():
    """And a product of two activations belongs to the module that made both."""

    class Attention(eqx.Module):
        q: Float[Array, "layers 4 4"]
        k: Float[Array, "layers 4 4"]
        out: Float[Array, "4 4"]

        def __call__(self, x):
            def turn(x, qk):
                q, k = x @ qk[0], 0.5 * x @ qk[1]
                return x + jax.nn.softmax(q @ k.T) @ x, None

            return lax.scan(turn, x, (self.q, self.k))[0] @ self.out

    class Outer(eqx.Module):
        attention: Attention

    model = Outer(Attention(jnp.ones((2, 4, 4)), jnp.ones((2, 4, 4)), jnp.ones((4, 4))))
    for policy, expected in (
        (
            {"default": "bf16", "attention.q": "f32"},
            ["float32", "bfloat16", "bfloat16", "bfloat16", "bfloat16"],
        ),
        ({"default": "bf16", "attention": "f32"}, ["float32"] * 5),
    ):
        f = optimize(precision=policy)(lambda model, x: model.attention(x))
        assert [factors for factors, _ in products(f, model, X[:, :4])] == expected


class Two(eqx.Module):
    a: Float[Array, "4 4"]
    b: Float[Array, "4 4"]


TWO = Two(array(np.ones((4, 4))), array(np.eye(4)))


@pytest.mark.parametrize(
    "moved",
    [
        lambda two: [two.a, lax.dynamic_update_slice(jnp.zeros((4, 4)), two.b, (0, 0))],
        lambda two: lax.optimization_barrier((two.a, two.b)),
        lambda two: [
            jnp.where(jnp.arange(4) > 1, two.a, 0.0),
            jnp.where(jnp.arange(4) > 1, two.b, 0.0),
        ],
    ],
    ids=["written into zeros", "behind a barrier", "selected"],
)
def test_an_array_that_is_moved_keeps_its_path(moved):
    """Its numbers count, not the array that they are put into, nor what stands beside them."""

    def body(two, x):
        a, b = moved(two)
        return x @ a, x @ b

    f = optimize(precision={"default": "bf16", "b": "f32"})(body)
    assert [factors for factors, _ in products(f, TWO, X[:, :4])] == ["bfloat16", "float32"]


def test_arrays_that_one_mask_selects_have_paths_of_their_own():
    """In a backward pass each product belongs to the weight of its own forward product."""

    def body(two, x, y):
        mask = x > 0
        masked = [jnp.where(mask, each, 0.0) for each in (x, y)]
        return jnp.sum(masked[0] @ two.a) + jnp.sum((masked[1] @ two.b) ** 2)

    f = optimize(precision={"default": "bf16", "b": "f32"})(eqx.filter_grad(body))
    factors = [
        factors
        for factors, _ in products(
            lambda two, x: eqx.filter(f(two, x, x + 1.0), eqx.is_array), TWO, X[:, :4]
        )
    ]
    assert sorted(factors) == ["bfloat16"] * 2 + ["float32"] * 2


def test_a_source_line_can_be_named_too():
    """As the report of precision gives it; a line without a product is an error."""

    def body(x, w):
        y = jnp.tanh(x @ w)
        return y @ w.T

    number = body.__code__.co_firstlineno + 2
    f = optimize(precision={"default": "bf16", f"test_autocast_paths.py:{number}": "f32"})(body)
    assert [factors for factors, _ in products(f, X, W)] == ["bfloat16", "float32"]
    with pytest.raises(
        OptionError, match=rf"(?s)no product is computed.*test_autocast_paths.py:{number}"
    ):
        optimize(precision={"default": "bf16", "test_autocast_paths.py:1": "f32"})(body)(X, W)


def test_a_path_that_no_array_has_is_an_error_that_names_near_ones():
    """When the call is planned."""
    f = optimize(precision={"default": "bf16", "heads": "f32"})(loss)
    with pytest.raises(OptionError, match=r"(?s)loss.*'heads'.*near to it are 'head'"):
        f(NET, X)
    with pytest.raises(OptionError, match="'heads'"):
        f.plan(NET, X)


def test_an_exact_annotation_keeps_the_products_of_its_argument():
    """`Float32[...]` says what the body sees."""

    def body(x: Float32[Array, "n k"], w: Float[Array, "k m"]) -> Float[Array, "n k"]:
        return (x @ w) @ w.T

    assert [factors for factors, _ in products(optimize(precision="bf16")(body), X, W)] == [
        "float32",
        "bfloat16",
    ]


@pytest.mark.parametrize(
    "bad", [{"head": "f64"}, {}, {"default": None}, {3: "bf16"}, {"": "bf16"}, "bf17"]
)
def test_what_is_no_policy_is_refused_at_decoration(bad):
    """Types that are none, and names that are none."""
    with pytest.raises(OptionError, match="precision="):
        optimize(precision=bad)(loss)
