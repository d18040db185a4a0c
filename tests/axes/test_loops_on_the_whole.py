"""Loops along the cut axis whose turns read other elements of it, and loops that read it at places
that they compute, in chunks and in streams: they run at once on the whole axis, as in plain JAX.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from jitney import optimize, stream
from jitney.errors import AxisError

N = 19
Vector = Float[Array, "n"]
Q = np.array([0.4, 0.7, 0.2], np.float32)
X = np.sort(np.random.default_rng(3).uniform(size=N)).astype(np.float32)
Y = np.random.default_rng(4).normal(size=N).astype(np.float32)


def filtered(q, x, y):
    """A filter that reads its data by the number of the turn."""

    def step(mean, t):
        mean = q[0] * mean + x[t] * y[t]
        return mean, mean**2

    last, means = jax.lax.scan(step, jnp.zeros((), x.dtype), jnp.arange(len(x)))
    return means + last


def smoothed(q, x, y):
    """From the end, reading the neighbour."""
    n = len(x)

    def step(mean, turn):
        t, value = turn
        mean = q[1] * mean + value * y[(t + 1) % n]
        return mean, mean * x[t]

    start = jnp.zeros((), x.dtype)
    return jax.lax.scan(step, start, (jnp.arange(n), x), reverse=True)[1] * y


def written(q, x, y):
    """Each element is made of the one before, in place."""

    def step(rows, t):
        return rows.at[t].set(q[0] * y[t] + rows[t - 1]), None

    return jnp.tanh(jax.lax.scan(step, jnp.zeros_like(x), jnp.arange(len(x)))[0])


def beside_the_largest(q, x, y):
    """Reads what is made of the whole in each turn."""

    def step(total, value):
        return total + jnp.tanh(value * jnp.max(y * x)), None

    return x * jax.lax.scan(step, q[0], q[1] * x)[0]


def of_several(q, x, y):
    """Under `vmap`."""

    def one(rate):
        step = lambda c, t: (c * rate + x[t] * y[t], None)
        return jax.lax.scan(step, rate, jnp.arange(len(x)))[0]

    return y * jnp.sum(jax.vmap(one)(q))


def interpolated(q, x, y):
    """A binary search through the data."""
    return y * jnp.sum(jnp.interp(q, x, y))


def windows(q, x, y):
    products = x * y

    def step(total, start):
        window = jax.lax.dynamic_slice(products, (start,), (3,))
        return total + jnp.sum(window) * q[1], None

    return y * jax.lax.scan(step, q[0], jnp.array([0, 7, 3, 30]))[0]


BODIES = (filtered, smoothed, written, beside_the_largest, of_several, interpolated, windows)


def declared(body):
    def f(q: Float[Array, "k"], x: Vector, y: Vector) -> Vector:
        return body(q, x, y)

    return f


def loss_of(body):
    def f(q: Float[Array, "k"], x: Vector, y: Vector) -> Float[Array, ""]:
        return jnp.sum(jnp.sin(body(q, x, y)))

    return f


def assert_alike(got, want):
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


@pytest.mark.core("filtered-*", "interpolated-*")
@pytest.mark.parametrize("is_streamed", [False, True], ids=["chunk", "stream"])
@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_the_result_and_gradient_are_those_of_plain_jax(body, is_streamed):
    options = {} if is_streamed else {"chunk": {"n": 4}}

    def run(program):
        if is_streamed:
            return stream(program, Q, X, Y, chunk={"n": 4}, progress=False).result
        return program(Q, X, Y)

    assert_alike(run(optimize(declared(body), **options)), jax.jit(body)(Q, X, Y))
    if body is windows and is_streamed:
        return  # its derivative writes along the axis in each turn
    program = optimize(loss_of(body), **options).value_and_grad.program(wrt=("q", "x", "y"))
    value, slopes = run(program)
    want = jax.jit(jax.value_and_grad(loss_of(body), (0, 1, 2)))(Q, X, Y)
    assert_alike((value, [slopes[name] for name in "qxy"]), want)


def test_a_loop_that_makes_more_than_it_reads_is_refused():
    """A matrix of all pairs in each turn is what a chunk saves."""

    @optimize(chunk={"n": 4})
    def f(x: Vector) -> Float[Array, ""]:
        return jax.lax.scan(lambda c, v: (c + jnp.sum(jnp.outer(x, x) * v), None), 0.0, x)[0]

    with pytest.raises(AxisError, match="a loop over it"):
        f(X)


def test_a_stream_holds_such_a_loops_operands_where_memory_allows():
    @optimize(memory="1KiB")
    def f(x: Vector, y: Vector) -> Vector:
        return declared(filtered)(Q, x, y)

    x, y = np.ones((2, 1001), np.float32)
    with pytest.raises(AxisError, match=r"needs all of it at once \(`jax.lax.scan`\), .* of 1 KiB"):
        stream(f, x, y, chunk={"n": 100}, progress=False)


def test_a_binary_search_is_padded():
    """Its number of turns is a number of the size, and JAX 0.12 makes its loop only where it is
    compiled.
    """
    program = optimize(pad={"n": "pow2"})(declared(interpolated))
    for size in (19, 26, 31):
        x = np.linspace(0, 1, size, dtype=np.float32)
        y = np.cos(3 * x)
        np.testing.assert_allclose(program(Q, x, y), y * np.interp(Q, x, y).sum(), rtol=1e-5)
    assert program.stats.compiles == 1
