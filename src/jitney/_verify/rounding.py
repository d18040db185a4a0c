"""By how much two programs of one function may differ in rounding.

Not at all where each operation on the way treats every element alone, or only moves it. Such
results are promised to the bit under `pad`: the operations and the numbers are the same, in
whatever shape. Numbers that are computed from no argument are another matter, as in `x *
jnp.linspace(0.3, 1.7, len(x))`: XLA folds them while it compiles for one size, and in a padded
program fuses their products and sums at run time.

By the matrix units of a device. A product whose precision nobody set is computed in TensorFloat-32
on a GPU (10 bits of mantissa) and in bfloat16 on a TPU, and which of them depends on what XLA
fuses: two programs of one function differ by that rounding. Seen on an H100 (jax 0.11.2): gradients
of a chunked loss were 4e-4 apart.

Otherwise as far as the results move with the last bit of all values changed at random. Where
results of two evaluation orders differ, this separates honest rounding from a wrong number: sums
that cancel and softmaxes that are nearly one-hot move as much when their last bits do. It is the
Monte Carlo arithmetic of Parker (1997), one operation at a time; for a loop, its operands and its
results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from .._jax.programs.evaluation import CallStack, without_calls
from .._jax.programs.jaxprs import equations, open_jaxpr, rebind, runs
from .._jax.programs.primitives import ARITHMETIC, LOGIC, PRODUCTS, REARRANGED, UNROUNDED
from .._jax.trees import issubdtype
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


_ALONE: Final = ARITHMETIC | LOGIC
_MOVED: Final = REARRANGED | {"iota"}


class _Reads(Enum):
    """Ingredients of a value, as far as rounding goes."""

    NO_ARGUMENT = "literals, constants and positions, unrounded"
    ELEMENTS = "elements of the arguments, each alone"
    MORE = "several elements, or arithmetic of no argument"


def elementwise(closed: object) -> list[bool]:
    """Return for each result of a program whether it is elementwise."""
    program, _ = open_jaxpr(closed)
    # A forward analysis.
    reads = without_calls(
        closed,
        [_Reads.ELEMENTS] * len(program.invars),
        _results,
        runs,
        constant=_no_argument,
    )
    return [each is not _Reads.MORE for each in reads]


def _results(
    eqn: JaxprEqn,
    inside: Sequence[_Reads],
    _: CallStack,
) -> Sequence[_Reads]:
    name = eqn.primitive.name
    if _Reads.MORE in inside or not (name in _ALONE or name in _MOVED):
        reads = _Reads.MORE
    elif _Reads.ELEMENTS in inside:
        reads = _Reads.ELEMENTS
    else:
        reads = _Reads.MORE if _rounds(eqn) else _Reads.NO_ARGUMENT
    return [reads] * len(eqn.outvars)


def _rounds(eqn: JaxprEqn) -> bool:
    """Return whether an operation may round."""
    is_exact = eqn.primitive.name in LOGIC | _EXACT
    return not is_exact and any(issubdtype(out.aval.dtype, np.inexact) for out in eqn.outvars)


def _no_argument(
    _value: object,
    _aval: object,
    _eqn: object,
) -> _Reads:
    return _Reads.NO_ARGUMENT


_UNITS = {"gpu": "precision=tf32", "tpu": "precision=bf16"}
"""The option that rounds products likewise, by `Device.platform`. "gpu" is AMD's too, whose units
may not round.
"""
_SINGLE = ("float32", "complex64")
_DEFAULT = (None, jax.lax.Precision.DEFAULT)


def rounded_products(closed: object, platform: str) -> str | None:
    """Return the option that rounds as the device does where it runs this program; None if it
    rounds nothing.

    Args:
        closed: The program, a jaxpr.
        platform: `Device.platform` of what runs it.
    """
    option = _UNITS.get(platform)
    if option is None:
        return None
    for eqn in equations(closed):
        if eqn.primitive.name not in PRODUCTS:
            continue
        single = all(str(atom.aval.dtype) in _SINGLE for atom in eqn.invars[:2])
        asked = eqn.params.get("precision")
        sides = asked if isinstance(asked, tuple) else (asked,)
        if single and any(side in _DEFAULT for side in sides):
            return option
    return None


def platform_of(arrays: Sequence[object]) -> str:
    """Return the platform that runs a call of these arrays."""
    for array in arrays:
        if isinstance(array, jax.Array) and not isinstance(array, Tracer):
            return next(iter(array.devices())).platform
    return jax.local_devices()[0].platform
