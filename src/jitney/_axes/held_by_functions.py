"""What a Python function holds besides its code: closure, defaults, partial arguments, attributes.

A callback is called with numbers, at run time: what it holds is a constant of the program.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from functools import partial
from types import CellType, FunctionType, MethodType
from typing import cast

from .._jax.trees import attribute

DEPTH = 12
"""How deep a function is looked into."""


def everything(value: object, depth: int = DEPTH) -> Iterator[object]:
    """Yield a value and all that it holds."""
    yield value
    if depth:
        for part in parts_of(value):
            yield from everything(part, depth - 1)


def parts_of(value: object) -> Iterator[object]:
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
