"""Writer of the programs of rows of unlike lengths: for each bucket one of each number of rows that
a call runs at a time. They take true sizes behind the arrays, as the programs of a call do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import jax
import numpy as np
from jax import export as jax_export

from ..._errors import ExportError, Where
from ..._jax.settings import x64_is_on
from ..._program.rows.group import RowGroup
from ..._program.rows.lots import Lot
from ..._program.rows.row_calls import RowCall
from ..._program.rows.rows_alone import axes_near
from ..._serialized.padded_cuts import serialise_cuts
from ..._view.layout import aval_parts
from ..._view.named_axes import named_axes, shape_at, sizes_of
from ..._view.view import View
from ..header import (
    ArrayEntry,
    BlockEntry,
    ProgramEntry,
    RowsEntry,
)
from ..values import data_of
from .lowering import ExportLowered, lower_program, traced_program
from .parts import (
    Part,
    argument_trees,
    array_entry,
    bound_arrays,
    portable_data,
)

_Made = dict[tuple[int, int], tuple[RowGroup, jax.stages.Traced]]
"""By a group and a number of rows: the group, and its program."""


@dataclass(frozen=True)
class RowWriter:
    """Builder of the parts of a file for a call with rows.

    Args:
        call: The call.
        where: Beginning of messages.
        bound: Parameters that the function is bound to.
        platforms: Platforms to lower for.
        serialize: Returns the bytes of a lowered program.
        plan: The plan of the call, as data and as text.
    """

    call: RowCall
    where: Where
    bound: Sequence[str]
    platforms: Sequence[str] | None
    serialize: Callable[[ExportLowered], bytes]
    plan: tuple[Mapping[str, object], str]

    def entry(self) -> RowsEntry:
        """The header entry of the rows."""
        symbols = {f"d{i}": name for i, name in enumerate(self._names())}
        with self.call.entry.numbers():
            shapes = [entry["shape"] for entry in self._arrays(0, symbols)]
        return {
            "axis": self.call.calls.axis,
            "arguments": self._mapped(),
            "ragged": self.call.core.options.ragged,
            "symbols": symbols,
            "shapes": shapes,
        }

    def parts(self) -> list[Part]:
        """The parts of all programs.

        Raises:
            ExportError: The function is bound to rows, or results of two rows are unlike.
            AxisError: The axes of the rows cannot be padded.
        """
        rows = [name for name in self._mapped() if name in self.bound]
        if rows:
            raise ExportError(
                self.where,
                f"{rows[0]!r}, to which it is bound, has rows.",
                "What a program is bound to goes into the file, and a file takes rows of any"
                " number.",
                "export the function, and pass them when it is loaded.",
            )
        made: _Made = {}
        while True:
            with self.call.entry.numbers():
                traced = self._traced(made)
                if traced is not None:
                    parts = list(self._parts(traced))
                    self._demand_alike(parts)
                    return parts

    def _demand_alike(self, parts: Sequence[Part]) -> None:
        forms = [_form(part.told) for part in parts]
        other = next(
            (part for part, form in zip(parts, forms, strict=True) if form != forms[0]), None
        )
        if other is not None:
            raise ExportError(
                self.where,
                f"results at sizes {dict(parts[0].told['sizes'])} and {dict(other.told['sizes'])}"
                " are of unlike structures, dtypes or numbers of axes, or hold other values.",
                "The results of all rows are put together.",
                "return the same at each size, and what differs as an array.",
            )

    def _traced(self, made: _Made) -> list[tuple[Lot, int, jax.stages.Traced]] | None:
        """Programs of all groups, and for how many rows each is; None if more is known of a group
        now. Those `made` stay as they are.
        """
        found: list[tuple[Lot, int, jax.stages.Traced]] = []
        for lot in self.call.lots():
            group = lot.group
            for rung in self.call.programs.rungs(group):
                if (id(group), rung) not in made:
                    new = self.call.programs.program_of(lot, rung)
                    if new is None:
                        return None
                    program, given = new
                    # The group is held, so that no other one has its `id`.
                    made[id(group), rung] = group, program.trace(*given)
                found.append((lot, rung, made[id(group), rung][1]))
        return found

    def _parts(self, traced: Sequence[tuple[Lot, int, jax.stages.Traced]]) -> Iterator[Part]:
        call, entry = self.call, self.call.entry
        arrays = call.arrays
        trees = argument_trees(
            entry,
            arrays,
            self.bound,
            self.where,
        )
        bound = bound_arrays(
            entry,
            arrays,
            arrays,
            self.bound,
            self.where,
        )
        for lot, rung, program in traced:
            told, content = self._program(lot, rung, program)
            yield Part(told, trees, bound, content)

    def _program(
        self,
        lot: Lot,
        rung: int,
        traced: jax.stages.Traced,
    ) -> tuple[ProgramEntry, bytes]:
        trace = traced_program(traced)
        lowered = lower_program(
            trace,
            self.call.core.where,
            self.platforms,
        )
        filled = [] if lot.group.recipe is None else lot.group.recipe.fill.axes
        symbols = {f"d{i}": axis.name for i, axis in enumerate(filled)}
        ranges = {axis.name: [axis.low, axis.high] for axis in filled}
        told: ProgramEntry = {
            "sizes": {**lot.present[0].sizes, **ranges},
            "symbols": {symbol: [name, *ranges[name]] for symbol, name in symbols.items()},
            "arrays": self._arrays(int(lot.rows[0]), symbols),
            "results": [array_entry(aval, "") for aval in traced.jaxpr.out_avals],
            "result": portable_data(trace.result, "result", self.where),
            "checks": [list(messages) for messages in lowered.checks],
            "platforms": list(lowered.exported.platforms),
            "calling_convention": lowered.exported.calling_convention_version,
            "x64": x64_is_on(),
            "plan": self.plan[0],
            "plan_text": self.plan[1],
            "block": self._block(lot, rung),
        }
        return told, self.serialize(lowered)

    def _block(
        self,
        lot: Lot,
        rung: int,
    ) -> BlockEntry:
        group, recipe = lot.group, lot.group.recipe
        cuts = [] if recipe is None else self.call.entry.cuts[recipe.key]
        axes = [] if recipe is None else list(recipe.counts.names)
        near = [] if lot.is_filled else axes_near(self.call, int(lot.rows[0]))
        numbers: list[list[object]] | None = None
        # Where Python has looked at sizes, the program serves those that were looked at.
        if self.call.groups.is_seen_at_each_size(group):
            numbers = [
                [
                    [member.sizes[name] for name in axes],
                    [data_of(np.asarray(number)) for number in member.numbers],
                ]
                for member in lot.present
            ]
        return {
            "rows": rung,
            "shapes": [list(shape) for shape in group.shapes],
            "takes": [False] * len(group.shapes) if recipe is None else list(recipe.takes),
            "axes": axes,
            "cuts": serialise_cuts(cuts),
            "near": [list(axes) for axes in near],
            "numbers": numbers,
        }

    def _names(self) -> list[str]:
        """The padded axes that arrays of the call have."""
        known = self._view(0)[1]
        return [name for name, _ in self.call.entry.options.pad if name in known]

    def _view(self, row: int) -> tuple[View, Mapping[str, int]]:
        """The arrays of a row, with the sizes of its axes."""
        arrays = [column.abstract(row) for column in self.call.columns]
        view = self.call.entry.plan_call(arrays, jit=False).view
        return view, sizes_of(view, named_axes(view))

    def _mapped(self) -> list[str]:
        """The parameters that have rows."""
        layout = self.call.entry.layout
        pairs = zip(
            layout.dynamic,
            self.call.columns,
            strict=True,
        )
        names = [layout.names[i][0] for i, column in pairs if column.kind != "shared"]
        return list(dict.fromkeys(names))

    def _arrays(
        self,
        row: int,
        symbols: Mapping[str, str],
    ) -> list[ArrayEntry]:
        """The arrays of a row, with symbols for the sizes of these axes."""
        view, known = self._view(row)
        dims = jax_export.symbolic_shape(", ".join(symbols)) if symbols else ()
        changed = dict(zip(symbols.values(), dims, strict=True))
        entries: list[ArrayEntry] = []
        for leaf, axes, column in zip(
            view.leaves, named_axes(view), self.call.columns, strict=True
        ):
            _, dtype, weak = aval_parts(column.arrays[0])
            shape = [
                size if isinstance(size, int) else str(size)
                for size in shape_at(leaf, axes, known, changed)
            ]
            entries.append(
                {"path": leaf.path, "shape": shape, "dtype": str(dtype), "weak": bool(weak)}
            )
        return entries


def _form(told: ProgramEntry) -> object:
    """What results of all rows have in common."""
    return told["result"], [(entry["dtype"], len(entry["shape"])) for entry in told["results"]]
