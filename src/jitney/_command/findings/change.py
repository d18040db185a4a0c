"""A change that would save time or memory, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True)
class Change:
    """One of them.

    Args:
        seconds: What it would have saved of the run that was seen; None where that is unknown.
        at_most: Whether what it saves is a bound.
        what: What was seen.
        where: The line of the program.
        write: What to write.
        nbytes: Memory that it would have saved, where that is what it saves.
    """

    seconds: float | None
    at_most: bool
    what: str
    where: str
    write: str
    nbytes: int = 0

    def to_dict(self) -> dict[str, Any]:
        """As data, for JSON."""
        return {**self.__dict__, "saves": saves(self.__dict__)}


def saves(change: Mapping[str, Any]) -> str:
    """What one saves, of its data: `at most 0.52 s`, `at most 8.0 MiB, seconds unknown`."""
    bound = "at most" if change["at_most"] else "about"
    if change["seconds"] is not None:
        return f"{bound} {change['seconds']:.2f} s"
    return f"{bound} {in_bytes(change['nbytes'])}, seconds unknown"


def in_bytes(count: float) -> str:
    """A number of bytes, as a person reads it."""
    for unit in _UNITS[:-1]:
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} {_UNITS[-1]}"
