"""Kinds of Python values: the one table of how a value is recognised, of its parts, and of how one
like it is built from other parts.

What a program may be reused for is decided by several folds over a value: its key
(`static_values.py`, `strict_keys.py`), its copy (`copies.py`), its state and what can be reached in
it (`mutable_objects.py`), its digest (`_record/values.py`), its data in a file
(`_export/values.py`, `_serialized/form.py`). A kind that one of them forgets is a wrong number, so
all of them take the parts from here; each adds what it does with a scalar, an array and an object.

Parts are read by the methods of Python's own class, since a subclass may override iteration. The
attributes of a value are not among them (`attributes.py`).
"""

from __future__ import annotations

import ctypes
import dataclasses
import enum
import functools
import gc
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeGuard
from weakref import ProxyTypes, ReferenceType

import jax
import numpy as np

from .._jax.trees import Tracer, attribute
from .attributes import attributes_of

if TYPE_CHECKING:
    from _typeshed import DataclassInstance, ReadableBuffer

_Value = Any
"""A value of one kind: the table knows its class, the type checker does not."""
_Parts = Callable[[_Value], Sequence[object]]


class Shape(enum.Enum):
    """Kind of a value: how its parts belong together."""

    SEQUENCE = enum.auto()
    MAPPING = enum.auto()
    """Keys and values in turn, in the order of the dict."""
    SET = enum.auto()
    """In an order that counts for nothing."""
    FIELDS = enum.auto()
    """By name, always the same ones for one class."""
    ARRAY = enum.auto()
    """Numbers, with a dtype and a shape; the parts are elements that are objects."""
    WHOLE = enum.auto()
    """Without parts, or with parts that are not the value itself."""


@dataclass(frozen=True, eq=False)
class ValueKind:
    """A kind of values.

    Attributes:
        name: Name, also in files.
        base: Python's own class, which the class of a value is or extends.
        shape: How the parts belong together.
        parts: Function from a value to its parts.
        names: Names of the parts of `FIELDS`.
        options: Function from a value to what it holds beside parts and attributes: what makes
            missing items, a length.
        new: Function from a class and the parts of a value to a new one; from a class alone for a
            kind with `fill`.
        fill: Function that puts parts in a new value. Only values that can contain themselves have
            one: the new value is known before its parts are.
        is_mutable: Whether a value may change in place, apart from its parts and attributes.
        by_value: Whether values with equal parts are one static value. Others have the `==` and the
            hash of their class.
        has_attributes: Whether a value of a subclass has attributes beside its parts.
    """

    name: str
    base: _Value
    shape: Shape
    parts: _Parts
    names: tuple[str, ...] = ()
    options: _Parts = lambda _: ()
    new: Callable[..., _Value] | None = None
    fill: Callable[[_Value, Sequence[object]], None] | None = None
    is_mutable: bool = False
    by_value: bool = False
    has_attributes: bool = False

    def build(self, kind: type, parts: Sequence[object], options: Sequence[object] = ()) -> _Value:
        """Build a value of a class of this kind, without its `__init__` and its attributes.

        Raises:
            TypeError: A class written in C forbids it, or this kind is not built from parts.
        """
        if self.new is None:
            raise TypeError(f"a {self.name} is not built from parts")
        if self.fill is None:
            return self.new(kind, *parts)
        made = self.new(kind, *options)
        if parts:
            self.fill(made, parts)
        return made

    def refill(self, made: object, parts: Sequence[object]) -> None:
        """Replace the parts of a value that can contain itself."""
        if self.fill is not None:
            self.fill(made, parts)


def _pairs(base: _Value) -> _Parts:
    def parts(value: _Value) -> list[object]:
        return [part for item in base.items(value) for part in item]

    return parts


def _set_items(base: _Value) -> Callable[[_Value, Sequence[object]], None]:
    def fill(made: _Value, parts: Sequence[object]) -> None:
        base.clear(made)
        for key, part in zip(parts[::2], parts[1::2], strict=True):
            base.__setitem__(made, key, part)

    return fill


def _extend(base: _Value) -> Callable[[_Value, Sequence[object]], None]:
    def fill(made: _Value, parts: Sequence[object]) -> None:
        base.clear(made)
        base.extend(made, parts)

    return fill


def _update_set(made: _Value, parts: Sequence[object]) -> None:
    set.clear(made)
    set.update(made, parts)


def _new_default(kind: type, factory: object = None) -> _Value:
    made = defaultdict.__new__(kind)
    object.__setattr__(made, "default_factory", factory)
    return made


def _new_deque(kind: type, most: _Value = None) -> _Value:
    made: _Value = deque.__new__(kind)
    deque.__init__(made, (), most)
    return made


