"""The effect of rounding on the results of a program: the same program, with the last bit of all
its values changed at random.

Where results of two evaluation orders differ, it separates honest rounding from a wrong number:
sums that cancel and softmaxes that are nearly one-hot move as much when their last bits do. It is
the Monte Carlo arithmetic of Parker (1997), one operation at a time; for a loop, its operands and
its results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import jax
import jax.numpy as jnp

from .._jax.programs.evaluation import CallStack, without_calls
from .._jax.programs.jaxprs import rebind, runs
from .._jax.programs.primitives import PRODUCTS, UNROUNDED
from .._jax.typed import Array, JaxprEqn

_EXACT: Final = UNROUNDED | {
    "complex",
    "conj",
    "convert_element_type",
    "imag",
    "real",
    "scatter",
    "stop_gradient",
    "top_k",
}


def noisy(
    closed: object,
    products: float,
    others: float,
) -> Callable[..., list[Array]]:
    """Return a program as a function of a random key and its arguments.

    Args:
        closed: The program.
        products: Relative rounding of products in low dtypes, and of the arguments. The last bit is
            changed at least.
        others: The same, for all other operations.
    """

    def run(key: jax.Array, *arrays: Array) -> list[Array]:
        noise = _Noise(key, products, others)
        changed = [noise.on(array, products) for array in arrays]
        return without_calls(closed, changed, noise.results, runs)

    return run


class _Noise:
    def __init__(
        self,
        key: jax.Array,
        products: float,
        others: float,
    ):
        self.key = key
        self.products, self.others = products, others
        self.count = 0

    def on(self, array: Array, size: float) -> Array:
        """Return an array with each element changed by its last bit, or by `size` if that is
        more.
        """
        dtype = getattr(array, "dtype", None)
        if dtype is None or not jnp.issubdtype(dtype, jnp.inexact):
            return array
        self.count += 1
        size = max(size, float(jnp.finfo(dtype).eps))
        # Up or down at random, independently in each element and at each place in the program.
        key = jax.random.fold_in(self.key, self.count)
        is_up = jax.random.bernoulli(key, shape=array.shape)
        up = jnp.asarray(1 + size, dtype)
        down = jnp.asarray(1 - size, dtype)
        return array * jnp.where(is_up, up, down)

    def results(
        self,
        eqn: JaxprEqn,
        operands: list[Array],
        _: CallStack,
    ) -> list[Array]:
        """Return the results of an operation, changed."""
        out, name = rebind(eqn, operands), eqn.primitive.name
        if name in _EXACT:
            return out
        size = self.products if name in PRODUCTS else self.others
        return [self.on(x, size) for x in out]
