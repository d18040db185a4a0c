"""Frozen dataclasses whose floats are data, taken apart as JAX takes a registered class apart.

JAX has no tree for a frozen dataclass that nobody registered. So that a number among its fields is
traced, the dataclass is replaced by a node of jitney's own before the arguments are flattened, and
built again before anyone sees it:

    Settings(rate=0.5, order=2)     TakenApart(Settings, rate=0.5, order=2)     two leaves

Its parts are all that an instance holds, and each of them is traced or part of the key. So nothing
that `__post_init__` has computed from a number can be older than that number. An instance that
holds more than its key would tell stays whole, and static:

    a field that is not compared (`field(compare=False)`), a hash or an order of its own
    an attribute beside the fields, but for the value of a `cached_property`, which is dropped
    a field behind a descriptor, or a `__getattribute__`
    an array
"""

from __future__ import annotations

import dataclasses
import functools
import types
import weakref
from collections.abc import Hashable, Iterable, Sequence
from operator import is_

import equinox as eqx
import jax
from jax.tree_util import GetAttrKey, register_pytree_with_keys

from .._jax.stand_ins import Tree
from .._jax.trees import Tracer, is_node
from .._signature.records import holds_array
from .._values.attributes import attributes_of
from .._values.static_values import Opaque, Unkeyed, has_hash

_NUMBERS = (float, complex)
_PLAIN = frozenset((*_NUMBERS, int, bool, str, type(None)))
_Form = tuple[type, tuple[str, ...]]
_HEAP_TYPE = 1 << 9
_known_kinds: weakref.WeakKeyDictionary[type, bool] = weakref.WeakKeyDictionary()


class TakenApart:
    """Node in place of an instance of a frozen dataclass.

    Args:
        kind: The class.
        names: Its fields.
        parts: Their values.
    """

    __slots__ = ("kind", "names", "parts")

    def __init__(
        self,
        kind: type,
        names: tuple[str, ...],
        parts: Sequence[object],
    ):
        self.kind, self.names, self.parts = kind, names, parts


class Rebuilt(TakenApart):
    """The same node, of which a tree is unflattened to the instance itself."""

    __slots__ = ()


def take_apart(values: tuple[object, ...]) -> tuple[object, ...]:
    """Replace the frozen dataclasses with numbers among the arguments, also in lists, tuples and
    dicts. The same object is returned if there is none.
    """
    parts = tuple(map(_replaced, values))
    is_same = all(map(is_, parts, values))
    return values if is_same else parts


def whole_structure(values: tuple[object, ...]) -> Hashable:
    """Structure of the same leaves, which unflattens them to instances of the dataclasses."""

    def rebuilt(part: object) -> object:
        if not isinstance(part, TakenApart):
            return part
        parts = tuple(map(_rebuilt, part.parts))
        return Rebuilt(part.kind, part.names, parts)

    def _rebuilt(part: object) -> object:
        return jax.tree.map(rebuilt, part, is_leaf=_is_taken_apart)

    return jax.tree.structure(_rebuilt(values))


def record_of_leaves(values: tuple[object, ...]) -> dict[int, int]:
    """Return, for each leaf in a dataclass that is taken apart, the number of the outermost one."""
    found: dict[int, int] = {}
    count = 0
    nodes = jax.tree.leaves(values, is_leaf=_is_taken_apart)
    for number, node in enumerate(nodes):
        if not isinstance(node, TakenApart):
            count += 1
            continue
        size = len(jax.tree.leaves(node))
        found |= dict.fromkeys(range(count, count + size), number)
        count += size
    return found


def may_be_taken_apart(kind: type) -> bool:
    """Return whether a class is one whose instances may be taken apart."""
    known = _known_kinds.get(kind)
    if known is None:
        known = _known_kinds[kind] = _holds_fields_only(kind)
    # A class may be registered with JAX at any time.
    return known and not is_node(kind)


def _holds_fields_only(kind: type) -> bool:
    parameters = getattr(kind, "__dataclass_params__", None)
    if parameters is None or not parameters.frozen:
        return False
    if issubclass(kind, eqx.Module):
        return False
    if kind.__new__ is not object.__new__:
        return False
    # A class that extends one of Python's own, as an error does, holds more than attributes.
    if not all(map(_is_heap, kind.__mro__)):
        return False
    if kind.__getattribute__ is not object.__getattribute__:
        return False
    for field in dataclasses.fields(kind):
        is_in_hash = field.compare and field.hash is not False
        if not is_in_hash or _is_computed(kind, field.name):
            return False
    return True


def _is_heap(base: type) -> bool:
    return base is object or bool(base.__flags__ & _HEAP_TYPE)


