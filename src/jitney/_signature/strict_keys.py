"""Strict keys for tree structures: differences that `==` ignores but a traced body can observe,
such as `1` vs `1.0` vs `True`, and `0.0` vs `-0.0`.

A tree structure contains the static fields of modules, the keys of dicts and whatever other classes
keep beside their leaves, and JAX compares all of it by Python's `==`. Wherever a program, a layer
or a result is reused because two structures are equal, the values of `strict_key` have to be equal
too.

A class with a hash of its own is trusted to define equality, as in `static_values.py`. Dict keys
that are all text need no strict key.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Hashable, Iterable
from math import copysign
from typing import Any

import jax
import numpy as np

from .._jax.aux_data import Structure, aux_data
from .._jax.trees import Tracer, issubdtype
from .construction import construction
from .static_values import is_keyed_by_fields, static_key

_ONLY_TEXT = frozenset((str,))
_MOST_KNOWN = 1024
# Strict keys of values whose types determine them, by the types.
_known: dict[tuple[type, ...], Hashable] = {}
_BY_TYPE = frozenset((int, bool, str, bytes, type))
_BY_IDENTITY = frozenset((type(None), types.FunctionType, types.BuiltinFunctionType))


def strict_key(parts: Iterable[object]) -> tuple[Hashable, ...]:
    """Strict keys of these parts of a key, to be compared beside the parts; empty if `==` is
    already exact.
    """
    told: list[Hashable] = []
    for part in parts:
        if type(part) is Structure:
            _add(part, told)
    return tuple(told)


def are_one(a: object, b: object) -> bool:
    """Return whether two structures are indistinguishable to a body."""
    return a == b and strict_key([a]) == strict_key([b])


def _add(structure: Hashable, told: list[Hashable]) -> None:
    for held in aux_data(structure):
        kinds = tuple(map(type, held if type(held) in (tuple, list) else (held,)))
        known = _known.get(kinds, kinds)
        if known is kinds:
            known = _of_node(held, kinds)
        # A list holds the keys of a dict; keys that are all text are compared exactly by `==`.
        if known is not None and not (type(held) is list and _ONLY_TEXT.issuperset(kinds)):
            told.append(known)


def _of_node(held: Any, kinds: tuple[type, ...]) -> Hashable:
    """Strict key of the values that a node of the structure holds, or None. It is memoised if their
    types alone determine it.
    """
    # `1` and `True` differ by type, so the type is the strict key. For a float the value counts as
    # well, because of the sign of zero.
    by_type = all(kind in _BY_TYPE or _is_itself(kind) for kind in kinds)
    parts = held if type(held) in (tuple, list) else (held,)
    told = tuple(_told(part, ()) for part in parts)
    known = told if any(part is not None for part in told) else None
    if by_type:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        _known[kinds] = known
    return known


def _is_itself(kind: type) -> bool:
    return kind in _BY_IDENTITY or kind.__eq__ is object.__eq__


def _told(value: Any, inside: tuple[int, ...]) -> Hashable:
    """Strict key of a value within the values that are equal to it; None if these are identical in
    every respect.
    """
    kind = type(value)
    if kind in _BY_TYPE:
        return kind
    if _is_itself(kind) or id(value) in inside:
        return None
    if kind is float:
        return kind, copysign(1.0, value)
    if kind is complex:
        return kind, copysign(1.0, value.real), copysign(1.0, value.imag)
    if kind is Structure:
        return kind, *strict_key([value])
    if isinstance(value, (np.ndarray, np.generic, jax.Array)):
        return kind, *_of_array(value)
    return kind, *_of_parts(value, (*inside, id(value)))


def _of_array(value: Any) -> tuple[Hashable, ...]:
    """Strict key of an array. `==` of an array with more than one element has no single truth
    value, so the contents of such an array are not read.
    """
    is_read = (
        value.size == 1
        and not isinstance(value, Tracer)
        and not issubdtype(value.dtype, jax.dtypes.extended)
    )
    return (
        str(value.dtype),
        value.shape,
        bool(getattr(value, "weak_type", False)),
        np.asarray(value).tobytes() if is_read else b"",
    )


def _of_parts(value: Any, inside: tuple[int, ...]) -> tuple[Hashable, ...]:
    if isinstance(value, (tuple, list)):
        return tuple(_told(part, inside) for part in value)
    if isinstance(value, (dict, types.MappingProxyType)):
        return tuple((key, _told(key, inside), _told(part, inside)) for key, part in value.items())
    if isinstance(value, (set, frozenset)):
        return (frozenset((part, _told(part, inside)) for part in value),)
    if isinstance(value, slice):
        return tuple(_told(part, inside) for part in (value.start, value.stop, value.step))
    if is_keyed_by_fields(value):
        return tuple(
            _told(getattr(value, field.name, None), inside)
            for field in dataclasses.fields(value)
            if field.compare
        )
    return () if construction(value) is None else (static_key(value),)
