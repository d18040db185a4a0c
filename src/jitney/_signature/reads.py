"""What the traces of a program have read of objects of plain classes: the program holds while that is what it was.

Such an object is keyed by itself, which says nothing of what it holds: `self.tolerance = 1e-6` between two calls of a method must not
give the first number again. All that it holds would be too much: a trainer keeps its weights in itself, which are new after each step,
and hands them on as arguments. So the body of a trace gets a twin in its place, of a subclass that notes each attribute that is read, and
shares the object's dictionary. What was read is compared at each call. An object whose class does not allow for a twin, and one inside of
other static values, is compared as a whole.
"""

from __future__ import annotations

import types
import typing
from abc import ABCMeta
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from .._jax.trees import is_a, type_of
from .._owners import owner_of_class
from .plain_objects import Twin, is_plain, is_settled, plain_objects, state
from .static_values import snapshot

_ABSENT = object()
_held_by: Callable[[Any], dict[str, Any]] = vars
_twin_classes: WeakKeyDictionary[type, Any] = WeakKeyDictionary()


class Statics(tuple[Any, ...]):
    """The static values of an entry, with what its traces have read of them; None where nothing they hold can change."""

    reads: Reads | None = None

    @classmethod
    def of(cls, values: Sequence[Any], loose: Sequence[Any], *, twins: bool) -> Statics:
        """Those of a call; `loose` are other things that a caller can change."""
        statics = cls(values)
        reads = Reads(values, loose, twins=twins)
        if reads.attributes or reads.wholes:
            statics.reads = reads
        return statics


class _Seen:
    """One thing that was read: the object then, whether that it is the same is enough, and its state; of a nested one a twin was given."""

    __slots__ = ("nested", "settled", "state", "then")

    def __init__(self, value: Any, *, nested: bool = False):
        self.then = value
        self.settled = nested or value is _ABSENT or is_settled(value)
        self.nested = nested
        self.state = None if self.settled else state(value)

    def holds(self, now: Any) -> bool:
        if self.settled:
            return now is self.then or (
                not self.nested and now is not _ABSENT and self.then is not _ABSENT and state(now) == state(self.then)
            )
        return now is not _ABSENT and state(now) == self.state


