"""Types of JAX, for annotations.

JAX leaves some of its types without a public name, and others are unions that each module would
have to write anew:

    def transfer(eqn: JaxprEqn, operands: Sequence[jax.Array]) -> list[jax.Array]
    def placed(arrays: Sequence[Array]) -> list[jax.Array]
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Var

DType = np.dtype[Any]
"""A dtype of NumPy, of those that JAX adds to it, or of random keys."""
NumPyArray = np.ndarray[Any, np.dtype[Any]]
Array = jax.Array | NumPyArray
"""An array that a call may hold: on a device, traced, or on the host."""
Aval = ShapedArray
"""The abstract value of a variable: its shape, dtype and weak type."""
Atom = Var | Literal
"""An operand of an equation."""
AnyJaxpr = Jaxpr | ClosedJaxpr
"""A program, with or without its constants."""
