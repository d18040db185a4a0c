"""The effect of rounding on the results of a program: the same program, with the last bit of all
its values changed at random.

Where results of two evaluation orders differ, it separates honest rounding from a wrong number:
sums that cancel and softmaxes that are nearly one-hot move as much when their last bits do. It is
the Monte Carlo arithmetic of Parker (1997), one operation at a time; for a loop, its operands and
its results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp

from .._jax.evaluation import CallStack, without_calls
from .._jax.jaxprs import bound, runs
from .._jax.primitives import PRODUCTS, UNROUNDED
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


def noisy(closed: object, products: float, others: float) -> Callable[..., list[Any]]:
    """Return a program as a function of a random key and its arguments.

    Args:
        closed: The program.
        products: Relative rounding of products in low dtypes, and of the arguments. The last bit is
            changed at least.
        others: The same, for all other operations.
    """

    def run(key: Any, *arrays: object) -> list[Any]:
        noise = _Noise(key, products, others)
        return without_calls(
            closed, [noise.on(array, products) for array in arrays], noise.results, runs
        )

    return run


class _Noise:
    def __init__(self, key: Any, products: float, others: float):
        self.key = key
        self.products, self.others = products, others
        self.count = 0

    def on(self, array: Any, size: float) -> Any:
        """Return an array with each element changed by its last bit, or by `size` if that is
        more.
        """
        dtype = getattr(array, "dtype", None)
        if dtype is None or not jnp.issubdtype(dtype, jnp.inexact):
            return array
        self.count += 1
        size = max(size, float(jnp.finfo(dtype).eps))
        # Up or down at random, independently in each element and at each place in the program.
        up = jax.random.bernoulli(jax.random.fold_in(self.key, self.count), shape=array.shape)
        return array * jnp.where(up, jnp.asarray(1 + size, dtype), jnp.asarray(1 - size, dtype))

    def results(self, eqn: JaxprEqn, operands: list[Array], _: CallStack) -> list[Any]:
        """Return the results of an operation, changed."""
        out, name = bound(eqn, operands), eqn.primitive.name
        return (
            out
            if name in _EXACT
            else [self.on(x, self.products if name in PRODUCTS else self.others) for x in out]
        )
