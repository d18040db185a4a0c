"""Types of JAX for annotations, which `typed.pyi` spells out for the checker.

JAX leaves the fields of its jaxprs without types, and others of its types without a public name:

    def transfer(eqn: JaxprEqn, operands: Sequence[jax.Array]) -> list[jax.Array]
    def placed(arrays: Sequence[Array]) -> list[jax.Array]
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.core import ShapedArray as Aval
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Primitive, Var
from jax.sharding import AbstractMesh, Mesh
from jax.stages import Wrapped as Jitted
from jax.tree_util import PyTreeDef

__all__ = [
    "AnyJaxpr",
    "AnyMesh",
    "Array",
    "Atom",
    "Aval",
    "ClosedJaxpr",
    "DType",
    "Jaxpr",
    "JaxprEqn",
    "Jitted",
    "Literal",
    "NumPyArray",
    "Primitive",
    "PyTreeDef",
    "Value",
    "Values",
    "Var",
]
DType = np.dtype[Any]
"""A dtype of NumPy, of those that JAX adds to it, or of random keys."""
NumPyArray = np.ndarray[Any, np.dtype[Any]]
Array = jax.Array | NumPyArray
"""An array that a call may hold: on a device, traced, or on the host."""
Value = Any
"""A tracer or a constant of a program, or a part of a traced one: a variable, a parameter."""
Values = list[jax.Array]
"""The operands or the results of an equation, in order."""
Atom = Var | Literal
"""An operand of an equation."""
AnyJaxpr = Jaxpr | ClosedJaxpr
"""A program, with or without its constants."""
AnyMesh = Mesh | AbstractMesh
"""A mesh of devices, or one of sizes alone."""
