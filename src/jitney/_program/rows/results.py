"""Results of rows in the caller's order: an array with a leading axis where rows have equal shapes,
a list where a result has a padded axis.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np

from ..._errors import ContractError, Where
from ..._jax.trees import Tracer, device_put, extended, issubdtype, tree_unflatten
from ..._jax.typed import Array, DType, NumPyArray
from ..._view.result import Mixed
from ..._view.result_padding import Cut, unpadded_shape
from .group import Axes
from .ragged import PaddedRows
from .row_checks import number_of


@dataclass(frozen=True)
class Part:
    """Results of some rows that one program has computed.

    Args:
        rows: Numbers of the rows.
        sizes: Axis -> their true sizes.
        treedef: The structure of the result.
        leaves: Arrays of the result, with at least as many leading elements as there are rows.
        cuts: The padded axes of each array of the result of one row.
        is_filled: Whether all padded axes are filled, and none is at its exact size.
    """

    rows: NumPyArray
    sizes: Mapping[str, NumPyArray]
    treedef: Hashable
    leaves: Sequence[Array]
    cuts: Sequence[Cut]
    is_filled: bool = False


Gathered = Array | list[Array] | PaddedRows


def demand_like_results(
    where: Where,
    structures: Sequence[Hashable],
    leaves: Sequence[Sequence[Gathered]],
    rows: Sequence[int],
) -> None:
    """Check that the results of all rows have one structure, and their arrays one dtype and rank.

    Args:
        where: The function.
        structures: Of the result of a row, of each part of the rows.
        leaves: Its arrays, of all rows of each part.
        rows: A row of each part.

    Raises:
        ContractError: Two rows differ: the body looks at the size.
    """
    first, kinds = structures[0], _kinds(leaves[0])
    for structure, others, row in zip(structures, leaves, rows, strict=True):
        other, begin, at = _kinds(others), number_of(rows[0]), number_of(row)
        if structure != first and _form(structure, others) != _form(first, leaves[0]):
            what = f"rows {begin} and {at} have results of unlike structures or other values"
        elif other != kinds:
            what = (
                f"the result of row {begin} has arrays of {_in_words(kinds)}, and that of row"
                f" {at} of {_in_words(other)}"
            )
        else:
            continue
        raise ContractError(
            where,
            f"{what}.",
            "The results of all rows are put together: each has the same structure, the same values"
            " that are no arrays, and each array of it one dtype and number of axes.",
            "return the same at each size, and what differs as an array.",
            code="J221",
        )


def _kinds(leaves: Sequence[Gathered]) -> list[tuple[DType, int]]:
    """Dtype and rank of each array of the result of a row."""
    kinds: list[tuple[DType, int]] = []
    for leaf in leaves:
        array = leaf[0] if isinstance(leaf, list) else leaf
        whole = array.values if isinstance(array, PaddedRows) else array
        kinds.append((whole.dtype, whole.ndim - (not isinstance(leaf, list))))
    return kinds


def _in_words(kinds: Sequence[tuple[DType, int]]) -> str:
    return ", ".join(f"{dtype} with {rank} axes" for dtype, rank in kinds)


def _form(structure: Hashable, leaves: Sequence[Gathered]) -> object:
    """The structure of the result of a row, with its values that are no arrays."""
    whole = tree_unflatten(structure, leaves)
    return whole.outcome.form if isinstance(whole, Mixed) else structure


def varying(
    parts: Sequence[Part],
    known: Iterable[Sequence[Axes]] = (),
) -> list[Axes]:
    """Return the axes of unlike lengths of each array of the result of a row.

    Args:
        parts: The results of all rows.
        known: Those of programs that are not among the parts.
    """
    found: list[Axes] = []
    for leaf in range(len(parts[0].leaves)):
        shapes = {part.leaves[leaf].shape[1:] for part in parts}
        unlike = {
            axis for axis, sizes in enumerate(zip(*shapes, strict=True)) if len(set(sizes)) > 1
        }
        padded = {place.axis for part in parts for place in part.cuts[leaf]}
        found.append(tuple(sorted(unlike.union(padded, *(axes[leaf] for axes in known)))))
    return found


def gathered(
    parts: Sequence[Part],
    varies: Sequence[Axes],
    count: int,
    *,
    ragged: str = "list",
) -> list[Gathered]:
    """Return each array of the result, of all rows.

    Args:
        parts: The results of all rows.
        varies: The axes of unlike lengths of each array of the result of a row.
        count: The number of rows.
        ragged: The option.
    """
    whole: list[Gathered] = []
    for leaf, axes in enumerate(varies):
        if not axes:
            whole.append(
                _stacked(
                    parts,
                    leaf,
                    count,
                )
            )
        elif ragged == "padded":
            whole.append(
                _padded(
                    parts,
                    leaf,
                    axes,
                    count,
                )
            )
        else:
            whole.append(
                _listed(
                    parts,
                    leaf,
                    count,
                )
            )
    # All at once: each call of JAX takes about as long as an array of it.
    on_host = [leaf for leaf, each in enumerate(whole) if isinstance(each, np.ndarray)]
    for leaf, array in zip(on_host, device_put([whole[i] for i in on_host]), strict=True):
        whole[leaf] = array
    return whole


def whole_results(
    parts: Sequence[Part],
    varies: Sequence[Axes],
    count: int,
    *,
    ragged: str,
    is_alike: bool,
) -> list[Gathered]:
    """Return each array of the result, of all rows.

    Args:
        parts: The results of all rows.
        varies: The axes of unlike lengths of each array of the result of a row.
        count: The number of rows.
        ragged: The option.
        is_alike: Whether arrays are mapped as ever: all rows are of one length.
    """
    if is_alike:
        parts = cut_alike(parts)
        varies = [()] * len(varies)
    return gathered(
        parts,
        varies,
        count,
        ragged=ragged,
    )


def totals(where: Where, parts: Sequence[Part]) -> tuple[Hashable, list[Gathered]]:
    """Return the structure of the result of a row, and each array of it, summed over all rows; each
    part has the sums of its own.

    Raises:
        ContractError: Results of two rows are of unlike structures or shapes.
    """
    demand_like_results(
        where,
        [part.treedef for part in parts],
        [[[leaf] for leaf in part.leaves] for part in parts],
        [int(part.rows[0]) for part in parts],
    )
    columns = zip(*(part.leaves for part in parts), strict=True)
    return parts[0].treedef, [_total(arrays) for arrays in columns]


def _total(arrays: Sequence[Array]) -> Array:
    """The sum of arrays of one dtype; of a low one it is accumulated in float32, as XLA does."""
    dtype = arrays[0].dtype
    is_low = issubdtype(dtype, jnp.floating) and dtype.itemsize < np.dtype(np.float32).itemsize
    wide = np.dtype(np.float32) if is_low else dtype
    total = jnp.asarray(arrays[0], wide)
    for array in arrays[1:]:
        total = jnp.add(total, jnp.asarray(array, wide))
    return jnp.asarray(total, dtype)


def joined(parts: Sequence[Gathered]) -> Gathered:
    """Join the results of rows that ran in several calls, on the host."""
    if any(isinstance(part, list) for part in parts):
        # Rows of one length in one call may have others in the next.
        return [row for part in parts for row in part]
    padded = [part for part in parts if isinstance(part, PaddedRows)]
    if padded:
        axes = {axis for part in padded for axis in part.sizes}
        return _joined_padded([_in_padded(part, axes) for part in parts])
    arrays = [part for part in parts if not isinstance(part, (list, PaddedRows))]
    if not _on_host(arrays):
        return jnp.concatenate(arrays)
    return np.concatenate([np.asarray(array) for array in arrays])


def _in_padded(
    part: Gathered,
    axes: Set[int],
) -> PaddedRows:
    """Rows with sizes along all of these axes."""
    own = part if isinstance(part, PaddedRows) else PaddedRows(cast("Array", part), {})
    count, *shape = own.values.shape
    sizes: dict[int, Array] = {
        axis: own.sizes[axis] if axis in own.sizes else np.full(count, shape[axis], np.int32)
        for axis in sorted(axes)
    }
    return PaddedRows(own.values, sizes)


def _joined_padded(parts: Sequence[PaddedRows]) -> PaddedRows:
    on_host = _on_host([part.values for part in parts])
    longest = np.max([part.values.shape[1:] for part in parts], axis=0)
    wider: list[Array] = []
    for part in parts:
        array = np.asarray(part.values) if on_host else part.values
        for axis, own in part.sizes.items():
            array = _resized(
                array,
                axis + 1,
                int(longest[axis]),
                np.asarray(own),
            )
        wider.append(array)
    sizes: dict[int, Array] = {
        axis: np.concatenate([np.asarray(part.sizes[axis]) for part in parts])
        for axis in parts[0].sizes
    }
    return PaddedRows((np if on_host else jnp).concatenate(wider), sizes)


def cut_alike(parts: Sequence[Part]) -> list[Part]:
    """Cut the results of rows that are all of one length."""
    cut: list[Part] = []
    for part in parts:
        sizes = {name: int(of[0]) for name, of in part.sizes.items()}
        leaves = [
            leaf[(slice(None), *map(slice, unpadded_shape(leaf.shape[1:], places, sizes)))]
            if places
            else leaf
            for leaf, places in zip(part.leaves, part.cuts, strict=True)
        ]
        cut.append(replace(part, leaves=leaves))
    return cut


def _stacked(
    parts: Sequence[Part],
    leaf: int,
    count: int,
) -> Array:
    arrays = [part.leaves[leaf] for part in parts]
    if issubdtype(arrays[0].dtype, extended):
        keys = jnp.concatenate(
            [array[: len(part.rows)] for array, part in zip(arrays, parts, strict=True)]
        )
        return keys[np.argsort(np.concatenate([part.rows for part in parts]))]
    if not _on_host(arrays):
        # Shapes here depend on the number of rows alone, and not on the mixture of lengths.
        scattered = jnp.zeros((count, *arrays[0].shape[1:]), arrays[0].dtype)
        for part, array in zip(parts, arrays, strict=True):
            spare = np.full(array.shape[0] - len(part.rows), count)
            at = np.concatenate([part.rows, spare])
            scattered = scattered.at[at].set(array, mode="drop")
        return scattered
    first = np.asarray(arrays[0])
    out = np.empty(
        (count, *first.shape[1:]),
        first.dtype,
    )
    for part, array in zip(parts, arrays, strict=True):
        out[part.rows] = np.asarray(array)[: len(part.rows)]
    return out


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
        rows, own = part.rows.tolist(), _bounds(part, leaf)
        for place, (row, bounds) in enumerate(zip(rows, own, strict=True)):
            out[row] = array[(place, *map(slice, bounds))]
    rows = [out[row] for row in range(count)]
    return device_put(rows) if on_host else rows


def _bounds(part: Part, leaf: int) -> Iterable[Sequence[int]]:
    """Sizes of each row along its first axes, to the last one that is padded."""
    axes = [place.axis for place in part.cuts[leaf]]
    if not axes:
        return [()] * len(part.rows)
    every = tuple(range(max(axes) + 1))
    own = _own_sizes(
        part,
        leaf,
        every,
    )
    return zip(*(own[axis].tolist() for axis in every), strict=True)


def _padded(
    parts: Sequence[Part],
    leaf: int,
    axes: Axes,
    count: int,
) -> PaddedRows:
    """Return the rows in one array, with zeros behind each, and their sizes."""
    owns = [
        _own_sizes(
            part,
            leaf,
            axes,
        )
        for part in parts
    ]
    longest = {axis: max(int(own[axis].max()) for own in owns) for axis in axes}
    on_host = _on_host([part.leaves[leaf] for part in parts])
    filled: list[Array] = []
    for part, own in zip(parts, owns, strict=True):
        array = part.leaves[leaf][: len(part.rows)]
        array = np.asarray(array) if on_host else array
        for axis, length in longest.items():
            array = _resized(
                array,
                axis + 1,
                length,
                own[axis],
            )
        filled.append(array)
    rows = np.concatenate([part.rows for part in parts])
    sizes: dict[int, Array] = {}
    for axis in axes:
        whole = np.empty(count, np.int32)
        whole[rows] = np.concatenate([own[axis] for own in owns])
        sizes[axis] = device_put(whole)
    if not on_host:
        return PaddedRows(jnp.concatenate(filled)[np.argsort(rows)], sizes)
    out = np.empty((count, *filled[0].shape[1:]), filled[0].dtype)
    for part, array in zip(parts, filled, strict=True):
        out[part.rows] = array
    return PaddedRows(device_put(out), sizes)


def _own_sizes(
    part: Part,
    leaf: int,
    axes: Axes,
) -> dict[int, NumPyArray]:
    """Axis of the result of a row -> the size of each row along it."""
    places = {place.axis: place for place in part.cuts[leaf]}
    rows, shape = len(part.rows), part.leaves[leaf].shape[1:]
    own: dict[int, NumPyArray] = {}
    for axis in axes:
        # Rows at exact size have no padded axis.
        at = places.get(axis)
        own[axis] = np.full(rows, shape[axis]) if at is None else at.of_each(part.sizes)
    return own


def _resized(
    array: Array,
    axis: int,
    length: int,
    own: NumPyArray,
) -> Array:
    """Return the array with another length along an axis, and zeros behind each row's own."""
    if issubdtype(array.dtype, extended):
        words = _resized(
            jax.random.key_data(array),
            axis,
            length,
            own,
        )
        return jax.random.wrap_key_data(jnp.asarray(words), impl=jax.random.key_impl(array))
    np_ = np if isinstance(array, np.ndarray) else jnp
    if array.shape[axis] < length:
        wider = [(0, 0)] * array.ndim
        wider[axis] = (0, length - array.shape[axis])
        array = np_.pad(array, wider)
    array = array[(slice(None),) * axis + (slice(length),)]
    steps = np.arange(length).reshape(-1, *[1] * (array.ndim - 1 - axis))
    is_own = steps < own.reshape(-1, *[1] * (array.ndim - 1))
    return np_.where(is_own, array, np_.zeros((), array.dtype))


def _on_host(arrays: Sequence[Array]) -> bool:
    """Return whether arrays are put together on the host: they have values and NumPy's dtypes."""
    return not any(
        isinstance(array, Tracer) or issubdtype(array.dtype, extended) for array in arrays
    )
