"""Many rows in one array: values with offsets, or a padded array with lengths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from ..._errors import ContractError
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

    def dims(self, rows: NumPyArray) -> list[NumPyArray]:
        """Sizes of these rows along each axis."""
        rest = [np.full(len(rows), size) for size in self.values.shape[1:]]
        return [self.lengths[rows], *rest]

    def filled(
        self,
        rows: NumPyArray,
        length: int,
    ) -> Array:
        """Return an array of shape (rows, length, ...), in which the last element of each row is
        repeated; no derivative flows through what is repeated.
        """
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
            offsets, (rows, longest, ...) with lengths.
        offsets: One more than there are rows, ascending; not only from 0 to the end.
        lengths: One for each row.

    Raises:
        ContractError: Both or neither are given, or they do not fit the array.
    """
    array: Array = values if isinstance(values, jax.Array) else np.asarray(values)
    if (offsets is None) == (lengths is None):
        raise _misfit(
            "offsets and lengths are both given" if lengths is not None else "no offsets are given"
        )
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
    if array.ndim < 1 or not ends.size or (sizes < 0).any() or ends[0] < 0 or ends[-1] > total:
        raise _misfit(f"the offsets do not ascend from 0 to {total}, the elements of the array")
    return Ragged(
        array,
        ends[:-1],
        sizes,
    )


def _whole(
    what: str,
    numbers: object,
) -> NumPyArray:
    found = np.asarray(numbers)
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


Rows = Sequence[object] | Ragged
"""Rows of one argument."""


def is_list_of_rows(value: object) -> bool:
    """Return whether a value is a list, a tuple, a flat array of objects, or `Ragged`."""
    if type(value) is np.ndarray:
        return value.dtype == object and value.ndim == 1
    return type(value) in (list, tuple, Ragged)
