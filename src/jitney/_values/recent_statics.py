"""Recent values of static arguments, compared directly, which is cheaper than computing their keys.

A match is claimed only if the keys of the two values are certainly equal: for Python's own lists,
tuples and dicts and for NumPy arrays of numbers, with plain values inside. For any other value the
key is computed, as for a new one.
"""

from __future__ import annotations

from collections.abc import Hashable
from operator import is_
from typing import Any

import numpy as np

from .copies import snapshot
from .static_once import Static
from .static_values import PLAIN, Opaque, order_in_memory

_MOST = 2
# Limit for arrays: a copy takes memory, and each program of the array has one already.
_MOST_BYTES = 1 << 20
_KINDS = frozenset((list, tuple, dict, np.ndarray))
_PLAIN = frozenset(PLAIN)


class RecentStatics:
    """The last values of one static argument, as copies that no caller can reach, with their
    keys.
    """

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: tuple[tuple[object, Hashable], ...] = ()

    def opaque(self, value: object) -> Opaque:
        """Wrap the argument as a leaf with its key.

        Raises:
            Unkeyed: It has no key.
        """
        if type(value) not in _KINDS or getattr(value, "nbytes", 0) > _MOST_BYTES:
            return value.leaf if isinstance(value, Static) else Opaque(value)
        last = self._last
        for copied, key in last:
            if is_alike(value, copied):
                return Opaque.holding(value, key)
        made = Opaque(value)
        copied = snapshot(value)
        # A value that does not match its own copy would match no later value, and may hold objects
        # that must not be kept alive.
        if is_alike(value, copied):
            self._last = (copied, made.key), *last[: _MOST - 1]
        return made

    def forget(self) -> None:
        """Drop the recorded values."""
        self._last = ()


def is_alike(a: Any, b: Any) -> bool:
    """Return whether two values certainly have equal keys."""
    kind = type(a)
    if kind is not type(b):
        return False
    if kind in _PLAIN:
        return a == b
    if kind is float:
        # `==` does not distinguish 0.0 from -0.0; the hexadecimal form does.
        return a == b and float.hex(a) == float.hex(b)
    if kind is list or kind is tuple:
        return _are_alike(a, b)

    # Dicts are compared in order, since a body can observe it.
    if kind is dict:
        keys_are = _are_alike([*a], [*b])
        return keys_are and _are_alike([*a.values()], [*b.values()])
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
    kinds = {*map(type, a)}
    if kinds <= _PLAIN:
        # One `==` of Python's own compares all plain items; types are compared too, since `1 ==
        # True`.
        return all(map(is_, map(type, a), map(type, b))) and a == b
    return all(map(is_alike, a, b))
