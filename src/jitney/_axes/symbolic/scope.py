"""Context of the symbolic trace that is under way, if one is.

A file of its own, apart from that trace (`sized_function.py`), since each first call reads it and
few calls trace for more than one size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..unified.choices import Choices


Proposal = tuple[object, Callable[[Sequence[Any]], object]]
"""A choice that suits one size, or None, and the function that settles such choices of several
sizes.
"""


@dataclass
class Scope:
    """A trace under way whose program must be the same at every size."""

    ranges: Mapping[str, tuple[int, int]]
    choices: Choices | None
    rehearsed: list[Proposal] | None
    turn: int = 0


SCOPE: ContextVar[Scope | None] = ContextVar("at_any_size", default=None)


def at_any_size() -> bool:
    """Return whether the trace under way must give the same program at every size, so that no
    decision may depend on a size.
    """
    return SCOPE.get() is not None


def ranges_at_hand() -> Mapping[str, tuple[int, int]]:
    """The symbols of the trace under way and the ranges of their sizes; none if all sizes are
    known.
    """
    scope = SCOPE.get()
    return {} if scope is None else scope.ranges
