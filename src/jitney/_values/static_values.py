"""Keys of static values, by value; `copies.py` makes the copies that later changes by the caller
cannot reach.

A static value is compiled into the program, so two calls may share a program only if their values
agree in every respect that the body could observe: `1`, `True` and `1.0` differ, and so do `0.0`
and `-0.0`, and dicts in another order. Fields of a dataclass that it does not compare
(`field(compare=False)`) are ignored, and a class with a hash of its own is trusted to define
equality by `==`.

`is_traced` in `_view/layout.py` decides, while the arguments of a call are flattened, which leaves
are static and which are traced.
"""

from __future__ import annotations

import dataclasses
import enum
import sys
import types
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeGuard

import equinox as eqx
import jax
import numpy as np

from .._errors import StaticError, Where, format_error
from .._jax.trees import Tracer, issubdtype, words_of_keys
from .._jax.typed import NumPyArray
from .attributes import attributes_of
from .construction import construction, has_coarse_equality
from .identity import identity, is_by_identity
from .kinds import (
    BY_VALUE,
    PROXY,
    RECORD,
    Shape,
    ValueKind,
    attributes_beside,
    extras,
    is_record,
    kind_of,
)

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_BY_PARTS = (float, complex, np.ndarray, np.generic, jax.Array, *BY_VALUE)
_VIEWS = frozenset({type({}.values()), type(OrderedDict[str, int]().values())})
_ATOMS = (
    int,
    float,
    complex,
    str,
    bytes,
)
_NO_ATOMS: tuple[type[object], ...] = (enum.Enum, np.generic)
PLAIN = (
    int,
    bool,
    str,
    bytes,
    type(None),
    type,
    types.FunctionType,
    types.BuiltinFunctionType,
)


class _MissingField:
    """Placeholder for a field that an instance of a dataclass lacks."""


def proxied_dict(proxy: object) -> dict[object, object]:
    """Dict behind a mapping proxy.

    Raises:
        StaticError: It is another mapping.
    """
    (shown,) = PROXY.parts(proxy)
    if not isinstance(shown, dict):
        raise Unkeyed(
            f"is or holds a mapping proxy of a {type(shown).__qualname__}.",
            "A mapping proxy is keyed by the dict behind it.",
            "pass a dict, or a proxy of one.",
        )
    return shown


class Unkeyed(StaticError):
    """Error for a static value without a key. It does not name the argument, which is unknown while
    parts of a value are keyed.
    """

    def __init__(self, what: str, rule: str, fix: str):
        super().__init__(format_error("Static values", f"one {what}", rule, fix))
        self.parts = what, rule, fix

    def of(self, where: Where, name: str) -> StaticError:
        """The error that says whose value it is."""
        what, rule, fix = self.parts
        return StaticError(where, f"{name} {what}", rule, fix)


def static_key_error(where: Where, arguments: Iterable[tuple[str, object]]) -> StaticError:
    """Error for the first static argument of a call, by name, that has no key."""
    for name, value in arguments:
        try:
            static_key(value)
        except Unkeyed as problem:
            return problem.of(where, f"static {name!r}")
    raise AssertionError(f"{where}: every static argument has a key")


class Opaque:
    """Whole argument declared static: a single leaf, whatever it contains, keyed and copied on
    arrival.

    Args:
        value: The argument.
        once: The `jitney.static(...)` that was passed for it, of which nothing can change.
    """

    __slots__ = ("key", "once", "value")

    def __init__(self, value: object, once: object = None):
        self.value, self.once = value, once
        self.key = static_key(value)

    @classmethod
    def holding(cls, value: object, key: Hashable = None) -> Opaque:
        """Wrap a static leaf of a tree without computing a key, or with a known one."""
        stand_in = cls.__new__(cls)
        stand_in.value, stand_in.key, stand_in.once = value, key, None
        return stand_in


