"""One reason for a new trace or compile, as data: what differs, from what to what, what it cost,
and what to write.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

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


@dataclass(frozen=True)
class Cause:
    """One thing in which a call differs from the nearest one that has a program.

    Args:
        kind: What differs.
        argument: The path of the argument, `model.layers[2].weight`; the name of a setting of JAX;
            None where it is neither.
        axis: The named axis whose size differs.
        old: What it was, as a person would write it.
        new: What it is.
        seconds: Of tracing, lowering and compiling; of the whole program, so all causes of one
            program say the same.
        remedy: What to write; empty where nothing helps.
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
        """As data, for JSON."""
        return dict(self.__dict__)
