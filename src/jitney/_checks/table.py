"""Numbering of the checks of one function, the bit layout of the flag, and Equinox checks made of a
flag again.

The int32 has the number of the check in its upper bits, counted from 1, and the index of the
message in the lower 16 as a signed number. 0 means that no check has failed.

An exported program returns the flag and carries the messages as text. The process that runs it
wraps a result in `eqx.branched_error_if` for each check.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import Any, Never, TypeVar

import equinox as eqx
import jax
from jax import Array

from .._jax.equinox_checks import fail
from .._jax.trees import extended, issubdtype
from .._jax.typed import JaxprEqn

# Bits of the message index.
_BITS = 16
MOST = 2 ** (31 - _BITS) - 1
MASK = 2**_BITS - 1
_HALF = 2 ** (_BITS - 1)
LEAST_INDEX, MOST_INDEX = -_HALF, _HALF - 1

_Int = TypeVar("_Int", int, Array)


class CheckTable:
    """Checks of all programs of one function, by number. 0 means no check."""

    def __init__(self) -> None:
        self._checks: list[JaxprEqn] = []
        # Keyed by the identity of a callback, which `_checks` keeps alive.
        self._numbers: dict[int, int] = {}
        self._lock = threading.Lock()

    def code(self, callback: JaxprEqn) -> int:
        """Return the code of a check with its first message, and number the check if it is new.

        The codes of its other messages differ in the lower bits: `message_bits` of a negative
        index, which counts from the end as in Python, sets the highest ones.
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
        check, index = split_code(code)
        fail(self._checks[check], index)

    @property
    def callbacks(self) -> tuple[JaxprEqn, ...]:
        """Callbacks of the checks, in the order of their numbers."""
        return tuple(self._checks)

    def __len__(self) -> int:
        return len(self._checks)


def message_bits(index: int) -> int:
    """Lower bits of a code, for a message index that is known at trace time."""
    return min(max(index, LEAST_INDEX), MOST_INDEX) & MASK


def split_code(code: _Int) -> tuple[_Int, _Int]:
    """Split a code into the position of its check, from 0, and its message index.

    The code is an int or an int32 array. `CheckTable.fail` takes the same two numbers.
    """
    # Sign-extend the lower bits: xor with the sign bit, then subtract it.
    return (code >> _BITS) - 1, ((code & MASK) ^ _HALF) - _HALF


def with_checks(
    results: Sequence[jax.Array],
    number: Any,
    checks: Sequence[Sequence[str]],
) -> list[jax.Array]:
    """Make one result depend on the checks, so that Equinox raises where one has failed.

    The caller treats these checks like any others of Equinox.

    Args:
        results: Results of a program that `evaluate_flagged` has evaluated.
        number: Number of the check that failed, as `evaluate_flagged` returns it.
        checks: Messages of each check, in the order of their numbers.
    """
    out = list(results)
    if not out or not checks:
        return out
    # Any result can carry the checks: take the smallest one that is not a PRNG key, if there is
    # one.
    ranks = [(issubdtype(x.dtype, extended), math.prod(x.shape)) for x in out]
    at = ranks.index(min(ranks))
    failed, index = split_code(number)
    for place, messages in enumerate(checks):
        has_failed = failed == place
        out[at] = eqx.branched_error_if(
            out[at],
            has_failed,
            index,
            tuple(messages),
            on_error="raise",
        )
    return out
