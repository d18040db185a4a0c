"""One line of `doctor`: what was looked at, what it is, and whether that is well."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

State = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Check:
    """What was found.

    Args:
        name: What was looked at.
        value: What it is, for people.
        state: `warn`: it works, and could be better; `fail`: a program would fail or compute wrong
            numbers.
        fix: A line to paste; empty where all is well.
        data: The figures, for JSON.
    """

    name: str
    value: str
    state: State = "ok"
    fix: str = ""
    data: Any = None

    def to_dict(self) -> dict[str, Any]:
        """As data, for JSON."""
        return dict(self.__dict__)
