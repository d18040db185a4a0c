"""The rows among the arguments of a call, and the flat arrays of each row.

A column is one flat array of the call of one row: the same for all rows ("shared"), one for each
row ("each"), or an element of an array with one axis more ("stack"), which `vmap` maps as ever.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from operator import attrgetter
from typing import Any, Literal, cast

import jax
import numpy as np

from ..._body.function import FunctionInfo
from ..._errors import AxisError, ContractError, DonationError, Where
from ..._jax.trees import Tracer, issubdtype, tree_flatten
from ..._jax.typed import Array, NumPyArray
from ..._signature.hints import ArrayHint, Hint
from ..._signature.paths import root_of
from ..._values.array_likes import a_kind, means_more, numbers_of
from ..._view.fitting import demand_floats_fit, demand_whole_numbers_fit
from ..._view.layout import aval_parts
from ..compiled_calls import CompiledCalls
from .ragged import PaddedRows, Ragged, Rows
from .row_numbers import in_row, number_of
from .visits import RowVisit, element

_ARRAYS = (jax.Array, np.ndarray, Tracer, jax.ShapeDtypeStruct)
IN_ONE_ARRAY = (Ragged, PaddedRows)
INSIDE_JIT = (
    "rows of unlike lengths are not mapped inside an outer `jit`, `scan` or the like.",
    "They run a program for each bucket, and there all is one program.",
    "call it outside of `jit`; `f.value_and_grad` is a gradient.",
)
"""What is wrong, the rule and the fix."""
Kind = Literal["shared", "each", "stack"]


class NumPyRows(list[Array]):
    """Rows that are NumPy's arrays, all of them: nothing looks at their types once more."""


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


def demand_sizes(
    where: Where,
    name: str,
    rows: PaddedRows,
) -> None:
    """Check that the sizes of rows fit their array: `jax.tree.map` may have changed them.

    Raises:
        ContractError: They do not.
    """
    count, *longest = rows.values.shape
    for axis, given in rows.sizes.items():
        sizes = np.asarray(given)
        is_fit = (
            0 <= axis < len(longest)
            and sizes.shape == (count,)
            and sizes.dtype.kind in "iu"
            and not (sizes.size and (sizes.min() < 0 or sizes.max() > longest[axis]))
        )
        if not is_fit:
            raise ContractError(
                where,
                f"{name!r} is an array of shape {tuple(rows.values.shape)}, and the sizes of its"
                f" rows along axis {axis} are {sizes.tolist()!r:.80}.",
                "The sizes of PaddedRows are integers, one for each row, and at most as long as the"
                " array; they are leaves of its tree, so `jax.tree.map` changes them too.",
                "change the values alone: PaddedRows(change(rows.values), rows.sizes).",
                code="J221",
            )


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
    if is_array or isinstance(rows[0], (*_ARRAYS, np.generic)):
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


def demand_shared(
    core: FunctionInfo,
    columns: Sequence[Column],
) -> None:
    """Check that a gradient which is summed over rows is with respect to what all rows share.

    Raises:
        ContractError: It is with respect to rows too.
    """
    fn = core.fn()
    wrt, skip = getattr(fn, "wrt", None), getattr(fn, "skip", ())
    for column in columns:
        name = root_of(column.path)
        if column.kind == "shared" or name in skip:
            continue
        is_float = issubdtype(aval_parts(column.arrays[0])[1], np.inexact)
        if name in wrt if wrt is not None else is_float:
            raise ContractError(
                core.where,
                f"the gradient is summed over rows, and {name!r} has another array in each row.",
                "A sum over rows is the gradient with respect to what all rows share.",
                'name what they share: wrt="params".',
                code="J221",
            )


