"""Cause of a new trace or compile as data: the difference, its cost, and the remedy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from ..._public import public_in

Kind = Literal[
    "first call",
    "shape",
    "dtype",
    "weak type",
    "static value",
    "tree structure",
    "sharding",
    "committed",
    "mesh",
    "setting",
    "function",
    "cache eviction",
    "outer transform",
    "decision",
    "unknown",
]


@public_in("jitney.types")
@dataclass(frozen=True)
class Cause:
    """Difference between a call and the nearest earlier call that has a program.

    Args:
        kind: Category of the difference.
        argument: Path of the argument, `model.layers[2].weight`; the name of a setting of JAX; None
            if it is neither.
        axis: Named axis whose size differs.
        old: Earlier value, as a person would write it.
        new: Present value.
        seconds: Time of tracing, lowering and compiling the whole program, so all causes of one
            program have the same.
        remedy: Line to write; empty if nothing helps.
    """

    kind: Kind
    argument: str | None = None
    axis: str | None = None
    old: str | None = None
    new: str | None = None
    seconds: float = field(default=0.0, compare=False)
    remedy: str = field(default="", compare=False)

    def __str__(self) -> str:
        of = (
            ""
            if self.argument is None
            else f" of {self.argument!r}"
            if self.kind != "setting"
            else f" {self.argument}"
        )
        along = "" if self.axis is None else f" along {self.axis!r}"
        values = "" if self.old is None and self.new is None else f" {self.old} -> {self.new}"
        return f"{self.kind}{of}{along}{values}"

    def to_dict(self) -> dict[str, Any]:
        """The cause as data, for JSON."""
        return dict(self.__dict__)
