"""Arrays for the top of a test file: made by NumPy and put on the device.

`jnp.ones` and its kin compile a program each, and who collects the tests would wait for hundreds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import numpy as np

Module = TypeVar("Module", bound=eqx.Module)


def array(values: Any, dtype: Any = None) -> jax.Array:
    """An array as `jnp.asarray(values, dtype)` makes it, of a strong type."""
    return jax.device_put(np.asarray(values, dtype))


def weak(number: complex) -> jax.Array:
    """An array as `jnp.asarray` makes it of a Python number, of a weak type."""
    return jax.device_put(number)


def random_key(seed: int) -> jax.Array:
    """The key that `jax.random.key(seed)` makes under JAX's default of its options."""
    return jax.random.wrap_key_data(np.uint32([0, seed]))


def filled(make: Callable[[], Module], seed: int = 0) -> Module:
    """The module that `make` makes, with other numbers in its arrays."""
    rng = np.random.default_rng(seed)

    def draw(leaf: Any) -> Any:
        if not isinstance(leaf, jax.ShapeDtypeStruct):
            return leaf
        return array(rng.uniform(-0.5, 0.5, leaf.shape), leaf.dtype)

    return jax.tree.map(draw, eqx.filter_eval_shape(make))
