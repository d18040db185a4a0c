"""Sizes of an axis that are worth trying as batch sizes: those at which a call takes least for each
element, by the sweep alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..._text.json import Data
from .measuring import SizeRun
from .plot import seconds_text

# Sizes below which nothing can be said of the best.
_FEWEST = 3
# A size is nearly as quick if it takes no more than this, for each element.
_NEARLY = 1.1


@dataclass(frozen=True)
class SizePerElement:
    """Seconds that a warm call of a size takes for each element of its axis, by its median."""

    axis: str
    size: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.axis}={self.size} ({seconds_text(self.seconds)})"

    def to_dict(self) -> Data:
        """Return the fields as plain data, for JSON."""
        return dict(vars(self))


def sizes_worth_trying(runs: Sequence[SizeRun]) -> list[SizePerElement]:
    """Return the sizes whose calls take least for each element, or nearly so, in ascending order;
    none if several axes vary, or two sizes alone were measured.
    """
    axes = {axis for run in runs for axis in run.sizes}
    if len(axes) != 1 or len(runs) < _FEWEST:
        return []
    (axis,) = axes
    each = [
        SizePerElement(axis, run.sizes[axis], run.quartiles[1] / run.sizes[axis]) for run in runs
    ]
    least = min(one.seconds for one in each)
    return [one for one in each if one.seconds <= _NEARLY * least]
