"""`jitney.accumulate`: the gradient of a batch from microbatches, equal to that of the whole."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import Array, Float, Int

from jitney import accumulate, optimize
from jitney.errors import AxisError, DerivativeError, OptionError
from tests._examples import examples

RNG = np.random.default_rng(0)
W = RNG.normal(size=(3, 2))


def error(
    w: Float[Array, "i o"], x: Float[Array, "batch i"], y: Float[Array, "batch o"]
) -> Float[Array, ""]:
    return jnp.mean((x @ w - y) ** 2)


def batch(n):
    return RNG.normal(size=(n, 3)).astype(np.float32), RNG.normal(size=(n, 2)).astype(np.float32)


def reference(w, x, y):
    """The mean square and its gradient in float64, in closed form."""
    w, x, y = (np.asarray(a, np.float64) for a in (w, x, y))
    return np.mean((x @ w - y) ** 2), 2 * x.T @ (x @ w - y) / y.size


def loops(fn, *args):
    return sum(str(jax.make_jaxpr(fn)(*args)).count(name) for name in ("scan[", "while["))


@pytest.mark.rest
@settings(max_examples=6, deadline=None)
@given(st.integers(2, 13), st.integers(1, 14))
@examples(
    {"n": 2, "microbatch": 1},
    {"n": 12, "microbatch": 4},  # they fit
    {"n": 13, "microbatch": 4},  # the last one is one row
    {"n": 13, "microbatch": 12},
    {"n": 13, "microbatch": 13},
    {"n": 13, "microbatch": 14},
)
def test_microbatches_add_up_to_the_batch(n, microbatch):
    """For any size of either, a shorter last one and one for all included."""
    x, y = batch(n)
    value, grad = accumulate(error, axis="batch", microbatch=microbatch, wrt="w")(
        jnp.float32(W), x, y
    )
    expected, slope = reference(W, x, y)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    np.testing.assert_allclose(grad, slope, rtol=1e-4, atol=1e-5)


class Net(eqx.Module):
    first: eqx.nn.Linear
    name: str = eqx.field(static=True)
    activation: object = jnp.tanh

    def __call__(self, x):
        return self.activation(self.first(x))


def net_loss(
    model: Net, x: Float[Array, "batch 3"], y: Float[Array, "batch 2"]
) -> Float[Array, ""]:
    return jnp.sum((jax.vmap(model)(x) - y) ** 2)


@pytest.mark.rest
def test_the_gradient_of_a_module_is_a_module():
    """Arrays have gradients, as Equinox gives them for the whole batch; what is static is None, or
    stays.
    """
    model, (x, y) = Net(eqx.nn.Linear(3, 2, key=jax.random.key(0)), "net"), batch(10)
    value, grad = accumulate(net_loss, axis="batch", microbatch=4, wrt="model")(model, x, y)
    expected, slope = eqx.filter_value_and_grad(net_loss)(model, x, y)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    assert jax.tree.structure(grad) == jax.tree.structure(slope)
    for a, b in zip(jax.tree.leaves(grad), jax.tree.leaves(slope), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_it_cuts_inside_a_training_step_and_takes_less_memory():
    """Under the trace of the step the batch is still worked on in parts: the compiler counts fewer
    temporaries than for the whole.
    """
    w, (x, y) = jnp.float32(W), batch(4096)

    def wide(
        w: Float[Array, "i o"], x: Float[Array, "batch i"], y: Float[Array, "batch o"]
    ) -> Float[Array, ""]:
        deep = jnp.sin(jnp.outer(jnp.ones(64, w.dtype), (x @ w)[:, 0]).T)
        return jnp.mean((jnp.cos(deep).sum(1, keepdims=True) - y) ** 2)

    accumulated = accumulate(wide, axis="batch", microbatch=256, wrt="w")

    def step(w, x, y):
        return w - 0.1 * accumulated(w, x, y)[1]

    def plain(w, x, y):
        return w - 0.1 * jax.grad(wide)(w, x, y)

    ours, theirs = (jax.jit(f).lower(w, x, y).compile() for f in (step, plain))
    np.testing.assert_allclose(
        optimize(donate="w")(step)(w + 0, x, y), theirs(w, x, y), rtol=1e-4, atol=1e-5
    )
    bytes_of = [f.memory_analysis().temp_size_in_bytes for f in (ours, theirs)]
    assert bytes_of[0] < bytes_of[1] / 2
    assert loops(step, w, x, y) == 1


def test_a_weighted_mean_is_a_mean():
    """Its gradient waits for the sum of the weights, so it takes two passes, and the plan says
    so.
    """

    def weighted(
        w: Float[Array, "i"], x: Float[Array, "batch i"], m: Int[Array, "batch"]
    ) -> Float[Array, ""]:
        return jnp.sum(jnp.sin(x @ w) * m.astype(w.dtype)) / jnp.sum(m).astype(w.dtype)

    f = accumulate(weighted, axis="batch", microbatch=3, wrt="w")
    w, x, m = W[:, 0], batch(8)[0], np.array([1, 0, 1, 1, 0, 1, 1, 2])
    _, grad = f(jnp.float32(w), x, m)
    np.testing.assert_allclose(
        grad, (np.cos(x @ w) * m) @ x.astype(np.float64) / m.sum(), rtol=1e-4, atol=1e-6
    )
    why = {d["name"]: d["why"] for d in f.plan(jnp.float32(w), x, m).to_dict()["decisions"]}
    assert "accumulated over microbatches of 3" in why["chunk"]
    assert why["passes"].startswith("2 over the data")


@pytest.mark.rest
def test_cross_entropy_with_labels_is_accumulated():
    """The gradient writes each label's element into a row of its own."""

    def loss(
        w: Float[Array, "i o"], x: Float[Array, "batch i"], labels: Int[Array, "batch"]
    ) -> Float[Array, ""]:
        return -jnp.mean(
            jnp.take_along_axis(jax.nn.log_softmax(x @ w), labels[:, None], axis=1)
            + (x @ w)[:, 0][:, None]
        )

    x, labels = batch(9)[0], np.array([0, 1, 1, 0, 1, 0, 0, 1, 1])
    _, grad = accumulate(loss, axis="batch", microbatch=4, wrt="w")(jnp.float32(W), x, labels)
    z = np.exp(x @ W)
    expected = x.T @ (z / z.sum(1, keepdims=True) - np.eye(2)[labels] - [1, 0]) / 9
    np.testing.assert_allclose(grad, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (lambda z: jnp.max(z), r"test_accumulate\.py:\d+ .*not a sum along it: reduced, max"),
        (
            lambda z: jnp.std(z),
            (
                r"test_accumulate\.py:\d+ .*makes a statistic of the whole of it.* wait for one"
                r" another, 2 levels"
            ),
        ),
        (lambda z: jnp.sum(jnp.sort(z)), r"test_accumulate\.py:\d+ .*sort"),
        (lambda z: jnp.sum(jnp.cumsum(z)), "cumulative sum"),
    ],
    ids=["max", "std", "sort", "cumsum"],
)
def test_what_is_no_sum_is_refused_with_its_line(body, says):
    """The message says what the loss does along the axis."""

    def loss(w: Float[Array, ""], x: Float[Array, "batch"]) -> Float[Array, ""]:
        return body(w * x)

    with pytest.raises(AxisError, match=says):
        accumulate(loss, axis="batch", microbatch=4, wrt="w")(jnp.float32(1), jnp.arange(9.0))


