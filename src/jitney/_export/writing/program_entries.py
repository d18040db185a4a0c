"""Entry of one program in the header of a file: its sizes, arrays, results, checks and plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..._errors import Where
from ..._jax.settings import x64_is_on
from ..._jax.typed import Array
from ..._program.entry import Specialization
from ..._report.option_lines import PlanLine
from ..._report.plan_report import Report, report
from ..header import ProgramEntry
from .export_sizes import ExportSizes, Program
from .lowering import ExportLowered, ExportTrace
from .padded_programs import PaddedTrace
from .parts import array_entry, portable_data

_OF_THE_PROCESS = (
    "cache",
    "max_compiles",
    "trace errors",
    "compile errors",
    "memory errors",
    "verify",
    "debug_nans",
    "settings",
)
"""Lines of a plan that do not describe the program: caches on this machine, and what happens on
errors.
"""


def program_entry(
    program: Program,
    entry: Specialization,
    arrays: Sequence[Array],
    at: ExportSizes,
    made: ExportTrace,
    padded: PaddedTrace | None,
    known: ExportLowered,
    where: Where,
) -> ProgramEntry:
    """Return the header entry of one program."""
    view = entry.layout.view(
        entry.core.contract,
        arrays,
        entry.statics,
    )
    whole = report(
        program.core,
        entry,
        arrays,
        compiles=False,
    )
    plan = replace(whole, lines=lines_of_programs(whole))

    ranges = {name: [sizes[0], sizes[-1]] for name, sizes in at.ranges.items()}
    if padded is not None:
        ranges = padded.ranges()
    # The names of JAX's symbolic dimensions, in the order of the ranges.
    symbols = {f"d{i}": [name, *ends] for i, (name, ends) in enumerate(ranges.items())}
    if padded is None:
        own = [
            array_entry(aval, leaf.path)
            for aval, leaf in zip(made.closed.in_avals, view.leaves, strict=True)
        ]
    else:
        own = padded.arrays(arrays)
    told: ProgramEntry = {
        "sizes": {**at.exact, **ranges},
        "symbols": symbols,
        "arrays": own,
        "results": [array_entry(aval, "") for aval in made.closed.out_avals],
        "result": portable_data(made.result, "result", where),
        "checks": [list(messages) for messages in known.checks],
        "platforms": list(known.exported.platforms),
        "calling_convention": known.exported.calling_convention_version,
        "x64": x64_is_on(),
        "plan": plan.to_dict(),
        "plan_text": str(plan),
    }
    if padded is not None:
        told["padding"] = padded.told()
    return told


def lines_of_programs(whole: Report) -> tuple[PlanLine, ...]:
    """Return the lines of a plan that describe the program."""
    return tuple(line for line in whole.lines if line.name not in _OF_THE_PROCESS)
