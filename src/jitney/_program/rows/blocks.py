"""Blocks: the arrays of some rows of one bucket, filled into one array."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, TypeGuard

import jax
import jax.numpy as jnp
import numpy as np

from ..._jax.trees import device_put, extended, issubdtype
from ..._jax.typed import Array, DType, NumPyArray
from ..._view.layout import aval_parts
from ..._view.true_sizes import TrueSizes
from ..runners.filling import FILLING, repeat_edges, repeat_edges_in_jax
from .columns import IN_ONE_ARRAY
from .ragged import SHORT, PaddedRows, Ragged

if TYPE_CHECKING:
    from .columns import Column
    from .lots import Lot


def block(
    column: Column,
    rows: NumPyArray,
    shape: tuple[int, ...],
    *,
    takes: bool,
) -> Array:
    """Return an array of shape (rows, *shape).

    Args:
        column: A column that rows have their own arrays of.
        rows: Numbers of the rows.
        shape: Shape of a row in the program.
        takes: Whether the padding of a row may hold anything.
    """
    whole = column.values
    if column.kind == "stack":
        own = whole.shape[1:]
        padded = {
            axis: np.full(whole.shape[0], size)
            for axis, (size, length) in enumerate(zip(own, shape, strict=True))
            if size != length
        }
        if not padded:
            return _pick(whole, rows)
        whole = PaddedRows(whole, padded)

    if isinstance(whole, IN_ONE_ARRAY) and whole.fills(shape):
        if _is_copied(whole, shape, takes=takes):
            out = unfilled((len(rows), *shape), aval_parts(whole.values)[1])
            whole.copy_to(out, rows)
            return out
        filled = whole.filled(rows, shape, takes=takes)
        return filled.astype(aval_parts(filled)[1]) if isinstance(filled, np.ndarray) else filled

    arrays = _chosen(column.values, rows.tolist())
    # NumPy has neither tracers nor keys nor weak types.
    _, dtype, weak = aval_parts(arrays[0])
    if column.is_traced or weak or issubdtype(dtype, extended):
        return jnp.stack([repeat_edges_in_jax(jnp.asarray(array), shape) for array in arrays])

    out = unfilled((len(rows), *shape), dtype)
    if len(shape) == 1 and takes:
        # One slice a row: views of rows would be two.
        flat, begin = out.reshape(-1), 0
        for array in arrays:
            flat[begin : begin + len(array)] = array
            begin += shape[0]
    else:
        for place, array in enumerate(arrays):
            host = np.asarray(array)
            if not (takes or host.shape == shape):
                host = repeat_edges(host, shape)
            out[(place, *map(slice, host.shape))] = host
    return _where_rows_are(arrays[0], out)


def _chosen(values: Sequence[Array], rows: Sequence[int]) -> Sequence[Array]:
    return itemgetter(*rows)(values) if len(rows) > 1 else [values[row] for row in rows]


def shared_array(
    array: Array,
    shape: tuple[int, ...],
) -> Array:
    """Return an array that all rows share, at the shape that it has in the program."""
    if getattr(array, "shape", ()) == shape:
        return array
    return FILLING.fill(array, shape, stays=True, takes=False)


def _is_copied(
    rows: Ragged | PaddedRows,
    shape: tuple[int, ...],
    *,
    takes: bool,
) -> TypeGuard[Ragged]:
    """Return whether each row is copied, and not gathered by the positions of its elements."""
    on_host = isinstance(rows, Ragged) and isinstance(rows.values, np.ndarray)
    return on_host and takes and shape[0] > SHORT


def unfilled(
    shape: tuple[int, ...],
    dtype: DType,
) -> NumPyArray:
    """Return an array whose padding no program looks at."""
    return np.zeros(shape, dtype)


def true_sizes(
    lot: Lot,
    at: NumPyArray,
) -> TrueSizes | None:
    """True sizes of the padded axes of the rows at these places, and the numbers that Python
    computes from them; None if they run at exact size.
    """
    if lot.group.recipe is None:
        return None
    counts = lot.group.recipe.counts
    sizes = lot.sizes(at)
    values = [sizes[name] for name in counts.names]
    return TrueSizes(
        values,
        counts.names,
        counts.weak,
        lot.numbers(at),
    )


def _pick(
    array: Array,
    rows: NumPyArray,
) -> Array:
    return array[rows] if isinstance(array, np.ndarray) else jnp.take(array, rows, axis=0)


def _where_rows_are(
    row: Array,
    filled: NumPyArray,
) -> Array:
    """Put a block on the device that its rows were put on on purpose."""
    if isinstance(row, jax.Array) and row.committed and len(row.devices()) == 1:
        return device_put(filled, row.sharding)
    return filled
