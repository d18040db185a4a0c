"""The rows among the arguments of a call, and the flat arrays of each row.

A column is one flat array of the call of one row: the same for all rows ("shared"), one for each
row ("each"), or an element of an array with one axis more ("stack"), which `vmap` maps as ever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from operator import attrgetter
from typing import Any, Literal, cast

import jax
import numpy as np

from ..._axes import Refused
from ..._body.function import FunctionInfo
from ..._errors import AxisError, ContractError, Where
from ..._jax.trees import Tracer, tree_flatten
from ..._jax.typed import Array, NumPyArray
from ..._signature.hints import ArrayHint, Hint
from ..._view.fitting import demand_floats_fit, demand_whole_numbers_fit
from ..._view.layout import aval_parts
from ..._view.named_axes import named_axes, shapes_at, sizes_of
from ..compiled_calls import CompiledCalls
from .ragged import IN_ONE_ARRAY, NumPyRows, PaddedRows, Ragged, Rows
from .row_checks import (
    ARRAYS,
    INSIDE_JIT,
    demand_arrays,
    demand_equal,
    demand_sizes,
    in_row,
    number_of,
    refuse_none,
)
from .visits import RowVisit, element

Kind = Literal["shared", "each", "stack"]


@dataclass(frozen=True)
class Column:
    """One flat array of the call of a row.

    Args:
        kind: Where rows have it from.
        values: The array; or one for each row, in a list or in one array.
        path: As a person would write it.
    """

    kind: Kind
    values: Any
    path: str = ""

    def of(self, row: int) -> Array:
        """The array of a row."""
        if self.kind == "shared":
            return self.values
        return element(self.values, row)

    @property
    def arrays(self) -> Sequence[Array]:
        """All its arrays."""
        if isinstance(self.values, IN_ONE_ARRAY):
            return [self.values.values]
        return self.values if self.kind == "each" else [self.values]

    def dims(self, rows: NumPyArray) -> list[NumPyArray]:
        """Sizes of these rows along each axis, where they have their own."""
        if self.kind != "each":
            return []
        if isinstance(self.values, IN_ONE_ARRAY):
            return self.values.dims(rows)
        rank = len(self.values[0].shape)
        if not rank:
            return []
        if rank == 1 and not self.is_traced:
            return [self.lengths[rows]]
        sizes = np.fromiter(
            chain.from_iterable(self._shapes), np.int64, rank * len(self._shapes)
        ).reshape(-1, rank)
        return list(sizes[rows].T)

    def abstract(self, row: int) -> object:
        """The array of a row by its shape and dtype; a static value as it is."""
        if isinstance(self.values, IN_ONE_ARRAY):
            _, dtype, weak = aval_parts(self.values.values)
            return jax.ShapeDtypeStruct(
                self.values.shape(row),
                dtype,
                weak_type=weak,
            )
        array = self.of(row)
        if not hasattr(array, "shape"):
            return array
        shape, dtype, weak = aval_parts(array)
        return jax.ShapeDtypeStruct(
            shape,
            dtype,
            weak_type=weak,
        )

    @property
    def rank(self) -> int:
        """How many axes a row has."""
        if isinstance(self.values, Ragged):
            return len(self.values.values.shape)
        return len(self.arrays[0].shape) - (self.kind == "stack" or self.is_padded)

    @property
    def is_padded(self) -> bool:
        """True if its rows are in a padded array."""
        return isinstance(self.values, PaddedRows)

    @cached_property
    def lengths(self) -> NumPyArray:
        """The length of each row of a list."""
        # NumPy has the size of an array at hand, where `len` takes twice as long.
        is_flat = isinstance(self.values, NumPyRows) and self.values[0].ndim == 1
        length = attrgetter("size") if is_flat else len
        return np.fromiter(
            map(length, self.values),
            np.int64,
            len(self.values),
        )

    @cached_property
    def _shapes(self) -> list[tuple[int, ...]]:
        return [array.shape for array in self.values]

    @cached_property
    def is_traced(self) -> bool:
        """True if one of its arrays is a tracer."""
        if isinstance(self.values, NumPyRows):
            return False
        return any(issubclass(kind, Tracer) for kind in set(map(type, self.arrays)))

    def demand_fit(self, where: Where) -> None:
        """Check that the numbers of NumPy's arrays fit into the types that JAX has for them.

        Raises:
            ContractError: One does not.
        """
        if self.kind == "shared" or isinstance(self.values, (jax.Array, Tracer)):
            return
        arrays = self.arrays
        # Rows of 64 bits may stand among others of 32.
        if isinstance(arrays, NumPyRows) and not _is_narrowed(arrays[0]):
            return
        if not any(issubclass(kind, np.ndarray) for kind in set(map(type, arrays))):
            return
        for row, array in enumerate(arrays):
            if not _is_narrowed(array):
                continue
            try:
                demand_whole_numbers_fit(where, [self.path], [array])
                demand_floats_fit(where, [self.path], [array])
            except ContractError as error:
                if not isinstance(self.values, list):
                    raise
                raise in_row(where, row, error) from None

    def alone(self, array: object) -> Column:
        """The same column of one row, which has this array."""
        if self.kind == "shared":
            return Column(
                "shared",
                array,
                self.path,
            )
        return Column(
            "each",
            [array],
            self.path,
        )

    def signature(self) -> Hashable:
        """What does not differ between rows: dtype and weak type, and the shape, or the number of
        axes of rows that have their own shapes.
        """
        if self.kind == "each":
            _, dtype, weak = aval_parts(self.arrays[0])
            return self.kind, self.rank, dtype, weak
        shape, dtype, weak = aval_parts(self.values)
        return self.kind, shape[1:] if self.kind == "stack" else shape, dtype, weak


def _is_narrowed(array: object) -> bool:
    """Return whether JAX has an array of NumPy's in fewer bits."""
    return isinstance(array, np.ndarray) and aval_parts(array)[1] != array.dtype


