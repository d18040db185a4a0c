"""Derivatives of max and min pooling along a padded axis. Reference: `jax.grad` at exact size."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jaxtyping import Array, Float

import jitney

Vector = Float[Array, "n"]
Number = Float[Array, ""]
WINDOWS = {
    "each": (3, 1, "VALID"),
    "apart": (2, 2, "VALID"),
    "gaps": (2, 3, "VALID"),
    "of one": (1, 2, "VALID"),
    "same": (3, 1, "SAME"),
    "padded": (3, 2, ((1, 1),)),
    "behind": (3, 3, ((0, 2),)),
}


def of(window, extreme, first):
    size, stride, padding = window

    def loss(k: Number, x: Vector) -> Number:
        pooled = lax.reduce_window(
            k * x,
            first,
            extreme,
            (size,),
            (stride,),
            padding,
        )
        return jnp.sum(pooled * jnp.cos(jnp.arange(pooled.shape[0]).astype(x.dtype)))

    return loss


def arrays(n, first):
    """Plain numbers, ties, infinities of which windows are full, and NaN at the end."""
    rng = np.random.default_rng(n)
    x = rng.normal(size=n).astype(np.float32)
    yield x
    yield np.round(x)
    yield np.where(rng.random(n) < 0.5, np.float32(first), x)
    yield np.where(np.arange(n) < n - 3, x, np.float32(np.nan))


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize(
    ("extreme", "first"),
    [(lax.max, -np.inf), (lax.min, np.inf)],
    ids=["max", "min"],
)
@pytest.mark.core("max-padded")
def test_the_derivative_of_pooling_is_that_at_exact_size(name, extreme, first):
    loss = of(WINDOWS[name], extreme, first)
    program = jitney.optimize(pad={"n": "pow2"})(loss)
    k = np.float32(1.5)
    for n in (32, 29, 17):
        for x in arrays(n, first):
            got = program.grad(k, x, wrt="x")
            want = jax.grad(loss, 1)(k, x)
            np.testing.assert_allclose(
                got,
                want,
                rtol=1e-5,
                atol=1e-6,
            )
    assert program.grad.stats.compiles == 1
