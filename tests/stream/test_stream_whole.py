"""`jitney.stream` of what is done at once, finds a few elements, or goes along the axis in both
directions.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from jitney import JitneyError, optimize, stream
from jitney.errors import AxisError

X = np.random.default_rng(0).normal(size=(23, 3)).astype(np.float32)
X[3, 1] = X[7, 1] = 0.5
W = np.random.default_rng(1).normal(size=(3, 3)).astype(np.float32)


def summary(x: Float[Array, "n k"]):
    """Quartiles, the largest few of a column and where they are, elements at positions, and all of
    it in order.
    """
    few = jax.lax.top_k(x[:, 1], 4)
    return (
        jnp.quantile(x, jnp.array([0.25, 0.5]), axis=0),
        few,
        x[-1],
        x[jnp.array([0, 22, 5])],
        jnp.sort(x, 0),
        x - x[::-1],
    )


def loss(w: Float[Array, "k k"], x: Float[Array, "n k"]) -> Float[Array, ""]:
    """Of a loop along the axis."""

    def step(h, a):
        h = jnp.tanh(h @ w + a)
        return h, h

    return jnp.mean((jax.lax.scan(step, jnp.zeros(3, x.dtype), x)[1] - 0.3) ** 2)


@pytest.mark.core("5")
@pytest.mark.parametrize("chunk", [5, 22])
def test_orders_and_places_are_those_of_one_call(chunk):
    value, stats = stream(optimize(summary), X, chunk={"n": chunk}, progress=False)
    for got, want in zip(jax.tree.leaves(value), jax.tree.leaves(jax.jit(summary)(X)), strict=True):
        np.testing.assert_array_equal(got, want)
    assert stats.passes <= 3


def found(x: Float[Array, "n k"]):
    """The largest of a column, and one element."""
    return jax.lax.top_k(x[:, 1], 2), x[5]


def test_a_width_that_is_chosen_goes_with_elements_that_are_found():
    """The choice counts the bytes that are carried, of these too."""
    value, _ = stream(optimize(found), X, chunk={"n": "auto"}, progress=False)
    for got, want in zip(jax.tree.leaves(value), jax.tree.leaves(found(X)), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.rest
def test_backpropagation_through_a_loop_along_the_axis():
    """Forward from the first chunk, back from the last one."""
    program = optimize(loss).value_and_grad
    value, stats = stream(program, w=W, x=X, chunk={"n": 5}, progress=False)
    for got, want in zip(
        jax.tree.leaves(value), jax.tree.leaves(jax.value_and_grad(loss, (0, 1))(W, X)), strict=True
    ):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-7)
    assert stats.passes == 2


@pytest.mark.core("1KiB-True")
@pytest.mark.parametrize(("memory", "refused"), [("1KiB", True), ("1MiB", False)])
def test_the_whole_is_held_where_memory_allows(memory, refused):
    """A stream is of any length: a quantile needs all of it."""

    @optimize(memory=memory)
    def median(x: Float[Array, "n k"]) -> Float[Array, "k"]:
        return jnp.median(x, 0)

    data = np.random.default_rng(0).normal(size=(1001, 3)).astype(np.float32)
    if refused:
        with pytest.raises(
            AxisError, match=r"median\) needs all of it at once \(`sort`\), .* of 1 KiB"
        ):
            stream(median, data, chunk={"n": 100}, progress=False)
    else:
        np.testing.assert_array_equal(
            stream(median, data, chunk={"n": 100}, progress=False).result, np.median(data, 0)
        )


@optimize
def middle(x: Float[Array, "n k"]) -> Float[Array, "k"]:
    return jnp.median(x, 0)


@pytest.mark.core("middle-*")
@pytest.mark.parametrize(
    ("program", "data", "what"),
    [
        (optimize(loss).grad, {"w": W, "x": X}, "goes through all of it in both directions"),
        (middle, {"x": X}, "collects all of it"),
    ],
)
def test_what_lies_in_memory_has_no_checkpoint(program, data, what, tmp_path):
    """It keeps what is accumulated only."""
    with pytest.raises(JitneyError, match=what):
        stream(program, **data, chunk={"n": 5}, checkpoint=tmp_path / "a", progress=False)
