"""64-bit values inside of a 32-bit program: those of a function with `precision="f64"` that the
program calls.

JAX truncates values that are made outside of `enable_x64` to 32 bits, so equations with 64-bit
values are evaluated inside of it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import jax
import numpy as np

from .._jax.programs.jaxprs import open_jaxpr, programs
from .._jax.settings import x64_is_on
from .._jax.typed import Atom, JaxprEqn

_BYTES = 8


def x64_scope(*eqns: JaxprEqn) -> AbstractContextManager[object]:
    """Context manager for the evaluation of equations: `enable_x64` if any of them has 64-bit
    values, else none.
    """
    if x64_is_on() or not any(map(is_wide, eqns)):
        return nullcontext()
    return jax.enable_x64(True)  # noqa: FBT003


def is_wide(eqn: JaxprEqn) -> bool:
    """Return whether an equation has 64-bit values."""
    if any(_has_64_bits(atom) for atom in (*eqn.invars, *eqn.outvars)):
        return True
    return any(any(map(is_wide, open_jaxpr(program)[0].eqns)) for program in programs(eqn.params))


def _has_64_bits(atom: Atom) -> bool:
    dtype = getattr(atom.aval, "dtype", None)
    if not isinstance(dtype, np.dtype) or dtype.kind not in "iufc":
        return False
    parts = 2 if dtype.kind == "c" else 1
    return dtype.itemsize >= _BYTES * parts
