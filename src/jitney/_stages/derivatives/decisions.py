"""Decisions about derivatives, for the lines of a plan."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True)
class Decision:
    """Mode of a derivative, with the reason, and the directions of a dense Jacobian.

    Args:
        mode: The mode.
        why: The reason.
        directions: How many there are; 0 where they are not cut.
        at_a_time: How many run at a time; None for all.
    """

    mode: str
    why: str
    directions: int = 0
    at_a_time: int | None = None


_DECISIONS: ContextVar[list[Decision] | None] = ContextVar("decisions", default=None)


@contextmanager
def decisions() -> Generator[list[Decision]]:
    """Collect the decisions about derivatives that are traced meanwhile."""
    collected: list[Decision] = []
    token = _DECISIONS.set(collected)
    try:
        yield collected
    finally:
        _DECISIONS.reset(token)


def note_decision(
    mode: str,
    why: str,
    directions: int = 0,
    at_a_time: int | None = None,
) -> None:
    """Add a decision to those that are collected."""
    collected = _DECISIONS.get()
    if collected is not None:
        collected.append(Decision(mode, why, directions, at_a_time))
