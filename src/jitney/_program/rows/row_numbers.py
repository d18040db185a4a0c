"""Numbers of rows in messages: those of the caller, also where a stream calls with some of them."""

from __future__ import annotations

from contextvars import ContextVar

from ..._errors import ContractError, Where

_FIRST: ContextVar[int] = ContextVar("first row of a call", default=0)


class rows_from:  # noqa: N801 - it is called as a function
    """Scope of a call whose first row has this number in the caller's."""

    __slots__ = ("_first", "_token")

    def __init__(self, first: int):
        self._first = first

    def __enter__(self) -> None:
        self._token = _FIRST.set(self._first)

    def __exit__(self, *_: object) -> None:
        _FIRST.reset(self._token)


def number_of(row: int) -> int:
    """Return the caller's number of a row of the call."""
    return _FIRST.get() + int(row)


def in_row(
    where: Where,
    row: int,
    error: ContractError,
) -> ContractError:
    """Return the error of the call of one row, which then names the row."""
    place = f"{where}: "
    named = str(error).replace(place, f"{place}row {number_of(row)}: ", 1)
    return ContractError(named, code=error.code)
