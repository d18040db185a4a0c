"""Copies of static values, which later changes by the caller cannot reach.

A copy is built as Python builds the container that a class extends, part by part, and never by
methods of the class: the `update` of a `Counter` adds, that of a read-only dict raises, and an
`__init__` may want something else. A class that says itself how it is copied (`__copy__`) is asked.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import types
from collections import OrderedDict, defaultdict, deque
from operator import is_
from typing import Any

import jax
import numpy as np

from .._jax.trees import is_a, type_of
from .attributes import attributes_of
from .static_values import PLAIN, Unkeyed, base_of, behind, extras, has_hash, is_keyed_by_fields


class Copies(dict[int, tuple[Any, Any]]):
    """By the `id` of what was copied, which is kept alive, and its copy.

    Args:
        made: The `id`s of objects of plain classes that are copied too; of all others identity is
            what counts.
    """

    def __init__(self, made: frozenset[int] = frozenset()):
        super().__init__()
        self.made = made


_tuple: Any = tuple
_frozenset: Any = frozenset
_put: Any = object.__setattr__  # frozen dataclasses and classes with a `__setattr__` of their own


class _Coming:
    """The copy of a record whose parts are being copied, until one of them is the record."""


def snapshot(value: Any, copies: Copies | None = None) -> Any:
    """A copy of whatever in `value` the caller could change in place; the rest is the same object.

    Args:
        value: A static value.
        copies: Those made before of what it shares with others: what is one object in them is one
            in the copies too.

    Raises:
        StaticError: A container of a class of C's, which Python cannot build.
    """
    kind = type_of(value)
    if kind in PLAIN or is_a(value, jax.Array):
        return (
            value
            if kind is not types.FunctionType or copies is None
            else copies.get(id(value), (None, value))[1]
        )
    known = Copies() if copies is None else copies
    if id(value) not in known:
        copied = _copied(value, kind, known)
        # of what contains itself the copy is there already
        known.setdefault(id(value), (value, copied))
    elif known[id(value)][1] is _Coming:
        known[id(value)] = value, copy.copy(value)
    return known[id(value)][1]


def _copied(value: Any, kind: Any, copies: Copies) -> Any:
    if is_a(value, np.ndarray):
        return _copied_array(value, copies)
    if is_a(value, (list, dict, set, deque, bytearray)):
        return _copied_container(value, kind, copies)
    if is_a(value, types.MappingProxyType):
        return types.MappingProxyType[Any, Any](snapshot(behind(value), copies))
    if is_a(value, tuple):
        parts = [snapshot(part, copies) for part in _tuple.__iter__(value)]
        # A subclass may have a `__new__` of its own, which wants something else.
        return (
            value
            if all(map(is_, parts, value))
            else _with_attributes(_new(_tuple, kind, parts), value, copies)
        )
    if is_a(value, frozenset):
        members = [_member(part, copies) for part in _frozenset.__iter__(value)]
        return (
            value
            if all(map(is_, members, value))
            else _with_attributes(_new(_frozenset, kind, members), value, copies)
        )
    if is_a(value, functools.partial):
        func, args, keywords = (
            snapshot(part, copies) for part in (value.func, value.args, value.keywords)
        )
        return _with_attributes(
            functools.partial.__new__(kind, func, *args, **keywords), value, copies
        )
    if is_a(value, types.MethodType):
        return types.MethodType(value.__func__, snapshot(value.__self__, copies))
    if is_keyed_by_fields(value):
        return _copied_record(value, copies)
    return _copied_object(value, copies) if id(value) in copies.made else value


def _copied_array(value: np.ndarray[Any, Any], copies: Copies) -> np.ndarray[Any, Any]:
    twin = value.copy(order="K")
    if value.dtype.hasobject:
        for place in np.ndindex(value.shape):
            twin[place] = snapshot(
                value[place] if value.dtype.names is None else value[place].item(), copies
            )
    return twin


def _copied_container(value: Any, kind: Any, copies: Copies) -> Any:
    base = base_of(value)
    if _says_how(kind):
        twin = copy.copy(value)
        copies[id(value)] = value, twin
    else:
        twin = _new(base, kind)
        copies[id(value)] = value, twin  # before its parts, of which it may be one
        if base is deque:
            deque[Any].__init__(twin, (), value.maxlen)
        _with_attributes(twin, value, copies)
    if base is defaultdict:
        _put(twin, "default_factory", value.default_factory)
    _fill(twin, base, value, copies)
    return twin


def _fill(twin: Any, base: Any, value: Any, copies: Copies) -> None:
    """Put copies of the parts in place of what is there, by the methods of Python's own class."""
    if is_a(twin, dict):
        for key, part in base.items(value):
            base.__setitem__(twin, _member(key, copies), snapshot(part, copies))
    elif is_a(twin, set):
        base.update(twin, [_member(part, copies) for part in base.__iter__(value)])
    else:
        parts = [snapshot(part, copies) for part in base.__iter__(value)]
        base.clear(twin)
        base.extend(twin, parts)


def _member(part: Any, copies: Copies) -> Any:
    """A key, or a member of a set: found by its hash, so a copy is of no use; another may stand for
    it.
    """
    return copies[id(part)][1] if id(part) in copies else part


def _says_how(kind: Any) -> bool:
    """Whether a class, and not the one of Python's own that it extends, has a `__copy__`."""
    owner = next((base for base in kind.__mro__ if "__copy__" in base.__dict__), None)
    return owner not in (None, OrderedDict, defaultdict, deque)


def _new(base: Any, kind: Any, *args: Any) -> Any:
    try:
        return base.__new__(kind, *args)
    except TypeError:  # "list.__new__(X) is not safe, use X.__new__()"
        raise Unkeyed(
            f"is or holds a {kind.__qualname__}, which keeps more than a {base.__name__} does.",
            "Containers are copied, so that no later change reaches the program.",
            f"make it a {base.__name__} of its items.",
        ) from None


def _copied_record(value: Any, copies: Copies) -> Any:
    names = [field.name for field in dataclasses.fields(value) if hasattr(value, field.name)]
    copies[id(value)] = value, _Coming
    parts = {name: snapshot(getattr(value, name), copies) for name in (*names, *extras(value))}
    twin = copies.pop(id(value))[1]
    if twin is _Coming:
        if has_hash(value) and all(part is getattr(value, name) for name, part in parts.items()):
            return value
        twin = copy.copy(value)
    for name, part in parts.items():
        _put(twin, name, part)
    return twin


def _copied_object(value: Any, copies: Copies) -> Any:
    try:
        twin = copy.copy(value)
    except TypeError as error:  # "cannot pickle ..."
        raise Unkeyed(
            f"is or holds a {type_of(value).__qualname__}, which cannot be copied: {error}.",
            "What a body makes and returns is copied, so that each call has its own.",
            "return arrays, or a class that has a `__copy__`.",
        ) from None
    copies[id(value)] = value, twin
    return _with_attributes(twin, value, copies)


def _with_attributes(twin: Any, value: Any, copies: Copies) -> Any:
    for name, part in attributes_of(value).items():
        _put(twin, name, snapshot(part, copies))
    return twin