def test_the_rest_of_a_loss_comes_out_whole():
    """Arrays with the axis are concatenated, sums are added up, and what is not an array passes."""

    def loss(w: Float[Array, "i"], x: Float[Array, "batch i"]):
        z = jnp.sin(x @ w)
        return jnp.mean(z), {"each": z, "total": z.sum(), "name": "sine"}

    x = batch(7)[0]
    (value, aux), grad = accumulate(loss, axis="batch", microbatch=3, wrt="w", has_aux=True)(
        jnp.float32(W[:, 0]), x
    )
    z = np.sin(x @ W[:, 0])
    np.testing.assert_allclose(aux["each"], z, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose((value, aux["total"]), (z.mean(), z.sum()), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(grad, np.cos(x @ W[:, 0]) @ x / 7, rtol=1e-4, atol=1e-6)
    assert aux["name"] == "sine"


def test_one_thing_for_two_is_an_error():
    """With has_aux=True."""
    with pytest.raises(DerivativeError, match="returns two things"):
        accumulate(error, axis="batch", microbatch=3, has_aux=True)(jnp.float32(W), *batch(7))


@pytest.mark.parametrize(
    ("options", "keywords", "says"),
    [
        ({}, {"axis": "rows"}, "axis='rows' is not an axis"),
        ({"vmap": "one"}, {"axis": "one"}, "that of `vmap`"),
        ({}, {"microbatch": 0}, "not a number of elements"),
        ({}, {"microbatch": True}, "not a number of elements"),
        ({}, {"has_aux": 1}, "neither True nor False"),
        ({"pad": {"batch": "pow2"}}, {}, "the loss has `pad`"),
        ({"chunk": {"batch": 4}}, {}, "the loss has `chunk`"),
        ({"memory": "1GiB"}, {}, "the loss has `memory`"),
        ({"static": "w"}, {"wrt": "w"}, "'w' is static"),
    ],
    ids=str,
)
def test_what_contradicts_itself_is_refused_at_once(options, keywords, says):
    """Before anything is called."""
    with pytest.raises(OptionError, match=says):
        accumulate(optimize(**options)(error), **{"axis": "batch", "microbatch": 4, **keywords})


def test_accumulate_is_no_option_of_optimize():
    """It has an entry of its own."""
    with pytest.raises(OptionError, match="unknown option 'accumulate'"):
        optimize(accumulate=True)
