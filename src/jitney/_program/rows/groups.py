"""The groups of the rows of one entry: which group a row is in, by its sizes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, cast

import jax

from ..._axes import Refused
from ..._errors import AxisError, ContractError
from ..._jax.typed import Array, Jitted, NumPyArray
from ..._view.layout import MAX_ENTRIES, aval_parts
from ..._view.named_axes import named_axes, refuse_two_sizes, shapes_at, sizes_of
from ..._view.true_sizes import TrueSizes
from ..._view.view import View
from ..compiled_calls import CompiledCalls
from ..runners.padded_calls import PaddedCalls
from ..runners.padding_recipes import PaddingRecipe, RefusedSize, warn_refusal
from .group import Axes, Member, RowGroup, Shapes
from .known_sizes import SizePattern, SizeTables, size_pattern
from .lots import Lot, lots_of
from .row_checks import in_row

if TYPE_CHECKING:
    from .columns import Column


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


class RowGroups:
    """Groups of the rows of one entry.

    Args:
        entry: Runs the calls of single rows.
        form: What their arrays have in common (`form_of`).
    """

    def __init__(
        self,
        entry: CompiledCalls,
        form: Hashable,
    ):
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
        self._tables = SizeTables()
        self._patterns: dict[Hashable, SizePattern | None] = {}
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

    def _keep_members(
        self,
        is_kept: Callable[[Member], bool],
    ) -> None:
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
            lambda dims: self._tables.lots(dims, rows, fixed, self.members.get(fixed, {})),
        )

    def _learn(
        self,
        columns: Sequence[Column],
        fixed: Hashable,
        sizes: tuple[int, ...],
        row: int,
    ) -> Member:
        if sum(map(len, self.members.values())) >= MAX_ENTRIES:
            self.members, self._patterns = {}, {}
        member = self._alike(fixed, sizes)
        if member is None:
            member = self._member(
                columns,
                fixed,
                sizes,
                row,
            )
        self.members.setdefault(fixed, {})[sizes] = member
        return member

    def _alike(
        self,
        fixed: Hashable,
        sizes: tuple[int, ...],
    ) -> Member | None:
        """Rows of new sizes, by another row of their bucket; None if the contract has to be
        looked at.
        """
        pattern = self._patterns.get(fixed)
        found = pattern.axes(sizes) if pattern is not None and not self._alone else {}
        if pattern is None or not found:
            return None
        pad = [(name, bucket) for name, bucket in self.entry.options.pad if name in found]
        ordered = {name: found[name] for name, _ in pad}
        ranges = tuple(bucket.range(found[name]) for name, bucket in pad)
        group = self.groups.get((ranges, pattern.others))
        if group is None or group.recipe is None or not _holds(group, ordered):
            return None
        try:
            numbers = self._numbers(group, ordered)
            return Member(
                group,
                ordered,
                numbers,
            )
        except Refused:
            return None

    def _numbers(
        self,
        group: RowGroup,
        sizes: Mapping[str, int],
    ) -> Sequence[Array]:
        """Numbers that Python computes from the sizes of a row.

        Raises:
            Refused: The body performs other operations at these sizes.
        """
        if group.recipe is None or group.recipe.key not in self.entry.proofs:
            return ()
        return self.entry.proofs[group.recipe.key].numbers_at(sizes)

    def _member(
        self,
        columns: Sequence[Column],
        fixed: Hashable,
        of_row: tuple[int, ...],
        row: int,
    ) -> Member:
        """What the rows of one set of shapes are, of which `row` is the first."""
        entry = self.entry
        arrays = [column.abstract(row) for column in columns]
        try:
            view = entry.plan_call(arrays, jit=False).view
            named = named_axes(view)
            for name, _ in entry.options.pad:
                refuse_two_sizes(
                    entry.core.where,
                    name,
                    view,
                    named,
                )
        except ContractError as error:
            raise in_row(entry.core.where, row, error) from None

        known = sizes_of(view, named)
        sizes: dict[str, int] = {}
        key: list[object] = []
        for name, bucket in entry.options.pad:
            if name in known:
                sizes[name] = known[name]
                key.append(bucket.range(known[name]) or known[name])
        others = self._shapes(view, dict.fromkeys(sizes, 2))
        if fixed not in self._patterns:
            contract = entry.core.contract
            pattern = size_pattern(
                contract,
                columns,
                view,
                sizes,
                of_row,
                others,
            )
            self._patterns[fixed] = pattern
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
        try:
            numbers = self._numbers(found, sizes)
            return Member(
                found,
                sizes,
                numbers,
            )
        except Refused as refusal:
            self.run_alone(sizes, refusal)
            return self._member(
                columns,
                fixed,
                of_row,
                row,
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

    def leave_alone(
        self,
        sizes: Mapping[str, int],
    ) -> None:
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
        highest = {axis.name: axis.high for axis in axes}
        lowest = {axis.name: axis.low for axis in axes}
        for others in (highest, lowest):
            counts = replace_sizes(
                recipe.counts,
                {**sizes, **others},
            )
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
            return shapes_at(view, sizes)
        except Refused as refusal:
            self.padding.refuse(refusal)
            raise


def replace_sizes(
    counts: TrueSizes,
    sizes: Mapping[str, int],
) -> TrueSizes:
    """True sizes of another call of the same program."""
    return counts.replace((), sizes)


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
