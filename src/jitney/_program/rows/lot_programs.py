"""Programs of one call with rows: traced where its groups need them, compiled, and run.

A trace may stop because it has found out more of a group: the body reads numbers of the sizes, or
an operation cannot be padded up to the end of the bucket. That is noted (`learning`), and the rows
are put into groups once more. So what returns None or False says: more is known now, begin again.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Generator, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext

import jax
import numpy as np

from ..._axes import Refused
from ..._jax.compile_cache.cache import ensure as ensure_cache
from ..._jax.compile_cache.cache import pause_cache
from ..._jax.equinox_checks import FAILURE, fail_as, is_failure
from ..._jax.programs.large_constants import ConstantsChanged
from ..._jax.trees import tree_flatten
from ..._jax.typed import Array, DType, NumPyArray
from ..._view.layout import aval_parts
from ..._view.true_sizes import KnownSizes, NeedsNumbers, Proof, knowing
from ..compiled_calls import SpecializedFunction
from ..entry import Specialization
from ..tracing.held_numbers import Redirected
from ..tracing.traced_calls import Retry
from .block_programs import BlockPrograms, RowDevices
from .blocks import Room, block, shared_array, true_sizes
from .columns import Column
from .group import BlockProgram, RowGroup
from .groups import RowGroups
from .lots import Lot, cheap_rows, known_rungs_of
from .results import Part

_Ran = tuple[list[Array], Hashable]
"""Leaves of the result of a program, and their structure."""


class LotPrograms:
    """Programs of the lots of one call.

    Args:
        core: The function, with `vmap`.
        entry: Runs single rows.
        groups: Groups of the rows.
        columns: The arrays of the rows.
        devices: Those that run them (`devices_of`).
    """

    def __init__(
        self,
        core: SpecializedFunction[Specialization],
        entry: Specialization,
        groups: RowGroups,
        columns: Sequence[Column],
        devices: RowDevices | None,
    ):
        self._core = core
        self._entry = entry
        self._groups = groups
        self._columns = columns
        self._blocks = BlockPrograms(
            core,
            groups,
            columns,
            devices,
        )
        self._has_traced = False
        # The proof of the latest trace that stopped for numbers.
        self._proof: Proof | None = None

    def parts_of(self, lots: Sequence[Lot]) -> list[list[tuple[int, int]]]:
        """Cut each lot of a call into the parts that programs take."""
        return [
            known_rungs_of(
                len(lot.rows),
                lot.group.most(self._columns),
                exactly=lot.group.has_effects,
                cheap=cheap,
                rungs=self._blocks.rungs(lot.group),
                known=lot.group.programs,
            )
            for lot, cheap in zip(lots, cheap_rows(lots, self._columns), strict=True)
        ]

    def run(self, lots: Sequence[Lot]) -> Iterator[Part]:
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
                cuts = [()] * len(leaves) if recipe is None else self._entry.cuts[recipe.key]
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
            for column, shape in zip(self._columns, lot.group.shapes, strict=True):
                if column.kind == "each":
                    elements[aval_parts(column.arrays[0])[1]] += count * math.prod(shape)
        return Room(elements)

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

    def _given(
        self,
        lot: Lot,
        at: NumPyArray,
        room: Room,
    ) -> tuple[object, ...]:
        """Arguments of a program, for the rows at these places."""
        group, rows = lot.group, lot.rows[at]
        takes = (False,) * len(self._columns) if group.recipe is None else group.recipe.takes
        filled = [
            shared_array(column.values, shape)
            if column.kind == "shared"
            else block(column, rows, shape, takes=may_hold, room=room)
            for column, shape, may_hold in zip(self._columns, group.shapes, takes, strict=True)
        ]
        counts = true_sizes(lot, at)
        given = tuple(filled) if counts is None else (*filled, counts)
        if self._core.options.accumulate:
            # Where the last row is repeated, it does not count again.
            return (*given, np.int32(at[-1] - at[0] + 1))
        return given

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
        with nullcontext() if self._core.options.cache else pause_cache():
            program = self._blocks.program(group, given, rung)
            return None if program is None else _flat(group, program(*given))

    def rungs(self, group: RowGroup) -> list[int]:
        """How many rows the programs of a group take, in descending order."""
        rungs, most = self._blocks.rungs(group), group.most(self._columns)
        return [rung for rung in rungs if rung <= most or rung == rungs[-1]]

    def compile(self, lot: Lot, largest: int) -> bool:
        """Compile the programs of so many rows of a lot, and of fewer; return False if more is
        known of its group now.
        """
        for rung in self._blocks.rungs(lot.group):
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
        for column, shape in zip(self._columns, group.shapes, strict=True):
            _, dtype, weak = aval_parts(column.arrays[0])
            sizes = shape if column.kind == "shared" else (rung, *shape)
            given.append(jax.ShapeDtypeStruct(sizes, dtype, weak_type=weak))
        counts = true_sizes(lot, np.zeros(rung, np.int64))
        given += [] if counts is None else [counts]
        given += [np.int32(rung)] if self._core.options.accumulate else []
        with self.learning(lot.present[0].sizes, group):
            program = self._blocks.program(group, given, rung)
            return None if program is None else (program, given)
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
            with knowing(at_hand if proof is None else self._entry.known_again(at_hand, proof)):
                yield
        except (Retry, Redirected, NeedsNumbers, Refused) as reason:
            stopped = reason
        finally:
            if self._entry.flights and self._entry.land() and not self._has_traced:
                self._has_traced = True
                self._core.counters.misses += 1
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
            self._entry.serve_all_calls()
        elif isinstance(stopped, NeedsNumbers):
            if group.recipe is None:
                raise AssertionError("a program at exact size takes numbers of its size")
            self._proof = self._entry.proofs[group.recipe.key] = stopped.proof
            self._groups.forget(group)
        elif isinstance(stopped, Refused):
            groups = self._groups
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
        groups = self._groups
        if group.recipe is not None and group.recipe.fill.is_single:
            groups.leave_alone(known)
            return
        if not groups.is_one_of_few(group, self._columns, known):
            groups.padding.refuse(refusal)
        groups.run_alone(known, refusal)


def _flat(group: RowGroup, out: object) -> _Ran:
    """The result of a program, in which no run-time check has failed."""
    if group.has_checks:
        jax.block_until_ready(out)
    return tree_flatten(out)
