"""What `jitney.communication` says: the collectives of a program, and its table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .._jax.memory import text as bytes_text
from .._shown import Shown

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class Collective:
    """Collectives of one kind at one line.

    Args:
        kind: What XLA calls it: "all-reduce", "all-gather", ...
        count: How many there are.
        bytes: Of their results, on one device; of one turn where they stand in a loop.
        along: The axes of the mesh between whose devices they run.
        axes: The named axes that lie there; `"fsdp"` for a parameter that is gathered before it is
            used.
        line: The line of the function, or what JAX calls the operation.
        in_loop: Whether they run once for each turn of a loop.
        whole: The argument that, by its shape, it brings together on every device, if it does.
    """

    kind: str
    count: int
    bytes: int
    along: tuple[str, ...]
    axes: tuple[str, ...]
    line: str
    in_loop: bool
    whole: str | None = None


@dataclass(frozen=True, repr=False)
class Communication(Shown):
    """What `jitney.communication` gives."""

    function: str
    mesh: str
    collectives: tuple[Collective, ...]

    @property
    def bytes(self) -> dict[str, int]:
        """By kind, on one device."""
        sizes: dict[str, int] = {}
        for collective in self.collectives:
            sizes[collective.kind] = sizes.get(collective.kind, 0) + collective.bytes
        return sizes

    def __rich__(self) -> Table:
        from .._console import table

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
    loop = " in each turn of a loop" if collective.in_loop else ""
    flag = (
        f". It brings all of {collective.whole!r}, or an array of its shape, to every device"
        if collective.whole
        else ""
    )
    named = f" for {', '.join(map(repr, collective.axes))}" if collective.axes else ""
    along = " and ".join(map(repr, collective.along)) or "no axis"
    return f"{bytes_text(collective.bytes)} along {along}{named}, {collective.line}{loop}{flag}"
