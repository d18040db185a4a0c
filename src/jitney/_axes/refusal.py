"""Why a function is not padded or chunked. It never leaves jitney: whoever asked decides between
exact size and an error.
"""

from __future__ import annotations


class Refused(Exception):
    """Something that a function does along a named axis cannot be carried out on a padded one.

    Args:
        place: The user's line, "fit.py:12 (residual)".
        what: What happens there, as a part of a sentence: "compares the size n with 3".
    """

    def __init__(self, place: str, what: str):
        super().__init__(f"{place} {what}" if place else what)
        self.place = place
        self.what = what


class ClosesOver(Refused):
    """A body closes over a value that an outer transform traces, so that its derivative is not one
    of its arguments alone.
    """

    def __init__(self) -> None:
        super().__init__(
            "", "closes over a value that an outer transform traces; pass it as an argument"
        )


class MadeOfSize(Refused):
    """A result has another form where sizes are symbols: a number of Python's is an array there."""

    def __init__(self) -> None:
        super().__init__(
            "", "returns a Python number made of its size, or arrays as many as the size says"
        )
