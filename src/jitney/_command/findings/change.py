"""A change that would save time or memory, as data."""

from __future__ import annotations

from dataclasses import dataclass

from ..._text.json import Data, Record

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True)
class ProposedChange:
    """Change to a program, with its saving.

    Args:
        seconds: Seconds that it would have saved in the recorded run; None if unknown.
        at_most: True if the saving is an upper bound.
        what: Observation that the change follows from.
        where: Line of the program.
        write: Code to write instead.
        nbytes: Bytes of memory that it would have saved; 0 if it saves seconds.
    """

    seconds: float | None
    at_most: bool
    what: str
    where: str
    write: str
    nbytes: int = 0

    def to_dict(self) -> Data:
        """Return the fields and the saving in words, for JSON."""
        return {**self.__dict__, "saves": saves(self.__dict__)}


def saves(change: Record) -> str:
    """Return a saving in words: `at most 0.52 s`, `at most 8.0 MiB, seconds unknown`."""
    bound = "at most" if change["at_most"] else "about"
    if change["seconds"] is not None:
        return f"{bound} {change['seconds']:.2f} s"
    return f"{bound} {in_bytes(change['nbytes'])}, seconds unknown"


def in_bytes(count: float) -> str:
    """Return a number of bytes as text with a unit, `8.0 MiB`."""
    for unit in _UNITS[:-1]:
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} {_UNITS[-1]}"
