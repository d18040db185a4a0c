"""State of objects of plain classes, and of other static values that a caller can change in place,
for comparison at later calls.

Such a value is keyed by identity, so its key stays equal when an attribute changes. `state`
captures what it contains as a hashable value.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import gc
import pickle
import random
import types
from collections import deque
from collections.abc import Hashable, ItemsView, Iterator, KeysView, ValuesView
from typing import TYPE_CHECKING, Any, cast
from weakref import ProxyTypes, ReferenceType, WeakKeyDictionary

import equinox as eqx
import jax
import numpy as np

from .._owners import owner_of_class
from .attributes import attributes_of, closure_variables
from .identity import can_be_weak, identity
from .kinds import (
    BUFFER,
    BYTEARRAY,
    C_DATA,
    CONTAINERS,
    FROZENSET,
    KINDS,
    METHOD,
    NUMBERS,
    PARTIAL,
    PROXY,
    REFERENCE,
    SLICE,
    TUPLE,
    WRAPPER,
    Shape,
    attributes_beside,
    children,
    is_record,
    kind_of,
    referent,
)
from .static_values import (
    PLAIN,
    Unkeyed,
    is_keyed_by_identity,
    order_in_memory,
    static_key,
    with_attributes,
)

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

# Bit of `type.__flags__` for classes created by Python code.
_HEAP_TYPE = 1 << 9
_METHODS = (types.BuiltinFunctionType, types.MethodWrapperType)
_BOUND = frozenset(_METHODS)
_WRITES = frozenset(
    (
        "append",
        "appendleft",
        "extend",
        "extendleft",
        "insert",
        "add",
        "update",
        "clear",
        "__setitem__",
    )
)
"""Methods that only write: their result does not depend on the container, so a body that is handed
`log.append` does not read the log.
"""
_VIEWS = (KeysView, ValuesView, ItemsView)
# Kinds that are compared part by part, and kinds that cannot change if their parts cannot.
_COMPARED = frozenset(
    kind
    for kind in KINDS
    if kind.shape in (Shape.SEQUENCE, Shape.MAPPING, Shape.SET)
    or kind in (PARTIAL, METHOD, PROXY, SLICE)
)
_AS_THEIR_PARTS = frozenset((TUPLE, FROZENSET, PARTIAL, METHOD, SLICE, WRAPPER, REFERENCE))
# Marker among the enclosing `id`s: the values below it belong to an object of a library.
_OF_A_LIBRARY = 0
# Nested objects of libraries that are examined: one may delegate to a second, as splines of SciPy
# 1.18 do.
_DEEPEST = 2
_OTHERS = (
    type,
    types.ModuleType,
    BaseException,
    eqx.Module,
    C_DATA,
    *CONTAINERS,
)
_NOT_OF_A_BODY = frozenset(
    (
        "__init__",
        "__new__",
        "__post_init__",
        "__del__",
        "__init_subclass__",
        "__class_getitem__",
        "__subclasshook__",
        "__getattribute__",
        "__setattr__",
        "__delattr__",
        "__repr__",
        "__str__",
        "__dir__",
        "__sizeof__",
        "__reduce__",
        "__reduce_ex__",
        "__getstate__",
        "__setstate__",
        "__copy__",
        "__deepcopy__",
        "__replace__",
        "__annotate_func__",
        "__classcell__",
    )
)
"""Special methods that create, write, show or store an object; changes of them are ignored.
`__getattribute__` is replaced by `read_hooks.py` during a trace.
"""
_SETTLED = frozenset((*PLAIN, float, complex, types.ModuleType))
# Maximum number of objects that are searched.
_MANY = 100
_BARE = frozenset((list, tuple, dict, set, frozenset, deque, np.ndarray))
_kinds: WeakKeyDictionary[type[object], _Kind] = WeakKeyDictionary()
_known_kinds: WeakKeyDictionary[type[object], bool] = WeakKeyDictionary()


def can_change(value: object) -> bool:
    """Return whether a value that is equal to nothing but itself may have other contents later."""
    return is_plain(type(value)) or (type(value) in _BOUND and not is_immutable(value))


def is_plain(kind: type[object]) -> bool:
    """Return whether a class is an ordinary one outside of JAX's packages: its instances have
    attributes and are equal to nothing but themselves.
    """
    known = _known_kinds.get(kind)
    if known is None:
        known = _known_kinds[kind] = (
            kind.__hash__ is not None
            and kind.__eq__ is object.__eq__
            and bool(kind.__flags__ & _HEAP_TYPE)
            and not issubclass(kind, _OTHERS)
            and not hasattr(kind, "__next__")
            and owner_of_class(kind) in ("user", "generated", "library")
        )
    return known


class _Strong:
    """Wrapper that compares an object by identity and keeps it alive, for objects that cannot be
    weakly referenced.
    """

    __slots__ = ("it",)

    def __init__(self, it: object):
        self.it = it

    def __eq__(self, other: object) -> bool:
        return type(other) is _Strong and other.it is self.it

    def __hash__(self) -> int:
        return id(self.it)


class _Equal:
    """Wrapper that compares an object by its own `==` without keeping it alive. Once the object is
    gone, it equals nothing.
    """

    __slots__ = ("stand_in",)

    def __init__(self, value: object):
        self.stand_in = identity(value)

    def __eq__(self, other: object) -> bool:
        if type(other) is not _Equal:
            return NotImplemented
        one, two = self.stand_in(), other.stand_in()
        if one is None or two is None:
            return False
        return one is two or bool(type(one) is type(two) and one == two)

    def __hash__(self) -> int:
        # The object may be gone, or its hash may change, so all wrappers share one hash.
        return 0


def _identity_key(value: object) -> Hashable:
    return identity(value) if can_be_weak(type(value)) else _Strong(value)


def is_consumable(value: object) -> bool:
    """Return whether reading a value consumes it, so that one trace cannot serve several calls: an
    iterator, a coroutine.
    """
    # A weak proxy has every method, `__next__` too.
    if type(value) in ProxyTypes:
        return False
    return hasattr(type(value), "__next__") or isinstance(
        value, (types.CoroutineType, types.AsyncGeneratorType)
    )


def article(value: object) -> str:
    """Description of a consumable value by its type: `an iterator (zip)`."""
    name = type(value).__name__
    return f"an iterator ({name})" if hasattr(type(value), "__next__") else f"a {name}"


def first_consumable(value: object, seen: tuple[int, ...] = ()) -> object:
    """First consumable part of a value, or None. Plain objects are not searched: their attributes
    are checked when a body reads them.
    """
    if type(value) in PLAIN:
        return None
    if is_consumable(value):
        return value
    if can_change(value) or id(value) in seen:
        return None
    for part in children(value):
        used = first_consumable(part, (*seen, id(value)))
        if used is not None:
            return used
    return None


def random_state(value: object) -> object:
    """State of a random number generator of NumPy or Python; None for any other value."""
    if isinstance(value, np.random.Generator):
        return value.bit_generator.state
    if isinstance(value, np.random.RandomState):
        return value.get_state(legacy=False)
    return value.getstate() if isinstance(value, random.Random) else None


def is_immutable(value: object) -> bool:
    """Return whether a value cannot change while it is the same object.

    A class with a hash of its own is trusted to be immutable, unless it is the user's.
    """
    kind = type(value)
    if kind in _BOUND and isinstance(value, _METHODS):
        receiver = value.__self__
        is_write = value.__name__ in _WRITES
        if is_write and isinstance(receiver, (list, dict, set, deque, bytearray)):
            return True
        if kind is types.BuiltinFunctionType:
            return is_immutable(receiver)

    if kind in _SETTLED or isinstance(value, (jax.Array, np.generic, type)):
        return True
    entry = kind_of(value)
    if entry in _AS_THEIR_PARTS:
        parts = entry.parts(value)
        if isinstance(value, functools.partial):
            # Its dict of keywords counts as immutable, though Python lets one change it.
            parts = (value.func, value.args, *value.keywords.values())
        return not attributes_beside(value, entry) and all(map(is_immutable, parts))
    if (
        is_plain(kind)
        or isinstance(value, _VIEWS)
        or entry is BUFFER
        or kind in ProxyTypes
        or with_attributes(value)
    ):
        return False

    if dataclasses.is_dataclass(kind):
        record: Any = kind
        is_frozen = isinstance(value, eqx.Module) or record.__dataclass_params__.frozen
        return is_frozen and all(map(is_immutable, children(value)))
    if (
        isinstance(kind.__hash__, types.FunctionType)
        and not isinstance(value, enum.Enum)
        and owner_of_class(kind) in ("user", "generated")
    ):
        # The hash of a user's class, and its equality, may change with its attributes.
        return False
    return kind.__hash__ is not None and not entry.is_mutable and random_state(value) is None


def state(value: object, seen: tuple[int, ...] = ()) -> Hashable:
    """Contents of a value, part by part, as a hashable value that later contents can be compared
    with. JAX arrays are compared by identity.
    """
    kind = type(value)
    if kind in _BOUND and isinstance(value, _METHODS) and not is_immutable(value):
        return _identity_key(value), value.__name__, state(value.__self__, seen)
    if kind in PLAIN or kind is float or kind is complex:
        return static_key(value)
    if kind in ProxyTypes:
        return _identity_key(value), state(referent(value), seen)
    entry = kind_of(value)
    if kind is types.ModuleType or (entry is NUMBERS and isinstance(value, jax.Array)):
        return _identity_key(value)

    # A value that contains itself is represented by the depth at which it began.
    if id(value) in seen:
        return kind, seen.index(id(value))
    inside = (*seen, id(value))
    if entry is BUFFER or entry is BYTEARRAY:
        return kind, bytes(cast("ReadableBuffer", value))
    if entry in _COMPARED:
        parts = [state(part, inside) for part in entry.parts(value)]
        contents = frozenset(parts) if entry.shape is Shape.SET else tuple(parts)
        options = tuple([state(option, inside) for option in entry.options(value)])
        has_own = entry.has_attributes and kind not in _BARE
        own = _attributes(value, inside) if has_own else ()
        return kind, options, contents, own
    if isinstance(value, _VIEWS):
        return kind, state([*value], inside)
    if isinstance(value, np.ndarray):
        held = state(value.tolist(), inside) if value.dtype.hasobject else value.tobytes()
        layout = (str(value.dtype), value.shape, order_in_memory(value))
        return kind, layout, held, _attributes(value, inside)
    if isinstance(value, (eqx.Module, types.SimpleNamespace)) or (
        is_record(value) and not is_plain(kind)
    ):
        return kind, _attributes(value, inside)
    if is_plain(kind):
        if owner_of_class(kind) != "library":
            return kind, _identity_key(value), _attributes(value, inside)
        # The attributes of a library's object (a logger's parents, a table's blocks) are not
        # searched without limit.
        nested = seen.count(_OF_A_LIBRARY) >= _DEEPEST
        return (
            kind,
            _identity_key(value),
            None if nested else _attributes(value, (*inside, _OF_A_LIBRARY)),
        )

    # Drawing a number changes the state of a generator.
    drawn = random_state(value)
    if drawn is not None:
        return _identity_key(value), state(drawn, inside)
    if entry is REFERENCE:
        return _identity_key(value), state(referent(value), inside)
    if with_attributes(value):
        return static_key(value), _attributes(value, inside)
    return (kind, _hash_state(value)) if kind.__hash__ is not None else _parts_state(value, inside)


def _hash_state(value: object) -> Hashable:
    """State of a value whose class has a hash: its key and its current hash, which may change while
    it is the same object.
    """
    try:
        # The key may hold the value only if it cannot lead back to a plain object, which would then
        # stay alive.
        is_held = leads_nowhere(value) or not can_be_weak(type(value)) or not _may_lead_back(value)
        return static_key(value) if is_held else _Equal(value), hash(value)
    # A part cannot be keyed or hashed, or is missing.
    except (Unkeyed, TypeError, AttributeError):
        return _identity_key(value), state(attributes_of(value))


def _parts_state(value: object, inside: tuple[int, ...]) -> Hashable:
    """State of an object without a hash: a key by its parts, its attributes, or the parts that a
    copy is built from.
    """
    with contextlib.suppress(Unkeyed):
        return static_key(value)
    if attributes_of(value):
        return type(value), _attributes(value, inside)
    try:
        return type(value), state(value.__reduce_ex__(4), inside)
    except (TypeError, pickle.PicklingError):
        return _identity_key(value)


def _attributes(value: object, seen: tuple[int, ...]) -> Hashable:
    """Attributes of an object and of those of its classes that somebody may change."""
    kind = type(value)
    if kind in _BARE:
        return ()
    held = [*attributes_of(value).items()]
    for base in _kind_of(kind).bases:
        for name, part in [*vars(base).items()]:
            if not is_special(name) or is_called_unasked(name, part):
                held.append((name, part))
    # `_abc_impl` belongs to the machinery of abstract base classes.
    return tuple((name, state(part, seen)) for name, part in held if name != "_abc_impl")


def is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def is_called_unasked(name: str, part: object) -> bool:
    """Return whether a class attribute is a special method, which Python looks up in the class
    itself: `+`, `len`, a call.
    """
    if not is_special(name) or name in _NOT_OF_A_BODY:
        return False
    # Methods are descriptors; slots and C-level attributes are descriptors too, but hold data.
    return hasattr(type(part), "__get__") and not isinstance(
        part, (types.GetSetDescriptorType, types.MemberDescriptorType)
    )


class _Kind:
    """Method resolution order of a class, and the classes in it that somebody may change."""

    __slots__ = ("bases", "classes")

    def __init__(self, kind: type):
        self.classes = kind.__mro__
        self.bases = tuple(
            base for base in self.classes if owner_of_class(base) in ("user", "generated")
        )


def _kind_of(kind: type) -> _Kind:
    known = _kinds.get(kind)
    # Assigning `__bases__` gives a class a new `__mro__`.
    if known is None or known.classes is not kind.__mro__:
        known = _kinds[kind] = _Kind(kind)
    return known


def plain_objects(
    value: object,
    seen: tuple[int, ...] = (),
) -> Iterator[object]:
    """Parts of a static value that can change while its key stays equal: objects of plain classes,
    random number generators, `table.get`.
    """
    if can_change(value) or random_state(value) is not None:
        yield value
    elif id(value) not in seen:
        for part in children(value):
            yield from plain_objects(part, (*seen, id(value)))


def objects_by_identity(
    value: object,
    seen: tuple[int, ...] = (),
) -> Iterator[object]:
    """Objects in a static value that its key identifies without keeping them alive."""
    if is_keyed_by_identity(value):
        yield value
    elif (
        type(value) not in PLAIN
        and not isinstance(value, (jax.Array, ReferenceType))
        and type(value) not in ProxyTypes
    ):
        of_record = is_record(value)
        for part in children(value) if id(value) not in seen else ():
            found = objects_by_identity(part, (*seen, id(value)))
            yield from (each for each in found if not of_record or is_plain(type(each)))


def _may_lead_back(value: object) -> bool:
    """Return whether a plain object or a function's closure can be reached from a value, or whether
    there are too many objects to decide.
    """
    waiting, seen = [value], {id(value)}
    while waiting and len(seen) < _MANY:
        for each in gc.get_referents(waiting.pop()):
            if id(each) in seen or leads_nowhere(each):
                continue
            if isinstance(each, types.FunctionType) or is_plain(type(each)):
                return True
            seen.add(id(each))
            waiting.append(each)
    return bool(waiting)


def leads_nowhere(value: object) -> bool:
    """Return whether only modules and classes can be reached from a value: a number, a text, a
    function of a module.
    """
    kind = type(value)
    if type(value) is types.FunctionType:
        defaults = value.__defaults__ or value.__kwdefaults__
        return not (value.__closure__ or defaults or value.__dict__)
    if type(value) is tuple or type(value) is frozenset:
        return all(map(leads_nowhere, value))
    if type(value) is types.BuiltinFunctionType:
        return isinstance(value.__self__, (types.ModuleType, type, type(None)))
    return kind in _SETTLED or isinstance(value, (type, np.generic))


def bytes_in(value: object, seen: tuple[int, ...] = ()) -> int:
    """Approximate size in bytes of the arrays and texts in a value, including closures of functions
    and attributes of objects.
    """
    if isinstance(value, (np.ndarray, np.generic, jax.Array)):
        return value.nbytes
    if isinstance(value, (str, bytes, bytearray)):
        return len(value)
    if id(value) in seen or isinstance(value, (type, types.ModuleType)):
        return 0
    parts = [*children(value)]
    if isinstance(value, types.FunctionType):
        parts += closure_variables(value).values()
    elif is_plain(type(value)):
        parts += attributes_of(value).values()
    return sum(bytes_in(part, (*seen, id(value))) for part in parts)
