"""Exceptions for a function that cannot be padded or chunked. They never leave jitney: the caller
decides between evaluation at the exact size and an error for the user.

    why was padding refused?   the rule of the operation says why (`refuse`, in `rules/`); `demand`
                               in `uses.py` raises it
    who tells the user?        `explain` in `_program/runners/padding_recipes.py`, in a warning
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class Refused(Exception):
    """An operation along a named axis cannot be carried out on a padded or cut axis.

    Args:
        place: The user's line, "fit.py:12 (residual)".
        what: The operation, as a part of a sentence: "compares the size n with 3".
        ends: Symbol or axis -> the sizes of its range behind which a comparison of sizes has
            another result; no entry if there was no such comparison.
        by_size: Whether traces at another size may do, as this one may be the odd one out.
    """

    def __init__(
        self,
        place: str,
        what: str,
        ends: Mapping[str, Sequence[int]] | None = None,
        *,
        by_size: bool = False,
    ):
        super().__init__(f"{place} {what}" if place else what)
        self.place = place
        self.what = what
        self.ends = ends or {}
        self.by_size = by_size


class ClosesOver(Refused):
    """A body closes over a value that an outer transform traces, so that its derivative by its
    arguments is not all of its derivative.
    """

    def __init__(self) -> None:
        super().__init__(
            "", "closes over a value that an outer transform traces; pass it as an argument"
        )


class AsksForSize(Refused):
    """Code asks for a size as a number, or does something else where it is one, so that traces at
    known sizes may do where one with symbols does not.
    """


class MadeOfSize(Refused):
    """A result has another form where sizes are symbols: a number of Python's is an array there."""

    def __init__(self) -> None:
        super().__init__(
            "", "returns a Python number made of its size, or arrays as many as the size says"
        )