def static_key(value: object, seen: tuple[int, ...] = ()) -> Hashable:
    """Compute the key of a static value.

    Raises:
        StaticError: The value can be keyed neither by its parts nor by `hash`.
    """
    kind = type(value)

    # A function is keyed by a weak stand-in, so that the key does not keep its closure alive.
    if kind is types.FunctionType:
        return kind, identity(value)
    if kind in PLAIN:
        return kind, value

    # The hexadecimal form distinguishes 0.0 from -0.0 and makes NaN equal to itself.
    if type(value) is float:
        return kind, value.hex()
    if type(value) is complex:
        return kind, value.real.hex(), value.imag.hex()
    if id(value) in seen:
        raise Unkeyed(
            "contains itself.", "It is keyed by value, part by part.", "pass a plain tree."
        )
    inside = (*seen, id(value))

    # Every key begins with the type, since values of different types may be equal.
    entry = kind_of(value)
    parts = _keyed_parts(value, entry)
    own = tuple(static_key(part, inside) for part in _own(value, entry))
    if parts is not None:
        keys = [static_key(part, inside) for part in parts]
        is_set = entry.shape is Shape.SET
        return kind, frozenset(keys) if is_set else tuple(keys), *own

    # Classes of Python and NumPy whose `==` is coarser than what a body can observe.
    built = construction(value)
    if built is not None:
        return kind, static_key(built, inside)

    if isinstance(value, (float, complex)):
        return kind, _hashable(value), static_key(complex(value)), own
    return (kind, _hashable(value), own) if own else (kind, _hashable(value))


def keyer_of(kind: type[object]) -> Callable[..., Hashable] | None:
    """Function from a static leaf of this type to its key; None if the leaf is its own key.

    The type of the leaf is in the call key already, so the key of the leaf may leave it out.
    """
    if kind is Opaque:
        return _opaque_key
    if kind is float:
        return float.hex
    if kind.__hash__ is None or has_coarse_equality(kind) or can_have_attributes(kind):
        return static_key
    if kind in _VIEWS:
        return static_key
    if dataclasses.is_dataclass(kind) or issubclass(kind, _BY_PARTS):
        return static_key
    if is_by_identity(kind):
        return identity
    return None


def can_have_attributes(kind: type[object]) -> bool:
    """Return whether a class is a subclass of numbers or texts whose instances may have attributes
    (a unit, say) that `==` ignores.
    """
    has_dict = bool(kind.__dictoffset__)
    return has_dict and issubclass(kind, _ATOMS) and not issubclass(kind, _NO_ATOMS)


def with_attributes(value: object) -> bool:
    """Return whether a value is such a number or text and has attributes."""
    return can_have_attributes(type(value)) and len(vars(value)) > 0


def is_keyed_by_identity(value: object) -> bool:
    """Return whether a value is keyed by its identity, by a stand-in that does not keep it
    alive.
    """
    kind = type(value)
    if kind is types.FunctionType:
        return True
    if not is_by_identity(kind) or issubclass(kind, _BY_PARTS):
        return False
    return not is_keyed_by_fields(value)


def is_constant(kind: type[object]) -> bool:
    """Return whether a static leaf of this type is its own key and no change inside it can affect
    its `==`.
    """
    by_identity = kind.__hash__ is object.__hash__ and kind.__eq__ is object.__eq__
    if by_identity and keyer_of(kind) in (None, identity):
        return True
    return kind in (str, bytes, types.BuiltinFunctionType)


def _opaque_key(leaf: Opaque) -> Hashable:
    return leaf.key


def _keyed_parts(value: Any, entry: ValueKind) -> Iterable[object] | None:
    """Parts that determine a value, in an order that a body could observe; None for a value of
    another kind.
    """
    if entry is PROXY:
        return (proxied_dict(value),)
    if entry.by_value:
        return entry.parts(value)
    if entry.shape is Shape.ARRAY:
        return _array_parts(value)
    return _compared(value) if entry is RECORD and is_keyed_by_fields(value) else None


def _compared(record: DataclassInstance) -> list[object]:
    """Compared fields of a record, and its other attributes."""
    compared = [field.name for field in dataclasses.fields(record) if field.compare]
    parts = [getattr(record, name, _MissingField) for name in compared]
    # The order in which extra attributes were set does not count.
    return [*parts, *sorted(extras(record).items(), key=itemgetter(0))]


