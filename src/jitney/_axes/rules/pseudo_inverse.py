"""Recognise calls of `jnp.linalg.pinv` and `lstsq`, the two programs in which an SVD with vectors
is allowed.

Singular vectors are refused elsewhere, since their signs change with the number of rows. In a
pseudo-inverse V diag(1/s) U^H each left vector meets its right partner, so that signs cancel; so do
the rotations among vectors of equal singular values; and vectors of a zero value are left out. The
equations of a program do not show this, so its jaxpr must equal the one that JAX traces for these
functions.
"""

from __future__ import annotations

from ..._jax.programs.jaxprs import abstract, called_jaxpr, equations, programs
from ..._jax.programs.primitives import CALLS
from ..._jax.typed import JaxprEqn
from ..interpreter import Op
from ..position_dtypes import exact_position_dtypes
from ..typed_jax import InconclusiveDimensionOperation, jnp, make_jaxpr

_FUNCTIONS = {"_pinv": jnp.linalg.pinv, "_lstsq": jnp.linalg.lstsq}
"""Name of the called jaxpr -> the JAX function that it is traced from."""


def is_pseudo_inverse(op: Op) -> bool:
    """Return whether an operation is a call of `jnp.linalg.pinv` or `lstsq`, of arrays and an
    optional tolerance.
    """
    name = op.params.get("name")
    if op.name not in CALLS or not isinstance(name, str):
        return False
    fn = _FUNCTIONS.get(name)
    if fn is None:
        return False
    structs = [abstract(atom.aval) for atom in op.eqn.invars]
    # A user's function may have the same name, and take other arguments.
    try:
        with exact_position_dtypes():
            own = make_jaxpr(fn)(*structs)
    except (TypeError, ValueError, InconclusiveDimensionOperation):
        return False
    mine = _text(op.eqn)
    if mine is None:
        return False
    named = (eqn for eqn in equations(own) if eqn.params.get("name") == name)
    return any(_text(eqn) == mine for eqn in named)


def _text(eqn: JaxprEqn) -> str | None:
    """The printed jaxpr of a call; None if it closes over arrays, which printing leaves out."""
    program = called_jaxpr(eqn)
    held = [program]
    for inner in equations(program):
        held += programs(inner.params)
    closes_over = any(getattr(each, "consts", ()) for each in held)
    return None if closes_over else str(program)