class Reads:
    """What the traces of one entry have read of the plain objects among its static values.

    Args:
        statics: The static values, which keep these objects alive.
        loose: Other things that its traces can see and callers can change: static fields of modules.
        twins: Whether a trace may get twins.
    """

    def __init__(self, statics: Sequence[Any], loose: Sequence[Any], *, twins: bool):
        self.attributes: dict[int, tuple[Any, dict[str, _Seen]]] = {}  # by the `id` of an object
        self.wholes: list[tuple[Any, _Seen]] = [(value, _Seen(value)) for value in loose]
        self._quick: tuple[bool, list[Any]] | None = None  # of `_quickly`; none until a call asks, and after each first read
        self._count = 0  # of attributes that were read
        for value in statics:
            if twins and has_twins(type_of(value)):
                self.attributes[id(value)] = value, {}
            else:
                self.wholes += [(part, _Seen(part)) for part in plain_objects(value)]

    def hold(self) -> bool:
        """Whether all that was read is what it was."""
        slow, quick = self._quick or self._quickly()
        for value, own, of_class in quick:
            held = _held_by(value)
            for name, then in own:
                if held.get(name, _ABSENT) is not then:
                    return self._hold_as_states()
            for name, before, then in of_class:
                if name in held or any(name in each for each in before) or then[0].get(name) is not then[1]:
                    return self._hold_as_states()
        return not slow or self._hold_as_states()

    def _quickly(self) -> tuple[bool, list[Any]]:
        """Whether something is to be compared by what it holds; and what by identity: objects, what lies in them, and in which class."""
        quick: list[Any] = []
        slow, count = bool(self.wholes), self._count
        for value, attributes in [*self.attributes.values()]:
            own: list[Any] = []
            of_class: list[Any] = []
            held = _held_by(value)
            for name, seen in [*attributes.items()]:
                owner = next((i for i, base in enumerate(type_of(value).__mro__) if name in base.__dict__), None)
                if not seen.settled or name == "__dict__" or seen.then is _ABSENT:
                    slow = True
                elif held.get(name, _ABSENT) is seen.then:
                    own.append((name, seen.then))
                elif owner is not None and type_of(value).__mro__[owner].__dict__[name] is seen.then:
                    dicts = [base.__dict__ for base in type_of(value).__mro__[: owner + 1]]
                    of_class.append((name, tuple(dicts[:-1]), (dicts[-1], seen.then)))
                else:
                    slow = True
            quick.append((value, tuple(own), tuple(of_class)))
        if count == self._count:  # no other thread has read more meanwhile
            self._quick = slow, quick
        return slow, quick

    def _hold_as_states(self) -> bool:
        for value, attributes in [*self.attributes.values()]:
            for name, seen in [*attributes.items()]:
                now = _raw(value, name)
                if not (now is seen.then and seen.settled) and not seen.holds(now):
                    return False
        return all(seen.holds(value) for value, seen in self.wholes)

    def changed(self) -> Iterator[tuple[Any, str, Any, Any]]:
        """Objects, attributes ("" for a whole), what they were and what they are, where these differ."""
        for value, attributes in [*self.attributes.values()]:
            for name, seen in [*attributes.items()]:
                now = _raw(value, name)
                if not seen.holds(now):
                    yield value, name, seen.then, now
        for value, seen in self.wholes:
            if not seen.holds(value):
                yield value, "", value, value

    def twins(self, statics: Sequence[Any]) -> tuple[Sequence[Any], Trace | None]:
        """The static values for one trace, twins in place of objects; and what is to be `stop`ped behind it."""
        if not self.attributes:
            return statics, None
        trace = Trace(self)
        return [trace.twin(value) if id(value) in self.attributes else value for value in statics], trace

    def note(self, value: Any, name: str, raw: Any, *, nested: bool) -> None:
        """Remember what an attribute is, if it is read for the first time."""
        noted = self.attributes.setdefault(id(value), (value, {}))[1]
        if name not in noted:
            noted[name] = _Seen(raw, nested=nested)
            self._count += 1
            self._quick = None


class Trace:
    """One trace: what its body is given in place of what others can change."""

    def __init__(self, reads: Reads):
        self._reads: Reads | None = reads
        self._given: dict[int, tuple[Any, Any]] = {}  # by the `id` of what it stands for, which is kept alive
        self._written: set[tuple[int, str]] = set()  # attributes that the body itself has set: what it reads there is its own

    def wrote(self, value: Any, name: str) -> None:
        """The body has set or deleted an attribute."""
        self._written.add((id(value), name))

    def stop(self) -> None:
        """Note nothing any more: the trace is over, and what a callback reads later is read anew each time."""
        self._reads = None

    def twin(self, value: Any) -> Any:
        """The twin of an object, one for each."""
        made = self._given.get(id(value))
        if made is None:
            twin = object.__new__(_twin_class(type_of(value)))
            object.__setattr__(twin, "_jitney_trace", self)
            object.__setattr__(twin, "_jitney_original", value)
            object.__setattr__(twin, "__dict__", object.__getattribute__(value, "__dict__"))
            made = self._given[id(value)] = value, twin
        return made[1]

    def read(self, value: Any, name: str, part: Any) -> Any:
        """What a body gets that reads an attribute: it, a twin of it, or a copy that no caller can change."""
        if self._reads is None or (id(value), name) in self._written:
            return part
        raw = _raw(value, name)
        nested = raw is part and has_twins(type_of(part)) and owner_of_class(type_of(part)) != "library"
        self._reads.note(value, name, raw, nested=nested)
        if nested:
            return self.twin(part)
        if raw is not part or name == "__dict__" or is_settled(part):
            return part
        if id(part) not in self._given:
            self._given[id(part)] = part, snapshot(part)
        return self._given[id(part)][1]


