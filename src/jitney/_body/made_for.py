"""What a function was traced for, kept in short for reports: sizes, and what the arrays of the call
were. It keeps no array alive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_KEPT = 256  # of one function


@dataclass(frozen=True)
class MadeFor:
    """One trace.

    Args:
        key: A hash of the static values and the structure.
        arrays: Of the call that it was traced for, abstract; None where an outer transform called,
            or nobody knows.
        sizes: Of the named axes of the program: of a padded one its bucket.
        true: Of the padded axes, as they were called.
        decided: Name, whether it was taken, and why, of each stage of its plan.
    """

    key: int
    arrays: tuple[Any, ...] | None
    sizes: Mapping[str, int]
    true: Mapping[str, int]
    decided: tuple[tuple[str, bool, str], ...] = ()


class Log:
    """The latest of them."""

    def __init__(self) -> None:
        self._made: list[MadeFor] = []

    def add(self, made: MadeFor) -> None:
        """One more."""
        self._made.append(made)
        del self._made[:-_KEPT]

    @property
    def made(self) -> Sequence[MadeFor]:
        """Those that are kept, the latest last."""
        return tuple(self._made)
