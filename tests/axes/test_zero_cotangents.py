"""Behind the true size cotangents are zero, and 0 * inf is NaN: in the derivative of a padded
program they meet neither the infinite derivative of an iteration of padding nor an infinite factor.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney

INF = np.float32(np.inf)


def padded(fn):
    return jitney.optimize(fn, pad={"n": [8]})


def positive(seed, *shape):
    return (1 + np.random.default_rng(seed).random(shape)).astype(np.float32)


def of_padding(w: Float[Array, ""], x: Float[Array, "n"]) -> Float[Array, ""]:
    """The padding of x is 1 in a derivative, where this root has none."""
    return jax.lax.scan(lambda c, x: (c + jnp.sqrt(w * (x - 1)), None), w, x)[0]


def of_the_last_carry(w: Float[Array, ""], x: Float[Array, "n"]) -> Float[Array, ""]:
    """The carry ends at 0, where an iteration of padding takes the root."""

    def turn(c, x):
        return jnp.where(c > 0.5, c - x / x, jnp.sqrt(c)), None

    return w * jax.lax.scan(turn, w + x.shape[0] - w, x)[0] + jnp.sum(x)


def from_the_end(w: Float[Array, ""], x: Float[Array, "n"]) -> Float[Array, ""]:
    return jax.lax.scan(lambda c, x: (c * jnp.sqrt(w * (x - 1)), None), w, x, reverse=True)[0]


@pytest.mark.parametrize("fn", [of_padding, of_the_last_carry, from_the_end])
@pytest.mark.parametrize("is_mapped", [False, True])
@pytest.mark.core("False-of_padding")
def test_iterations_of_padding_have_no_derivative(fn, is_mapped):
    def gradient(fn):
        if is_mapped:
            fn = jax.vmap(fn, (None, 0))
        return jax.grad(lambda w, x: jnp.sum(fn(w, x)), (0, 1))

    for n in (3, 5, 8):
        x = positive(n, 2, n) if is_mapped else positive(n, n)
        got, want = (gradient(f)(np.float32(2), x) for f in (padded(fn), jax.jit(fn)))
        for mine, theirs in zip(got, want, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-4)


def scaled(w, x, b):
    return jnp.where(x > 0, 1.0, w * x) * b[0, 0]


def divided(w, x, b):
    return jnp.where(x > 0, 1.0, w * x) / (1 / b[0, 0])


def multiplied(w, x, b):
    return (w * x)[:, None] @ b


def rows_of_a_table(w, x, b):
    return (w * jnp.arange(1.0, 10.0)[jnp.arange(x.shape[0])])[:, None] @ b


def convolved(w, x, b):
    """The batch has the axis."""
    return jax.lax.conv((w * x)[:, None, None], b[:, :, None], (1,), "VALID")


def of_a_kernel(w, x, b):
    """The features that it makes have the axis."""
    return jax.lax.conv(b[:, :, None], (w * x)[:, None, None], (1,), "VALID")


def solved(w, x, b):
    return jax.scipy.linalg.solve_triangular(1 / b, (w * x)[None, :], lower=True)


FACTORS = [scaled, divided, multiplied, rows_of_a_table, convolved, of_a_kernel, solved]


@pytest.mark.parametrize("fn", FACTORS)
@pytest.mark.core("multiplied")
def test_a_factor_without_the_axis_may_be_infinite(fn):
    def body(w: Float[Array, ""], x: Float[Array, "n"], b: Float[Array, "1 1"]):
        return jnp.sum(fn(w, x, b))

    program, plain = jax.grad(padded(body)), jax.jit(jax.grad(body))
    for n in (3, 8):
        given = np.float32(2), positive(n, n), np.full((1, 1), INF)
        np.testing.assert_array_equal(program(*given), plain(*given))


def test_a_kernel_with_the_axis_has_the_gradient_of_plain_jax():
    """The masks of its windows are made in a loop, and stay there."""

    def body(k: Float[Array, "n"], x: Float[Array, "m"]):
        high = k.shape[0] - 1
        out = jax.lax.conv_general_dilated(x[None, None], k[None, None], (1,), ((0, high),))
        return jnp.sum(out * jnp.arange(6.0))

    for n in (3, 8):
        k, x = positive(n, n), positive(0, 6)
        got, want = (jax.grad(fn, (0, 1))(k, x) for fn in (padded(body), jax.jit(body)))
        for mine, theirs in zip(got, want, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-4)


def test_two_selections_of_one_shape_share_no_mask():
    """Of `top_k`, whose program is chosen by the platform: a mask that is made there stays there.
    Outside of `jit` JAX raised an error of its own.
    """

    @padded
    def parted(x: Float[Array, "n"]):
        return jnp.partition(x, 1) * jax.lax.top_k(x, x.shape[0])[0]

    def gradient(f, x):
        return jax.grad(lambda x: jnp.sum(jnp.sin(f(x))))(x)

    x = positive(1, 5)
    want = gradient(parted.__wrapped__, x)
    np.testing.assert_allclose(gradient(parted, x), want, rtol=1e-5)
