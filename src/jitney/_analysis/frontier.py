"""`jitney.frontier`: memory against what is computed again, for the gradient of a function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any

import jax

from .._errors import DerivativeError, sentence
from .._interface.derivatives import Derivative, Wrt, check_names, named, program_of
from .._jax.memory import budget_of, text
from .._owners import public
from .._saving import Nothing, Point, Problem, choose, flops_text, frontier_of, unsupported
from .._stages import Place, Saved
from .._stages.plan import Plan
from .._svg import picture, words

if TYPE_CHECKING:
    from rich.table import Table

    from .._interface.program import Program

_jax: Any = jax
_PARTS = (0.8, 0.6, 0.4, 0.25)  # of the memory that saving everything takes, where none is given
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 560, 300, 80, 40
_BAR = 16


@dataclass(frozen=True)
class Saving:
    """One way to save less for the backward pass.

    Args:
        saved: What is saved.
        bytes: Temporaries and arguments of the gradient, by the compiler.
        recomputed: Operations on numbers that are done again, counted from the program.
        best: Whether no other takes less memory and recomputes no more.
    """

    saved: str
    bytes: int
    recomputed: int
    best: bool


@dataclass(frozen=True)
class Frontier:
    """What `jitney.frontier` gives. Printed, a table; in a notebook a picture too.

    Args:
        function: Which.
        forward: Operations of the function itself.
        memory: Bytes that were to be kept to; None if none were given.
        ways: All that was compiled, from the most memory to the least.
        chosen: The one that recomputes the least of those that fit; None if none does, or nothing was to be kept to.
        unsupported: Why nothing is offloaded to the memory of the host; None if it can be.
    """

    function: str
    forward: int
    memory: int | None
    ways: tuple[Saving, ...]
    chosen: Saving | None
    unsupported: str | None

    def __rich__(self) -> Table:
        from .._console import table

        most = self.ways[0].bytes
        rows: list[list[tuple[str, str]]] = [[("", ""), ("memory", "bold"), ("", ""), ("recomputed", "bold"), ("saved", "bold")]]
        for way in self.ways:
            style = "green" if way == self.chosen else "" if way.best else "dim"
            bar = "█" * max(1, round(_BAR * way.bytes / most))
            again = f"{flops_text(way.recomputed)}, {way.recomputed / max(1, self.forward):.0%} of forward"
            mark = "->" if way == self.chosen else "" if way.best else "·"
            rows.append([(mark, style), (text(way.bytes), style), (bar, style), (again, style), (way.saved, style)])
        if self.unsupported:
            rows.append(
                [("", ""), ("not there", "dim"), ("", ""), ("", ""), (f"products, in the memory of the host: {self.unsupported}", "dim")]
            )
        kept = f" in {text(self.memory)}" if self.memory is not None else ""
        return table(f"what the gradient of {self.function} saves{kept}", rows)

    def __str__(self) -> str:
        from .._console import text_of

        return text_of(self)

    __repr__ = __str__

    def svg(self) -> str:
        """A picture, as text: memory to the right, what is recomputed upwards, the frontier as steps, and the limit."""
        most = max(way.bytes for way in self.ways) * 1.05
        high = max(1, max(way.recomputed for way in self.ways)) * 1.1

        def x(count: float) -> float:
            return _LEFT + (_WIDTH - _LEFT - 10) * count / most

        def y(count: float) -> float:
            return (_HEIGHT - _BOTTOM) - (_HEIGHT - _BOTTOM - 10) * count / high

        best = [way for way in self.ways if way.best]
        line = " ".join(f"{x(way.bytes):.1f},{y(way.recomputed):.1f}" for way in best)
        marks = [
            f'<circle cx="{x(way.bytes):.1f}" cy="{y(way.recomputed):.1f}" r="{6 if way == self.chosen else 4}" '
            f'fill="var({"--c" if way == self.chosen else "--a" if way.best else "--line"})"><title>'
            f"{escape(way.saved)}: {text(way.bytes)}, {flops_text(way.recomputed)} recomputed</title></circle>"
            for way in sorted(self.ways, key=lambda way: way.best)
        ]
        limit = ""
        if self.memory is not None and self.memory < most:
            at = x(self.memory)
            limit = f'<line x1="{at:.1f}" y1="10" x2="{at:.1f}" y2="{y(0):.1f}" stroke="var(--b)" stroke-dasharray="4"/>'
        ticks = [
            words(x(part * most), y(0) + 16, text(part * most), "soft", "middle")
            + words(_LEFT - 6, y(part * high) + 4, flops_text(part * high), "soft", "end")
            for part in (0, 0.5, 0.95)
        ]
        parts = [
            f'<path d="M{_LEFT} 10V{y(0):.1f}H{_WIDTH - 10}" fill="none" stroke="var(--soft)"/>',
            words((_LEFT + _WIDTH) / 2, _HEIGHT - 6, "memory of the gradient", "", "middle"),
            words(_LEFT + 8, 20, "recomputed"),
            f'{limit}<polyline points="{line}" fill="none" stroke="var(--a)"/>',
        ]
        return picture("jitney-frontier", f"what the gradient of {self.function} saves", _WIDTH, _HEIGHT, [*parts, *marks, *ticks])

    def _repr_html_(self) -> str:
        from .._console import html_of

        return self.svg() + html_of(self)


@public
def frontier(
    program: Program[..., Any] | Derivative[..., Any],
    /,
    *examples: Any,
    wrt: Wrt = None,
    memory: int | str | None = None,
    sizes: Mapping[str, int] | None = None,
    **keywords: Any,
) -> Frontier:
    """What the gradient of a function takes in memory, against what it computes again, for several ways to save less for the backward pass.

    These are the options of `remat="auto"`: everything; matrix products; and of the first layers of a stack, some together, products or
    only what enters them. Layers are found in the program: operations that a Python loop repeats, or the turns of a `lax.scan`. The memory
    is that of the compiled gradient; what is recomputed is counted from its program, since compilers count the body of a loop once.

    Args:
        program: A function under `@optimize`, or its `grad` or `value_and_grad`.
        examples: As of `Program.compile`.
        wrt: The arguments that the gradient is taken with respect to: a name or several. Without it all that hold floating-point arrays.
        memory: Bytes, a text such as `"2GiB"`, or `"auto"` for what is free: what `remat="auto"` would choose is marked then. Without it,
            that of the decoration.
        sizes: As of `Program.compile`.
        keywords: Examples by name.

    Of a function with `shard`, memory is that of one device, and operations are those of all.

    Returns:
        The ways that were compiled. Printed, a table; `svg()` is a picture.

    Raises:
        DerivativeError: The function has no gradient, or an argument does not exist.
        OptionError: `memory` is not a size.
    """
    if isinstance(program, Derivative):
        program, wrt = program.function, wrt if wrt is not None else program.function.defaults.wrt
    entry, arrays = program_of("jitney.frontier()", program).abstract(examples, keywords, sizes)
    core = entry.core
    given = memory if memory is not None else core.options.memory
    budget = None if given is None else budget_of(core.where, given)
    names = named(core.where, "wrt", wrt)[0] if wrt is not None else None
    check_names(core.where, names or (), core)
    with entry.numbers(), entry.scope():
        planned = entry.planned(arrays)
        view, place = planned.view, planned.plan.of(Place)
        request = replace(entry.on_mesh(), options=replace(core.options, pad=(), chunk=(), memory=None, remat=None, roll=None))
        body: Any = entry.body_inside(Plan.make(view, request), Saved)
        chosen = [i for i, leaf in enumerate(view.leaves) if names is None or leaf.argument in names]
        lies = None if place is None else place.shardings
        problem = Problem(_jax.make_jaxpr(body)(*(leaf.abstract() for leaf in view.leaves)), chosen, lies)
        if not problem.has_gradient:
            raise DerivativeError(
                sentence(core.where, "it has no gradient.", "A gradient is of real results with respect to floating-point arguments.",
                         "name arguments that hold such arrays with `wrt`.")
            )  # fmt: skip
        point = _explored(problem, budget)
    return _frontier(str(core.where), problem, budget, point)


def _explored(problem: Problem, budget: int | None) -> Point | None:
    """Compile what is of interest, and choose."""
    most = choose(problem, 2**62).point.bytes
    for limit in [int(part * most) for part in _PARTS] if budget is None else []:
        try:
            choose(problem, limit)
        except Nothing:
            break
    if budget is None:
        return None
    try:
        return choose(problem, budget).point
    except Nothing:
        return None


def _frontier(function: str, problem: Problem, budget: int | None, chosen: Point | None) -> Frontier:
    points = sorted(problem.points.values(), key=lambda point: (-point.bytes, point.flops))
    best = {point.option for point in frontier_of(points)}
    ways = {point.option: Saving(str(point.option), point.bytes, point.flops, point.option in best) for point in points}
    return Frontier(function, problem.forward, budget, tuple(ways.values()), ways[chosen.option] if chosen else None, unsupported())