@dataclass(frozen=True)
class RowArguments:
    """Arguments of a call with rows.

    Args:
        count: How many rows there are.
        first: The arguments of the first row.
        leaves: Columns of all leaves of the arguments of a row, static ones too.
    """

    count: int
    first: tuple[object, ...]
    leaves: tuple[Column, ...]

    def with_columns(
        self,
        entry: CompiledCalls,
        columns: Sequence[Column],
    ) -> RowArguments:
        """The same arguments, with other columns for the arrays of an entry."""
        leaves = list(self.leaves)
        flat, treedef = tree_flatten(self.first)
        for i, column in zip(entry.layout.dynamic, columns, strict=True):
            leaves[i] = column
            flat[i] = column.of(0)
        return RowArguments(
            self.count,
            jax.tree.unflatten(treedef, flat),
            tuple(leaves),
        )

    def columns(self, entry: CompiledCalls) -> tuple[Column, ...]:
        """Columns of the arrays of an entry, which runs the calls of single rows."""
        layout = entry.layout
        return tuple(
            Column(
                column.kind,
                column.values,
                layout.names[i][1],
            )
            for i, column in ((i, self.leaves[i]) for i in layout.dynamic)
        )


def row_arguments(
    core: FunctionInfo,
    values: Sequence[object],
) -> RowArguments:
    """Find the rows of a call.

    Raises:
        ContractError: Arguments differ in the number of their rows, or rows are unlike.
    """
    (axis,) = core.options.vmap
    finder = _RowFinder(core.where)
    visit = RowVisit(
        core.where,
        axis,
        finder.rows,
        finder.stack,
        finder.shared,
    )
    first = visit.arguments(core.contract, values)
    counts = finder.counts
    if not counts:
        raise ContractError(
            core.where,
            f"no argument has an axis {axis.name!r} before those of its annotation.",
            f"`vmap` maps {axis.name!r}, and what is cut or has `lengths` is rows of it.",
            "pass arrays with one axis more than their annotations, or a list of arrays.",
            code="J210",
        )
    demand_equal(
        core.where,
        counts,
        axis.name,
    )
    return RowArguments(next(iter(counts.values())), first, tuple(finder.columns))


