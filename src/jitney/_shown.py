"""What people look at: text where it is printed and at a prompt, a table in a notebook."""

from __future__ import annotations


class Shown:
    """Something that `__rich__` makes a table of. A dataclass has `repr=False` too: else it writes
    a `__repr__` of its own.
    """

    __slots__ = ()

    def __str__(self) -> str:
        from ._console import text_of  # rich takes its time, and most never print

        return text_of(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from ._console import html_of

        return html_of(self)
