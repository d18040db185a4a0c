"""Rows of one bucket, which one program runs, and how many of them it takes at a time.

Rows of sizes 0 and 1, and above the largest bucket, run at exact size: a group for each size.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, cast

import jax
import numpy as np

from ..._axes import Refused
from ..._errors import AxisError, ContractError
from ..._jax.typed import Array, Jitted, NumPyArray
from ..._view.layout import MAX_ENTRIES, aval_parts
from ..._view.named_axes import named_axes, refuse_two_sizes, shape_at, sizes_of
from ..._view.true_sizes import TrueSizes
from ..._view.view import View
from ..padded_calls import PaddedCalls, PaddingRecipe, SizeRefused, warn_refusal

if TYPE_CHECKING:
    from ..entry import Specialization
    from .columns import Column

Axes = tuple[int, ...]
"""Positions in the result of a row."""
Shapes = tuple[tuple[int, ...], ...]
"""Shapes of the arrays of one row."""
RUNGS = (512, 64, 8, 1)
"""How many rows a program takes at a time."""
_MOST_BYTES = 1 << 26
_SPARE = 8
"""A part of this many of a group's rows may be computed in vain, to run them in fewer programs."""
_CHEAP = 16
"""So may rows that hold a part of this many of all elements of a call, in all groups together."""


class RowPadding(PaddedCalls):
    """Padding of rows, of which a refusal is an error: a program for each length is no help."""

    def refuse(self, refusal: Refused) -> None:
        """Refuse to pad.

        Raises:
            AxisError: Always.
        """
        core = self.entry.core
        axes = " and ".join(repr(name) for name, _ in core.options.pad)
        raise AxisError(
            core.where,
            f"rows of unlike lengths cannot share a program, as {axes} cannot be padded here:"
            f" {refusal.place or 'it'} {refusal.what}.",
            "An axis is padded only if each operation along it is proven to give what it gives at"
            " exact size.",
            "change that line, or call the function row by row, which compiles one program for each"
            " length: [f(row) for row in rows].",
        )


