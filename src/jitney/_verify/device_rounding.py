"""How the matrix units of a device round the factors of products in float32.

A product whose precision nobody set is computed in TensorFloat-32 on a GPU (10 bits of mantissa)
and in bfloat16 on a TPU, and which of them depends on what XLA fuses: two programs of one function
differ by that rounding. Seen on an H100 (jax 0.11.2): gradients of a chunked loss were 4e-4 apart.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
from jax.core import Tracer

from .._jax.programs.jaxprs import equations
from .._jax.programs.primitives import PRODUCTS

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
