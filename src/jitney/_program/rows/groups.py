"""Rows of one bucket, which one program runs.

Rows of sizes 0 and 1, and above the largest bucket, run at exact size: a group for each size.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, cast

import jax
import numpy as np

from ..._axes import Refused
from ..._errors import AxisError, ContractError
from ..._jax.typed import Array, Jitted, NumPyArray
from ..._jax.xla.memory import counted_bytes
from ..._view.layout import MAX_ENTRIES, aval_parts
from ..._view.named_axes import named_axes, refuse_two_sizes, shape_at, sizes_of
from ..._view.true_sizes import TrueSizes
from ..._view.view import View
from ..compiled_calls import CompiledCalls
from ..runners.captured_calls import CapturedArray
from ..runners.padded_calls import PaddedCalls
from ..runners.padding_recipes import PaddingRecipe, RefusedSize, warn_refusal
from .lots import Lot, lots_of

if TYPE_CHECKING:
    from .columns import Column

Axes = tuple[int, ...]
"""Positions in the result of a row."""
Shapes = tuple[tuple[int, ...], ...]
"""Shapes of the arrays of one row."""
_MOST_BYTES = 1 << 26


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
            f"rows cannot share a program, as {axes} cannot be padded here:"
            f" {refusal.place or 'it'} {refusal.what}.",
            "An axis is padded only if each operation along it is proven to give what it gives at"
            " exact size.",
            "change that line, or call the function row by row, which compiles one program for each"
            " length: [f(row) for row in rows].",
        )


@dataclass(frozen=True, eq=False)
class BlockProgram:
    """Program of so many rows.

    Args:
        jitted: JAX's function, which takes the captured arrays first.
        captured: What rows have captured.
    """

    jitted: Jitted
    captured: tuple[jax.Array, ...] = ()

    def __call__(self, *given: object) -> object:
        return self.jitted(*self.captured, *given)

    def lower(self, *given: object) -> jax.stages.Lowered:
        """Return JAX's lowered program."""
        return self.jitted.lower(*self.captured, *given)

    def trace(self, *given: object) -> jax.stages.Traced:
        """Return JAX's traced program, with the captured arrays as constants: it is for a file."""
        if not self.captured:
            return self.jitted.trace(*given)
        function: Callable[..., object] = vars(self.jitted)["__wrapped__"]
        return jax.jit(partial(function, *self.captured)).trace(*given)

    def bytes(self, *given: object) -> int:
        """Bytes of a run by the compiler's count, without those of the captured arrays."""
        taken = counted_bytes(self.lower(*given).compile())
        return taken - sum(copy.nbytes for copy in self.captured)


@dataclass
class RowGroup:
    """Rows of one bucket.

    Args:
        key: The bucket of each padded axis; of rows at exact size, their shapes.
        recipe: How each row is padded; None if they run at exact size.
        shapes: Shapes of the arrays of a row in the program.
        programs: How many rows at a time -> their program.
        captured: What they have captured.
    """

    key: Hashable
    recipe: PaddingRecipe | None
    shapes: Shapes
    programs: dict[int, BlockProgram] = field(default_factory=dict[int, BlockProgram])
    captured: tuple[CapturedArray, ...] = ()
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


