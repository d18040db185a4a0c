"""Calls with rows of unlike lengths: the program of one row, mapped over the rows of each bucket.

The rows of a bucket are filled into blocks of 512, 64, 8 and 1 (`lots.rungs_of`), each of which
runs `jax.vmap` of the padded program of one row, with a true size for each row. So the programs are
few, and the same whatever mixture of lengths a call has.
"""

from __future__ import annotations

import math
import weakref
from collections import Counter
from collections.abc import Generator, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import jax
import numpy as np

from ..._axes import Refused
from ..._diagnosis.tracer_errors import no_number
from ..._errors import AxisError
from ..._jax.compile_cache.cache import ensure as ensure_cache
from ..._jax.compile_cache.cache import pause_cache
from ..._jax.equinox_checks import FAILURE, fail_as, is_failure
from ..._jax.programs.large_constants import ConstantsChanged
from ..._jax.tracing import is_staged, times_differentiated
from ..._jax.trees import tree_flatten, tree_unflatten
from ..._jax.typed import Array, DType, NumPyArray
from ..._signature.buckets import AUTO
from ..._verify import is_verified
from ..._view.layout import MAX_ENTRIES, aval_parts, jit_is_off
from ..._view.true_sizes import KnownSizes, NeedsNumbers, Proof, knowing
from ..compiled_calls import SpecializedFunction
from ..entry import Specialization
from ..held_numbers import Redirected
from ..tracing import Retry
from .block_programs import BlockPrograms, devices_of, refuse_options
from .blocks import Room, block, shared_array, true_sizes
from .columns import (
    INSIDE_JIT,
    Column,
    RowArguments,
    demand_shared,
    donated_row,
    row_arguments,
)
from .group import Axes, BlockProgram, RowGroup
from .groups import RowGroups
from .lengths import cut_columns, padded_axes, read_lengths, row_shapes
from .lots import Lot, cheap_rows, count_sizes, known_rungs_of
from .result_form import axes_near
from .results import (
    Gathered,
    Part,
    demand_like_results,
    totals,
    varying,
    whole_results,
)
from .row_forms import count_lengths, form_of, signature_of
from .verified_rows import verify_rows, verify_sums

