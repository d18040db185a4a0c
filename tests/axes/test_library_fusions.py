"""Padded to thousands of elements, operations beside a reduction have the values of a few.

XLA for CPUs computes these in a library from 4,096 elements on, and otherwise below that.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jaxtyping import Array, Shaped

from jitney import optimize

pytestmark = pytest.mark.real_xla
Rows = Shaped[Array, "n 8"]
BUCKET = 5000
NAN = np.full((3, 8), np.nan, np.float32)
HALVES = (np.arange(24).reshape(3, 8) % 7 / 2 - 1.25).astype(np.float32)
BYTES = (np.arange(24).reshape(3, 8) * 37 % 256).astype(np.uint8)


def padded(body, x):
    return np.asarray(optimize(pad={"n": [BUCKET]})(body)(x))


def relu_then_sum(x: Rows):
    return jnp.sum(jnp.maximum(x, 0), axis=1)


def sum_then_relu(x: Rows):
    return jnp.maximum(jnp.sum(x, axis=1), 0)


def least_of_two(x: Rows):
    return jnp.sum(jnp.minimum(jnp.ones_like(x), x), axis=1)


def network(x: Rows):
    return jnp.sum(jax.nn.relu(x @ jnp.ones((8, 16), x.dtype)), axis=1)


def pooled(x: Rows):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2), (1, 2), "VALID")


def pooled_rows(x: Rows):
    return lax.reduce_window(x, jnp.inf, lax.min, (3, 1), (3, 1), "VALID")


@pytest.mark.parametrize(
    "body", [relu_then_sum, sum_then_relu, least_of_two, network, pooled, pooled_rows]
)
def test_a_nan_is_kept(body):
    """Through an extreme of two values, before and behind a sum, and through pooling."""
    out = padded(body, NAN)
    assert out.size
    assert np.isnan(out).all()


@pytest.mark.parametrize("body", [relu_then_sum, least_of_two])
def test_numbers_beside_a_nan_are_as_ever(body):
    """A row without a NaN has the sum of NumPy's extremes."""
    x = HALVES.copy()
    x[1, 3] = np.nan
    kept = np.maximum(x, 0) if body is relu_then_sum else np.minimum(1, x)
    np.testing.assert_array_equal(padded(body, x), kept.sum(axis=1))


def whole(x: Rows):
    return jnp.sum(x.astype(jnp.int8).astype(jnp.float32), axis=1)


def whole_behind(x: Rows):
    return jnp.sum(x, axis=1).astype(jnp.int8)


def test_a_conversion_to_int8_truncates():
    """Before a sum and behind it."""
    x = HALVES * np.float32(1.3)
    np.testing.assert_array_equal(padded(whole, x), np.trunc(x).sum(axis=1))
    np.testing.assert_array_equal(padded(whole_behind, x), np.trunc(x.sum(axis=1)).astype(np.int8))


def rounded(x: Rows):
    return jnp.sum(x.astype(jnp.bfloat16).astype(jnp.float32), axis=1)


def test_a_conversion_to_bfloat16_rounds():
    """1 + 2**-9 is 1 there, and 1 + 3 * 2**-8 is 1 + 2**-6."""
    x = np.tile(np.float32([1 + 2**-9, 1 + 3 * 2**-8]), (3, 4))
    np.testing.assert_array_equal(padded(rounded, x), np.full(3, 8 + 4 * 2**-6, np.float32))


def plus(x):
    return x + x


def times(x):
    return x * x


def quotient(x):
    return lax.div(x, jnp.full_like(x, 3))


def negative(x):
    return -x


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("made", [plus, times, quotient, negative])
def test_bytes_wrap(made, dtype):
    """As NumPy's do; a quotient has no fraction."""

    def summed(x: Rows):
        return jnp.sum(made(x).astype(jnp.float32), axis=1)

    x = BYTES.view(dtype)
    wide = x.astype(np.int64)
    expected = {
        plus: wide + wide,
        times: wide * wide,
        quotient: np.trunc(wide / 3).astype(np.int64),
        negative: -wide,
    }[made]
    np.testing.assert_array_equal(padded(summed, x), expected.astype(dtype).sum(axis=1))


def other_sign(x: Rows):
    return jnp.sum(x.astype(jnp.int8).astype(jnp.float32), axis=1)


def test_bytes_of_another_sign_wrap():
    """A uint8 above 127 is negative as an int8."""
    np.testing.assert_array_equal(padded(other_sign, BYTES), BYTES.view(np.int8).sum(axis=1))


def doubled_exponential(x: Rows):
    return jnp.sum(jnp.exp(x * 2), axis=1)


def powers(x: Rows):
    return jnp.sum(jnp.exp2(x), axis=1)


@pytest.mark.parametrize(("body", "base"), [(doubled_exponential, np.e**2), (powers, 2.0)])
def test_exponentials_of_bfloat16_stay_in_their_rows(body, base):
    """Rows that differ by powers of two have sums far apart."""
    x = np.tile(np.float32([[0.0], [2.0], [5.0]]), (1, 8))
    out = padded(body, jnp.asarray(x, jnp.bfloat16)).astype(np.float64)
    np.testing.assert_allclose(out, 8 * base ** x[:, 0].astype(np.float64), rtol=0.05)


def test_gradients_of_extremes_are_as_ever():
    """Of a sum of relus: 1 where the element is positive, else 0; by JAX around it."""
    f = optimize(pad={"n": [BUCKET]})(relu_then_sum)
    grad = jax.grad(lambda x: jnp.sum(f(x)))(HALVES)
    np.testing.assert_array_equal(grad, HALVES > 0)