@dataclass
class RowGroup:
    """Rows of one bucket.

    Args:
        key: The bucket of each padded axis; of rows at exact size, their shapes.
        recipe: How each row is padded; None if they run at exact size.
        shapes: Shapes of the arrays of a row in the program.
        programs: How many rows at a time -> JAX's function.
    """

    key: Hashable
    recipe: PaddingRecipe | None
    shapes: Shapes
    programs: dict[int, Jitted] = field(default_factory=dict[int, Jitted])
    # The program has run-time checks of Equinox, whose errors are waited for; or effects, which no
    # row may have twice.
    has_checks: bool = False
    has_effects: bool = False
    # How many rows a program may take, so that it keeps to `memory`.
    limit: int | None = None

    def elements(self, columns: Sequence[Column]) -> int:
        """Elements that a row of the program has, of arrays that rows have their own of."""
        return sum(
            math.prod(shape)
            for column, shape in zip(columns, self.shapes, strict=True)
            if column.kind != "shared"
        )

    def most(self, columns: Sequence[Column]) -> int:
        """How many rows a program takes at most, so that their arrays take 64 MiB or less."""
        row = sum(
            math.prod(shape) * aval_parts(column.arrays[0])[1].itemsize
            for column, shape in zip(columns, self.shapes, strict=True)
            if column.kind != "shared"
        )
        most = max(1, _MOST_BYTES // max(1, row))
        return most if self.limit is None else min(most, self.limit)


@dataclass(frozen=True)
class Member:
    """Rows of one set of shapes.

    Args:
        group: Their group.
        sizes: The true size of each padded axis.
        numbers: Numbers that Python computes from the sizes, if the program takes any.
    """

    group: RowGroup
    sizes: Mapping[str, int]
    numbers: Sequence[Array] = ()


class Lot:
    """The rows of a call that are in one group, in the caller's order.

    Args:
        group: The group.
        parts: Members of the group, with the numbers of their rows.
    """

    def __init__(
        self,
        group: RowGroup,
        parts: Sequence[tuple[Member, NumPyArray]],
    ):
        self.group = group
        self.members = [member for member, _ in parts]
        self.counts = np.array([len(rows) for _, rows in parts])
        rows = np.concatenate([rows for _, rows in parts])
        order = np.argsort(rows)
        self.rows = rows[order]
        self.member_of = np.repeat(np.arange(len(parts)), self.counts)[order]
        self._sizes = {
            name: np.array([member.sizes[name] for member in self.members], np.int32)
            for name in self.members[0].sizes
        }

    def sizes(self, at: NumPyArray) -> dict[str, NumPyArray]:
        """Axis -> the true sizes of the rows at these places."""
        which = self.member_of[at]
        return {name: sizes[which] for name, sizes in self._sizes.items()}

    @property
    def is_filled(self) -> bool:
        """True if all padded axes of its rows are filled, and none is at its exact size."""
        recipe = self.group.recipe
        return recipe is not None and len(recipe.fill.axes) == len(self._sizes)

    def numbers(self, at: NumPyArray) -> list[NumPyArray]:
        """Numbers that Python computes from the sizes, of the rows at these places."""
        if not self.members[0].numbers:
            return []
        columns = zip(*(member.numbers for member in self.members), strict=True)
        return [np.stack(column)[self.member_of[at]] for column in columns]


class RowGroups:
    """Groups of the rows of one entry.

    Args:
        entry: Runs the calls of single rows.
    """

    def __init__(self, entry: Specialization):
        self.entry = entry
        self.padding = RowPadding(entry)
        # Sizes nearest to those of rows at exact size -> the padded axes of each result there.
        self.axes_near: dict[tuple[tuple[str, int], ...], list[Axes]] = {}
        # Sizes at which the body does other operations than at the others of their bucket.
        self._alone: set[tuple[tuple[str, int], ...]] = set()
        # By the sizes of all axes of all arrays that rows have their own of.
        self.members: dict[tuple[int, ...], Member] = {}
        self.groups: dict[Hashable, RowGroup] = {}

    @cached_property
    def without_options(self) -> Jitted:
        """JAX's function of single rows, without options of the compiler."""
        return cast("Jitted", jax.jit(self.entry.jitted.__wrapped__))

    def forget(self, group: RowGroup) -> None:
        """Forget a group, of whose bucket more is known now."""
        self.groups.pop(group.key, None)
        self.forget_members(group)

    def is_seen_at_each_size(self, group: RowGroup) -> bool:
        """Return whether the body of a group has to be traced at each size, as its Python may have
        looked at the size.
        """
        return group.recipe is not None and group.recipe.key in self.entry.proofs

    def forget_members(self, group: RowGroup) -> None:
        """Forget what was found of the sizes of a group."""
        self.members = {
            shapes: each for shapes, each in self.members.items() if each.group is not group
        }

    def lots(
        self,
        columns: Sequence[Column],
        rows: NumPyArray,
    ) -> list[Lot]:
        """Put rows of a call into groups.

        Raises:
            ContractError: A row does not fit the contract.
        """
        by_group: dict[int, list[tuple[Member, NumPyArray]]] = {}
        for key, alike in runs_of_equal(columns, rows):
            member = self.members.get(key)
            if member is None:
                if len(self.members) >= MAX_ENTRIES:
                    self.members = {}
                member = self.members[key] = self._member(columns, int(alike[0]))
            by_group.setdefault(id(member.group), []).append((member, alike))
        return [Lot(parts[0][0].group, parts) for parts in by_group.values()]

    def _member(
        self,
        columns: Sequence[Column],
        row: int,
    ) -> Member:
        """What the rows of one set of shapes are, of which `row` is the first."""
        entry = self.entry
        arrays = [column.abstract(row) for column in columns]
        try:
            view = entry.plan_call(arrays, jit=False).view
        except ContractError as error:
            where = f"{entry.core.where}: "
            named = str(error).replace(where, f"{where}row {row}: ", 1)
            raise ContractError(named, code=error.code) from None

        named = named_axes(view)
        known = sizes_of(view, named)
        sizes: dict[str, int] = {}
        key: list[object] = []
        for name, bucket in entry.options.pad:
            refuse_two_sizes(
                entry.core.where,
                name,
                view,
                named,
            )
            if name in known:
                sizes[name] = known[name]
                key.append(bucket.range(known[name]) or known[name])
        others = self._shapes(view, dict.fromkeys(sizes, 2))
        is_alone = tuple(sizes.items()) in self._alone
        place: Hashable = (tuple(key), others)
        found = None if is_alone else self.groups.get(place)
        if found is None or not _holds(found, sizes):
            shapes = tuple(aval_parts(each)[0] for each in arrays)
            recipe = None if is_alone else self._recipe(arrays, sizes)
            if recipe is None:
                place = shapes
            else:
                shapes = recipe.shapes
            found = self.groups.get(place)
            if found is None:
                found = self.groups[place] = RowGroup(place, recipe, shapes)
        if found.recipe is None or found.recipe.key not in entry.proofs:
            return Member(found, sizes)
        try:
            numbers = entry.proofs[found.recipe.key].numbers_at(sizes)
        except Refused as refusal:
            self.run_alone(sizes, refusal)
            return self._member(columns, row)
        return Member(
            found,
            sizes,
            numbers,
        )

    def _recipe(
        self,
        arrays: Sequence[object],
        sizes: Mapping[str, int],
    ) -> PaddingRecipe | None:
        try:
            return self.padding.bucket(arrays)
        except SizeRefused as refusal:
            self.run_alone(sizes, refusal)
            return None

    def run_alone(
        self,
        sizes: Mapping[str, int],
        refusal: Refused,
    ) -> None:
        """Run rows of these sizes at exact size, with a warning: the body does other operations
        than at the other sizes of the bucket.
        """
        self._alone.add(tuple(sizes.items()))
        self.members = {
            shapes: each for shapes, each in self.members.items() if each.sizes != sizes
        }
        warn_refusal(self.entry.core, refusal)

    def is_one_of_few(
        self,
        group: RowGroup,
        columns: Sequence[Column],
        sizes: Mapping[str, int],
    ) -> bool:
        """Return whether the program of a group, which is refused at these sizes, is none of
        another size of its bucket.
        """
        recipe, entry = group.recipe, self.entry
        if recipe is None:
            return False
        arrays = recipe.abstract([column.abstract(0) for column in columns])
        axes = recipe.fill.axes
        for others in ({a.name: a.high for a in axes}, {a.name: a.low for a in axes}):
            counts = replace_sizes(recipe.counts, {**sizes, **others})
            try:
                entry.lower((*arrays, counts.abstract()), "trace")
            except Refused:
                continue
            finally:
                entry.land()
            return True
        return False

    def nearest(
        self,
        columns: Sequence[Column],
        row: int,
    ) -> tuple[dict[str, int], list[object]]:
        """Sizes nearest to those of a row at which each padded axis is filled, and the arrays of a
        row of these sizes.
        """
        entry = self.entry
        arrays = [column.abstract(row) for column in columns]
        view = entry.plan_call(arrays, jit=False).view
        known = sizes_of(view, named_axes(view))
        sizes = {
            name: bucket.nearest(known[name]) for name, bucket in entry.options.pad if name in known
        }
        if tuple(sizes.items()) in self._alone:
            for name, bucket in entry.options.pad:
                low, high = bucket.range(sizes.get(name, 0)) or (0, 0)
                if high:
                    sizes[name] = low if sizes[name] == high else high
        shapes = self._shapes(view, sizes)
        return sizes, [_resized(array, shape) for array, shape in zip(arrays, shapes, strict=True)]

    def _shapes(
        self,
        view: View,
        sizes: Mapping[str, int],
    ) -> Shapes:
        """Shapes of the arrays at other sizes of the padded axes: equal for all rows of a group."""
        named = named_axes(view)
        known = sizes_of(view, named)
        try:
            return tuple(
                shape_at(
                    leaf,
                    axes,
                    known,
                    sizes,
                )
                for leaf, axes in zip(view.leaves, named, strict=True)
            )
        except Refused as refusal:
            self.padding.refuse(refusal)
            raise


def runs_of_equal(
    columns: Sequence[Column],
    rows: NumPyArray,
) -> Iterator[tuple[tuple[int, ...], NumPyArray]]:
    """Yield the rows of each set of shapes, with the sizes of all axes that rows have their own
    of.
    """
    dims = [dim for column in columns for dim in column.dims(rows)] or [np.zeros_like(rows)]
    order = _order_of(dims)
    shapes = np.stack(dims, axis=1)[order]
    starts = [0, *(np.flatnonzero((shapes[1:] != shapes[:-1]).any(axis=1)) + 1).tolist()]
    ends = [*starts[1:], len(rows)]
    rows = rows[order]
    for key, begin, end in zip(shapes[starts].tolist(), starts, ends, strict=True):
        yield tuple(key), rows[begin:end]


def rungs_of(
    count: int,
    most: int,
    *,
    exactly: bool,
    cheap: int = 0,
    rungs: Sequence[int] = RUNGS,
) -> list[tuple[int, int]]:
    """Cut a number of rows into parts that programs take: how many rows of each, and how many the
    program takes. The programs are few and the same for all numbers of rows.

    Args:
        count: The number of rows.
        most: How many a program takes at most, 1 or more.
        exactly: Whether no row is computed in vain.
        cheap: So many may be, beside a part of the rows.
        rungs: How many rows a program may take, in descending order; the least one is taken
            anyway.
    """
    *_, least = rungs
    taken = [*(rung for rung in rungs if least < rung <= most), least]
    parts: list[tuple[int, int]] = []
    spare = 0 if exactly else max(count // _SPARE, cheap)
    left = count
    for rung, smaller in zip(taken, [*taken[1:], 0], strict=True):
        whole, left = divmod(left, rung)
        parts += [(rung, rung)] * whole
        if left > smaller and (rung - left <= spare or rung == least):
            parts.append((left, rung))
            left = 0
    return parts


def cheap_rows(lots: Sequence[Lot], columns: Sequence[Column]) -> list[int]:
    """How many rows of each lot may be computed in vain, as they are little beside the call."""
    sizes = [max(1, lot.group.elements(columns)) for lot in lots]
    whole = sum(size * len(lot.rows) for size, lot in zip(sizes, lots, strict=True))
    return [whole // _CHEAP // len(lots) // size for size in sizes]


def count_lengths(
    entry: Specialization,
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
            if axis.size in counts and dims and not counts[axis.size]:
                sizes, times = np.unique(dims[axis.axis], return_counts=True)
                counts[axis.size] = Counter(dict(zip(sizes.tolist(), times.tolist(), strict=True)))
    return counts


def count_sizes(lots: Iterable[Lot]) -> dict[str, tuple[Counter[int], int]]:
    """Axis -> how many rows have each size, and how many elements programs take for them."""
    sizes = defaultdict[str, Counter[int]](Counter)
    elements = Counter[str]()
    for lot in lots:
        padded = {} if lot.group.recipe is None else lot.group.recipe.fill.sizes
        for member, times in zip(lot.members, lot.counts.tolist(), strict=True):
            for name, size in member.sizes.items():
                sizes[name][size] += times
                elements[name] += times * padded.get(name, size)
    return {name: (sizes[name], elements[name]) for name in sizes}


def replace_sizes(counts: TrueSizes, sizes: Mapping[str, int]) -> TrueSizes:
    """True sizes of another call of the same program."""
    return TrueSizes(
        counts.values,
        counts.names,
        counts.weak,
        (),
        sizes,
    )


def _holds(
    group: RowGroup,
    sizes: Mapping[str, int],
) -> bool:
    """Return whether a program takes these sizes: its bucket may end below its size."""
    if group.recipe is None:
        return True
    return all(axis.low <= sizes[axis.name] <= axis.high for axis in group.recipe.fill.axes)


def _order_of(dims: Sequence[NumPyArray]) -> NumPyArray:
    """The order in which rows of equal shapes are beside each other."""
    keys: list[NumPyArray] = []
    for dim in dims:
        varies = bool((dim != dim[0]).any())
        if varies and not any(np.array_equal(dim, key) for key in keys):
            keys.append(dim)
    if len(keys) > 1:
        return np.lexsort(keys[::-1])
    if not keys:
        return np.arange(len(dims[0]))
    (key,) = keys
    # NumPy sorts 16 bits by their digits.
    return np.argsort(key.astype(np.uint16) if key.max() < 1 << 16 else key, kind="stable")


def _resized(
    array: object,
    shape: tuple[int, ...],
) -> object:
    if not isinstance(array, jax.ShapeDtypeStruct):
        return array
    return jax.ShapeDtypeStruct(
        shape,
        array.dtype,
        weak_type=array.weak_type,
    )
