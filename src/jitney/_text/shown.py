"""Base class of objects that people look at: text when printed or at a prompt, a table in a
notebook.
"""

from __future__ import annotations


class Shown:
    """Object that `__rich__` renders as a table.

    A dataclass among the subclasses needs `repr=False`, or it generates its own `__repr__`.
    """

    __slots__ = ()

    def __str__(self) -> str:
        # The import of rich is slow, and most processes never print.
        from .console import text_of

        return text_of(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from .console import html_of

        return html_of(self)
