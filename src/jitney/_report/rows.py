"""The plan of a call with rows of unlike lengths: that of one row of the bucket with the most
elements, and a line on all buckets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from .._errors import plural
from .._jax.xla.memory import budget_of, text
from .._program.rows.block_programs import devices_of
from .._program.rows.lots import Lot, count_sizes
from .._verify import is_verified
from .option_lines import PlanLine, captured_lines, settings_line
from .plan_report import Report, report

if TYPE_CHECKING:
    from .._program.core import CompiledFunction
    from .._program.rows.row_calls import RowCall

_SHOWN = 8  # buckets, by name


def report_rows(core: CompiledFunction, call: RowCall) -> Report:
    """Return the report of a call with rows."""
    with call.entry.numbers():
        lots = sorted(call.lots(), key=lambda lot: -_elements(lot))
    row = int(lots[0].rows[0])
    given = [column.of(row) for column in call.columns]
    one = report(call.calls.row, call.entry, given)
    # Every bucket has captured the same.
    captured = captured_lines(lots[0].group.captured)
    rest = _of_all_rows(core, call, one.lines, lots)
    first = PlanLine("rows", taken=True, why=_in_words(call, lots))
    lines = [first, *rest, *captured]
    arguments = tuple(
        f"{shown}, of row {row}" if column.kind == "each" else shown
        for shown, column in zip(one.arguments, call.columns, strict=False)
    )
    return replace(
        one,
        function=str(core.where),
        lines=tuple(lines),
        arguments=arguments,
    )


def _of_all_rows(
    core: CompiledFunction,
    call: RowCall,
    lines: Sequence[PlanLine],
    lots: Sequence[Lot],
) -> list[PlanLine]:
    """The lines of one row, with those of options that act on all rows and that one row lacks."""
    options, axis = core.options, call.calls.axis
    largest = max(rung for parts in call.programs.parts_of(lots) for _, rung in parts)
    asked = {"vmap": f"{axis!r}, over the rows of a block, {largest} at most"}
    if options.chunk or options.memory is not None:
        bounds = [f"{size} rows of {name!r}" for name, size in options.chunk]
        if options.memory is not None:
            bounds.append(f"programs of {text(budget_of(core.where, options.memory))}")
        asked["chunk"] = f"blocks are bounded: {' and '.join(bounds)} at most"
    devices = devices_of(core)
    if devices is not None:
        asked["shard"] = f"each block over {plural(devices.count, 'device')}"
    if is_verified(options):
        asked["verify"] = "rows of new shapes are compared with the plain function"
    found = [line for line in lines if line.name not in (*asked, "settings")]
    if "shard" in asked:  # one row has no place on devices
        found = [line for line in found if line.name != "place"]
    taken = [PlanLine(name, taken=True, why=why) for name, why in asked.items()]
    return [*taken, *found, *settings_line(options)]


def _in_words(call: RowCall, lots: Sequence[Lot]) -> str:
    parts = call.programs.parts_of(lots)
    programs = sum(len({rung for _, rung in each}) for each in parts)
    runs = sum(map(len, parts))
    computed = sum(rung for each in parts for _, rung in each)
    shown = [f"{_bucket(lot)}: {len(lot.rows)}" for lot in lots[:_SHOWN]]
    if len(lots) > _SHOWN:
        shown.append(f"and {len(lots) - _SHOWN} more")
    padding = ", ".join(
        f"{name} {elements / max(1, int(sizes @ times)) - 1:.0%}"
        for name, (sizes, times, elements) in count_sizes(lots).items()
    )
    spare = f", {plural(computed - call.count, 'row')} in vain" if computed > call.count else ""
    return (
        f"{plural(call.count, 'row')} of {call.calls.axis!r} in {plural(len(lots), 'bucket')}"
        f" ({', '.join(shown)}); {plural(programs, 'program')}, {plural(runs, 'run')}{spare};"
        f" padding {padding}"
    )


def _bucket(lot: Lot) -> str:
    if lot.group.recipe is None:
        sizes = lot.present[0].sizes
        return " ".join(f"{name}={size} exact" for name, size in sizes.items())
    return " ".join(f"{axis.name}={axis.low}-{axis.high}" for axis in lot.group.recipe.fill.axes)


def _elements(lot: Lot) -> int:
    recipe = lot.group.recipe
    longest = 1 if recipe is None else max(recipe.fill.sizes.values())
    return len(lot.rows) * longest
