"""Least squares and pseudo-inverses, which JAX makes of singular vectors.

Of singular vectors the signs change with the number of rows, so they are refused. In these two
functions of JAX each stands beside its partner, and the signs cancel; where singular values are
equal so do the rotations, and what belongs to a value of zero is left out. Nothing else in a
program says so: they are known by being the very programs that JAX has for them.
"""

from __future__ import annotations

from typing import Any

import jax

from ..._jax.jaxprs import called, equations, programs
from ..._jax.primitives import CALLS
from ..typed_jax import InconclusiveDimensionOperation, jnp, make_jaxpr
from ..walk import Op

_FUNCTIONS = {"_pinv": jnp.linalg.pinv, "_lstsq": jnp.linalg.lstsq}
"""The name that JAX gives to the program of each."""


def is_pseudo_inverse(op: Op) -> bool:
    """Whether an operation is a call of `jnp.linalg.pinv` or `lstsq`, of arrays and, it may be, of
    the tolerance behind them.
    """
    name = op.params.get("name")
    fn = _FUNCTIONS.get(name) if op.name in CALLS and isinstance(name, str) else None
    if fn is None:
        return False
    avals = [
        jax.ShapeDtypeStruct(atom.aval.shape, atom.aval.dtype, weak_type=atom.aval.weak_type)
        for atom in op.eqn.invars
    ]
    try:
        own = make_jaxpr(fn)(*avals)
    # a function of that name that takes something else
    except (TypeError, ValueError, InconclusiveDimensionOperation):
        return False
    mine = _text(op.eqn)
    return mine is not None and any(
        _text(eqn) == mine for eqn in equations(own) if eqn.params.get("name") == name
    )


def _text(eqn: Any) -> str | None:
    """A called program in JAX's own words; None if it holds arrays, which these would not show."""
    program = called(eqn)
    held = [program, *(inner for each in equations(program) for inner in programs(each.params))]
    return None if any(getattr(each, "consts", ()) for each in held) else str(program)
