"""Many rows in one array: values with offsets, or a padded array with lengths.

`Ragged` is what `jitney.ragged` returns, of rows that are unlike along their first axis.
`PaddedRows` are unlike along any axes: arguments of a call with `lengths=`, and results of
`ragged="padded"`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np

from ..._errors import ContractError, repr_of
from ..._jax.trees import Tracer, register_pytree_node
from ..._jax.typed import Array, NumPyArray
from ..._owners import public
from ..._public import public_in

_WHERE = "jitney.ragged()"


@public_in("jitney.types")
class Ragged:
    """Rows of unlike lengths in one array, which a function with `vmap` and `pad` takes as a list
    of rows. It has `len`, iteration and indexing; rows are views.

    Args:
        values: The elements of all rows.
        starts: Where each row begins.
        lengths: How many elements each has.
    """

    def __init__(
        self,
        values: Array,
        starts: NumPyArray,
        lengths: NumPyArray,
    ):
        self.values = values
        self.starts = starts
        self.lengths = lengths

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, row: int) -> Array:
        start = int(self.starts[row])
        return self.values[start : start + int(self.lengths[row])]

    def __iter__(self) -> Iterator[Array]:
        bounds = zip(
            self.starts.tolist(),
            self.lengths.tolist(),
            strict=True,
        )
        return (self.values[start : start + length] for start, length in bounds)

    def in_memory(self) -> Ragged:
        """The same rows, whose elements are read if they are in a file, one behind the other."""
        if isinstance(self.values, jax.Array):
            return self
        values = np.ascontiguousarray(self.values)
        if values is self.values:
            return self
        return Ragged(
            values,
            self.starts,
            self.lengths,
        )

    def part(
        self,
        begin: int,
        end: int,
    ) -> Ragged:
        """Some rows, one behind the other, and the elements between the first and the last one."""
        starts, lengths = self.starts[begin:end], self.lengths[begin:end]
        first = int(starts.min()) if len(starts) else 0
        last = int((starts + lengths).max(initial=first))
        values = self.values[first:last]
        return Ragged(
            values if isinstance(values, jax.Array) else np.asarray(values),
            starts - first,
            lengths,
        )

    def shape(self, row: int) -> tuple[int, ...]:
        """Shape of a row."""
        return int(self.lengths[row]), *self.values.shape[1:]

    def dims(self, rows: NumPyArray) -> list[NumPyArray]:
        """Sizes of these rows along each axis."""
        rest = [np.full(len(rows), size) for size in self.values.shape[1:]]
        return [self.lengths[rows], *rest]

    def fills(self, shape: tuple[int, ...]) -> bool:
        """Return whether `filled` makes rows of this shape."""
        return self.values.shape[1:] == shape[1:]

    def filled(
        self,
        rows: NumPyArray,
        shape: tuple[int, ...],
        *,
        takes: bool,
    ) -> Array:
        """Return an array of shape (rows, *shape), in which the last element of each row is
        repeated; no derivative flows through what is repeated.

        Args:
            rows: Numbers of the rows.
            shape: Shape of a row.
            takes: Whether anything may stand behind a row; the last element may, too.
        """
        del takes
        length = shape[0]
        own = self.lengths[rows][:, None]
        steps = np.arange(length)
        at = self.starts[rows][:, None] + np.minimum(steps, own - 1)
        if isinstance(self.values, np.ndarray):
            return self.values[at]
        whole = jnp.take(
            self.values,
            at,
            axis=0,
        )
        is_own = (steps < own).reshape(*at.shape, *[1] * (whole.ndim - 2))
        return jnp.where(
            is_own,
            whole,
            jax.lax.stop_gradient(whole),
        )

    def __repr__(self) -> str:
        shape = "".join(f", {size}" for size in self.values.shape[1:])
        ends = f"{self.lengths.min()} to {self.lengths.max()}" if len(self) else "none"
        return f"<Ragged of {len(self)} rows of {ends}{shape}, {self.values.dtype}>"


def _is_mapping(value: object) -> bool:
    """Return whether a value is a mapping."""
    return isinstance(value, Mapping)


@public_in("jitney.types")
class PaddedRows:
    """Rows of unlike lengths in a padded array: results of a function with `ragged="padded"`, which
    takes them as rows too. It has `len`, iteration and indexing. A pytree of the array and lengths.

    Args:
        values: The array, of shape (rows, ...).
        sizes: Position of an axis in a row -> the size of each row along it.

    Raises:
        ContractError: `sizes` is no mapping.
    """

    def __init__(
        self,
        values: Array,
        sizes: Mapping[int, Array],
    ):
        if not _is_mapping(sizes):
            raise ContractError(
                "PaddedRows()",
                f"{repr_of(sizes)} says of no axis which sizes rows have.",
                "Rows are unlike along axes, which are named by their positions in a row.",
                "write PaddedRows(values, {0: lengths}).",
                code="J221",
            )
        self.values = values
        self.sizes = dict(sizes)

    @property
    def lengths(self) -> Array:
        """The length of each row, if rows are unlike along one axis.

        Raises:
            ValueError: They are along several: `sizes` has them all.
        """
        (lengths,) = self.sizes.values()
        return lengths

    def part(
        self,
        begin: int,
        end: int,
    ) -> PaddedRows:
        """Some rows, one behind the other."""
        sizes: dict[int, Array] = {axis: of[begin:end] for axis, of in self.sizes.items()}
        return PaddedRows(self.values[begin:end], sizes)

    @property
    def is_traced(self) -> bool:
        """True if the sizes of rows are not known."""
        return any(isinstance(sizes, Tracer) for sizes in self.sizes.values())

    def __len__(self) -> int:
        return self.values.shape[0]

    def __getitem__(self, row: int) -> Array:
        # JAX's arrays have no error beyond their end.
        if not -len(self) <= row < len(self):
            raise IndexError(f"row {row} of {len(self)} rows")
        return self.values[(row, *map(slice, self.shape(row)))]

    def __iter__(self) -> Iterator[Array]:
        return (self[row] for row in range(len(self)))

    def shape(self, row: int) -> tuple[int, ...]:
        """Shape of a row."""
        shape = list(self.values.shape[1:])
        for axis, sizes in self.sizes.items():
            shape[axis] = int(sizes[row])
        return tuple(shape)

    def dims(self, rows: NumPyArray) -> list[NumPyArray]:
        """Sizes of these rows along each axis."""
        return [
            np.asarray(self.sizes[axis])[rows] if axis in self.sizes else np.full(len(rows), size)
            for axis, size in enumerate(self.values.shape[1:])
        ]

    def fills(self, shape: tuple[int, ...]) -> bool:
        """Return whether `filled` makes rows of this shape."""
        own = self.values.shape[1:]
        pairs = enumerate(zip(own, shape, strict=True))
        return all(axis in self.sizes or size == was for axis, (was, size) in pairs)

    def filled(
        self,
        rows: NumPyArray,
        shape: tuple[int, ...],
        *,
        takes: bool,
    ) -> Array:
        """Return an array of shape (rows, *shape), in which the last element of each row is
        repeated, or, if `takes`, what stands behind it; no derivative flows through either.
        """
        on_host = isinstance(self.values, np.ndarray)
        out = self.values[rows] if on_host else jnp.take(self.values, rows, axis=0)
        for axis, sizes in self.sizes.items():
            length, at = shape[axis], axis + 1
            if takes and on_host and length <= out.shape[at]:
                out = out[(slice(None),) * at + (slice(length),)]
                continue
            own = np.asarray(sizes)[rows].reshape(-1, *[1] * (out.ndim - 1))
            steps = np.arange(length).reshape(-1, *[1] * (out.ndim - 1 - at))
            positions = np.minimum(steps, np.maximum(own - 1, 0))
            if on_host:
                out = np.take_along_axis(out, positions, at)
            else:
                whole = jnp.take_along_axis(out, positions, at)
                out = jnp.where(steps < own, whole, jax.lax.stop_gradient(whole))
        return out

    def __repr__(self) -> str:
        # `jax.tree.map` may put anything in the places of arrays.
        if not getattr(self.values, "shape", ()):
            return f"PaddedRows({self.values!r}, {self.sizes!r})"
        return f"<PaddedRows of {len(self)} rows in {self.values.dtype}{self.values.shape[1:]}>"


def _children(rows: PaddedRows) -> tuple[tuple[Array, ...], tuple[int, ...]]:
    return (rows.values, *rows.sizes.values()), tuple(rows.sizes)


def _of_children(axes: tuple[int, ...], children: Sequence[Array]) -> PaddedRows:
    values, *sizes = children
    return PaddedRows(values, dict(zip(axes, sizes, strict=True)))


register_pytree_node(PaddedRows, _children, _of_children)


@public
def ragged(
    values: object,
    offsets: object = None,
    *,
    lengths: object = None,
) -> Ragged:
    """Rows of unlike lengths that lie in one array, for a function with `vmap` and `pad`. Nothing
    is copied.

        f(jitney.ragged(values, offsets))           # row i is values[offsets[i]:offsets[i + 1]]
        f(jitney.ragged(padded, lengths=lengths))   # row i is padded[i, :lengths[i]]

    Args:
        values: NumPy's or JAX's array, or what has `__array__`: of shape (elements, ...) with
            offsets, (rows, longest, ...) with lengths. An array of a file that is read by slices
            (HDF5, Zarr) is read when a function takes it, by a stream in parts.
        offsets: One more than there are rows, ascending; not only from 0 to the end.
        lengths: One for each row.

    Raises:
        ContractError: Both or neither are given, or they do not fit the array.
    """
    if (offsets is None) == (lengths is None):
        raise _misfit(
            "offsets and lengths are both given" if lengths is not None else "no offsets are given"
        )
    array = _values(values, is_flat=offsets is not None)
    if lengths is not None:
        sizes = _whole("lengths", lengths)
        if array.ndim < 2 or sizes.shape != array.shape[:1]:
            raise _misfit(f"{sizes.size} lengths are given for an array of shape {array.shape}")
        longest = array.shape[1]
        if sizes.size and not 0 <= sizes.min() <= sizes.max() <= longest:
            raise _misfit(f"lengths from {sizes.min()} to {sizes.max()}, of rows of {longest}")
        starts = np.arange(len(sizes)) * longest
        return Ragged(array.reshape((-1, *array.shape[2:])), starts, sizes)

    ends = _whole("offsets", offsets)
    total = array.shape[0] if array.ndim else 0
    sizes = np.diff(ends)
    is_empty = array.ndim < 1 or not ends.size
    if is_empty or (sizes < 0).any() or ends[0] < 0 or ends[-1] > total:
        raise _misfit(f"the offsets do not ascend from 0 to {total}, the elements of the array")
    return Ragged(
        array,
        ends[:-1],
        sizes,
    )


def _values(values: object, *, is_flat: bool) -> Array:
    """The elements of all rows.

    Raises:
        ContractError: They are no array: rows of unlike lengths in another form.
    """
    # What is read by slices stays where it is, for a stream.
    is_read = is_flat and all(hasattr(values, name) for name in ("shape", "dtype", "__getitem__"))
    # Random keys are no array of NumPy.
    if is_read or isinstance(values, jax.Array):
        array = cast("Array", values)
    else:
        try:
            array = np.asarray(values)
        except ValueError:
            raise _misfit(f"a {type(values).__name__} is no array of elements") from None
    if array.dtype == object:
        raise _misfit(f"a {type(values).__name__} holds objects, and no numbers")
    return array


def _whole(
    what: str,
    numbers: object,
) -> NumPyArray:
    try:
        found = np.asarray(numbers)
    except ValueError:
        raise _misfit(f"{what} are no array of one axis") from None
    if found.ndim != 1 or (found.size and found.dtype.kind not in "iu"):
        raise _misfit(f"{what} are {found.dtype} of shape {found.shape}")
    return found.astype(np.int64)


def _misfit(what: str) -> ContractError:
    return ContractError(
        _WHERE,
        f"{what}.",
        "Rows in one array are said by offsets (ascending integers, one more than there are rows)"
        " or by lengths (one for each row of a padded array).",
        "write jitney.ragged(values, offsets) or jitney.ragged(padded, lengths=lengths).",
        code="J221",
    )


class NumPyRows(list[Array]):
    """Rows that are NumPy's arrays, all of them: nothing looks at their types once more."""


IN_ONE_ARRAY = (Ragged, PaddedRows)
Rows = Sequence[object] | Ragged | PaddedRows
"""Rows of one argument."""


def is_list_of_rows(value: object) -> bool:
    """Return whether a value is a list, a tuple, a flat array of objects, or rows in one array."""
    if type(value) is np.ndarray:
        return value.dtype == object and value.ndim == 1
    return type(value) in (list, tuple, Ragged, PaddedRows)
