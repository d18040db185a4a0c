"""Recognise calls of `jnp.linalg.pinv` and `lstsq`, the two programs in which an SVD with vectors
is allowed.

Singular vectors are refused elsewhere, since their signs change with the number of rows. In a
pseudo-inverse V diag(1/s) U^H each left vector meets its right partner, so that signs cancel; so do
the rotations among vectors of equal singular values; and vectors of a zero value are left out. The
equations of a program do not show this, so its jaxpr must equal the one that JAX traces for these
functions.
"""

from __future__ import annotations

import jax

from ..._jax.jaxprs import called, equations, programs
from ..._jax.primitives import CALLS
from ..._jax.typed import JaxprEqn
from ..interpreter import Op
from ..typed_jax import InconclusiveDimensionOperation, jnp, make_jaxpr

_FUNCTIONS = {"_pinv": jnp.linalg.pinv, "_lstsq": jnp.linalg.lstsq}
"""Name of the called jaxpr -> the JAX function that it is traced from."""


def is_pseudo_inverse(op: Op) -> bool:
    """Return whether an operation is a call of `jnp.linalg.pinv` or `lstsq`, of arrays and an
    optional tolerance.
    """
    name = op.params.get("name")
    fn = _FUNCTIONS.get(name) if op.name in CALLS and isinstance(name, str) else None
    if fn is None:
        return False
    avals = [
        jax.ShapeDtypeStruct(atom.aval.shape, atom.aval.dtype, weak_type=atom.aval.weak_type)
        for atom in op.eqn.invars
    ]
    # A user's function may have the same name, and take other arguments.
    try:
        own = make_jaxpr(fn)(*avals)
    except (TypeError, ValueError, InconclusiveDimensionOperation):
        return False
    mine = _text(op.eqn)
    return mine is not None and any(
        _text(eqn) == mine for eqn in equations(own) if eqn.params.get("name") == name
    )


def _text(eqn: JaxprEqn) -> str | None:
    """The printed jaxpr of a call; None if it closes over arrays, which printing leaves out."""
    program = called(eqn)
    held = [program, *(inner for each in equations(program) for inner in programs(each.params))]
    return None if any(getattr(each, "consts", ()) for each in held) else str(program)
