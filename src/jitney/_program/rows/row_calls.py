"""Calls with rows of unlike lengths: the program of one row, mapped over the rows of each bucket.

The rows of a bucket are filled into blocks of 512, 64, 8 and 1 (`lots.rungs_of`), each of which
runs `jax.vmap` of the padded program of one row, with a true size for each row. So the programs are
few, and the same whatever mixture of lengths a call has.
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace

import jax
import numpy as np

from ..._diagnosis.tracer_errors import no_number
from ..._errors import AxisError
from ..._jax.compile_cache.cache import ensure as ensure_cache
from ..._jax.compile_cache.cache import pause_cache
from ..._jax.tracing import is_staged, times_differentiated
from ..._jax.trees import tree_flatten, tree_unflatten
from ..._jax.typed import Array, NumPyArray
from ..._signature.buckets import AUTO
from ..._verify import is_verified
from ..._view.layout import MAX_ENTRIES, jit_is_off
from ..compiled_calls import SpecializedFunction
from ..entry import Specialization
from .block_programs import devices_of, refuse_options
from .columns import (
    Column,
    RowArguments,
    count_lengths,
    form_of,
    row_arguments,
    signature_of,
)
from .group import Axes
from .groups import RowGroups
from .lengths import cut_columns, padded_axes, read_lengths, row_shapes
from .lot_programs import LotPrograms
from .lots import Lot, count_sizes
from .results import (
    Gathered,
    Part,
    demand_like_results,
    totals,
    varying,
    whole_results,
)
from .row_checks import INSIDE_JIT, demand_shared, donated_row
from .rows_alone import axes_near, verify_rows, verify_sums


class RowCalls:
    """Runs the calls of a function with rows.

    Args:
        core: The function, with `vmap` and `pad`.
    """

    def __init__(self, core: SpecializedFunction[Specialization]):
        self._core = weakref.ref(core)
        refuse_options(core)
        (axis,) = core.options.vmap
        self.axis = axis.name
        # The options of one row. Buckets that the lengths choose are open until the first call.
        self._options = core.options.without(
            "vmap",
            "chunk",
            "memory",
            "ragged",
            "shard",
            "mesh",
            "accumulate",
            "verify",
        )
        self._is_open = any(bucket.ladder == AUTO for _, bucket in core.options.pad)
        self.row = core.with_options(self._options)

    def call(
        self,
        values: tuple[object, ...],
        lengths: object = None,
    ) -> RowCall:
        """Return a call, with its entry.

        Args:
            values: One for each parameter.
            lengths: Axis -> lengths of the rows of padded arrays; None if there are none.

        Raises:
            ContractError: Its rows do not fit.
        """
        core = self._core()
        if core is None:
            raise ReferenceError("the function of these rows is gone")
        self.row.serve(core.fn())
        arguments = row_arguments(core, values)
        entry = self._entry(arguments)
        if lengths is not None:
            columns = arguments.columns(entry)
            cut = cut_columns(
                core.where,
                columns,
                row_shapes(entry, columns, entry.row_shapes),
                read_lengths(core.where, padded_axes(core), lengths),
                arguments.count,
            )
            arguments = arguments.with_columns(entry, cut)
            entry = self._entry(arguments)
        if self._is_open:
            self._choose_buckets(
                core,
                entry,
                arguments,
            )
            entry = self._entry(arguments)
        return RowCall(
            self,
            core,
            entry,
            arguments.columns(entry),
            arguments.count,
        )

    def _entry(self, arguments: RowArguments) -> Specialization:
        """Return the entry of the first row."""
        leaves, treedef = tree_flatten(arguments.first)
        key = (treedef, *map(type, leaves))
        layout = self.row.layouts.get(key)
        if layout is None:
            layout = self.row.layout(key, arguments.first)
        return self.row.settled(layout, leaves)[1]

    def _choose_buckets(
        self,
        core: SpecializedFunction[Specialization],
        entry: Specialization,
        arguments: RowArguments,
    ) -> None:
        """Choose the buckets of `pad={axis: "auto"}` by the lengths of this call, for all calls."""
        columns = arguments.columns(entry)
        if not any(column.kind == "each" for column in columns):
            return  # rows of one length, which choose none
        # A call whose rows do not fit chooses nothing.
        fixed = signature_of(columns)
        groups_of(entry, columns, fixed).lots(columns, np.arange(arguments.count), fixed)
        counts = count_lengths(
            entry,
            columns,
            arguments.count,
        )
        pad = tuple(
            (name, bucket.chosen(counts[name]) if bucket.ladder == AUTO else bucket)
            for name, bucket in core.options.pad
        )
        self.row = core.with_options(replace(self._options, pad=pad))
        self._is_open = False


class RowCall:
    """One call, which `Program.__call__` runs as it runs that of an entry.

    Args:
        calls: The function.
        core: The same, with `vmap`.
        entry: Runs single rows.
        columns: The arrays of its rows.
        count: How many rows there are.
    """

    flights = False
    """A trace is over when the call is."""

    def __init__(
        self,
        calls: RowCalls,
        core: SpecializedFunction[Specialization],
        entry: Specialization,
        columns: tuple[Column, ...],
        count: int,
    ):
        self.calls = calls
        self.core = core
        self.entry = entry
        self.columns = columns
        self.count = count
        self.is_nested = any(column.is_traced for column in columns)
        if self.is_nested and not entry.layout.nested:
            self.entry = entry = entry.nested_entry
        self.layout = entry.layout
        self.paths = entry.paths
        self.reads = entry.reads
        self._fixed = signature_of(columns)
        self.groups = groups_of(entry, columns, self._fixed)
        devices = None if self.is_nested else devices_of(core)
        self.programs = LotPrograms(
            core,
            entry,
            self.groups,
            columns,
            devices,
        )
        with entry.numbers():
            for column in columns:
                column.demand_fit(core.where)

    @property
    def arrays(self) -> tuple[Array, ...]:
        """Arrays of the first row."""
        return tuple(column.of(0) for column in self.columns)

    def compile_event(
        self,
        arrays: Sequence[object],
        call: object,
    ) -> None:
        """Record no cause of a compile: a call has programs of several buckets."""
        del arrays, call

    def note_missed_check(self, error: Exception) -> bool:
        """Return whether to repeat the call: each error of a check is seen at once."""
        del error
        return False

    def run(self, *arrays: object) -> object:
        """Run the call; `arrays` are those of the first row, for messages.

        Raises:
            AxisError: The axes of the rows cannot be padded, or an outer `jit` traces the call.
        """
        del arrays
        treedef, leaves = self.leaves()
        return tree_unflatten(treedef, leaves)

    def leaves(self) -> tuple[Hashable, list[Gathered]]:
        """Run the call; return the structure of the result of a row, and each array of it, of all
        rows.

        Raises:
            AxisError: The axes of the rows cannot be padded, or an outer `jit` traces the call.
        """
        unfit = no_number(
            self.core.where,
            self.arrays,
            self.paths,
        )
        if unfit is not None:
            raise unfit
        refusal = self._outside()
        if refusal is not None:
            raise AxisError(self.core.where, *refusal)
        try:
            with self.entry.numbers():
                return self._run_here()
        except (RuntimeError, ValueError) as error:
            donated = donated_row(self.core.where, self.columns)
            if donated is None:
                raise
            raise donated from error

    def _run_here(self) -> tuple[Hashable, list[Gathered]]:
        core = self.core
        if jit_is_off() or core.options.disabled is not None:
            written = [*self._as_written()]
            if not core.options.accumulate:
                return self._whole(written)
            alone = [replace(part, leaves=[leaf[0] for leaf in part.leaves]) for part in written]
            return totals(core.where, alone)
        if core.options.accumulate:
            demand_shared(core, self.columns)
        parts, lots = self.computed()
        whole = totals(core.where, parts) if core.options.accumulate else self._whole(parts)
        if is_verified(core.options) and not self.is_nested:
            if core.options.accumulate:
                verify_sums(self, lots)
            else:
                verify_rows(self, parts)
        for name, counted in count_sizes(lots).items():
            core.counters.count_rows(name, *counted)
        return whole

    def _whole(self, parts: Sequence[Part]) -> tuple[Hashable, list[Gathered]]:
        demand_like_results(
            self.core.where,
            [part.treedef for part in parts],
            [part.leaves for part in parts],
            [int(part.rows[0]) for part in parts],
        )
        leaves = whole_results(
            parts,
            self.varying(parts),
            self.count,
            ragged=self.core.options.ragged,
            is_alike=not any(column.kind == "each" for column in self.columns),
        )
        return parts[0].treedef, leaves

    def varying(self, parts: Sequence[Part]) -> list[Axes]:
        """The axes of unlike lengths of each array of the result of a row."""
        # JITNEY_DISABLE: nothing says which axes may, but the rows.
        if not self.core.options.pad or any(part.is_filled for part in parts):
            return varying(parts)
        return varying(parts, [axes_near(self, int(part.rows[0])) for part in parts])

    def _as_written(self) -> Iterator[Part]:
        """Run the function as it was written, row by row."""
        for row in range(self.count):
            out = self.entry.run_without_jit(*[column.of(row) for column in self.columns])
            leaves, treedef = tree_flatten(out)
            yield Part(
                np.array([row]),
                {},
                treedef,
                [jax.numpy.asarray(leaf)[None] for leaf in leaves],
                [()] * len(leaves),
            )

    def _outside(self) -> tuple[str, str, str] | None:
        """Why the call cannot run here, the rule, and the fix; None if it can."""
        if is_staged():
            return INSIDE_JIT
        if self.is_nested and times_differentiated(self._tracers()) > 1:
            return (
                "rows of unlike lengths are not mapped under two derivatives.",
                "The derivative of a padded program is proven, and not that of its derivative.",
                "take them with `.hessian` or `.hvp`.",
            )
        return None

    def _tracers(self) -> list[Array]:
        """All arrays of all rows, of a call that an outer transform traces."""
        return [leaf for column in self.columns for leaf in column.arrays]

    def lots(self, rows: NumPyArray | None = None) -> list[Lot]:
        """Put rows into groups; all of them without `rows`."""
        chosen = np.arange(self.count) if rows is None else rows
        return self.groups.lots(self.columns, chosen, self._fixed)

    def computed(self) -> tuple[list[Part], list[Lot]]:
        """Run the programs of all rows."""
        is_left = np.ones(self.count, bool)
        parts: list[Part] = []
        lots: list[Lot] = []
        while is_left.any():
            lots = self.lots(np.flatnonzero(is_left))
            # What has run does not run again where more is known of a bucket: it may have effects.
            for part in self.programs.run(lots):
                parts.append(part)
                is_left[part.rows] = False
        is_whole = sum(len(lot.rows) for lot in lots) == self.count
        return parts, lots if is_whole else self.lots()

    def compile(self) -> None:
        """Compile the programs of these rows, which may be abstract values, and those of fewer rows
        of the same buckets.

        Raises:
            AxisError: The axes of the rows cannot be padded.
        """
        with self.entry.numbers(), nullcontext() if self.core.options.cache else pause_cache():
            ensure_cache()
            while True:
                lots = self.lots()
                parts = [max(rung for _, rung in taken) for taken in self.programs.parts_of(lots)]
                if all(map(self.programs.compile, lots, parts)):
                    break
            if self.core.options.accumulate or any(lot.is_filled for lot in lots):
                return
            for lot in lots:
                axes_near(self, int(lot.rows[0]))

    def differentiable(self) -> RowCall:
        """The same call, whose programs outer transforms may differentiate."""
        return RowCall(
            self.calls,
            self.core,
            self.entry.nested_entry,
            self.columns,
            self.count,
        )

    def alone(self, arrays: Sequence[object]) -> RowCall:
        """The call of one row, which has these arrays, or abstract values."""
        columns = tuple(map(Column.alone, self.columns, arrays))
        return RowCall(
            self.calls,
            self.core,
            self.entry,
            columns,
            1,
        )


def groups_of(
    entry: Specialization,
    columns: Sequence[Column],
    key: Hashable,
) -> RowGroups:
    """Groups of the rows of an entry, for arrays that are shared and for dtypes as these; `key` is
    their `signature_of`.
    """
    groups = entry.row_groups.get(key)
    if groups is None:
        if len(entry.row_groups) >= MAX_ENTRIES:
            entry.row_groups.clear()
        # Arrays that differ along padded axes alone have the same programs.
        form = form_of(entry, columns)
        alike = (each for each in entry.row_groups.values() if each.form == form)
        groups = next(alike, None) or RowGroups(entry, form)
        entry.row_groups[key] = groups
    return groups