_Ran = tuple[list[Array], Hashable]
"""Leaves of the result of a program, and their structure."""


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
        self._options = replace(
            core.options,
            vmap=(),
            chunk=(),
            memory=None,
            ragged="list",
            shard=None,
            mesh=None,
            accumulate=False,
            verify=False,
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
        self._has_traced = False
        # The proof of the latest trace that stopped for numbers.
        self._proof: Proof | None = None
        self.is_nested = any(column.is_traced for column in columns)
        if self.is_nested and not entry.layout.nested:
            self.entry = entry = entry.nested_entry
        self.layout = entry.layout
        self.paths = entry.paths
        self.reads = entry.reads
        self._fixed = signature_of(columns)
        self.groups = groups_of(entry, columns, self._fixed)
        devices = None if self.is_nested else devices_of(core)
        self._programs = BlockPrograms(
            core,
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
            for part in self._run(lots):
                parts.append(part)
                is_left[part.rows] = False
        is_whole = sum(len(lot.rows) for lot in lots) == self.count
        return parts, lots if is_whole else self.lots()

    def _run(self, lots: Sequence[Lot]) -> Iterator[Part]:
        """Yield the results of each program, to the end or until more is known of a group."""
        parts = self.parts_of(lots)
        room = self._room(lots, parts)
        for lot, taken in zip(lots, parts, strict=True):
            begin = 0
            for count, rung in taken:
                # Behind the rows the last one is repeated.
                at = np.arange(begin, begin + rung)
                at[count:] = begin + count - 1
                begin += count
                ran = self._run_program(lot, at, room)
                if ran is None:
                    return
                leaves, treedef = ran
                own, recipe = at[:count], lot.group.recipe
                cuts = [()] * len(leaves) if recipe is None else self.entry.cuts[recipe.key]
                yield Part(
                    lot.rows[own],
                    lot.sizes(own),
                    treedef,
                    leaves,
                    cuts,
                    lot.is_filled,
                )

    def _room(self, lots: Sequence[Lot], parts: Sequence[Sequence[tuple[int, int]]]) -> Room:
        """Memory of the blocks of a call."""
        elements = Counter[DType]()
        for lot, taken in zip(lots, parts, strict=True):
            count = sum(rung for _, rung in taken)
            for column, shape in zip(self.columns, lot.group.shapes, strict=True):
                if column.kind == "each":
                    elements[aval_parts(column.arrays[0])[1]] += count * math.prod(shape)
        return Room(elements)

    def parts_of(self, lots: Sequence[Lot]) -> list[list[tuple[int, int]]]:
        """Cut each lot of a call into the parts that programs take."""
        return [
            known_rungs_of(
                len(lot.rows),
                lot.group.most(self.columns),
                exactly=lot.group.has_effects,
                cheap=cheap,
                rungs=self._programs.rungs(lot.group),
                known=lot.group.programs,
            )
            for lot, cheap in zip(lots, cheap_rows(lots, self.columns), strict=True)
        ]

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
                parts = [max(rung for _, rung in taken) for taken in self.parts_of(lots)]
                if all(map(self._compile, lots, parts)):
                    break
            if self.core.options.accumulate or any(lot.is_filled for lot in lots):
                return
            for lot in lots:
                axes_near(self, int(lot.rows[0]))

    def _compile(self, lot: Lot, largest: int) -> bool:
        """Compile the programs of so many rows of a lot, and of fewer; return False if more is
        known of its group now.
        """
        for rung in self._programs.rungs(lot.group):
            if rung <= largest and rung not in lot.group.programs:
                found = self.program_of(lot, rung)
                if found is None:
                    return False
                program, given = found
                program.lower(*given).compile()
        return True

    def program_of(self, lot: Lot, rung: int) -> tuple[BlockProgram, list[object]] | None:
        """Trace the program of so many rows of a lot; return it, and abstract values of its
        arguments; None if more is known of the group now.
        """
        group = lot.group
        given: list[object] = []
        for column, shape in zip(self.columns, group.shapes, strict=True):
            _, dtype, weak = aval_parts(column.arrays[0])
            sizes = shape if column.kind == "shared" else (rung, *shape)
            given.append(jax.ShapeDtypeStruct(sizes, dtype, weak_type=weak))
        counts = true_sizes(lot, np.zeros(rung, np.int64))
        given += [] if counts is None else [counts]
        given += [np.int32(rung)] if self.core.options.accumulate else []
        with self.learning(lot.present[0].sizes, group):
            program = self._programs.program(group, given, rung)
            return None if program is None else (program, given)
        return None

    def rungs(self, group: RowGroup) -> list[int]:
        """How many rows the programs of a group take, in descending order."""
        rungs, most = self._programs.rungs(group), group.most(self.columns)
        return [rung for rung in rungs if rung <= most or rung == rungs[-1]]

    def differentiable(self) -> RowCall:
        """The same call, whose programs outer transforms may differentiate."""
        return RowCall(
            self.calls,
            self.core,
            self.entry.nested_entry,
            self.columns,
            self.count,
        )

    def _given(
        self,
        lot: Lot,
        at: NumPyArray,
        room: Room,
    ) -> tuple[object, ...]:
        """Arguments of a program, for the rows at these places."""
        group, rows = lot.group, lot.rows[at]
        takes = (False,) * len(self.columns) if group.recipe is None else group.recipe.takes
        filled = [
            shared_array(column.values, shape)
            if column.kind == "shared"
            else block(column, rows, shape, takes=may_hold, room=room)
            for column, shape, may_hold in zip(self.columns, group.shapes, takes, strict=True)
        ]
        counts = true_sizes(lot, at)
        given = tuple(filled) if counts is None else (*filled, counts)
        if self.core.options.accumulate:
            # Where the last row is repeated, it does not count again.
            return (*given, np.int32(at[-1] - at[0] + 1))
        return given

    def _run_program(
        self,
        lot: Lot,
        at: NumPyArray,
        room: Room,
    ) -> _Ran | None:
        """Run the rows at these places, and return the result; None if more is known of the group
        now, and they are to be put into groups once more.
        """
        group, given = lot.group, self._given(lot, at, room)
        known = lot.member(at[0]).sizes
        try:
            with self.learning(known, group):
                program = group.programs.get(len(at))
                if program is None:
                    return self._run_first(group, given, len(at))
                return _flat(group, program(*given))
        except ConstantsChanged:
            # JAX has dropped the trace, and the body was traced once more.
            group.programs.pop(len(at), None)
        except (FAILURE, ValueError) as error:
            if not is_failure(error):
                raise
            fail_as(error)
        return None

    @contextmanager
    def learning(
        self,
        known: Mapping[str, int],
        group: RowGroup,
    ) -> Generator[None]:
        """Scope of a trace: what it finds out when it stops is noted, and the scope ends there.

        Raises:
            AxisError: The axes cannot be padded.
        """
        # Handled after `except`, so that errors raised next do not carry this one as their context.
        stopped: Exception | None = None
        try:
            at_hand, proof = KnownSizes(known), self._proof
            with knowing(at_hand if proof is None else self.entry.known_again(at_hand, proof)):
                yield
        except (Retry, Redirected, NeedsNumbers, Refused) as reason:
            stopped = reason
        finally:
            if self.entry.flights and self.entry.land() and not self._has_traced:
                self._has_traced = True
                self.core.counters.misses += 1
        if stopped is not None:
            self._learn(
                group,
                known,
                stopped,
            )

    def _learn(
        self,
        group: RowGroup,
        known: Mapping[str, int],
        stopped: Exception,
    ) -> None:
        """Note what a trace has found that stopped.

        Raises:
            AxisError: The axes cannot be padded.
        """
        if isinstance(stopped, Redirected):
            self.entry.serve_all_calls()
        elif isinstance(stopped, NeedsNumbers):
            if group.recipe is None:
                raise AssertionError("a program at exact size takes numbers of its size")
            self._proof = self.entry.proofs[group.recipe.key] = stopped.proof
            self.groups.forget(group)
        elif isinstance(stopped, Refused):
            groups = self.groups
            if group.recipe is None or not groups.padding.narrow(group.recipe, stopped):
                self._leave_alone(group, known, stopped)
            groups.forget(group)

    def _leave_alone(
        self,
        group: RowGroup,
        known: Mapping[str, int],
        refusal: Refused,
    ) -> None:
        """Run rows of these sizes at exact size, whose bucket has no program for them.

        Raises:
            AxisError: It has none for its other sizes either, each of which would be compiled.
        """
        groups = self.groups
        if group.recipe is not None and group.recipe.fill.is_single:
            groups.leave_alone(known)
            return
        if not groups.is_one_of_few(group, self.columns, known):
            groups.padding.refuse(refusal)
        groups.run_alone(known, refusal)

    def _run_first(
        self,
        group: RowGroup,
        given: Sequence[object],
        rung: int,
    ) -> _Ran | None:
        """Trace and compile the program of so many rows, note what runs in it, and run it; None if
        more is known of the group now.
        """
        ensure_cache()
        with nullcontext() if self.core.options.cache else pause_cache():
            program = self._programs.program(group, given, rung)
            return None if program is None else _flat(group, program(*given))

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


def _flat(group: RowGroup, out: object) -> _Ran:
    """The result of a program, in which no run-time check has failed."""
    if group.has_checks:
        jax.block_until_ready(out)
    return tree_flatten(out)


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
