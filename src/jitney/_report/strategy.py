"""What `jitney.strategy` says: the ways that were measured, and the one that fits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .._jax.memory import text
from .._shown import Shown

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class Way:
    """One way to work on the data.

    Args:
        name: "in memory", "chunked" or "streamed".
        bytes: What the compiler says that it takes on one device: temporaries and arguments; None
            if it cannot be done.
        chunk: How many elements of the axis at a time, on each of the devices that share it; None
            for all.
        why: What was measured, or why it cannot be done.
        fits: Whether it can be done within the memory.
    """

    name: str
    bytes: int | None
    chunk: int | None
    why: str
    fits: bool


@dataclass(frozen=True, repr=False)
class Strategy(Shown):
    """What `jitney.strategy` gives.

    Args:
        function: Which.
        axis: Along which axis it is cut, with its size.
        memory: Bytes that were to be kept to.
        ways: Those that were measured.
    """

    function: str
    axis: str
    size: int
    memory: int
    ways: tuple[Way, ...]

    @property
    def chosen(self) -> Way | None:
        """The first way that fits; None if none does."""
        return next((way for way in self.ways if way.fits), None)

    def __rich__(self) -> Table:
        from .._console import table

        styles = ["green" if way is self.chosen else "dim" for way in self.ways]
        marks = ["->" if way is self.chosen else "" for way in self.ways]
        rows = [
            [(mark, style), (way.name, style), (way.why, style)]
            for mark, style, way in zip(marks, styles, self.ways, strict=True)
        ]
        return table(f"{self.function}, {self.axis} = {self.size:,}, in {text(self.memory)}", rows)
