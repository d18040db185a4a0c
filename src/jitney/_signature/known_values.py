"""Static values that were seen before: they are compared with copies of the last ones, which takes
less than making their keys.

That two values are alike is said only where their keys are equal for sure: of Python's own lists,
tuples and dicts, and NumPy arrays of numbers, with what is plain inside. Of all else the key is
made, as of a value that is new.
"""

from __future__ import annotations

from operator import is_
from typing import Any

import numpy as np

from .._jax.trees import type_of
from .copies import snapshot
from .static_values import PLAIN, Opaque, order_in_memory

_MOST = 2
_MOST_BYTES = 1 << 20  # of an array: a copy takes memory, and each of its programs has one
_KINDS = frozenset((list, tuple, dict, np.ndarray))
_PLAIN = frozenset(PLAIN)


class Known:
    """The last values of one static argument, in copies that no caller can reach, and their
    keys.
    """

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: tuple[tuple[Any, Any], ...] = ()

    def opaque(self, value: Any) -> Opaque:
        """The argument as a leaf that is keyed.

        Raises:
            Unkeyed: It has no key.
        """
        if type_of(value) not in _KINDS or getattr(value, "nbytes", 0) > _MOST_BYTES:
            return Opaque(value)
        last = self._last
        for copied, key in last:
            if is_alike(value, copied):
                return Opaque.holding(value, key)
        made = Opaque(value)
        copied = snapshot(value)
        if is_alike(value, copied):  # else it will be like none, and may hold objects
            self._last = (copied, made.key), *last[: _MOST - 1]
        return made

    def forget(self) -> None:
        """Let go of them."""
        self._last = ()


def is_alike(a: Any, b: Any) -> bool:
    """Whether two values have equal keys for sure."""
    kind = type_of(a)
    if kind is not type_of(b):
        return False
    if kind in _PLAIN:
        return a == b
    if kind is float:
        return a == b and float.hex(a) == float.hex(b)
    if kind is list or kind is tuple:
        return _are_alike(a, b)
    if kind is dict:
        return _are_alike([*a], [*b]) and _are_alike([*a.values()], [*b.values()])
    if kind is np.ndarray:
        alike = (
            a.dtype == b.dtype
            and a.dtype.kind in "biufc"
            and a.shape == b.shape
            and order_in_memory(a) == order_in_memory(b)
        )
        return alike and a.tobytes() == b.tobytes()
    return False


def _are_alike(a: Any, b: Any) -> bool:
    if len(a) != len(b):
        return False
    kinds = {*map(type_of, a)}
    if kinds <= _PLAIN:
        return all(map(is_, map(type_of, a), map(type_of, b))) and a == b
    return all(map(is_alike, a, b))
