"""Objects of plain classes that a body has made and returns.

A program remembers what its body returned besides arrays. An object that was there before, a
module's constant say, is returned itself each time. One that the body made is made anew by a plain
function in each call, and so each call gets a copy: what one caller changes in it, no other sees.
"""

from __future__ import annotations

import dataclasses
import functools
import gc
import types
from collections.abc import Iterator, Sequence
from typing import Any

from .._jax.trees import is_a, type_of
from .._signature.attributes import attributes_of
from .._signature.plain_objects import is_plain
from .nodes import nodes


def made_in(result: Any, leaves: Sequence[Any]) -> frozenset[int]:
    """The `id`s of the objects of plain classes in the leaves of a result that nothing outside of
    it refers to.
    """
    found = _reached(leaves)
    objects = {key: value for key, value in found.items() if is_plain(type_of(value))}
    if not objects:
        return frozenset()
    holders = [*objects.values(), *nodes(result)]
    inside = {*found, *map(id, (found, objects, leaves, holders)), *map(id, holders)}
    inside |= {
        id(held.__dict__) for held in (*holders, *found.values()) if hasattr(held, "__dict__")
    }
    # a tuple of `items()` would refer to it
    there_before = {key for key in objects if not _is_only_in(objects[key], inside)}
    return frozenset(objects.keys() - there_before - _behind(there_before, objects))


def _is_only_in(value: Any, inside: set[int]) -> bool:
    """Frames do not count: what a body reaches, it reaches through a cell, a module, an argument or
    another object.
    """
    return all(
        id(referrer) in inside or is_a(referrer, types.FrameType)
        for referrer in gc.get_referrers(value)
    )


def _behind(roots: set[int], objects: dict[int, Any]) -> set[int]:
    """What objects that were there before hold was there before, too."""
    return {key for root in roots for key in _reached([objects[root]])}


def _reached(values: Sequence[Any]) -> dict[int, Any]:
    """By `id`, what lies in them: in objects, in containers of Python's, behind methods and
    partials.
    """
    found: dict[int, Any] = {}
    coming = [*values]
    while coming:
        value = coming.pop()
        if id(value) not in found and (parts := [*_parts(value)]):
            coming += parts
            found[id(value)] = value
        elif is_plain(type_of(value)):
            found[id(value)] = value
    return found


def _parts(value: Any) -> Iterator[Any]:
    if is_a(value, dict):
        yield from dict[Any, Any].values(value)
    elif is_a(value, (list, tuple, set, frozenset)):
        yield from value
    elif is_a(value, types.MethodType):
        yield value.__self__
    elif is_a(value, functools.partial):
        yield from (value.args, value.keywords)
    if is_plain(type_of(value)) or dataclasses.is_dataclass(type_of(value)):
        yield from attributes_of(value).values()
