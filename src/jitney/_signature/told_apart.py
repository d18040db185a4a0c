"""What `==` of two tree structures does not tell, and a body sees: `1` from `1.0` and `True`, `0.0`
from `-0.0`.

Static fields of modules, keys of dicts and what other classes keep beside their leaves stand in the
structure of a tree, which JAX compares by Python's `==`. Wherever a program, a layer or a result
stands for another because their structures are equal, this has to be equal too.

What a class with a hash of its own says is equal is equal, as in `static_values.py`; and keys of
dicts that are all text are what they say.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Hashable, Iterable
from math import copysign
from typing import Any

import jax
import numpy as np

from .._jax.beside_leaves import Structure, beside_leaves
from .._jax.trees import Tracer, is_a, issubdtype, type_of
from .construction import construction
from .static_values import is_keyed_by_fields, static_key

_ONLY_TEXT = frozenset((str,))
_MOST_KNOWN = 1024
# what tells values of these types, where the types do
_known: dict[tuple[type, ...], Hashable] = {}
_BY_TYPE = frozenset((int, bool, str, bytes, type))
_BY_IDENTITY = frozenset((type(None), types.FunctionType, types.BuiltinFunctionType))


def exactly(parts: Iterable[Any]) -> tuple[Hashable, ...]:
    """What must be equal besides these parts of a key for them to be the same to a body; nothing
    where their `==` says all of it.
    """
    told: list[Hashable] = []
    for part in parts:
        if type_of(part) is Structure:
            _add(part, told)
    return tuple(told)


def are_one(a: Any, b: Any) -> bool:
    """Whether two structures are the same to a body."""
    return a == b and exactly([a]) == exactly([b])


def _add(structure: Hashable, told: list[Hashable]) -> None:
    for held in beside_leaves(structure):
        kinds = tuple(map(type, held if type_of(held) in (tuple, list) else (held,)))
        known = _known.get(kinds, kinds)
        if known is kinds:
            known = _of_node(held, kinds)
        # keys of a dict
        if known is not None and not (type_of(held) is list and _ONLY_TEXT.issuperset(kinds)):
            told.append(known)


def _of_node(held: Any, kinds: tuple[type, ...]) -> Hashable:
    """What tells the values that a node holds from others equal to them; where their types do, it
    is known by these from now on.
    """
    by_type = all(kind in _BY_TYPE or _is_itself(kind) for kind in kinds)
    parts = held if type_of(held) in (tuple, list) else (held,)
    told = tuple(_told(part, ()) for part in parts)
    known = told if any(part is not None for part in told) else None
    if by_type:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        _known[kinds] = known
    return known


def _is_itself(kind: Any) -> bool:
    return kind in _BY_IDENTITY or kind.__eq__ is object.__eq__


def _told(value: Any, inside: tuple[int, ...]) -> Hashable:
    """What tells a value from others that are equal to it; None if these are the same in every
    respect.
    """
    kind = type_of(value)
    if kind in _BY_TYPE:
        return kind
    if _is_itself(kind) or id(value) in inside:
        return None
    if kind is float:
        return kind, copysign(1.0, value)
    if kind is complex:
        return kind, copysign(1.0, value.real), copysign(1.0, value.imag)
    if kind is Structure:
        return kind, *exactly([value])
    if is_a(value, (np.ndarray, np.generic, jax.Array)):
        return kind, *_of_array(value)
    return kind, *_of_parts(value, (*inside, id(value)))


def _of_array(value: Any) -> tuple[Hashable, ...]:
    """Arrays of more than one element have no `==` that says yes or no; such a one is only ever
    itself.
    """
    is_read = (
        value.size == 1
        and not is_a(value, Tracer)
        and not issubdtype(value.dtype, jax.dtypes.extended)
    )
    return (
        str(value.dtype),
        value.shape,
        bool(getattr(value, "weak_type", False)),
        np.asarray(value).tobytes() if is_read else b"",
    )


def _of_parts(value: Any, inside: tuple[int, ...]) -> tuple[Hashable, ...]:
    if is_a(value, (tuple, list)):
        return tuple(_told(part, inside) for part in value)
    if is_a(value, (dict, types.MappingProxyType)):
        return tuple((key, _told(key, inside), _told(part, inside)) for key, part in value.items())
    if is_a(value, (set, frozenset)):
        return (frozenset((part, _told(part, inside)) for part in value),)
    if is_a(value, slice):
        return tuple(_told(part, inside) for part in (value.start, value.stop, value.step))
    if is_keyed_by_fields(value):
        return tuple(
            _told(getattr(value, field.name, None), inside)
            for field in dataclasses.fields(value)
            if field.compare
        )
    return () if construction(value) is None else (static_key(value),)
