"""Sorts that leave the order of ties to XLA, where it changes with the size. Reference: plain
JAX at exact size.
"""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney
from jitney.errors import PaddingWarning

REFUSED = {
    "positions": lambda x: jnp.argsort(x, stable=False),
    "derivative": jax.grad(lambda x: jnp.sum(jnp.sort(x, stable=False)[:9])),
}
PADDED = {
    "integers alone": lambda x: jnp.sort(x.astype(np.int32), stable=False),
    "two keys, all of them": lambda x: jax.lax.sort(
        (x.astype(np.int32), jnp.arange(len(x))), num_keys=2, is_stable=False
    ),
    "a stable one": jnp.argsort,
    "numbers alone": lambda x: jnp.sort(x, stable=False),
    "the median": jnp.median,
}


def ties():
    return np.random.default_rng(1).choice([-1.0, -0.0, 0.0, 1.0], 40).astype(np.float32)


def program(body):
    def ordered(x: Float[Array, "n"]):
        return body(x)

    return jitney.optimize(pad={"n": "pow2"})(ordered)


@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED)
def test_a_sort_whose_order_of_ties_is_seen_runs_exact(body):
    """And names the line."""
    with pytest.warns(PaddingWarning, match="sorts it with no order of ties"):
        got = program(body)(ties())
    np.testing.assert_array_equal(got, jax.jit(body)(ties()))


@pytest.mark.parametrize("body", PADDED.values(), ids=PADDED)
def test_other_sorts_are_padded(body):
    """Stable ones, and those of keys alone: ties are equal, but for the signs of zeros."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", PaddingWarning)
        got = program(body)(ties())
    jax.tree.map(np.testing.assert_array_equal, got, jax.jit(body)(ties()))
