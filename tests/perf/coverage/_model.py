"""What a model of the scoreboard is: a loss as its author writes it, its arguments, the axes that
are tried, and what mathematics does not allow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

WAYS = ("pad", "chunk", "accumulate", "stream")
CUTS = WAYS[1:]


@dataclass(frozen=True)
class Model:
    """A loss, and what is tried on it.

    Args:
        name: For the table.
        loss: The function, with a jaxtyping signature and nothing of jitney.
        data: Sizes of axes -> the arguments by name. Networks are made here, since their
            constructors compile.
        sizes: Axis -> its size. Each is tried, the others stay as they are.
        wrt: The argument that the gradient is taken with respect to.
        never: (axis, way) or (axis, way, "gradient") -> why mathematics does not allow it.
        has_aux: Whether the loss returns (number, aux).
        tolerance: Of the numbers, of the largest among those of an array.
        group: "models", "scripts", "libraries" or "calls".
        ways: Those that are tried.
        of: What is tried: its value, and its gradient with the value beside it.
        wide_tolerance: With numbers of 64 bits; None for `tolerance`.
    """

    name: str
    loss: Callable[..., Any]
    data: Callable[[Mapping[str, int]], Mapping[str, Any]]
    sizes: Mapping[str, int]
    wrt: str
    never: Mapping[tuple[str, ...], str] = field(default_factory=dict[tuple[str, ...], str])
    has_aux: bool = False
    tolerance: float = 1e-4
    group: str = "models"
    ways: tuple[str, ...] = WAYS
    of: tuple[str, ...] = ("value", "gradient")
    wide_tolerance: float | None = None

    def impossible(self, axis: str, way: str, of: str) -> str | None:
        """Why mathematics does not allow it; None where it does."""
        return self.never.get((axis, way)) or self.never.get((axis, way, of))


def never(axis: str, ways: tuple[str, ...], why: str) -> dict[tuple[str, ...], str]:
    """The same reason for several ways."""
    return {(axis, way): why for way in ways}


STATE = (
    "each step begins with the state of the one before, so the loss is no sum of terms of one step"
    " each"
)
PAIRS = (
    "every position looks at every other one: no chunk sees them, and what would be carried grows"
    " with the axis"
)
SQUARE = (
    "it solves a system of as many equations as the axis has elements, whose matrix is larger than"
    " all that a chunk saves"
)
HALO = (
    "each step in time begins with the neighbours of the one before, so the loss is no sum of terms"
    " of one point each"
)
