"""The derivative that an outer `jax.grad` takes of a padded program is traced from the programs of
its body.
"""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney
from tests._tracing import count_traces

W = jnp.linspace(0.2, 0.8, 3)


def rows(n):
    return np.random.default_rng(n).normal(size=(n, 3)).astype(np.float32)


def smooth(w: Float[Array, "k"], x: Float[Array, "n k"]) -> Float[Array, ""]:
    h = jnp.tanh(x @ w)
    return jnp.mean(h**2) + jax.nn.logsumexp(h)


def looped(w: Float[Array, "k"], x: Float[Array, "n k"]) -> Float[Array, ""]:
    """With rules of JAX's own, a loop along the axis, and a checkpoint."""
    h = jax.checkpoint(lambda w: jax.nn.relu(x @ w))(w)
    _, seen = jax.lax.scan(lambda c, a: (jnp.sin(c) + a, c * a), 0.0 * w[0], h)
    return jnp.sum(seen)


def of_size(w: Float[Array, "k"], x: Float[Array, "n k"]) -> Float[Array, ""]:
    """Python computes a number of the size: such a body has to run for each."""
    return jnp.sum(x @ w) / (len(x) * 0.1 + 1)


def solved(w: Float[Array, "k"], x: Float[Array, "n k"]) -> Float[Array, ""]:
    """A factorisation along the axis."""
    covariance = jnp.exp(-(((x @ w)[:, None] - x @ w) ** 2)) + jnp.eye(len(x))
    return jnp.sum(jnp.log(jnp.diag(jnp.linalg.cholesky(covariance))))


@pytest.mark.parametrize("body", [smooth, looped, of_size, solved])
def test_gradients_are_those_at_exact_size(body):
    """At two sizes of a bucket."""
    padded = jitney.optimize(pad={"n": "pow2"})(body)
    for n in (5, 7):
        np.testing.assert_allclose(
            jax.grad(padded)(W, rows(n)), jax.grad(body)(W, rows(n)), rtol=2e-5, atol=1e-6
        )


def test_a_body_does_not_run_again_for_its_derivative():
    """It runs with a symbol and at the size of the first call; its derivative runs neither."""
    body = count_traces(smooth)
    step = jax.grad(jitney.optimize(pad={"n": "pow2"})(body))
    step(W, rows(5))
    assert body.traces == 2


def test_a_rule_that_looks_at_a_size_is_found_in_the_derivative():
    """A rule of derivatives runs where JAX differentiates the programs, and is compared there."""

    @jax.custom_jvp
    def doubled(h):
        return 2 * h

    @doubled.defjvp
    def _(primals, tangents):
        odd = isinstance(primals[0].shape[0], int) and primals[0].shape[0] % 2 == 1
        return doubled(primals[0]), (3 if odd else 2) * tangents[0]

    def body(w: Float[Array, "k"], x: Float[Array, "n k"]) -> Float[Array, ""]:
        return jnp.sum(doubled(x @ w))

    padded = jitney.optimize(pad={"n": "pow2"})(body)
    for n in (5, 6, 7):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", jitney.JitneyWarning)
            found = jax.grad(padded)(W, rows(n))
        np.testing.assert_allclose(found, jax.grad(body)(W, rows(n)), rtol=1e-5)
