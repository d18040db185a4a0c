"""One remedy: what fails, the words of the fix, and the program with the fix applied as it is
written.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

HOLE = "…"  # where a message has a name or a number of the call


@dataclass(frozen=True)
class Remedy:
    """One remedy that is followed to its end.

    Args:
        at: Where the source says it: `_signature/options/readers.py:read_vmap`.
        words: A part of its text there, and of the message that `fails` gives.
        fails: The program that gives the message, as an error or a warning.
        follows: The same with the fix applied as it is written, without an error or a warning.
        expected: What the plain function gives, or a function of no arguments that computes it;
            None where there is no result.
        core: Whether the core follows it: one of each kind.
        within: How far results may be apart, of the largest number.
    """

    at: str
    words: str
    fails: Callable[[], Any]
    follows: Callable[[], Any]
    expected: Any = None
    core: bool = False
    within: float = 1e-5

    @property
    def name(self) -> str:
        return f"{self.at.rpartition('/')[2]}-{self.words.replace(HOLE, '..')}"

    def is_said(self, message: str) -> bool:
        """Whether a message ends with this fix."""
        fix = message.partition("\nFix: ")[2]
        return (
            re.search(".*".join(map(re.escape, self.words.split(HOLE))), fix, re.DOTALL) is not None
        )

    def said(self) -> list[str]:
        """The error that the program which fails ends with, and its warnings."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                self.fails()
                found: BaseException | None = None
            except Exception as error:  # noqa: BLE001 - whatever the program ends with
                found = error
        return [*([] if found is None else [str(found)]), *(str(each.message) for each in caught)]