def donated_row(
    where: Where,
    columns: Sequence[Column],
) -> DonationError | None:
    """Error for a row whose buffer another call has taken; None if there is none."""
    for column in columns:
        for row, array in enumerate(column.arrays):
            if isinstance(array, Tracer) or not isinstance(array, jax.Array):
                continue
            if not array.is_deleted():
                continue
            which = f"of row {number_of(row)} " if len(column.arrays) > 1 else ""
            return DonationError(
                where,
                f"the buffer {which}of {column.path!r} has been donated to an earlier call.",
                "A donated buffer is gone once the call that took it has started.",
                "use what that call returned, pass a copy (jnp.copy), or take the name out of"
                " `donate`.",
            )
    return None


def demand_arrays(
    where: Where,
    name: str,
    rows: Sequence[object],
) -> list[Array]:
    """Return rows as arrays, which they are of one rank and dtype.

    Raises:
        ContractError: They are not.
    """
    types = set(map(type, rows))
    if any(issubclass(kind, np.generic) for kind in types):
        rows = [np.asarray(row) if isinstance(row, np.generic) else row for row in rows]
        types = set(map(type, rows))
    strange = [kind for kind in types if not issubclass(kind, _ARRAYS)]
    if strange:
        i = next(i for i, row in enumerate(rows) if type(row) in strange)
        fix = f"pass arrays: {name}=[np.asarray(row) for row in {name}]."
        if rows[i] is None:
            fix = "leave that row out, here and of all other arguments, or pass an array."
        raise ContractError(
            where,
            f"row {number_of(i)} of {name!r} is a {type(rows[i]).__name__}.",
            "A list for an array is a list of rows, each of which is an array.",
            fix,
            code="J221",
        )
    for kind in filter(means_more, types):
        i = next(i for i, row in enumerate(rows) if type(row) is kind)
        raise ContractError(
            where,
            f"row {number_of(i)} of {name!r} is {a_kind(rows[i])}, which is more than its numbers.",
            "Of a subclass of NumPy's array JAX sees the numbers alone: a mask or a unit would be"
            " lost.",
            f"{numbers_of(rows[i], 'row')}.",
            code="J213",
        )
    arrays = cast("list[Array]", rows)
    # NumPy's arrays are never weakly typed.
    if types == {np.ndarray}:
        dtypes = list(map(attrgetter("dtype"), arrays))
        ranks = set(map(attrgetter("ndim"), arrays))
        if dtypes.count(dtypes[0]) == len(dtypes) and len(ranks) == 1:
            return NumPyRows(arrays)
    kinds = list(map(_kind, rows))
    at = next((i for i, kind in enumerate(kinds) if kind != kinds[0]), None)
    if at is not None:
        shape, first, _ = aval_parts(rows[0])
        dtype = str(first)
        is_rank = len(aval_parts(rows[at])[0]) != len(shape)
        fix = f"convert them: {name}=[np.asarray(row, {dtype!r}) for row in {name}]."
        raise ContractError(
            where,
            f"row {number_of(at)} of {name!r} is {kinds[at]}, and row {number_of(0)} {kinds[0]}.",
            "All rows of an argument have one dtype and one rank.",
            f"pass rows of {len(shape)} axes, as `row.reshape(...)` gives." if is_rank else fix,
            code="J221",
        )
    return arrays


def _is_narrowed(array: object) -> bool:
    """Return whether JAX has an array of NumPy's in fewer bits."""
    return isinstance(array, np.ndarray) and aval_parts(array)[1] != array.dtype


def _kind(row: object) -> str:
    shape, dtype, weak = aval_parts(row)
    return f"{'weakly typed ' if weak else ''}{dtype} with {len(shape)} axes"


def demand_equal(
    where: Where,
    counts: dict[str, int],
    axis: str,
) -> None:
    (first, count), *others = counts.items()
    for name, other in others:
        if other != count:
            raise ContractError(
                where,
                f"axis {axis!r} has two sizes, {count} from {first!r} and {other} from {name!r}.",
                f"Every argument mapped over {axis!r} must agree on it.",
                "pass as many rows of each.",
                code="J210",
            )


def refuse_none(
    where: Where,
    name: str,
) -> ContractError:
    return ContractError(
        where,
        f"{name!r} has no rows.",
        "The shapes of a result are those of its rows, and there are none.",
        "leave the call out where there is no row.",
        code="J221",
    )
