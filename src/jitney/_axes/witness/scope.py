"""Whether a trace with symbolic sizes is under way, and of which.

It stands apart from that trace (`symbolic_trace.py`): each first call asks this, and few trace for
more than one size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .symbolic_trace import Choices


@dataclass
class Scope:
    """A trace under way that must do the same at every size."""

    ranges: Mapping[str, tuple[int, int]]
    choices: Choices | None
    rehearsed: list[tuple[Any, Callable[[Sequence[Any]], Any]]] | None
    turn: int = 0


SCOPE: ContextVar[Scope | None] = ContextVar("at_any_size", default=None)


def at_any_size() -> bool:
    """Whether what is traced now must do the same at every size, so that nothing may be chosen by a
    size.
    """
    return SCOPE.get() is not None


def ranges_at_hand() -> Mapping[str, tuple[int, int]]:
    """The symbols of the trace under way, and which sizes they stand for; none if all sizes are
    known.
    """
    scope = SCOPE.get()
    return {} if scope is None else scope.ranges