def _new_partial(kind: _Value, func: _Value, args: _Value, keywords: _Value) -> _Value:
    return functools.partial.__new__(kind, func, *args, **keywords)


def _nothing(_value: object) -> Sequence[object]:
    return ()


def _behind(proxy: object) -> Sequence[object]:
    # Reading through the proxy would call overrides: a proxy of a `Counter` gives zeros for missing
    # keys.
    return gc.get_referents(proxy)[:1]


def _elements(array: _Value) -> Sequence[object]:
    return array.ravel().tolist() if array.dtype.hasobject else ()


def referent(value: object) -> object:
    """Object behind a weak reference or proxy, None if it is gone; any other value is returned as
    it is.
    """
    if type(value) in ProxyTypes:
        # A proxy forwards every attribute, so a bound method of the object leads to the object
        # itself.
        try:
            return value.__repr__.__self__
        except ReferenceError:
            return None
    return value() if isinstance(value, ReferenceType) else value


def is_record(value: object) -> TypeGuard[DataclassInstance]:
    """Return whether a value is an instance of a dataclass."""
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def fields_of(value: object) -> tuple[str, ...]:
    """Names of the fields of a dataclass instance; empty for other values."""
    if not is_record(value):
        return ()
    return tuple(field.name for field in dataclasses.fields(value))


def extras(record: DataclassInstance) -> dict[str, object]:
    """Attributes of a dataclass instance that are neither fields (but set by `__post_init__`, say)
    nor values of a `cached_property`.
    """
    held = attribute(record, "__dict__", {})
    names = held.keys() - {field.name for field in dataclasses.fields(record)}
    own: dict[str, object] = {}
    for name in names:
        of_class = getattr(type(record), name, None)
        if not isinstance(of_class, functools.cached_property):
            own[name] = held[name]
    return own


_ABSENT = object()


def _of_record(record: _Value) -> list[object]:
    names = (*fields_of(record), *extras(record))
    parts = (getattr(record, name, _ABSENT) for name in names)
    return [part for part in parts if part is not _ABSENT]


def _mapping(
    base: _Value, new: Callable[..., _Value] | None = None, options: _Parts = _nothing
) -> ValueKind:
    return ValueKind(
        base.__name__,
        base,
        Shape.MAPPING,
        _pairs(base),
        options=options,
        new=new or base.__new__,
        fill=_set_items(base),
        is_mutable=True,
        by_value=True,
        has_attributes=True,
    )


def _sequence(base: _Value, new: Callable[..., _Value], options: _Parts = _nothing) -> ValueKind:
    return ValueKind(
        base.__name__,
        base,
        Shape.SEQUENCE,
        lambda value: [*base.__iter__(value)],
        options=options,
        new=new,
        fill=_extend(base),
        is_mutable=True,
        by_value=base is list,
        has_attributes=True,
    )


def _members(base: _Value) -> _Parts:
    return lambda value: [*base.__iter__(value)]


def _fields(base: _Value, names: tuple[str, ...], new: Callable[..., _Value] | None) -> ValueKind:
    by_value = new is not None
    return ValueKind(
        base.__name__, base, Shape.FIELDS, attrgetter(*names), names, new=new, by_value=by_value
    )


LIST = _sequence(list, list.__new__)
DEQUE = _sequence(deque, _new_deque, lambda value: (value.maxlen,))
BYTEARRAY = dataclasses.replace(
    _sequence(bytearray, bytearray.__new__), shape=Shape.WHOLE, by_value=False
)
TUPLE = ValueKind(
    "tuple",
    tuple,
    Shape.SEQUENCE,
    _members(tuple),
    new=lambda kind, *parts: tuple.__new__(kind, parts),
    by_value=True,
    has_attributes=True,
)
SET = ValueKind(
    "set",
    set,
    Shape.SET,
    _members(set),
    new=set.__new__,
    fill=_update_set,
    is_mutable=True,
    by_value=True,
    has_attributes=True,
)
FROZENSET = ValueKind(
    "frozenset",
    frozenset,
    Shape.SET,
    _members(frozenset),
    new=lambda kind, *parts: frozenset.__new__(kind, parts),
    by_value=True,
    has_attributes=True,
)
DICT = _mapping(dict)
ORDERED = _mapping(OrderedDict)
DEFAULT = _mapping(defaultdict, _new_default, lambda value: (value.default_factory,))
PROXY = ValueKind(
    "mappingproxy",
    types.MappingProxyType,
    Shape.FIELDS,
    _behind,
    ("mapping",),
    new=lambda kind, behind: kind(behind),
    is_mutable=True,
    by_value=True,
)
SLICE = _fields(slice, ("start", "stop", "step"), lambda kind, *parts: kind(*parts))
PARTIAL = dataclasses.replace(
    _fields(functools.partial, ("func", "args", "keywords"), _new_partial), has_attributes=True
)
METHOD = _fields(
    types.MethodType, ("__func__", "__self__"), lambda kind, func, receiver: kind(func, receiver)
)
WRAPPER = ValueKind(
    "method-wrapper",
    types.MethodWrapperType,
    Shape.FIELDS,
    lambda value: (value.__self__,),
    ("__self__",),
)
REFERENCE = ValueKind("reference", ReferenceType, Shape.WHOLE, lambda value: (referent(value),))
ARRAY = ValueKind("array", np.ndarray, Shape.ARRAY, _elements, is_mutable=True, has_attributes=True)
NUMBERS = ValueKind("numbers", jax.Array, Shape.ARRAY, _nothing)
RECORD = ValueKind("record", object, Shape.FIELDS, _of_record)
OBJECT = ValueKind("object", object, Shape.WHOLE, _nothing)
BUFFER = ValueKind("buffer", object, Shape.WHOLE, _nothing, is_mutable=True)

