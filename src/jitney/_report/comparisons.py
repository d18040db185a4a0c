"""Results of the tools that compare ways to run a program, as data and as tables: `frontier`
(memory against recomputation, as a picture too), `strategy` (the ways that were measured, and the
first that fits) and `communication` (the collectives of a program), all of `jitney.analysis`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from .._jax.xla.memory import text
from .._jax.xla.memory import text as bytes_text
from .._public import public_in
from .._remat import flops_text
from .._text.shown import Shown
from .._text.svg import FRAME, LINE, A, B, C, Picture, picture, words

if TYPE_CHECKING:
    from rich.table import Table

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 560, 300, 80, 40
_BAR = 16


@public_in("jitney.types")
@dataclass(frozen=True)
class Saving:
    """Choice of residuals that are saved for the backward pass.

    Args:
        saved: The residuals, in words.
        bytes: Temporaries and arguments of the gradient, by the compiler.
        recomputed: Operations on numbers that are done twice, counted in the program.
        best: True if no other takes less memory and recomputes no more.
    """

    saved: str
    bytes: int
    recomputed: int
    best: bool


@public_in("jitney.types")
@dataclass(frozen=True, repr=False)
class Frontier(Shown):
    """Result of `jitney.analysis.frontier`. Printed, a table; in a notebook a picture too.

    Args:
        function: Name and place of the function.
        forward: Operations of the function itself.
        memory: Limit in bytes; None if none was given.
        ways: All choices that were compiled, from the most memory to the least.
        chosen: The one that recomputes least of those within the limit; None if none is, or there
            is not a limit.
        unsupported: Reason why residuals cannot be offloaded to the memory of the host; None if
            they can.
        down_to: Bytes down to which choices were sought, where no `memory` was given and something
            takes so little; a lower limit may find a choice that takes less.
    """

    function: str
    forward: int
    memory: int | None
    ways: tuple[Saving, ...]
    chosen: Saving | None
    unsupported: str | None
    down_to: int | None = None

    def __rich__(self) -> Table:
        from .._text.console import table

        # `ways` begins with the one that takes the most memory.
        most = self.ways[0].bytes
        rows: list[list[tuple[str, str]]] = [
            [("", ""), ("memory", "bold"), ("", ""), ("recomputed", "bold"), ("saved", "bold")]
        ]
        for way in self.ways:
            style = "green" if way == self.chosen else "" if way.best else "dim"
            bar = "█" * max(1, round(_BAR * way.bytes / most))
            again = (
                f"{flops_text(way.recomputed)}, {way.recomputed / max(1, self.forward):.0%} of"
                " forward"
            )
            mark = "->" if way == self.chosen else "" if way.best else "·"
            rows.append(
                [
                    (mark, style),
                    (text(way.bytes), style),
                    (bar, style),
                    (again, style),
                    (way.saved, style),
                ]
            )
        if self.unsupported:
            rows.append(
                [
                    ("", ""),
                    ("not there", "dim"),
                    ("", ""),
                    ("", ""),
                    (f"products, in the memory of the host: {self.unsupported}", "dim"),
                ]
            )
        for mark, note in self._legend():
            empty = ("", "")
            rows.append([(mark, "dim"), empty, empty, empty, (note, "dim")])
        kept = f" in {text(self.memory)}" if self.memory is not None else ""
        return table(f"what the gradient of {self.function} saves{kept}", rows)

    def _legend(self) -> Iterator[tuple[str, str]]:
        """Marks of the table with their meaning; what the table leaves open has no mark."""
        if self.chosen is not None:
            yield "->", 'what remat="auto" takes within this memory'
        if not all(way.best for way in self.ways):
            yield "·", "another one takes no more memory and recomputes no more"
        if self.down_to is not None:
            least = text(self.down_to)
            yield "", f"sought down to {least}: less may be possible, which a lower memory= finds"

    def svg(self) -> Picture:
        """Draw the frontier as SVG text.

        Memory is to the right and recomputation upwards, with the frontier as a line, and the
        limit.
        """
        most = max(way.bytes for way in self.ways) * 1.05
        high = max(1, max(way.recomputed for way in self.ways)) * 1.1

        def x(count: float) -> float:
            return _LEFT + (_WIDTH - _LEFT - 10) * count / most

        def y(count: float) -> float:
            return (_HEIGHT - _BOTTOM) - (_HEIGHT - _BOTTOM - 10) * count / high

        best = [way for way in self.ways if way.best]
        line = " ".join(f"{x(way.bytes):.1f},{y(way.recomputed):.1f}" for way in best)
        # SVG draws in order: the best come last, on top.
        marks = [
            f'<circle cx="{x(way.bytes):.1f}" cy="{y(way.recomputed):.1f}"'
            f' r="{6 if way == self.chosen else 4}"'
            f" {_fill(chosen=way == self.chosen, best=way.best)}>"
            f"<title>{escape(way.saved)}: {text(way.bytes)},"
            f" {flops_text(way.recomputed)} recomputed</title></circle>"
            for way in sorted(self.ways, key=lambda way: way.best)
        ]

        limit = ""
        # A limit to the right of all points is not drawn.
        if self.memory is not None and self.memory < most:
            at = x(self.memory)
            limit = (
                f'<line x1="{at:.1f}" y1="10" x2="{at:.1f}" y2="{y(0):.1f}" stroke="{B}"'
                ' stroke-dasharray="4"/>'
            )
        ticks = [
            words(x(part * most), y(0) + 16, text(part * most), "soft", "middle")
            + words(_LEFT - 6, y(part * high) + 4, flops_text(part * high), "soft", "end")
            for part in (0, 0.5, 0.95)
        ]
        parts = [
            f'<path d="M{_LEFT} 10V{y(0):.1f}H{_WIDTH - 10}" fill="none" {FRAME}/>',
            words((_LEFT + _WIDTH) / 2, _HEIGHT - 6, "memory of the gradient", "", "middle"),
            words(_LEFT + 8, 20, "recomputed"),
            f'{limit}<polyline points="{line}" fill="none" stroke="{A}"/>',
        ]
        return picture(
            "jitney-frontier",
            f"what the gradient of {self.function} saves",
            _WIDTH,
            _HEIGHT,
            [*parts, *marks, *ticks],
        )

    def _repr_html_(self) -> str:
        from .._text.console import html_of

        return self.svg() + html_of(self)


def _fill(*, chosen: bool, best: bool) -> str:
    """Return the attributes of a point: the choice, those on the frontier, and the others."""
    if not (chosen or best):
        return f'fill="currentColor" fill-opacity="{LINE}"'
    return f'fill="{C if chosen else A}"'


@public_in("jitney.types")
@dataclass(frozen=True)
class Way:
    """Way to run over the data.

    Args:
        name: "in memory", "chunked" or "streamed".
        bytes: Bytes on one device by the compiler, temporaries and arguments; None if it is not
            possible.
        chunk: Elements of the axis in a chunk, on each of the devices that share it; None for all.
        why: Measurement, or the reason why it is not possible.
        fits: True if it is possible within the memory.
    """

    name: str
    bytes: int | None
    chunk: int | None
    why: str
    fits: bool


@public_in("jitney.types")
@dataclass(frozen=True, repr=False)
class Strategy(Shown):
    """Result of `jitney.analysis.strategy`.

    Args:
        function: Name and place of the function.
        axis: Axis that is cut.
        size: Size of the axis.
        memory: Limit in bytes.
        ways: Ways that were measured, in order of preference.
    """

    function: str
    axis: str
    size: int
    memory: int
    ways: tuple[Way, ...]

    @property
    def chosen(self) -> Way | None:
        """First way that fits; None if none does."""
        return next((way for way in self.ways if way.fits), None)

    def __rich__(self) -> Table:
        from .._text.console import table

        styles = ["green" if way is self.chosen else "dim" for way in self.ways]
        marks = ["->" if way is self.chosen else "" for way in self.ways]
        rows = [
            [(mark, style), (way.name, style), (way.why, style)]
            for mark, style, way in zip(marks, styles, self.ways, strict=True)
        ]
        return table(f"{self.function}, {self.axis} = {self.size:,}, in {text(self.memory)}", rows)


@public_in("jitney.types")
@dataclass(frozen=True)
class Collective:
    """Collectives of one kind at one line.

    Args:
        kind: XLA's name: "all-reduce", "all-gather", ...
        count: Number of them.
        bytes: Bytes of their results, on one device; those of one iteration if they are in a loop.
        along: Axes of the mesh between whose devices they run.
        axes: Named axes that are sharded over these; `"fsdp"` for a parameter that is gathered
            before it is used.
        line: Line of the function, or JAX's name of the operation.
        in_loop: True if they run once for each iteration of a loop.
        whole: Argument that, by its shape, they gather completely on every device, if any.
    """

    kind: str
    count: int
    bytes: int
    along: tuple[str, ...]
    axes: tuple[str, ...]
    line: str
    in_loop: bool
    whole: str | None = None


@public_in("jitney.types")
@dataclass(frozen=True, repr=False)
class Communication(Shown):
    """Result of `jitney.analysis.communication`."""

    function: str
    mesh: str
    collectives: tuple[Collective, ...]

    @property
    def bytes(self) -> dict[str, int]:
        """Bytes by kind, on one device."""
        sizes: dict[str, int] = {}
        for collective in self.collectives:
            sizes[collective.kind] = sizes.get(collective.kind, 0) + collective.bytes
        return sizes

    def __rich__(self) -> Table:
        from .._text.console import table

        rows = [
            [
                (collective.kind, "yellow" if collective.whole else ""),
                (str(collective.count), ""),
                (_sentence(collective), ""),
            ]
            for collective in self.collectives
        ]
        none = [[("none", "green"), ("", ""), ("the devices send each other nothing", "")]]
        return table(
            f"communication of {self.function}",
            [[("mesh", ""), ("", ""), (self.mesh, "")], *(rows or none)],
        )


def _sentence(collective: Collective) -> str:
    loop = " in each iteration of a loop" if collective.in_loop else ""
    flag = (
        f". It brings all of {collective.whole!r}, or an array of its shape, to every device"
        if collective.whole
        else ""
    )
    named = f" for {', '.join(map(repr, collective.axes))}" if collective.axes else ""
    along = " and ".join(map(repr, collective.along)) or "no axis"
    return f"{bytes_text(collective.bytes)} along {along}{named}, {collective.line}{loop}{flag}"
