"""Trace-level cache key, and an overview of where the other parts of a call's key live.

A call finds its program in steps:

1. The structure of its arguments and the type of each leaf find a `Layout` (`Program.__call__`).
2. Its static values, by value, find an entry (`Layout.key`, `CompiledFunction.entry`).
3. Shapes, dtypes, weak types, shardings, x64, matmul precision, the mesh and the default device are
   in the key of the entry's `jax.jit`-ed function, which JAX looks up faster than Python could.

Records of one trace besides these (flights, policies chosen by values, programs compiled without
the cache) have the key of this file. A padded call has its bucket and `CallPlanner.mesh_key` in its
key as well (`padded_calls.py`).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from .._view.layout import aval_parts
from .._view.true_sizes import TrueSizes


def trace_key(arrays: Sequence[object], counts: TrueSizes | None = None) -> Hashable:
    """Return the key that separates the traces of one entry."""
    return (*(aval_parts(array) for array in arrays), counts and counts.key)


def padded_key(leaves: Sequence[object], turn: int = 0) -> tuple[object, ...]:
    """Return the key that separates the padded programs of one entry: the shapes, dtypes and weak
    types that the body was traced for, and which program of these it is.
    """
    return (*leaves, turn) if turn else tuple(leaves)