def original(value: Any) -> Any:
    """The object that a twin stands for; all else is itself."""
    return object.__getattribute__(value, "_jitney_original") if issubclass(type_of(value), Twin) else value


def _raw(value: Any, name: str) -> Any:
    """An attribute as it lies in the object or its classes: functions unbound, properties as what they are."""
    held = object.__getattribute__(value, "__dict__")
    if name == "__dict__":
        return held
    if name in held:
        return held[name]
    for base in type_of(value).__mro__:
        if name in base.__dict__:
            part = base.__dict__[name]
            return getattr(value, name, _ABSENT) if is_a(part, types.MemberDescriptorType) else part
    return _ABSENT


def _reads_past(kind: type[Any]) -> bool:
    """Whether a method of a class asks for attributes in a way that a subclass does not see: `super().__getattribute__("x")`."""
    functions = [part.fget if is_a(part, property) else getattr(part, "__func__", part) for part in vars(kind).values()]
    return any(is_a(function, types.FunctionType) and "__getattribute__" in function.__code__.co_names for function in functions)


def has_twins(kind: type) -> bool:
    """Whether there are twins of instances of a class."""
    return is_plain(kind) and _twin_class(kind) is not None


def _twin_class(kind: type) -> Any:
    """A subclass whose instances note what is read of them; None where the class has its own ways with attributes or subclasses."""
    if kind not in _twin_classes:
        _twin_classes[kind] = _made_twin_class(kind)
    return _twin_classes[kind]


def _made_twin_class(kind: type) -> Any:
    usual: Any = object
    made: Any = kind
    if (
        type(kind) not in (type, ABCMeta)
        or not kind.__dictoffset__
        or kind.__getattribute__ is not usual.__getattribute__
        or kind.__new__ is not object.__new__
        or any(map(_reads_past, kind.__mro__[:-1]))
        or any("__init_subclass__" in base.__dict__ for base in kind.__mro__[:-1] if base is not typing.Generic)
    ):
        return None

    def trace_of(self: Any) -> Trace | None:
        """None of an object that the body itself has made of a twin's class: `type(self)()`."""
        try:
            return usual.__getattribute__(self, "_jitney_trace")
        except AttributeError:
            return None

    def read(self: Any, name: str) -> Any:
        if name == "__class__":
            return kind
        trace = trace_of(self)
        if trace is None:
            return usual.__getattribute__(self, name)
        value = original(self)
        try:
            part = usual.__getattribute__(self, name)
        except AttributeError:
            trace.read(value, name, _ABSENT)
            raise
        return trace.read(value, name, part)

    def write(self: Any, name: str, part: Any) -> None:
        trace = trace_of(self)
        if trace is not None:
            trace.wrote(original(self), name)
        made.__setattr__(self, name, part)

    def delete(self: Any, name: str) -> None:
        trace = trace_of(self)
        if trace is not None:
            trace.wrote(original(self), name)
        made.__delattr__(self, name)

    def reduced(self: Any, protocol: Any) -> Any:
        """A copy is one of the object itself, all of which is read then."""
        trace, value = trace_of(self), self
        if trace is not None:
            value = original(self)
            trace.read(value, "__dict__", vars(value))
        return made.__reduce_ex__(value, protocol)

    names = {
        "__setattr__": write,
        "__delattr__": delete,
        "__reduce_ex__": reduced,
        "__slots__": ("_jitney_original", "_jitney_trace"),
        "__getattribute__": read,
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
    }
    try:
        return type(kind)(kind.__name__, (kind, Twin), names)
    except TypeError:  # a layout of C's, or a class that says it has no subclasses
        return None
