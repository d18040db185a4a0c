"""What a Python function holds besides its code, compared between a trace with symbolic sizes and
one with numbers.

A callback is called with numbers, at run time. One that holds a symbolic size, in a closure, a
default, a partial argument or an attribute, cannot compute with it; one that holds what Python has
made of a size (its text, a comparison) would answer for another size.
"""

from __future__ import annotations

import numpy as np

from ..._jax.trees import attribute
from ..dims import tree_dims
from ..held_by_functions import DEPTH, parts_of

_PLAIN = (bool, int, float, complex, str, bytes, type(None), np.generic)


def contents(function: object) -> object:
    """Return a description that is equal in two traces which agree: names, and the plain values
    and arrays that a function holds, at any depth. One that holds a symbolic size is equal to none.
    """
    return _described(function, DEPTH, ())


def _described(value: object, depth: int, within: tuple[int, ...]) -> object:
    if any(True for _ in tree_dims(value)):
        # A trace with numbers has none.
        return "holds a symbolic size"
    if isinstance(value, _PLAIN):
        return type(value).__qualname__, repr(value)
    if isinstance(value, np.ndarray):
        return value.shape, str(value.dtype), value.tobytes()
    name = attribute(value, "__qualname__", type(value).__qualname__)
    if depth == 0 or id(value) in within:
        return name
    parts = (_described(part, depth - 1, (*within, id(value))) for part in parts_of(value))
    return name, tuple(parts)
