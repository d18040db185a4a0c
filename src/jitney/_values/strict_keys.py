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
from typing import cast

import jax
import numpy as np

from .._jax.trees import Structure, Tracer, aux_data, issubdtype
from .._jax.typed import Array
from .construction import construction
from .kinds import KINDS, PROXY, SLICE, Shape, kind_of
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
    keys: list[Hashable] = []
    for part in parts:
        if type(part) is Structure:
            _add(part, keys)
    return tuple(keys)


def are_one(a: object, b: object) -> bool:
    """Return whether two structures are indistinguishable to a body."""
    return a == b and strict_key([a]) == strict_key([b])


def _add(structure: Hashable, keys: list[Hashable]) -> None:
    for data in aux_data(structure):
        parts = data if type(data) in (tuple, list) else (data,)
        kinds = tuple(map(type, parts))
        known = _known.get(kinds, kinds)
        if known is kinds:
            known = _of_node(parts, kinds)
        # A list holds the keys of a dict; keys that are all text are compared exactly by `==`.
        is_exact = type(data) is list and _ONLY_TEXT.issuperset(kinds)
        if known is not None and not is_exact:
            keys.append(known)


def _of_node(parts: Iterable[object], kinds: tuple[type, ...]) -> Hashable:
    """Strict key of the values that a node of the structure holds, or None. It is memoised if their
    types alone determine it.
    """
    # `1` and `True` differ by type, so the type is the strict key. For a float the value counts as
    # well, because of the sign of zero.
    by_type = all(kind in _BY_TYPE or _is_itself(kind) for kind in kinds)
    keys = tuple(_value_key(part, ()) for part in parts)
    known = keys if any(key is not None for key in keys) else None
    if by_type:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        _known[kinds] = known
    return known


def _is_itself(kind: type) -> bool:
    return kind in _BY_IDENTITY or kind.__eq__ is object.__eq__


def _value_key(value: object, inside: tuple[int, ...]) -> Hashable:
    """Strict key of a value within the values that are equal to it; None if these are identical in
    every respect.
    """
    kind = type(value)
    if kind in _BY_TYPE:
        return kind
    if _is_itself(kind) or id(value) in inside:
        return None
    if type(value) is float:
        return kind, copysign(1.0, value)
    if type(value) is complex:
        return kind, copysign(1.0, value.real), copysign(1.0, value.imag)
    if kind is Structure:
        return kind, *strict_key([value])
    if kind_of(value).shape is Shape.ARRAY:
        return kind, *_of_array(cast("Array", value))
    return kind, *_of_parts(value, (*inside, id(value)))


def _of_array(value: Array | np.generic) -> tuple[Hashable, ...]:
    """Strict key of an array. `==` of an array with more than one element has no single truth
    value, so the contents of such an array are not read.
    """
    is_read = (
        value.size == 1
        and not isinstance(value, Tracer)
        and not issubdtype(value.dtype, jax.dtypes.extended)
    )
    weak = bool(getattr(value, "weak_type", False))
    contents = np.asarray(value).tobytes() if is_read else b""
    return str(value.dtype), value.shape, weak, contents


def _of_parts(
    value: object,
    inside: tuple[int, ...],
) -> tuple[Hashable, ...]:
    entry = kind_of(value)
    if entry in _BY_PARTS:
        parts = entry.parts(value)
        keys = [_value_key(part, inside) for part in parts]
        if entry.shape is Shape.SET:
            return (frozenset(zip(parts, keys, strict=True)),)
        # `==` of dicts ignores their order.
        order = parts[::2] if entry.shape is Shape.MAPPING else ()
        return (*order, *keys)
    if is_keyed_by_fields(value):
        names = [field.name for field in dataclasses.fields(value) if field.compare]
        parts = (getattr(value, name, None) for name in names)
        return tuple(_value_key(part, inside) for part in parts)
    return () if construction(value) is None else (static_key(value),)


_BY_PARTS = frozenset(
    kind
    for kind in KINDS
    if kind.shape in (Shape.SEQUENCE, Shape.MAPPING, Shape.SET) or kind in (SLICE, PROXY)
)
