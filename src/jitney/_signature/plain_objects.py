"""Objects of plain classes, and other static values that a caller can change in place: what they hold, to be compared later."""

from __future__ import annotations

import dataclasses
import functools
import random
import types
from collections import deque
from collections.abc import Hashable, Iterable, Iterator
from typing import Any
from weakref import WeakKeyDictionary

import equinox as eqx
import jax
import numpy as np

from .._jax.trees import is_a, type_of
from .._owners import owner_of_class
from .static_values import PLAIN, Unkeyed, static_key

_ABSENT = object()
_HEAP_TYPE = 1 << 9  # of `type.__flags__`: a class that Python code has made
_CONTAINERS = (list, tuple, dict, types.MappingProxyType, set, frozenset, deque, np.ndarray, np.generic, jax.Array)
_OTHERS = (type, types.ModuleType, BaseException, eqx.Module, *_CONTAINERS)
_SETTLED = frozenset((*PLAIN, float, complex, types.ModuleType))
_known_kinds: WeakKeyDictionary[type[Any], bool] = WeakKeyDictionary()


def is_plain(kind: type[Any]) -> bool:
    """Whether instances of a class are equal to nothing but themselves, and hold attributes: an ordinary class, of no package of JAX's."""
    known = _known_kinds.get(kind)
    if known is None:
        known = _known_kinds[kind] = (
            kind.__hash__ is object.__hash__
            and kind.__eq__ is object.__eq__
            and bool(kind.__flags__ & _HEAP_TYPE)
            and not issubclass(kind, _OTHERS)
            and not hasattr(kind, "__next__")
            and not issubclass(kind, Twin)
            and owner_of_class(kind) in ("user", "generated", "library")
        )
    return known


class Twin:
    """What marks the class of a twin: see `reads.py`."""

    __slots__ = ()


class _Same:
    """Stands for an object that is compared by being the same one."""

    __slots__ = ("it",)

    def __init__(self, it: Any):
        self.it = it

    def __eq__(self, other: object) -> bool:
        return type(other) is _Same and other.it is self.it

    def __hash__(self) -> int:
        return id(self.it)


def is_used_up(value: Any) -> bool:
    """Whether reading a value changes it for good, so that what is traced once cannot read it for each call: an iterator, a coroutine."""
    return hasattr(type_of(value), "__next__") or is_a(value, (types.CoroutineType, types.AsyncGeneratorType))


def article(value: Any) -> str:
    """`an iterator (zip)`: what is used up when it is read, by its type."""
    name = type_of(value).__name__
    return f"an iterator ({name})" if hasattr(type_of(value), "__next__") else f"a {name}"


def random_state(value: Any) -> Any:
    """Where a generator of random numbers of NumPy's or Python's stands; None of all else."""
    if is_a(value, np.random.Generator):
        return value.bit_generator.state
    if is_a(value, np.random.RandomState):
        return value.get_state(legacy=False)
    return value.getstate() if is_a(value, random.Random) else None


def is_settled(value: Any) -> bool:
    """Whether a value stays what it is for as long as it is the same object. A class with a hash of its own says so of its instances."""
    kind = type_of(value)
    if kind in _SETTLED or is_a(value, (jax.Array, np.generic)):
        return True
    if is_a(value, (tuple, frozenset, functools.partial, types.MethodType)):
        return all(map(is_settled, _parts(value)))
    if is_plain(kind):
        return False
    if dataclasses.is_dataclass(kind):
        made: Any = kind
        return (is_a(value, eqx.Module) or made.__dataclass_params__.frozen) and all(map(is_settled, _parts(value)))
    return kind.__hash__ is not None and not is_a(value, _CONTAINERS) and random_state(value) is None


def state(value: Any, seen: tuple[int, ...] = ()) -> Hashable:
    """What a value holds, part by part, to be compared with what it holds later; arrays of JAX by being the same."""
    kind = type_of(value)
    if kind in PLAIN or kind is float or kind is complex:
        return static_key(value)
    if is_a(value, jax.Array) or kind is types.ModuleType:
        return _Same(value)
    if id(value) in seen:
        return kind, seen.index(id(value))
    inside = (*seen, id(value))
    if is_a(value, bytearray):
        return kind, bytes(value)
    if is_a(value, (list, tuple, deque)):
        return kind, tuple(state(part, inside) for part in value), _attributes(value, inside)
    if is_a(value, (dict, types.MappingProxyType)):
        return kind, tuple((state(key, inside), state(part, inside)) for key, part in value.items()), _attributes(value, inside)
    if is_a(value, (set, frozenset)):
        return kind, frozenset(state(part, inside) for part in value), _attributes(value, inside)
    if is_a(value, functools.partial):
        return kind, state((value.func, value.args, value.keywords), inside)
    if is_a(value, types.MethodType):
        return kind, _Same(value.__func__), state(value.__self__, inside)
    if is_a(value, (eqx.Module, types.SimpleNamespace)) or (fields_of(value) and not is_plain(kind)):
        return kind, _attributes(value, inside)
    if is_plain(kind):
        nested = bool(seen) and owner_of_class(kind) == "library"  # a logger's parents, a table's blocks: not ours to look through
        return kind, _Same(value), None if nested else _attributes(value, inside)
    drawn = random_state(value)
    return _keyed(value) if drawn is None else (_Same(value), state(drawn, inside))


def _attributes(value: Any, seen: tuple[int, ...]) -> Hashable:
    held = {**getattr(value, "__dict__", {}), **{name: getattr(value, name) for name in _slots(type_of(value)) if hasattr(value, name)}}
    return tuple((name, state(part, seen)) for name, part in held.items())


def _slots(kind: type) -> Iterator[str]:
    for base in kind.__mro__:
        yield from (name for name, part in vars(base).items() if is_a(part, types.MemberDescriptorType))


def _keyed(value: Any) -> Hashable:
    try:
        return static_key(value)
    except Unkeyed:
        return _Same(value)


def plain_objects(value: Any, seen: tuple[int, ...] = ()) -> Iterator[Any]:
    """The objects of plain classes in a static value, without those inside of them, and generators of random numbers."""
    if is_plain(type_of(value)) or random_state(value) is not None:
        yield value
    elif id(value) not in seen:
        for part in _parts(value):
            yield from plain_objects(part, (*seen, id(value)))


def _parts(value: Any) -> Iterable[Any]:
    if is_a(value, (list, tuple, set, frozenset, deque)):
        return value
    if is_a(value, (dict, types.MappingProxyType)):
        return value.values()
    if is_a(value, functools.partial):
        return (value.func, *value.args, *value.keywords.values())
    if is_a(value, types.MethodType):
        return (value.__self__,)
    return [part for name in fields_of(value) if (part := getattr(value, name, _ABSENT)) is not _ABSENT]


def fields_of(value: Any) -> tuple[str, ...]:
    """The names of the fields of a dataclass's instance; none of all else."""
    return tuple(field.name for field in dataclasses.fields(value)) if dataclasses.is_dataclass(value) and not is_a(value, type) else ()
