"""Report of a plan: text, in colours on a terminal, a dict, or HTML in a notebook.

Input is a plan on abstract values; output is a `Report` whose `PlanLine`s are decisions with
reasons: those of the stages here, those that take a trace of the body in `traced_lines.py`, and
those of the other options in `option_lines.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .._body.function import FunctionInfo
from .._jax.typed import Array
from .._program.runners.sharded_calls import transfers
from .._public import public_in
from .._signature.options import AUTO
from .._stages import Chunk, MappedChunks, Mask, Place, Vmap
from .._stages.autocast import Autocast
from .._stages.chunking.cut import Cut
from .._stages.derivatives.decisions import decisions
from .._stages.derivatives.derive import Derived
from .._stages.plan import Plan
from .._stages.stage import Skip
from .._text.json import Data
from .._text.shown import Shown
from .._text.svg import Picture
from .._view.layout import static_text
from .._view.view import View
from .axis_facts import facts_of
from .option_lines import PlanLine, option_lines, width_line
from .traced_lines import (
    constant_lines,
    derivative_lines,
    donation_lines,
    lane_lines,
    layer_lines,
    product_lines,
    remat_lines,
)

if TYPE_CHECKING:
    from rich.table import Table

    from .._program.entry import Specialization


@public_in("jitney.types")
@dataclass(frozen=True, repr=False)
class Report(Shown):
    """Result of `f.plan(...)`: every decision about one call, with its reason.

    Printed, it has the decisions that were taken, those that were asked for and not taken, and one
    line of all others; `lines` and `to_dict()` have all.
    """

    function: str
    plan: Plan
    lines: tuple[PlanLine, ...]
    arguments: tuple[str, ...]
    static: tuple[str, ...]
    axes: tuple[tuple[str, int, str], ...]
    view: View = field(repr=False, compare=False)
    cut: Cut | None = field(default=None, repr=False, compare=False)

    def draw(self) -> Picture:
        """Draw the call as SVG text, in light and dark.

        Each stage that is taken is a frame around those inside of it, with the cells of each
        bucket, the chunks of each pass, and the part of an array on each device. A notebook shows
        the picture; elsewhere write it into a file.
        """
        from .drawing import draw

        # Reversed, so that the first line of a name wins.
        told = {line.name: line.why for line in reversed(self.lines) if line.taken}
        return draw(self.function, self.plan, self.view, self.cut, told)

    def to_dict(self) -> Data:
        """Return the report as plain data."""
        return {
            "function": self.function,
            "decisions": [
                {"name": line.name, "taken": line.taken, "why": line.why} for line in self.lines
            ],
            "arguments": list(self.arguments),
            "static": list(self.static),
            "axes": {name: {"size": size, "set_by": who} for name, size, who in self.axes},
        }

    def __rich__(self) -> Table:
        from .._text.console import table

        rows: list[list[tuple[str, str]]] = []
        for line in self.lines:
            if not line.asked:
                continue
            style = "green" if line.taken else "dim"
            rows.append(
                [(line.name, style), (line.why if line.taken else f"skipped: {line.why}", style)]
            )
        idle = dict.fromkeys(line.name for line in self.lines if not line.asked)
        rows += [[("others", "dim"), (f"not asked for: {', '.join(idle)}", "dim")]] if idle else []
        rows += [
            [("axis", "cyan"), (f"{name} = {size}, set by {who}", "")]
            for name, size, who in self.axes
        ]
        rows += [
            [(kind, ""), (text, "")]
            for kind, texts in (("traced", self.arguments), ("static", self.static))
            for text in texts
        ]
        return table(f"plan of {self.function}", rows)

    def _repr_html_(self) -> str:
        from .._text.console import html_of

        return f"{self.draw()}{html_of(self)}"


def report(
    core: FunctionInfo,
    entry: Specialization,
    arrays: Sequence[Array],
    *,
    compiles: bool = True,
) -> Report:
    """Plan a call on abstract values, and return every decision.

    Args:
        core: The function.
        entry: Program of the call.
        arrays: Its arrays, or abstract ones.
        compiles: True to compile a gradient, to measure what a policy of `remat` gains.

    Raises:
        ContractError: The call does not fit the contract.
    """
    with entry.numbers():
        # Chunks and devices need not divide a padded axis at its exact size. This plan has neither;
        # `padded_plan` has both.
        planned = entry.plan_call(arrays, jit=not core.options.pad)
        autocast = planned.plan.of(Autocast)
        # Before its first call an autocast has no policy, and the body cannot be built.
        ready = autocast is None or autocast.policy is not None
        padded = bool(core.options.pad) and ready
        with decisions() as made:
            plan = entry.padded_plan(planned.view) if padded else planned.plan
        facts = facts_of(entry, arrays, dict(core.options.pad)) if padded else {}
        donated = entry.request.donated and not entry.request.nested and ready
        donation = donation_lines(entry, planned.view, arrays) if donated else []

    stages = _stage_lines(core, entry, plan, arrays)
    cut = _cut(plan, entry, planned.view) if ready else None
    stages += _cut_lines(cut)

    # Lines that need more than the plan: the placement of the arrays, and traces of the body.
    stages += [
        PlanLine("transfer", taken=True, why=why)
        for why in transfers(plan.of(Place), arrays, entry.paths)
    ]
    if ready:
        stages += derivative_lines(
            core, plan, entry, arrays, made if plan.of(Mask) is not None else ()
        )
        stages += remat_lines(core, plan, entry, planned.view, compiles=compiles)
    stages += layer_lines(plan, entry, arrays) if ready else []
    stages += lane_lines(planned.plan, entry, planned.view) if ready else []
    stages += product_lines(plan, entry, arrays) + constant_lines(planned.plan, entry, planned.view)
    stages += [
        PlanLine(f"axis {name}", fact.refused is None, fact.text) for name, fact in facts.items()
    ]

    sizes = planned.sizes.bound if planned.sizes is not None else {}
    held = (entry.layout.held.get(i) for i in entry.layout.static)
    static = zip(entry.layout.static_names(), entry.statics, held, strict=True)
    return Report(
        function=str(core.where),
        plan=plan,
        lines=(
            *stages,
            *donation,
            *option_lines(core, entry, arrays, planned.notes, ready=ready),
        ),
        arguments=tuple(str(leaf) for leaf in planned.view.leaves),
        static=tuple(
            f"{name} = {static_text(value)}{f': {why}' if why else ''}"
            for name, value, why in static
        ),
        axes=tuple((name, size, who) for name, (size, who) in sizes.items()),
        view=planned.view,
        cut=cut,
    )


def _stage_lines(
    core: FunctionInfo,
    entry: Specialization,
    plan: Plan,
    arrays: Sequence[Array],
) -> list[PlanLine]:
    """Lines of the stages. In a derivative `remat` is applied inside, and has a line of its own."""
    inside = isinstance(core.fn(), Derived)
    hidden = _hidden_stages(core, inside=inside)
    stages = [
        PlanLine("remat" if s.name == "saved" else s.name, not isinstance(s, Skip), s.why)
        for s in plan.stages
        if s.name not in hidden
    ]
    return [width_line(entry, arrays, line) for line in stages]


def _cut_lines(cut: Cut | None) -> list[PlanLine]:
    """Lines of chunks: the passes over the data, and the memory that was measured for them."""
    if cut is None:
        return []
    lines = [PlanLine("passes", cut.is_mapped or cut.passes is not None, cut.text)]
    if cut.fit is not None:
        lines.append(PlanLine("memory", taken=True, why=str(cut.fit)))
    return lines


def _cut(
    plan: Plan,
    entry: Specialization,
    view: View,
) -> Cut | None:
    """Return how an axis is cut into chunks, if one is; traces the body."""
    chunk, mapped = plan.of(Chunk), plan.of(MappedChunks)
    with entry.numbers():
        if mapped is not None:
            avals = [leaf.abstract() for leaf in plan.seen_inside(Vmap, view).leaves]
            if not mapped.needs_proof(entry.body_inside(plan, Vmap), avals):
                return Cut(
                    mapped.axis,
                    None,
                    mapped.length,
                    size=mapped.size,
                    is_mapped=True,
                )
            plan = plan.by_proof()
            chunk = plan.of(Chunk)
        return None if chunk is None else chunk.cut(entry.body_inside(plan, Chunk))


def _hidden_stages(core: FunctionInfo, *, inside: bool) -> tuple[str, ...]:
    """Return the names of stages without a line.

    Of the two stages of `remat` it is the one that is not in use, and both if `remat` is inside a
    derivative.
    """
    if inside:
        return ("remat", "saved")
    return ("remat",) if core.options.remat == AUTO else ("saved",)
