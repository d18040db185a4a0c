"""What a Python function holds besides its code, compared between a trace with symbolic sizes and
one with numbers.

A callback is called with numbers, at run time. One that holds a symbolic size, in a closure, a
default, a partial argument or an attribute, cannot compute with it; one that holds what Python has
made of a size (its text, a comparison) would answer for another size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from functools import partial
from types import CellType, FunctionType, MethodType
from typing import cast

import numpy as np

from ..._jax.trees import attribute
from ..dims import tree_dims

# How deep a function is looked into.
_DEPTH = 12
_PLAIN = (bool, int, float, complex, str, bytes, type(None), np.generic)


def contents(function: object) -> object:
    """Return a description that is equal in two traces which agree: names, and the plain values
    and arrays that a function holds, at any depth. One that holds a symbolic size is equal to none.
    """
    return _described(function, _DEPTH, ())


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
    parts = (_described(part, depth - 1, (*within, id(value))) for part in _parts(value))
    return name, tuple(parts)


def _parts(value: object) -> Iterator[object]:
    """Yield what a value holds; nothing of what is no container and no function."""
    if isinstance(value, (tuple, list)):
        yield from cast("list[object]", value)
    elif isinstance(value, Set):
        yield from sorted(map(repr, cast("Set[object]", value)))
    elif isinstance(value, Mapping):
        for key, part in cast("Mapping[object, object]", value).items():
            yield repr(key)
            yield part
    elif isinstance(value, partial):
        yield from (value.func, value.args, value.keywords)
    elif isinstance(value, MethodType):
        yield from (value.__func__, value.__self__)
    elif isinstance(value, FunctionType):
        yield from (value.__defaults__, value.__kwdefaults__)
        yield from map(_held, value.__closure__ or ())
    elif callable(value) and not isinstance(value, type):
        yield from attribute(value, "__dict__", {}).values()
        kinds = cast("type[object]", type(value)).mro()
        for slots in (attribute(kind, "__slots__", ()) for kind in kinds):
            for name in (slots,) if isinstance(slots, str) else slots:
                yield attribute(value, name, None)


def _held(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None
