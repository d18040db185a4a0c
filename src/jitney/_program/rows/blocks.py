"""Blocks: the arrays of some rows of one bucket, filled into one array."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

import jax
import jax.numpy as jnp
import numpy as np

from ..._jax.trees import device_put, extended, issubdtype
from ..._jax.typed import Array, DType, NumPyArray
from ..._view.layout import aval_parts
from ..._view.true_sizes import TrueSizes
from ..runners.filling import FILLING, repeat_edges, repeat_edges_in_jax
from .ragged import IN_ONE_ARRAY, NumPyRows, PaddedRows, Ragged

if TYPE_CHECKING:
    from .columns import Column
    from .lots import Lot


NO_ELEMENTS: Mapping[DType, int] = MappingProxyType({})
_CHUNK = 1 << 24
"""Bytes of one large array, unless a block has more."""
FEW, _SHORT, _SHORT_BYTES = 8, 4096, 1 << 14
"""Rows of a block, elements of each and bytes of each, from which on and up to which they are
joined.
"""
_LINE = 64
"""Bytes that JAX's arrays on a CPU are aligned to: it copies what is not."""


class Room:
    """Memory of the blocks of one call, taken from few large arrays, each part once.

    Without it each call would have its pages from the system anew, which takes longer than to fill
    them.

    Args:
        elements: Dtype -> how many elements the blocks of the call have in all.
    """

    def __init__(self, elements: Mapping[DType, int] = NO_ELEMENTS):
        self._left = dict(elements)
        self._free: dict[DType, NumPyArray] = {}

    def array(
        self,
        shape: tuple[int, ...],
        dtype: DType,
    ) -> NumPyArray:
        """Return an array, which holds anything."""
        count = math.prod(shape)
        # JAX has no dtype that does not divide a line but that of a gradient of integers.
        if not count or not dtype.itemsize or _LINE % dtype.itemsize:
            return np.empty(shape, dtype)
        line = _LINE // dtype.itemsize
        whole = -(-count // line) * line
        free = self._free.get(dtype)
        if free is None or free.size < whole:
            left = min(self._left.get(dtype, 0), _CHUNK // dtype.itemsize)
            free = np.empty(max(whole, left) + line, dtype)
            off = -free.ctypes.data % _LINE // dtype.itemsize
            free = free[off:]
        self._free[dtype] = free[whole:]
        self._left[dtype] = self._left.get(dtype, 0) - whole
        return free[:count].reshape(shape)


def block(
    column: Column,
    rows: NumPyArray,
    shape: tuple[int, ...],
    *,
    takes: bool,
    room: Room | None = None,
) -> Array:
    """Return an array of shape (rows, *shape).

    Args:
        column: A column that rows have their own arrays of.
        rows: Numbers of the rows.
        shape: Shape of a row in the program.
        takes: Whether the padding of a row may hold anything.
        room: Where its memory is from.
    """
    room = room or Room()
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
        if takes and isinstance(whole, Ragged) and isinstance(whole.values, np.ndarray):
            out = room.array((len(rows), *shape), aval_parts(whole.values)[1])
            fill_windows(out, whole.values, whole.starts[rows], whole.lengths[rows])
            return out
        filled = whole.filled(rows, shape, takes=takes)
        return filled.astype(aval_parts(filled)[1]) if isinstance(filled, np.ndarray) else filled

    arrays = _chosen(column.values, rows.tolist())
    # NumPy has neither tracers nor keys nor weak types.
    _, dtype, weak = aval_parts(arrays[0])
    if column.is_traced or weak or issubdtype(dtype, extended):
        return jnp.stack([repeat_edges_in_jax(jnp.asarray(array), shape) for array in arrays])

    out = room.array((len(rows), *shape), dtype)
    if takes and isinstance(column.values, NumPyRows):
        hosts = cast("Sequence[NumPyArray]", arrays)
        if _is_joined(out, hosts) and _join(out, hosts, column.lengths[rows]):
            return out
    # Here and not for all blocks at once: then they are in the cache when rows are copied.
    blank(out)
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


def _is_joined(out: NumPyArray, rows: Sequence[NumPyArray]) -> bool:
    """Return whether `_join` takes these rows, and is faster than a copy for each."""
    if out.ndim < 2 or not out.nbytes or len(rows) < FEW or rows[0].dtype != out.dtype:
        return False
    length, (row, element, *_) = out.shape[1], out.strides
    is_short = length <= _SHORT and element <= _LINE and row <= _SHORT_BYTES
    if not is_short:
        return False
    return out.ndim == 2 or {row.shape[1:] for row in rows} == {out.shape[2:]}


def _join(
    out: NumPyArray,
    rows: Sequence[NumPyArray],
    lengths: NumPyArray,
) -> bool:
    """Fill a block with rows that are padded along their first axis alone; return False if one is
    not contiguous.

    Python joins buffers in one pass, where a slice of NumPy's for each row takes twice as long.
    """
    behind = _tails(out.dtype, math.prod(out.shape[2:]))
    pieces: list[object] = [None] * (2 * len(rows))
    pieces[::2] = rows
    pieces[1::2] = map(behind.__getitem__, (out.shape[1] - lengths).tolist())
    try:
        whole = b"".join(cast("list[bytes]", pieces))
    except TypeError:
        return False
    out.reshape(-1).view(np.uint8)[:] = np.frombuffer(whole, np.uint8)
    return True


@lru_cache(maxsize=8)
def _tails(dtype: DType, width: int) -> list[memoryview]:
    """The bytes of 0, 1, 2, ... elements of so many numbers, where no program looks."""
    whole = np.empty(_SHORT * width, dtype)
    blank(whole)
    view, step = whole.view(np.uint8).data, width * dtype.itemsize
    return [view[: count * step] for count in range(_SHORT + 1)]


def _chosen(values: Sequence[Array], rows: Sequence[int]) -> Sequence[Array]:
    return list(map(values.__getitem__, rows))


def shared_array(
    array: Array,
    shape: tuple[int, ...],
) -> Array:
    """Return an array that all rows share, at the shape that it has in the program."""
    if getattr(array, "shape", ()) == shape:
        return array
    return FILLING.fill(array, shape, stays=True, takes=False)


def fill_windows(
    out: NumPyArray,
    values: NumPyArray,
    starts: NumPyArray,
    lengths: NumPyArray,
) -> None:
    """Copy rows of one array, each with what stands behind it there, which no program looks at.

    Args:
        out: Of shape (rows, length, ...).
        values: Elements of all rows.
        starts: Where each row begins.
        lengths: How many elements each has.
    """
    whole = np.ascontiguousarray(values)
    length, step = out.shape[1], whole.dtype.itemsize * math.prod(whole.shape[1:])
    # The last rows may have less behind them than a block is long.
    is_inside = (starts + length <= len(whole)) & (step > 0)
    at = slice(None) if is_inside.all() else is_inside
    if is_inside.any():
        # One element is as long as a row of the block, and begins at each element of the array.
        # NumPy makes no buffer of dtypes such as bfloat16.
        bytes_of = whole.reshape(-1).view(np.uint8)
        count = len(whole) - length + 1
        windows = np.ndarray((count,), f"V{length * step}", bytes_of, strides=(step,))
        found = windows[starts[at]].view(whole.dtype)
        out[at] = found.reshape(-1, *out.shape[1:])
    outside = [] if at is not is_inside else np.flatnonzero(~is_inside).tolist()
    for row in outside:
        begin, own = int(starts[row]), int(lengths[row])
        blank(out[row])
        out[row, :own] = whole[begin : begin + own]


def blank(out: NumPyArray) -> None:
    """Put something where no program looks."""
    out.fill(0)


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
    return counts.replace(lot.numbers(at), values=values)


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
