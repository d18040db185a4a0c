"""Values of a chunked evaluation: those that are known outside of chunks, parts of them in a chunk,
and the states that go from chunk to chunk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from ..._jax.programs.ssa import Const, Ref
from ..rule import State
from ..typed_jax import lax
from ..xla_faults.low_bits import as_bits, from_bits

States = list[State]
"""The carried values of each node with a state, in the order of the nodes."""
StoredCarries = dict[int, list[jax.Array]]
"""Number of a node's first result -> its carry into a chunk, in the pass of its own direction."""
Size = int | np.int32 | jax.Array
"""A size or a position: of Python, or a scalar of the program."""
FromChunks = tuple[list[jax.Array], StoredCarries]
"""Parts of emitted results and collected values of a chunk or more, and the carries into it that
are stored.
"""
Taken = tuple[States, FromChunks]
"""The states after a chunk, and what it gives."""


@dataclass
class KnownValues:
    """The known values outside of chunks: without the axis, or materialised as a whole."""

    values: dict[int, Any]

    def read(
        self,
        refs: Sequence[Ref],
        made: Mapping[int, jax.Array] | None = None,
    ) -> list[jax.Array]:
        """The values with these numbers; `made` holds the values of the current chunk."""
        chunk = made or {}
        values: list[jax.Array] = []
        for ref in refs:
            if isinstance(ref, Const):
                values.append(ref.value)
            elif ref in chunk:
                values.append(chunk[ref])
            else:
                values.append(self.values[ref])
        return values


def slice_chunk(
    x: jax.Array,
    start: Size,
    size: int,
    axis: int,
) -> jax.Array:
    """Return a chunk of an array."""
    return lax.dynamic_slice_in_dim(x, start, size, axis)


def slice_bits(
    x: jax.Array,
    start: Size,
    size: int,
    axis: int,
) -> jax.Array:
    """A chunk of an array that is not differentiated, sliced as bits."""
    return from_bits(slice_chunk(as_bits(x), start, size, axis), x.dtype)
