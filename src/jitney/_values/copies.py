"""Copies of static values, out of reach of later changes by the caller.

A copy is built the way Python builds the container that a class extends, part by part, and never
with methods of the subclass: the `update` of a `Counter` adds, that of a read-only dict raises, and
an `__init__` may take other arguments. A class with a `__copy__` of its own is copied by it.
"""

from __future__ import annotations

import copy
import dataclasses
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Sequence
from operator import is_
from typing import TYPE_CHECKING, Any, TypeVar

import jax
import numpy as np

from .._jax.typed import NumPyArray
from .attributes import attributes_of
from .kinds import ARRAY, DEFAULT, METHOD, PROXY, Shape, ValueKind, extras, kind_of
from .static_values import PLAIN, Unkeyed, has_hash, is_keyed_by_fields, proxied_dict

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_T = TypeVar("_T")


class Copies(dict[int, tuple[object, Any]]):
    """Pairs of a value and its copy, by the value's `id`. The pair keeps the value alive, so its
    `id` stays valid.

    Args:
        made: The `id`s of objects of plain classes that are copied too; all others count by
            identity.
    """

    def __init__(self, made: frozenset[int] = frozenset()):
        super().__init__()
        self.made = made


# Frozen dataclasses, and classes that override `__setattr__`, have to be written to as well.
_put = object.__setattr__


class _Coming:
    """Marker for a record whose parts are being copied, replaced by the copy if the record contains
    itself.
    """


def snapshot(value: _T, copies: Copies | None = None) -> _T:
    """Copy everything in `value` that the caller could change in place; other objects are returned
    as they are.

    Args:
        value: A static value.
        copies: Earlier copies. An object that several values share is one object in their copies
            too.

    Raises:
        StaticError: A container of a class written in C, which Python cannot build.
    """
    kind = type(value)
    if kind in PLAIN or isinstance(value, jax.Array):
        if kind is not types.FunctionType or copies is None:
            return value
        return copies.get(id(value), (None, value))[1]

    known = Copies() if copies is None else copies
    if id(value) not in known:
        copied = _copy_value(value, kind, known)
        # A container that contains itself has entered its copy already.
        known.setdefault(id(value), (value, copied))
    # A record that contains itself needs a new object, whatever its parts are.
    elif known[id(value)][1] is _Coming:
        known[id(value)] = value, copy.copy(value)
    return known[id(value)][1]


def _copy_value(value: object, kind: type, copies: Copies) -> object:
    entry = kind_of(value)
    if entry is ARRAY and isinstance(value, np.ndarray):
        return _copied_array(value, copies)
    if entry.fill is not None:
        return _copied_container(value, entry, copies)
    if entry is METHOD or entry.new is None:
        return _copied_instance(value, copies)

    # Of an immutable value only the parts are copied.
    parts = [proxied_dict(value)] if entry is PROXY else entry.parts(value)
    copied = _copied_parts(parts, entry, copies)
    if all(map(is_, copied, parts)):
        return value
    twin = _new(entry, kind, copied)
    return _with_attributes(twin, value, copies) if entry.has_attributes else twin


def _copied_instance(value: object, copies: Copies) -> object:
    if isinstance(value, types.MethodType):
        return types.MethodType(value.__func__, snapshot(value.__self__, copies))

    # Records are rebuilt field by field. An object of another class counts by identity, unless its
    # `id` is in `copies.made`.
    if is_keyed_by_fields(value):
        return _copied_record(value, copies)
    return _copied_object(value, copies) if id(value) in copies.made else value


def _copied_array(value: NumPyArray, copies: Copies) -> NumPyArray:
    # "K" keeps the order in memory, which a body can observe through `ravel("K")`.
    twin = value.copy(order="K")
    if value.dtype.hasobject:
        for place in np.ndindex(value.shape):
            element = value[place]
            part = element if value.dtype.names is None else element.item()
            twin[place] = snapshot(part, copies)
    return twin


def _copied_container(value: object, entry: ValueKind, copies: Copies) -> object:
    kind = type(value)
    if _defines_copy(kind):
        twin = copy.copy(value)
        copies[id(value)] = value, twin
        if entry is DEFAULT:
            _put(twin, "default_factory", *entry.options(value))
    else:
        twin = _new(entry, kind, (), entry.options(value))
        # The copy is entered before its parts are copied, since a container may contain itself.
        copies[id(value)] = value, twin
        _with_attributes(twin, value, copies)
    entry.refill(twin, _copied_parts(entry.parts(value), entry, copies))
    return twin


def _copied_parts(parts: Sequence[object], entry: ValueKind, copies: Copies) -> list[object]:
    if entry.shape is Shape.SET:
        return [_member(part, copies) for part in parts]
    if entry.shape is not Shape.MAPPING:
        return [snapshot(part, copies) for part in parts]
    copied: list[object] = []
    for key, part in zip(parts[::2], parts[1::2], strict=True):
        copied += (_member(key, copies), snapshot(part, copies))
    return copied


def _member(part: object, copies: Copies) -> object:
    """The copy that stands for a key or a set member, if there is one; the object itself otherwise,
    because it is looked up by its hash.
    """
    return copies[id(part)][1] if id(part) in copies else part


def _defines_copy(kind: type) -> bool:
    """Return whether a class defines `__copy__` itself, beyond the container of Python's own that
    it extends.
    """
    owner = next((base for base in kind.__mro__ if "__copy__" in base.__dict__), None)
    return owner not in (None, OrderedDict, defaultdict, deque)


def _new(
    entry: ValueKind, kind: type, parts: Sequence[object], options: Sequence[object] = ()
) -> object:
    try:
        return entry.build(kind, parts, options)
    # A class written in C raises "list.__new__(X) is not safe, use X.__new__()".
    except TypeError:
        raise Unkeyed(
            f"is or holds a {kind.__qualname__}, which keeps more than a {entry.name} does.",
            "Containers are copied, so that no later change reaches the program.",
            f"make it a {entry.name} of its items.",
        ) from None


def _copied_record(value: DataclassInstance, copies: Copies) -> object:
    fields = dataclasses.fields(value)
    names = [field.name for field in fields if hasattr(value, field.name)]
    names += extras(value)
    # While the parts are copied the marker stands for the record; `snapshot` replaces it if the
    # record contains itself.
    copies[id(value)] = value, _Coming
    parts = {name: snapshot(getattr(value, name), copies) for name in names}
    twin = copies.pop(id(value))[1]
    if twin is _Coming:
        # Nothing in the record can change, so it needs no copy.
        is_same = (part is getattr(value, name) for name, part in parts.items())
        if has_hash(value) and all(is_same):
            return value
        twin = copy.copy(value)
    for name, part in parts.items():
        _put(twin, name, part)
    return twin


def _copied_object(value: object, copies: Copies) -> object:
    try:
        twin = copy.copy(value)
    # `copy.copy` raises "cannot pickle ...".
    except TypeError as error:
        raise Unkeyed(
            f"is or holds a {type(value).__qualname__}, which cannot be copied: {error}.",
            "What a body makes and returns is copied, so that each call has its own.",
            "return arrays, or a class that has a `__copy__`.",
        ) from None
    copies[id(value)] = value, twin
    return _with_attributes(twin, value, copies)


def _with_attributes(twin: _T, value: object, copies: Copies) -> _T:
    for name, part in attributes_of(value).items():
        _put(twin, name, snapshot(part, copies))
    return twin