def _is_computed(kind: type, name: str) -> bool:
    """Return whether a field is behind a descriptor that is not a slot."""
    of_class = type(getattr(kind, name, None))
    return hasattr(of_class, "__set__") and of_class is not types.MemberDescriptorType


def _is_taken_apart(part: object) -> bool:
    return isinstance(part, TakenApart)


def _replaced(value: object) -> object:
    kind = type(value)
    if kind in (tuple, list) and isinstance(value, (tuple, list)):
        parts = [_replaced(part) for part in value]
        is_same = all(map(is_, parts, value))
        return value if is_same else kind(parts)
    if kind is dict and isinstance(value, dict):
        items = {key: _replaced(part) for key, part in value.items()}
        is_same = all(map(is_, items.values(), value.values()))
        return value if is_same else items
    made = _taken_apart(value) if may_be_taken_apart(kind) else None
    return value if made is None else made


def _taken_apart(value: object, inside: tuple[object, ...] = ()) -> TakenApart | None:
    """Node in place of an instance, or None if it has no number, or holds more than its key.

    Args:
        value: An instance of a class that may be taken apart.
        inside: The instances that it is a part of.
    """
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return None
    kind = type(value)
    names = tuple(field.name for field in dataclasses.fields(value))
    held = attributes_of(value)
    for name in held.keys() - set(names):
        of_class = getattr(kind, name, None)
        if not isinstance(of_class, functools.cached_property):
            return None
    if not held.keys() >= set(names):
        return None
    if any(value is outer for outer in inside):
        return None
    values = tuple(held[name] for name in names)
    try:
        parts = _parts(values, (*inside, value))
    except Unkeyed:
        return None
    if parts is None or not any(map(_is_data, parts)):
        return None
    if not _hashes_fields(value, values):
        return None
    return TakenApart(kind, names, parts)


# A field that holds an array: whoever refuses such dataclasses sees the whole one.
_ARRAY = object()


def _parts(values: tuple[object, ...], inside: tuple[object, ...]) -> tuple[object, ...] | None:
    """Return the parts of values; None if one of them holds an array."""
    parts: list[object] = []
    for value in values:
        part = _part(value, inside)
        if part is _ARRAY:
            return None
        parts.append(part)
    return tuple(parts)


def _part(value: object, inside: tuple[object, ...]) -> object:
    """A field as a tree of numbers, and of static values that are leaves; `_ARRAY` if it holds an
    array.

    Raises:
        Unkeyed: It has no key, and whoever computes that of the whole dataclass says so.
    """
    if type(value) in _PLAIN or _is_traced_number(value):
        return value
    part: object = None
    if type(value) is tuple and isinstance(value, tuple):
        part = _parts(value, inside)
        if part is None:
            return _ARRAY
    elif may_be_taken_apart(type(value)):
        part = _taken_apart(value, inside)
    if _is_data(part):
        return part
    if holds_array(value):
        return _ARRAY
    return Opaque(value)


def _is_data(part: object) -> bool:
    """Return whether a part of a dataclass is a number that is data, or holds one."""
    if isinstance(part, tuple):
        return any(map(_is_data, part))
    return type(part) in _NUMBERS or isinstance(part, TakenApart) or _is_traced_number(part)


def _is_traced_number(value: object) -> bool:
    """Return whether a field is a number that an outer trace traces."""
    return isinstance(value, Tracer) and value.shape == () and value.weak_type


def _hashes_fields(value: object, values: tuple[object, ...]) -> bool:
    """Return whether a hash is that of all fields, which dataclasses generate: no memo can take an
    instance of a trace for one with numbers, since a tracer has no hash.
    """
    if not has_hash(values):
        return not has_hash(value)
    if not has_hash(value):
        return False
    return hash(value) == hash(values)


def _flatten(node: TakenApart) -> tuple[Sequence[object], _Form]:
    return node.parts, (node.kind, node.names)


def _flatten_with_keys(node: TakenApart) -> tuple[Sequence[tuple[Tree, object]], _Form]:
    keys = map(GetAttrKey, node.names)
    parts = [*zip(keys, node.parts, strict=True)]
    return parts, (node.kind, node.names)


def _unflatten(form: _Form, parts: Iterable[object]) -> TakenApart:
    return TakenApart(*form, tuple(parts))


def _rebuild(form: _Form, parts: Iterable[object]) -> Tree:
    """Build an instance without a call of its class: what `__init__` did has been done, and a check
    in it may take no tracer.
    """
    kind, names = form
    made = object.__new__(kind)
    for name, part in zip(names, parts, strict=True):
        object.__setattr__(made, name, part)
    return made


register_pytree_with_keys(TakenApart, _flatten_with_keys, _unflatten, _flatten)
register_pytree_with_keys(Rebuilt, _flatten_with_keys, _rebuild, _flatten)
