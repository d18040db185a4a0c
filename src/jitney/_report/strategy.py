"""Result of `jitney.analysis.strategy`: the ways to run that were measured, and the first
that fits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .._jax.xla.memory import text
from .._public import public_in
from .._text.shown import Shown

if TYPE_CHECKING:
    from rich.table import Table


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
