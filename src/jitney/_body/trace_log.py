"""Log of traces, in short, for reports: sizes, and the abstract arrays of the call. It keeps no
array alive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# Traces that are kept of one function.
_KEPT = 256


@dataclass(frozen=True)
class TraceInputs:
    """Inputs of one trace.

    Args:
        key: A hash of the static values and the structure.
        arrays: Abstract arrays of the call; None where an outer transform called, or they are
            unknown.
        sizes: Sizes of the named axes of the program: of a padded axis its bucket.
        true: True sizes of the padded axes.
        decided: Name, whether it acts, and the reason, of each stage of its plan.
    """

    key: int
    arrays: tuple[Any, ...] | None
    sizes: Mapping[str, int]
    true: Mapping[str, int]
    decided: tuple[tuple[str, bool, str], ...] = ()


class TraceLog:
    """The latest traces of a function."""

    def __init__(self) -> None:
        self._made: list[TraceInputs] = []
        # Whether traces were dropped, since there were too many.
        self.dropped = False

    def add(self, trace: TraceInputs) -> None:
        """Append a trace."""
        self._made.append(trace)
        self.dropped = self.dropped or len(self._made) > _KEPT
        del self._made[:-_KEPT]

    @property
    def traces(self) -> Sequence[TraceInputs]:
        """Logged traces, the latest last."""
        return tuple(self._made)