class _RowFinder:
    """Collects the columns of the arguments of a call, one after the other.

    Args:
        where: The function, for messages.

    Attributes:
        counts: Number of rows of each argument or part of one that has them, by its path.
        columns: Columns of the leaves of the arguments so far.
    """

    def __init__(self, where: Where):
        self._where = where
        self.counts: dict[str, int] = {}
        self.columns: list[Column] = []

    def rows(
        self,
        path: str,
        value: object,
        hint: Hint,
    ) -> object:
        """Add the columns of rows, and return the first row.

        Raises:
            ContractError: There is none, or they are unlike.
            AxisError: An outer transform traces their sizes.
        """
        if isinstance(value, PaddedRows):
            if value.is_traced:
                raise AxisError(self._where, *INSIDE_JIT)
            demand_sizes(self._where, path, value)
        rows = rows_of(value)
        self.counts[path] = len(rows)
        if not len(rows):
            raise refuse_none(self._where, path)
        self.columns += each_row(
            self._where,
            path,
            rows,
            is_array=isinstance(hint, ArrayHint),
        )
        return rows[0]

    def stack(
        self,
        path: str,
        array: Array,
    ) -> object:
        """Add the column of an array that `vmap` maps, and return its first element.

        Raises:
            ContractError: It has none.
        """
        self.counts[path] = array.shape[0]
        if not array.shape[0]:
            raise refuse_none(self._where, path)
        self.columns.append(Column("stack", array))
        return element(array, 0)

    def shared(self, leaf: object) -> object:
        """Add the column of a leaf that all rows share, and return it."""
        self.columns.append(Column("shared", leaf))
        return leaf


def rows_of(value: object) -> Rows:
    if isinstance(value, Ragged):
        return value.in_memory()
    return value if isinstance(value, PaddedRows) else list(cast("Sequence[object]", value))


def each_row(
    where: Where,
    name: str,
    rows: Rows,
    *,
    is_array: bool,
) -> list[Column]:
    if isinstance(rows, IN_ONE_ARRAY):
        return [Column("each", rows)]
    if is_array or isinstance(rows[0], (*ARRAYS, np.generic)):
        return [Column("each", demand_arrays(where, name, rows))]

    # Trees: the same structure for all, whose leaves are columns.
    flat = [tree_flatten(row) for row in rows]
    structure = flat[0][1]
    for i, (_, other) in enumerate(flat):
        if other != structure:
            raise ContractError(
                where,
                f"row {number_of(i)} of {name!r} has another structure than row {number_of(0)}:"
                f" {other} and {structure}.",
                "All rows share the programs of their buckets, so they differ in arrays alone.",
                "pass rows of one structure, with equal static fields.",
                code="J221",
            )
    columns = [list(column) for column in zip(*(leaves for leaves, _ in flat), strict=True)]
    return [of_leaves(where, name, column) for column in columns]


def of_leaves(
    where: Where,
    name: str,
    column: Sequence[Array],
) -> Column:
    if hasattr(column[0], "shape"):
        return Column("each", demand_arrays(where, name, column))
    differs = next((i for i, leaf in enumerate(column) if leaf != column[0]), None)
    if differs is not None:
        raise ContractError(
            where,
            f"row {number_of(differs)} of {name!r} holds {column[differs]!r},"
            f" and row {number_of(0)} {column[0]!r}.",
            "All rows share the programs of their buckets, so they differ in arrays alone.",
            "pass numbers that differ as arrays.",
            code="J221",
        )
    return Column("shared", column[0])


def form_of(entry: CompiledCalls, columns: Sequence[Column]) -> Hashable:
    """Return what the arrays of a call have in common with those of calls that differ along padded
    axes alone.
    """
    kinds = [(column.kind, *aval_parts(column.arrays[0])[1:]) for column in columns]
    try:
        view = entry.plan_call([column.abstract(0) for column in columns], jit=False).view
        known = sizes_of(view, named_axes(view))
        shapes = shapes_at(view, {name: 2 for name, _ in entry.options.pad if name in known})
    # The call raises it, with the row at fault.
    except (ContractError, Refused):
        return signature_of(columns)
    return tuple(kinds), shapes


def signature_of(columns: Sequence[Column]) -> Hashable:
    """Return what does not differ between the rows of a call."""
    return tuple(column.signature() for column in columns)


def count_lengths(
    entry: CompiledCalls,
    columns: Sequence[Column],
    count: int,
) -> dict[str, Counter[int]]:
    """Padded axis -> how many rows have each length."""
    view = entry.plan_call([column.abstract(0) for column in columns], jit=False).view
    rows = np.arange(count)
    counts = {name: Counter[int]() for name, _ in entry.options.pad}
    for column, axes in zip(columns, named_axes(view), strict=True):
        dims = column.dims(rows)
        for axis in axes:
            # Arrays that share an axis agree on it: the first one has its lengths.
            if axis.size in counts and dims and not counts[axis.size]:
                sizes, times = np.unique(dims[axis.axis], return_counts=True)
                pairs = zip(sizes.tolist(), times.tolist(), strict=True)
                counts[axis.size] = Counter(dict(pairs))
    return counts
