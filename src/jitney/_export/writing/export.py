"""Writer of a program into a file: one lowered program for each set of sizes, the trees of its
arguments and results, its contract and its plans.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

import jax

from ..._axes import Refused
from ..._diagnosis.needed_values import CAUGHT
from ..._diagnosis.tracer_errors import trace_error
from ..._errors import ExportError, Where
from ..._jax.settings import settings
from ..._jax.typed import Array
from ..._program.entry import Specialization
from ..._program.rows.row_calls import RowCall
from ..._program.rows.row_kinds import are_rows, hint_of, holds_rows
from ..._program.runners.padding_recipes import warn_refusal
from ..._report.rows import report_rows
from ..._signature.options import OPTIONS
from ..._version import __version__
from ..._view.layout import is_nested_trace, jit_is_off
from ..container import path_of, write
from ..contract_data import contract_data
from ..header import RowsEntry
from .export_sizes import (
    ExportSizes,
    Program,
    arrays_at,
    missing_sizes,
    resizing,
    size_combinations,
)
from .exportable import (
    bound_names,
    check_exportable,
    checks_contract,
    has_rows,
    pads_programs,
    without_left_options,
)
from .lowering import ExportLowered, lower_program, trace_for
from .lowering import trace_program as traced_at
from .padded_programs import PaddedTrace, one_of_each, padded_trace
from .parts import (
    Part,
    argument_trees,
    bound_arrays,
    serialize_program,
)
from .program_entries import lines_of_programs, program_entry
from .row_programs import RowWriter


def export(
    program: Program,
    file: str | Path,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    sizes: Mapping[str, object] | None,
    vjp_order: int,
    platforms: Sequence[str] | None,
) -> None:
    """Export a program to a file; implements `Program.export`."""
    where = replace(program.core.where, name=f"{program.core.where.name}.export")
    path = path_of(file, where)
    check_exportable(program, where, vjp_order)

    # Reset these options before anything is traced, so that the program does not depend on them.
    with_rows = has_rows(program, args, kwargs)
    asked = [*size_combinations(sizes, where)] if not with_rows else []
    pads = with_rows or pads_programs(program.options, asked, vjp_order)
    program, left = without_left_options(program, keeps=("pad",) if pads else ())
    writer = _Writer(
        program,
        where,
        bound_names(program, where),
        vjp_order,
        platforms,
    )

    # Arguments and bound arrays are the same in all parts, so those of the first are written.
    rows: RowsEntry | None = None
    if with_rows:
        of_rows = writer.rows(
            args,
            kwargs,
            sizes,
        )
        parts = of_rows.parts()
        rows = of_rows.entry()
    else:
        parts = one_of_each([writer.part(args, kwargs, at) for at in asked])
    first = parts[0]
    members = {f"array {i}": content for i, (_, content) in enumerate(first.bound)}
    members |= {f"program {i}": part.content for i, part in enumerate(parts)}
    header = {
        "jitney": __version__,
        "jax": jax.__version__,
        "jaxlib": metadata.version("jaxlib"),
        "name": program.core.name,
        "doc": getattr(program, "__doc__", None),
        "checks_contract": checks_contract(program, has_rows=with_rows),
        "contract": contract_data(program.core.contract, writer.bound),
        "f64": program.options.precision == "f64",
        "arguments": first.arguments,
        "bound": [data for data, _ in first.bound],
        "programs": [part.told for part in parts],
        "vjp_order": vjp_order,
        "left": [[name, OPTIONS[name].left] for name in left],
        "settings": [[name, str(value)] for name, value in settings()],
        "rows": rows,
    }
    write(
        path,
        header,
        members,
        where,
    )


@dataclass(frozen=True)
class _Writer:
    """Builder of the parts of one file."""

    program: Program
    where: Where
    bound: tuple[str, ...]
    vjp_order: int
    platforms: Sequence[str] | None

    def part(
        self,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
        at: ExportSizes,
    ) -> Part:
        """Build the part for one set of sizes."""
        entry, examples = self.program.abstract(
            args,
            dict(kwargs),
            missing_sizes(self.program, at, args, kwargs, self.where),
            warn=False,
        )
        self._demand_untraced(examples)
        try:
            with entry.numbers():
                return self._lower_part(
                    entry,
                    examples,
                    at,
                )
        except CAUGHT as error:
            explained = trace_error(
                error,
                self.program.core.where,
                entry.paths,
                examples,
            )
            if explained is None:
                raise
            raise explained from error

    def rows(
        self,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
        sizes: Mapping[str, object] | None,
    ) -> RowWriter:
        """Return the builder of the parts of a call with rows.

        Raises:
            ExportError: Sizes or a second derivative are asked for.
        """
        if sizes:
            raise ExportError(
                self.where,
                f"it is given rows, and sizes={dict(sizes)!r}.",
                "A file has the programs of the buckets of the rows that it is exported with.",
                "leave out `sizes`, and pass a row of each bucket: an array or a"
                " jax.ShapeDtypeStruct.",
                code="J292",
            )
        if self.vjp_order > 1:
            raise ExportError(
                self.where,
                f"it is given rows, and vjp_order={self.vjp_order}.",
                "The derivative of a padded program is proven, and not that of its derivative.",
                "write vjp_order=1, or export `f.hessian` or `f.hvp`.",
                code="J292",
            )
        bound_args, bound_kwargs = self.program.bound
        call = self.program.core.rows_in((*bound_args, *args), {**bound_kwargs, **kwargs})
        self._refuse_parts((*bound_args, *args), {**bound_kwargs, **kwargs}, call)
        self._demand_untraced([array for column in call.columns for array in column.arrays])
        whole = report_rows(self.program.core, call)
        plan = replace(whole, lines=lines_of_programs(whole))
        return RowWriter(
            call.differentiable() if self.vjp_order else call,
            self.where,
            self.bound,
            self.platforms,
            self._serialize_rows,
            (plan.to_dict(), str(plan)),
        )

    def _serialize_rows(self, known: ExportLowered) -> bytes:
        """Serialise a program of rows.

        Raises:
            ExportError: Its derivative cannot be padded.
        """
        try:
            return serialize_program(known, self.vjp_order, self.where)
        except Refused as refusal:
            raise ExportError(
                self.where,
                f"its derivative cannot be padded: {refusal.place or 'it'} {refusal.what}.",
                f"With vjp_order={self.vjp_order} a file holds what `jax.grad` of the loaded"
                " function is, for rows of all lengths of a bucket.",
                "export rows without vjp_order, or change that line.",
                code="J292",
            ) from refusal

    def _refuse_parts(
        self,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
        call: RowCall,
    ) -> None:
        """Check that no argument has rows in some of its parts.

        Raises:
            ExportError: One has.
        """
        core = self.program.core
        values = core.bind(args, core.without_lengths(kwargs)[0])
        layout = call.entry.layout
        kinds: dict[str, set[str]] = {}
        for i, column in zip(layout.dynamic, call.columns, strict=True):
            kinds.setdefault(layout.names[i][0], set()).add(column.kind)
        for parameter, value in zip(core.contract.parameters, values, strict=True):
            hint = hint_of(parameter)
            has_parts = holds_rows(value, hint) and not are_rows(value, hint)
            if has_parts or kinds.get(parameter.name, set()) >= {"stack", "shared"}:
                raise ExportError(
                    self.where,
                    f"{parameter.name!r} has rows in some of its parts.",
                    "A file takes an argument as rows as a whole, or all rows share it.",
                    "write the function with an argument for each part, and export that.",
                )

    def _demand_untraced(self, arrays: Sequence[Array | jax.ShapeDtypeStruct]) -> None:
        if is_nested_trace(arrays) or jit_is_off():
            raise ExportError(
                self.where,
                "it is called while something is traced, or `jit` is off.",
                "What is exported is a whole program.",
                "export it outside of `jit`, `grad`, `vmap` and `jax.disable_jit()`.",
            )

    def _padded(
        self,
        entry: Specialization,
        arrays: Sequence[Array],
    ) -> PaddedTrace | None:
        """Trace the program of a bucket; None if the example runs at exact size."""
        if not self.program.options.pad:
            return None
        # The derivative of a program that outer transforms may differentiate is proven too.
        return padded_trace(entry.nested_entry if self.vjp_order else entry, arrays)

    def _lower_part(
        self,
        entry: Specialization,
        examples: Sequence[Array | jax.ShapeDtypeStruct],
        at: ExportSizes,
    ) -> Part:
        """Build the part of a bucket, or of exact sizes where its program or the derivative of that
        cannot be padded.
        """
        try:
            return self._lower_as(entry, examples, at, pads=True)
        except Refused as refused:
            refusal = refused
        # JAX asks for the derivative when the program is written.
        warn_refusal(self.program.core, refusal)
        return self._lower_as(entry, examples, at, pads=False)

    def _lower_as(
        self,
        entry: Specialization,
        examples: Sequence[Array | jax.ShapeDtypeStruct],
        at: ExportSizes,
        *,
        pads: bool,
    ) -> Part:
        resized = resizing(
            entry,
            examples,
            at,
            self.where,
        )
        arrays = arrays_at(
            resized,
            examples,
            at.representative(),
            self.where,
        )
        padded = self._padded(entry, arrays) if pads else None
        if padded is not None:
            trace = padded.trace
        elif at.ranges:
            trace = trace_for(
                entry,
                lambda sizes: resized({**at.exact, **sizes}),
                at.ranges,
            )
        else:
            trace = traced_at(entry, arrays)
        program = lower_program(
            trace,
            self.program.core.where,
            self.platforms,
        )
        return Part(
            program_entry(
                self.program,
                entry,
                arrays,
                at,
                trace,
                padded,
                program,
                self.where,
            ),
            argument_trees(entry, arrays, self.bound, self.where),
            bound_arrays(entry, examples, arrays, self.bound, self.where),
            serialize_program(program, self.vjp_order, self.where),
        )