def _own(value: object, entry: ValueKind) -> tuple[object, ...]:
    """Extra state of an instance of a subclass of a number, text, container or array: a unit, a
    mask, a default factory.
    """
    if with_attributes(value):
        return (attributes_of(value),)
    if not entry.has_attributes:
        return ()
    own = (*entry.options(value), attributes_beside(value, entry))
    return own if any(own) else ()


def is_keyed_by_fields(value: object) -> TypeGuard[DataclassInstance]:
    """Return whether a value is a dataclass without a hash, or with the hash that dataclasses or
    Equinox generate.

    Its own `==` would be too coarse: `Config(n=1) == Config(n=1.0)`, but a body sees two dtypes.
    """
    if not is_record(value) or isinstance(value, eqx.Module):
        return is_record(value)
    # The hash that dataclasses generate is that of the tuple of hashed fields. Any other hash was
    # written by the author of the class.
    names = [
        field.name
        for field in dataclasses.fields(value)
        if (field.compare if field.hash is None else field.hash)
    ]
    hashed = tuple(getattr(value, name, None) for name in names)
    return not has_hash(value) or (has_hash(hashed) and hash(value) == hash(hashed))


def _array_parts(value: object) -> tuple[object, ...]:
    if isinstance(value, Tracer):
        raise Unkeyed(
            f"is traced: {value}.",
            "A static value is known before tracing.",
            "take its name out of `static`, or pass a concrete value.",
        )
    if isinstance(value, jax.Array) and issubdtype(value.dtype, jax.dtypes.prng_key):
        words = _array_parts(words_of_keys(value))
        return ("key", str(value.dtype), *words)

    # Weak types promote differently, and the order in memory can be observed through `ravel("K")`.
    host = np.asarray(value)
    dtype = str(host.dtype)
    if host.dtype.hasobject:
        return (dtype, host.shape, host.tolist())
    weak = bool(getattr(value, "weak_type", False))
    order = order_in_memory(host)
    return (dtype, host.shape, weak, order, host.tobytes())


def order_in_memory(array: NumPyArray) -> tuple[int, ...]:
    """Axes of an array from the outermost in memory inwards, as `ravel("K")` reads them; empty if
    that is their own order.
    """
    if array.flags.c_contiguous:
        return ()
    axes = range(array.ndim)
    order = sorted(axes, key=lambda axis: -abs(array.strides[axis]))
    return () if order == [*axes] else tuple(order)


def has_hash(value: object) -> bool:
    # Hashed by identity, though their values change with their dict.
    if type(value) in _VIEWS:
        return False
    try:
        hash(value)
    # The last three: `hash` of a writable memoryview, of a record that lacks a field, of a value
    # that contains itself.
    except (TypeError, ValueError, AttributeError, RecursionError):
        return False
    return True


def _numbers(value: object) -> str:
    """Advice on what to pass in place of a value whose class the user cannot change: a table,
    another library's array, a container or a namespace of the standard library; "" for others.
    """
    if hasattr(type(value), "to_numpy"):
        return "pass `.to_numpy()` of it: an array is keyed by its numbers."
    if hasattr(type(value), "__array__"):
        return "pass `np.asarray` of it: an array is keyed by its numbers."
    if isinstance(value, Mapping):
        return "pass `dict(...)` of it: a dict is keyed by value."
    if isinstance(value, (Collection, memoryview)):
        return "pass `list(...)` of it: a list is keyed by value."
    if type(value).__module__ in sys.stdlib_module_names and hasattr(value, "__dict__"):
        return "pass `vars(...)` of it: a dict is keyed by value."
    return ""


def _hashable(value: object) -> Hashable:
    if not has_hash(value):
        raise Unkeyed(
            f"is or holds a {type(value).__qualname__}, which has no key.",
            "Lists, dicts, sets, arrays and dataclasses are keyed by value, all else by its own"
            " `hash`.",
            _numbers(value)
            or "give the type `__hash__` and `__eq__`, make it a dataclass, or pass arrays"
            " instead.",
        )
    return identity(value) if is_by_identity(type(value)) else value
