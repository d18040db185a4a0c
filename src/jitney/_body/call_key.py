"""What tells one trace of a function from another; and where the rest of a call's key is.

A call finds its program in steps. The structure of its arguments and the type of each leaf find a
`Layout` (`Program.__call__`); its static values, by value, find an entry (`Layout.key`,
`Core.entry`). Shapes, dtypes, weak types, shardings, x64, matmul precision, the mesh and the
default device are in the key of the entry's `jax.jit`-ed function, which JAX looks up faster than
Python could. What is kept beside that, of one trace (flights, choices by values, what was compiled
without the cache), has the key that is made here; a padded call has its bucket and `Body.where` in
it as well (`padded_calls.py`).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from .._view.layout import described
from .._view.true_sizes import Counts


def trace_key(arrays: Sequence[Any], counts: Counts | None = None) -> Hashable:
    """What tells one trace of an entry from another."""
    return (*(described(array) for array in arrays), counts and counts.key)


def padded_key(leaves: Sequence[tuple[Any, ...]]) -> Hashable:
    """What tells the padded programs of one entry apart: the shapes, dtypes and weak types that the
    body was traced for.
    """
    return tuple(leaves)
