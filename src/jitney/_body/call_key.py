"""What tells one call from another, so that two calls with one key may run one program.

Between calls of one function with one set of options a program is found in two steps. The first is a `Layout`'s: the structure of the
arguments, which of their leaves are static, and these by value. The second is here: of each array what JAX's own key has too, and of a
padded call which sizes are true. What else changes a program (shardings, x64, matmul precision, the mesh, the default device) is in the key
of the `jax.jit`-ed function, which JAX looks up faster than Python could; where a program is kept beside that, `Body.where` and the
settings stand in the key as well.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from .._view.layout import described
from .._view.true_sizes import Counts


def key_of(arrays: Sequence[Any], counts: Counts | None = None) -> Hashable:
    """What tells one trace of an entry from another."""
    return (*(described(array) for array in arrays), counts and counts.key)


def padded_key(leaves: Sequence[tuple[Any, ...]]) -> Hashable:
    """What tells the padded programs of one entry apart: the shapes, dtypes and weak types that the body was traced for."""
    return tuple(leaves)