class RowGroups:
    """Groups of the rows of one entry.

    Args:
        entry: Runs the calls of single rows.
        form: What their arrays have in common (`form_of`).
    """

    def __init__(self, entry: CompiledCalls, form: Hashable):
        self.entry = entry
        self.form = form
        self.padding = RowPadding(entry)
        # Sizes nearest to those of rows at exact size -> the padded axes of each result there.
        self.axes_near: dict[tuple[tuple[str, int], ...], list[Axes]] = {}
        # Sizes at which the body does other operations than at the others of their bucket.
        self._alone: set[tuple[tuple[str, int], ...]] = set()
        # By the shapes of the arrays of all rows, and the sizes of all axes of all arrays that rows
        # have their own of.
        self.members: dict[Hashable, dict[tuple[int, ...], Member]] = {}
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
        self._keep_members(lambda each: each.group is not group)

    def _keep_members(self, is_kept: Callable[[Member], bool]) -> None:
        self.members = {
            fixed: {sizes: each for sizes, each in known.items() if is_kept(each)}
            for fixed, known in self.members.items()
        }

    def lots(
        self,
        columns: Sequence[Column],
        rows: NumPyArray,
        fixed: Hashable,
    ) -> list[Lot]:
        """Put rows of a call into groups.

        Args:
            columns: Their arrays.
            rows: Numbers of the rows.
            fixed: What does not differ between the rows (`signature_of`).

        Raises:
            ContractError: A row does not fit the contract.
        """
        return lots_of(
            columns,
            rows,
            lambda: self.members.get(fixed, {}),
            lambda sizes, row: self._learn(columns, fixed, sizes, row),
        )

    def _learn(
        self,
        columns: Sequence[Column],
        fixed: Hashable,
        sizes: tuple[int, ...],
        row: int,
    ) -> Member:
        if sum(map(len, self.members.values())) >= MAX_ENTRIES:
            self.members = {}
        member = self._member(columns, row)
        self.members.setdefault(fixed, {})[sizes] = member
        return member

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
        recipe = self.padding.bucket(arrays)
        if isinstance(recipe, RefusedSize):
            self.run_alone(sizes, recipe.refusal)
            return None
        return recipe

    def run_alone(
        self,
        sizes: Mapping[str, int],
        refusal: Refused,
    ) -> None:
        """Run rows of these sizes at exact size, with a warning: the body does other operations
        than at the other sizes of the bucket.
        """
        self.leave_alone(sizes)
        warn_refusal(self.entry.core, refusal)

    def leave_alone(self, sizes: Mapping[str, int]) -> None:
        """Run rows of these sizes at exact size from now on."""
        self._alone.add(tuple(sizes.items()))
        self._keep_members(lambda each: each.sizes != sizes)

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
                if low < high:
                    sizes[name] = low if sizes[name] == high else high
                elif bucket.range(high + 1):
                    sizes[name] = high + 1
        shapes = self._shapes(view, sizes)
        return sizes, [_resized(array, shape) for array, shape in zip(arrays, shapes, strict=True)]

    def _shapes(
        self,
        view: View,
        sizes: Mapping[str, int],
    ) -> Shapes:
        """Shapes of the arrays at other sizes of the padded axes: equal for all rows of a group."""
        try:
            return _shapes_at(view, sizes)
        except Refused as refusal:
            self.padding.refuse(refusal)
            raise


def form_of(entry: CompiledCalls, columns: Sequence[Column]) -> Hashable:
    """Return what the arrays of a call have in common with those of calls that differ along padded
    axes alone.
    """
    kinds = [(column.kind, *aval_parts(column.arrays[0])[1:]) for column in columns]
    try:
        view = entry.plan_call([column.abstract(0) for column in columns], jit=False).view
        known = sizes_of(view, named_axes(view))
        shapes = _shapes_at(view, {name: 2 for name, _ in entry.options.pad if name in known})
    # The call raises it, with the row at fault.
    except (ContractError, Refused):
        return signature_of(columns)
    return tuple(kinds), shapes


def signature_of(columns: Sequence[Column]) -> Hashable:
    """Return what does not differ between the rows of a call."""
    return tuple(column.signature() for column in columns)


def _shapes_at(view: View, sizes: Mapping[str, int]) -> Shapes:
    """Shapes of the arrays at other sizes of the padded axes.

    Raises:
        Refused: The size of another axis has no whole number there.
    """
    named = named_axes(view)
    known = sizes_of(view, named)
    return tuple(
        shape_at(leaf, axes, known, sizes) for leaf, axes in zip(view.leaves, named, strict=True)
    )


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
            if axis.size in counts and dims and not counts[axis.size]:
                sizes, times = np.unique(dims[axis.axis], return_counts=True)
                counts[axis.size] = Counter(dict(zip(sizes.tolist(), times.tolist(), strict=True)))
    return counts


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