# In the order of recognition: a subclass before its base, a dataclass that extends a container
# under the container.
_TABLE: tuple[tuple[tuple[type, ...], ValueKind], ...] = (
    ((list,), LIST),
    ((tuple,), TUPLE),
    ((OrderedDict,), ORDERED),
    ((defaultdict,), DEFAULT),
    ((dict,), DICT),
    ((set,), SET),
    ((frozenset,), FROZENSET),
    ((deque,), DEQUE),
    ((bytearray,), BYTEARRAY),
    ((functools.partial,), PARTIAL),
    ((types.MappingProxyType,), PROXY),
    ((types.MethodType,), METHOD),
    ((slice,), SLICE),
    ((types.MethodWrapperType,), WRAPPER),
    ((ReferenceType,), REFERENCE),
    ((np.ndarray,), ARRAY),
    ((np.generic, Tracer, jax.Array), NUMBERS),
)
# The class `_CData`, which has no public name.
C_DATA: type[ReadableBuffer] = ctypes.Structure.__mro__[1]
_OBJECTS = (int, bool, float, complex, str, bytes, type(None), type)
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType)
_BY_CLASS: dict[type, ValueKind] = {
    **{each: kind for classes, kind in _TABLE for each in classes},
    **dict.fromkeys(ProxyTypes, REFERENCE),
    **dict.fromkeys((*_OBJECTS, *_FUNCTIONS), OBJECT),
}

_WITHOUT_ATTRIBUTES = frozenset((list, tuple, dict, set, frozenset, np.ndarray))

KINDS: tuple[ValueKind, ...] = tuple(dict.fromkeys(kind for _, kind in _TABLE))
BY_NAME = {kind.name: kind for kind in KINDS}
BY_VALUE = tuple(each for classes, kind in _TABLE if kind.by_value for each in classes)
"""Classes whose values are keyed by their parts."""
CONTAINERS: tuple[type, ...] = tuple(
    each
    for classes, kind in _TABLE
    for each in classes
    if kind.shape not in (Shape.FIELDS, Shape.WHOLE) or kind is PROXY
)
"""Classes of containers and arrays."""


def kind_of(value: object) -> ValueKind:
    """Look up the kind of a value."""
    kind = _BY_CLASS.get(type(value))
    return _lookup(value) if kind is None else kind


def _lookup(value: object) -> ValueKind:
    for classes, kind in _TABLE:
        if isinstance(value, classes):
            return kind
    if isinstance(value, (memoryview, C_DATA)):
        return BUFFER
    return RECORD if is_record(value) else OBJECT


def exact_kind(value: object) -> ValueKind | None:
    """Look up the kind of a value of Python's own class; None for any other class."""
    kind = _BY_CLASS.get(type(value))
    return kind if kind is not None and kind.base is type(value) else None


def children(value: object) -> Iterable[object]:
    """Parts of a value, and its attributes beside them."""
    kind = kind_of(value)
    if kind is OBJECT:
        return ()
    return (*kind.parts(value), *attributes_beside(value, kind).values())


def attributes_beside(value: object, kind: ValueKind) -> dict[str, object]:
    """Attributes of a value that are not among its parts: those of a subclass."""
    if not kind.has_attributes or type(value) in _WITHOUT_ATTRIBUTES:
        return {}
    return attributes_of(value)


def paths(value: object) -> list[tuple[str, object]]:
    """Items of a container with their paths, such as `[0]`, `['name']` and `.field`."""
    kind = kind_of(value)
    parts = kind.parts(value)
    if kind.shape is Shape.MAPPING:
        items = zip(parts[::2], parts[1::2], strict=True)
        return [(f"[{key!r}]", part) for key, part in items]
    if kind.shape is Shape.SEQUENCE:
        return [(f"[{i}]", part) for i, part in enumerate(parts)]
    return []
