"""Which check a number stands for, which a program with checks returns."""

from __future__ import annotations

import threading
from typing import Any, Never, TypeVar

from jax import Array

from .._jax.equinox_checks import fail

_BITS = 16  # of an int32: the lower ones say which message, the upper ones which check
MOST = 2 ** (31 - _BITS) - 1
MASK = 2**_BITS - 1
_HALF = 2 ** (_BITS - 1)
LEAST_INDEX, MOST_INDEX = -_HALF, _HALF - 1

_Int = TypeVar("_Int", int, Array)


class Table:
    """The checks of all programs of one function, by number. 0 is none."""

    def __init__(self) -> None:
        self._checks: list[Any] = []
        self._numbers: dict[int, int] = {}  # by the identity of a callback, which the list keeps
        self._lock = threading.Lock()

    def code(self, callback: Any) -> int:
        """What stands for a check with its first message. The others follow: those that count from
        the end, as Python's, lie above.
        """
        held = callback.params["callback"]
        with self._lock:
            number = self._numbers.get(id(held))
            if number is None:
                self._checks.append(callback)
                number = self._numbers[id(held)] = len(self._checks)
        return number << _BITS

    def fail(self, code: int) -> Never:
        """Raise the error of a check.

        Raises:
            EquinoxRuntimeError: Always, in Equinox's words.
        """
        check, index = parted(code)
        fail(self._checks[check], index)

    @property
    def callbacks(self) -> tuple[Any, ...]:
        """The callbacks of the checks, in the order of their numbers."""
        return tuple(self._checks)

    def __len__(self) -> int:
        return len(self._checks)


def message_bits(index: int) -> int:
    """The lower bits of a number, of a message that is known when the program is made."""
    return min(max(index, LEAST_INDEX), MOST_INDEX) & MASK


def parted(code: _Int) -> tuple[_Int, _Int]:
    """Which check a number stands for, from 0, and which of its messages, as `Table.fail` takes it.
    It is an int, or an int32 array.
    """
    return (code >> _BITS) - 1, ((code & MASK) ^ _HALF) - _HALF
