"""Result of one check of `doctor`: its name, its value, and its state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..._text.json import Data

State = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Check:
    """Line of the table of `doctor`.

    Args:
        name: Subject of the check.
        value: Result, in words.
        state: `warn`: it works, and could be better; `fail`: a program would fail or compute wrong
            numbers.
        fix: A line to paste; empty if all is well.
        data: The figures, for JSON.
    """

    name: str
    value: str
    state: State = "ok"
    fix: str = ""
    data: object = None

    def to_dict(self) -> Data:
        """Return the fields as a dict, for JSON."""
        return dict(self.__dict__)
