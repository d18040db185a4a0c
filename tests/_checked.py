"""Functions with run-time checks of Equinox, and what they are called with."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from tests._arrays import array

X = array(np.arange(1.0, 9.0, dtype=np.float32))
V = Float[Array, "n"]


def positive(x: V) -> V:
    return jnp.sqrt(eqx.error_if(x * 2, jnp.any(x < 0), "must not be negative")) + 1


def total(x: V) -> Float[Array, ""]:
    return positive(x).sum()
