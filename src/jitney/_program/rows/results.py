"""Results of rows in the caller's order: an array with a leading axis where rows have equal shapes,
a list where a result has a padded axis.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from ..._jax.trees import Tracer, device_put, extended, issubdtype
from ..._jax.typed import Array, NumPyArray
from ..._view.result_padding import Cut, unpadded_shape


@dataclass(frozen=True)
class Part:
    """Results of some rows that one program has computed.

    Args:
        rows: Numbers of the rows.
        sizes: Axis -> their true sizes.
        treedef: The structure of the result.
        leaves: Arrays of the result, with at least as many leading elements as there are rows.
        cuts: The padded axes of each array of the result of one row.
    """

    rows: NumPyArray
    sizes: Mapping[str, NumPyArray]
    treedef: Hashable
    leaves: Sequence[Array]
    cuts: Sequence[Cut]


def gathered(
    parts: Sequence[Part],
    varies: Sequence[bool],
    count: int,
) -> list[Array | list[Array]]:
    """Return each array of the result, of all rows.

    Args:
        parts: The results of all rows.
        varies: Whether an array of the result has an axis of unlike lengths.
        count: The number of rows.
    """
    return [
        _listed(parts, leaf, count) if is_ragged else _stacked(parts, leaf, count)
        for leaf, is_ragged in enumerate(varies)
    ]


def _stacked(
    parts: Sequence[Part],
    leaf: int,
    count: int,
) -> Array:
    arrays = [part.leaves[leaf] for part in parts]
    if not _on_host(arrays):
        joined = jnp.concatenate(
            [array[: len(part.rows)] for array, part in zip(arrays, parts, strict=True)]
        )
        order = np.argsort(np.concatenate([part.rows for part in parts]))
        return joined[order]
    first = np.asarray(arrays[0])
    out = np.empty(
        (count, *first.shape[1:]),
        first.dtype,
    )
    for part, array in zip(parts, arrays, strict=True):
        out[part.rows] = np.asarray(array)[: len(part.rows)]
    return device_put(out)


def _listed(
    parts: Sequence[Part],
    leaf: int,
    count: int,
) -> list[Array]:
    on_host = _on_host([part.leaves[leaf] for part in parts])
    out: dict[int, Array] = {}
    for part in parts:
        array = part.leaves[leaf]
        array = np.asarray(array) if on_host else array
        shape = array.shape[1:]
        for place, row in enumerate(part.rows.tolist()):
            sizes = {name: int(of[place]) for name, of in part.sizes.items()}
            cut_to = unpadded_shape(
                shape,
                part.cuts[leaf],
                sizes,
            )
            out[row] = array[(place, *map(slice, cut_to))]
    rows = [out[row] for row in range(count)]
    return device_put(rows) if on_host else rows


def _on_host(arrays: Sequence[Array]) -> bool:
    """Return whether arrays are put together on the host: they have values and NumPy's dtypes."""
    return not any(
        isinstance(array, Tracer) or issubdtype(array.dtype, extended) for array in arrays
    )
