"""Result of `jitney.analysis.communication`: the collectives of a program, and their table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .._jax.xla.memory import text as bytes_text
from .._public import public_in
from .._text.shown import Shown

if TYPE_CHECKING:
    from rich.table import Table


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
