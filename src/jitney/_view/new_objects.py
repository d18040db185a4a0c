"""Objects of plain classes that a body creates and returns.

A program stores the static parts of its body's result. An object that existed before the trace,
such as a module's constant, is returned itself in each call. An object that the body creates would
be created anew by each call of a plain function, so each call returns a copy: a change by one
caller is invisible to the others.
"""

from __future__ import annotations

import gc
import types
from collections.abc import Iterator, Sequence

from .._values.attributes import attributes_of
from .._values.kinds import RECORD, kind_of
from .._values.mutable_objects import is_plain
from .nodes import nodes


def new_objects_in(result: object, leaves: Sequence[object]) -> frozenset[int]:
    """The `id`s of plain objects in the leaves of a result that nothing outside of the result
    refers to.
    """
    found = _reachable_objects(leaves)
    objects = {key: value for key, value in found.items() if is_plain(type(value))}
    if not objects:
        return frozenset()
    holders = [*objects.values(), *nodes(result)]

    # An object is new if all its referrers are inside: the objects themselves, their attribute
    # dicts, the nodes of the result, and the local variables here.
    inside = {*found, *map(id, (found, objects, leaves, holders)), *map(id, holders)}
    inside |= {
        id(holder.__dict__) for holder in (*holders, *found.values()) if hasattr(holder, "__dict__")
    }

    # The objects are looked up by key, since a tuple of `items()` would be one more referrer.
    there_before = {key for key in objects if not _is_only_in(objects[key], inside)}
    return frozenset(objects.keys() - there_before - _reachable_ids(there_before, objects))


def _is_only_in(value: object, inside: set[int]) -> bool:
    """Return whether all referrers of an object are in `inside`. Frames do not count: a body
    reaches outer objects through a cell, a module, an argument or another object.
    """
    return all(
        id(referrer) in inside or isinstance(referrer, types.FrameType)
        for referrer in gc.get_referrers(value)
    )


def _reachable_ids(
    roots: set[int],
    objects: dict[int, object],
) -> set[int]:
    """The `id`s of objects that can be reached from objects that existed before, and so existed
    before too.
    """
    return {key for root in roots for key in _reachable_objects([objects[root]])}


def _reachable_objects(values: Sequence[object]) -> dict[int, object]:
    """Plain objects and containers that can be reached from these values (through attributes,
    Python's containers, methods and partials), by `id`.
    """
    found: dict[int, object] = {}
    coming = [*values]
    while coming:
        value = coming.pop()
        if id(value) not in found and (parts := [*_parts(value)]):
            coming += parts
            found[id(value)] = value
        elif is_plain(type(value)):
            found[id(value)] = value
    return found


def _parts(value: object) -> Iterator[object]:
    kind = kind_of(value)
    yield from kind.parts(value)
    if is_plain(type(value)) or kind is RECORD:
        yield from attributes_of(value).values()
