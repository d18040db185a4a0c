"""Reads of mutable objects by the traces of a program: the program is valid while every attribute
that was read is unchanged.

An object of a plain class among the static values is keyed by identity, which ignores its contents,
so `self.tolerance = 1e-6` between two calls of a method would return the old number. Comparing all
its contents would be too much: a trainer keeps its weights as attributes, which are new after each
step, and passes them on as arguments. So each attribute that a trace reads is recorded
(`read_hooks.py`), and the recorded attributes are compared at each call. An object whose class
cannot be watched, or which is nested in another static value, is compared as a whole.

Nothing here keeps such an object alive, nor any value that may refer back to it: a child knows its
parent, a callback its object.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import jax
import numpy as np

from .._errors import StaticError, Where, repr_of
from .._owners import owner_of_class
from .array_likes import array_like_error, array_likes
from .attributes import attributes_of
from .class_attribute_names import AttributeNames, ClassNames, bases_of, occurring_names
from .copies import Copies, snapshot
from .identity import Identity, can_be_weak, dereference, identity
from .kinds import referent
from .mutable_objects import (
    article,
    bytes_in,
    first_consumable,
    is_called_unasked,
    is_immutable,
    leads_nowhere,
    objects_by_identity,
    plain_objects,
    state,
)
from .read_hooks import ABSENT, WatchedClasses, can_be_watched, next_number, suspend_readers
from .static_values import Unkeyed, static_key

_Attributes = Mapping[str, object]
_QuickPlan = tuple[
    object,
    tuple[type, ...],
    tuple[tuple[str, object], ...],
    tuple[tuple[str, Identity], ...],
    tuple[tuple[str, tuple[_Attributes, ...], tuple[_Attributes, object]], ...],
]
"""Stand-in of an object, its classes, and the attributes that identity decides, by name: those in
the object, held strongly; those in it, held weakly; those in one of its classes, with the dicts of
the classes before it.
"""
_Change = tuple[object, str, object, object]
"""An object, the name of a changed attribute, its recorded and its current value."""

_held_by: Callable[[object], dict[str, object]] = vars
_usual = object.__getattribute__
# Reads of these names read the object as a whole: `copy` and `pickle` use them.
_WHOLE = (
    "__dict__",
    "__reduce_ex__",
    "__reduce__",
    "__getstate__",
)


class Statics:
    """Static values of an entry, and the reads of them by its traces.

    Objects that are equal to nothing but themselves are not kept alive.

    Attributes:
        held: The values, with stand-ins for such objects.
        identities: The stand-ins.
        reads: None if nothing in the values can change.
    """

    def __init__(
        self,
        values: Sequence[object],
        reads: AttributeReads | None = None,
    ):
        objects: dict[int, object] = {}
        for value in values:
            objects.update((id(each), each) for each in objects_by_identity(value))
        self.identities = tuple(map(identity, objects.values()))
        # With these entries `snapshot` puts a stand-in in the place of each object, as if it were
        # its copy.
        copies = Copies()
        for each, stand_in in zip(objects.values(), self.identities, strict=True):
            copies[id(each)] = each, stand_in

        self.held = tuple(values)
        if objects:
            self.held = tuple(snapshot(value, copies) for value in values)
        self.reads = reads

    @classmethod
    def of(
        cls,
        values: Sequence[object],
        loose: Sequence[object],
        body: object,
        where: Where,
    ) -> Statics:
        """Static values of a call of a function.

        Args:
            values: The static values.
            loose: Other values that the caller can change.
            body: The function; None if its reads are not watched.
            where: Its location for messages.
        """
        reads = AttributeReads(values, loose, body, where)
        return cls(values, reads if reads.attributes or reads.wholes else None)

    def values(self) -> tuple[object, ...]:
        """The values themselves, with the objects back in place of their stand-ins.

        Raises:
            ReferenceError: An object among them is gone, so no later call can pass it.
        """
        if not self.identities:
            return self.held
        copies = Copies()
        copies.update((id(each), (each, dereference(each))) for each in self.identities)
        return tuple(
            copies[id(value)][1] if type(value) is Identity else snapshot(value, copies)
            for value in self.held
        )


_GONE = object()
# Longest text of a value in a report, in characters.
_SHOWN = 60
# Containers with fewer items are shown in full.
_FEW = 10


class _RecordedRead:
    """Recorded value of one attribute, or of one static value as a whole.

    Args:
        value: The value. It is held weakly if it may refer back to the object it was read from, or
            the two would keep each other alive.
        nested: Whether the attributes of `value` are recorded themselves, so that here its identity
            suffices.
        by_class: Whether the attribute belongs to a class, which lives as long as its instances.
    """

    __slots__ = ("_then", "nested", "settled", "size", "state", "words")

    def __init__(
        self,
        value: object,
        *,
        nested: bool = False,
        by_class: bool = False,
    ):
        self.settled = nested or value is ABSENT or is_immutable(value)
        self.nested = nested
        is_alone = leads_nowhere(value) or not (
            can_be_weak(type(value)) or isinstance(value, tuple)
        )
        is_strong = (
            value is ABSENT
            or (by_class and hasattr(type(value), "__get__"))
            or (self.settled and is_alone)
        )

        # The value itself, a weak stand-in, or `_GONE` for a value of which only the state is kept.
        self._then: object = _GONE
        if is_strong:
            self._then = value
        elif can_be_weak(type(value)):
            self._then = identity(value)
        self.state = None if is_strong or nested else state(value)
        self.words = "" if is_strong else _words(value)
        self.size = 0 if is_strong else bytes_in(value)

    @property
    def recorded_value(self) -> object:
        """The recorded value if it is still alive, else `_GONE`. `ABSENT` stands for an attribute
        that did not exist.
        """
        if type(self._then) is not Identity:
            return self._then
        value = self._then()
        return _GONE if value is None else value

    @property
    def is_quick(self) -> bool:
        """True if an identity comparison with `recorded_value` decides."""
        return self.settled and self._then is not _GONE

    @property
    def raw_value(self) -> object:
        """The recorded value or its stand-in."""
        return self._then

    @property
    def is_weak(self) -> bool:
        return type(self._then) is Identity

    @property
    def was(self) -> object:
        """The recorded value, or a description of it once it is gone."""
        return Words(self.words) if self.recorded_value is _GONE else self.recorded_value

    def is_over(self) -> bool:
        """Return whether no later value can match: the recorded one counts by identity and is
        gone.
        """
        stand_in = self._then
        if type(stand_in) is not Identity or stand_in() is not None:
            return False
        return self.nested or self.state in (stand_in, (stand_in.kind, stand_in))

    def holds(self, now: object) -> bool:
        if now is ABSENT or self.recorded_value is ABSENT:
            return now is self.recorded_value
        if self.settled and now is self.recorded_value:
            return True
        if self.nested:
            return False
        current = state(now)
        return current == (state(self._then) if self.state is None else self.state)


class Words(str):
    """Text that stands for a value: its `repr` is the text without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _words(value: object) -> str:
    if isinstance(value, (np.ndarray, np.generic, jax.Array)):
        return f"{value.dtype}[{','.join(map(str, value.shape))}]"
    if isinstance(value, (list, tuple, dict, set, frozenset)) and len(value) < _FEW:
        return repr_of(value)[:_SHOWN]
    return type(value).__name__


class AttributeReads:
    """Values that the traces of one entry have read from the plain objects among its static values.

    Args:
        statics: The static values.
        loose: Other values that its traces can see and callers can change: static fields of
            modules.
        body: The function that reads them; None if its reads are not watched.
        where: Its location for messages.
    """

    def __init__(
        self,
        statics: Sequence[object],
        loose: Sequence[object],
        body: object,
        where: Where,
    ):
        self.number = next_number()
        self._where = where
        is_watched = body is not None and any(can_be_watched(type(value)) for value in statics)
        self._named = ClassNames(occurring_names(body) if is_watched else AttributeNames())
        # An object (or a class of one) and its recorded attributes, by `_place` of the object.
        self.attributes: dict[int, tuple[object, dict[str, _RecordedRead]]] = {}
        # Method resolution orders of their classes, to detect an assignment to `__class__`.
        self._classes: dict[int, tuple[type, ...]] = {}
        # Result of `_quickly`; None until the first call and after each new attribute.
        self._quick: tuple[bool, list[_QuickPlan]] | None = None
        # Number of recorded attributes.
        self._count = 0

        with suspend_readers():
            # Static fields of modules are held by the layout too, so they may be held strongly
            # here.
            self.wholes: list[tuple[object, _RecordedRead]] = [
                (value, _RecordedRead(value)) for value in loose
            ]
            for value in statics:
                if is_watched and not self._named.own.looks_past and self.can_watch(value):
                    self.add(value)
                else:
                    for part in plain_objects(value):
                        self.wholes.append((_weakly(part), _RecordedRead(part)))

    def can_watch(self, value: object) -> bool:
        """Return whether reads of an object can be recorded."""
        kind = type(value)
        return can_be_watched(kind) and not self._named.of(kind).looks_past

    def add(self, value: object) -> None:
        """Record the reads of an object from now on, and at once the attributes of its classes that
        a body reads without reading the object.
        """
        if _place(value) in self.attributes:
            return
        self._put(value)
        names = self._named.of(type(value)).names
        bases = bases_of(type(value))

        for base in bases:
            self._put(base)
            for name, part in [*base.__dict__.items()]:
                # Python looks special methods up in the class, past `__getattribute__`.
                if is_called_unasked(name, part):
                    self.note(base, name, part)
            # Names that the body may look up in a class.
            for name in names:
                if any(name in other.__dict__ for other in bases):
                    self.note(base, name, base.__dict__.get(name, ABSENT))

    def _put(self, value: object) -> None:
        if _place(value) not in self.attributes:
            self._classes[_place(value)] = type(value).__mro__
            self.attributes[_place(value)] = _weakly(value), {}
            self._quick = None

    @property
    def size(self) -> int:
        """Approximate size in bytes of the recorded values, which the programs hold once more as
        constants.
        """
        return sum(seen.size for _, seen in self._recorded_reads())

    def is_over(self) -> bool:
        """Return whether the program can never be valid again, because an object or a recorded
        value is gone.
        """
        return any(
            _strongly(value) is _GONE or seen.is_over() for value, seen in self._recorded_reads()
        )

    def _recorded_reads(self) -> Iterator[tuple[object, _RecordedRead]]:
        for value, attributes in [*self.attributes.values()]:
            yield from ((value, seen) for seen in [*attributes.values()])
        yield from self.wholes

    def read(self) -> Iterator[tuple[object, str, object]]:
        """Triples of an object, the name of a recorded attribute, and its current value."""
        for held, attributes in [*self.attributes.values()]:
            value = _strongly(held)
            if value is not _GONE:
                yield from ((value, name, _raw(value, name)) for name in [*attributes])

    def are_unchanged(self) -> bool:
        """Return whether every recorded attribute is unchanged.

        This is the check of a warm call, so it compares by identity first and computes states only
        if that fails or does not decide.
        """
        slow, quick = self._quick or self._quickly()
        for stand_in, classes, own, weak, of_class in quick:
            value = stand_in() if type(stand_in) is Identity else stand_in
            # The stand-in of a dead object gives None, whose `__mro__` differs.
            if type(value).__mro__ is not classes:
                return False
            held = _held_by(value)
            for name, then in own:
                if held.get(name, ABSENT) is not then:
                    return self._hold_as_states()
            for name, then in weak:
                if held.get(name, ABSENT) is not then():
                    return self._hold_as_states()
            # A class attribute is found only if neither the object nor an earlier class has one of
            # that name.
            for name, before, then in of_class:
                if (
                    name in held
                    or any(name in each for each in before)
                    or then[0].get(name) is not then[1]
                ):
                    return self._hold_as_states()

        return not slow or self._hold_as_states()

    def _quickly(self) -> tuple[bool, list[_QuickPlan]]:
        """Plan for `are_unchanged`: whether some attributes need their states compared, and for
        each object the attributes that identity decides, in the object (held strongly or weakly)
        and in its classes.
        """
        quick: list[_QuickPlan] = []
        slow, count = bool(self.wholes), self._count

        for stand_in, attributes in [*self.attributes.values()]:
            value = _strongly(stand_in)
            classes = type(value).__mro__
            if classes is not self._classes[id(stand_in)] or not _has_dict(value):
                slow = True
                continue
            own: list[tuple[str, object]] = []
            weak: list[tuple[str, Identity]] = []
            of_class: list[tuple[str, tuple[_Attributes, ...], tuple[_Attributes, object]]] = []
            held = _held_by(value)
            for name, seen in [*attributes.items()]:
                owner = next((i for i, base in enumerate(classes) if name in base.__dict__), None)
                # `__dict__` as a whole is compared by its contents. An absent attribute of an
                # object might appear in any of its classes, which identity does not tell.
                if (
                    not seen.is_quick
                    or name == "__dict__"
                    or (seen.recorded_value is ABSENT and not isinstance(value, type))
                ):
                    slow = True
                elif held.get(name, ABSENT) is seen.recorded_value:
                    then = seen.raw_value
                    if type(then) is Identity:
                        weak.append((name, then))
                    else:
                        own.append((name, then))
                elif seen.is_weak:
                    slow = True
                elif owner is not None and classes[owner].__dict__[name] is seen.recorded_value:
                    dicts = [base.__dict__ for base in classes[: owner + 1]]
                    of_class.append((name, tuple(dicts[:-1]), (dicts[-1], seen.recorded_value)))
                else:
                    slow = True
            if own or weak or of_class or not isinstance(value, type):
                quick.append((stand_in, classes, tuple(own), tuple(weak), tuple(of_class)))

        # The plan is stored only if no other thread has recorded an attribute meanwhile.
        if count == self._count:
            self._quick = slow, quick
        return slow, quick

    def _hold_as_states(self) -> bool:
        with suspend_readers():
            return not self._is_gone() and next(self._changes(), None) is None

    def _is_gone(self) -> bool:
        """Return whether one of the objects is gone."""
        return any(
            _strongly(value) is _GONE for value, _ in [*self.attributes.values(), *self.wholes]
        )

    def changes(self) -> list[_Change]:
        """Quadruples of an object, the name of a changed attribute ("" for a whole object), its
        recorded and its current value.
        """
        with suspend_readers():
            return [*self._changes()]

    def _changes(self) -> Iterator[_Change]:
        for held, attributes in [*self.attributes.values()]:
            value = _strongly(held)
            if value is _GONE:
                continue
            if type(value).__mro__ is not self._classes[id(held)]:
                yield value, "__class__", self._classes[id(held)][0], type(value)
            for name, seen in [*attributes.items()]:
                now = _raw(value, name)
                if not seen.holds(now):
                    yield value, name, seen.was, now
        for held, seen in self.wholes:
            value = _strongly(held)
            if value is not _GONE and not seen.holds(value):
                yield value, "", value, value

    @contextmanager
    def tracing(self) -> Generator[ReadTrace]:
        """Record the reads of the objects by this thread, for one trace."""
        watch = WatchedClasses()
        try:
            trace = ReadTrace(self, watch)
            with watch.telling(trace):
                yield trace
        finally:
            watch.end()

    def note(
        self,
        value: object,
        name: str,
        raw: object,
        *,
        nested: bool = False,
    ) -> None:
        """Record the value of an attribute, if it is read for the first time."""
        noted = self.attributes[_place(value)][1]
        if name not in noted:
            noted[name] = _RecordedRead(raw, nested=nested, by_class=isinstance(value, type))
            self._count += 1
            self._quick = None

    def refuse_unreadable(
        self,
        value: object,
        name: str,
        part: object,
    ) -> None:
        """Check that the value of an attribute can be read for more than one call.

        Raises:
            StaticError: It is or contains an iterator or a coroutine.
            ContractError: It contains a value that looks like an array and cannot be compared by
                its contents.
        """
        reads = f"it reads {name!r} of a {type(value).__name__}, which is or holds"
        for found in array_likes(part):
            # A value without a hash is compared by its contents.
            if type(found).__hash__ is not None:
                raise array_like_error(self._where, reads, found, f"self.{name}")
        used_up = first_consumable(part)
        if used_up is not None:
            raise StaticError(
                self._where,
                f"{reads} {article(used_up)}.",
                "It can be read once, and what is traced once serves many calls.",
                "keep a list, a tuple or an array there, or pass what it gives as an argument.",
            )


class ReadTrace:
    """Reads of one trace, and the values that its body got for attributes that others can
    change.
    """

    def __init__(self, reads: AttributeReads, watch: WatchedClasses):
        self.number = reads.number
        self._reads = reads
        self._watch = watch
        # The objects, kept alive since `id` is their key below.
        self._alive: list[object] = []
        # Attributes of the objects when they were first seen; any other value was set by the body.
        self._began: dict[int, dict[str, object]] = {}
        self._copies = Copies()
        # Value of an attribute and the value that the body got for it.
        self._given: dict[tuple[int, str], tuple[object, object]] = {}
        # The subset of these of which the body got a copy.
        self._copied: dict[tuple[int, str], tuple[object, object]] = {}
        # Attributes that the body set and then read: scratch space of its own.
        self._scratch: set[tuple[int, str]] = set()

        for held, _ in [*reads.attributes.values()]:
            value = _strongly(held)
            if value is not _GONE and not isinstance(value, type):
                self._add(value)

    def _add(self, value: object) -> None:
        if id(value) not in self._began:
            self._alive.append(value)
            self._began[id(value)] = {**attributes_of(value)}
            self._reads.add(value)
            self._watch.add(value)

    def read(self, value: object, name: str, part: object) -> object:
        """Value that the body gets for an attribute: the attribute itself, or a copy that no caller
        can change.
        """
        began = self._began.get(id(value))
        if began is None:
            return part
        if name in _WHOLE:
            # Slots are not in the `__dict__`.
            for own in attributes_of(value).keys() - _dict_of(value).keys():
                self._reads.note(value, own, _raw(value, own))
            self._reads.note(value, "__dict__", _dict_of(value))
            return part
        raw = _raw(value, name)
        before = self._given.get((id(value), name))

        # The same copy is returned at each read, so that identity holds inside the body.
        if before is not None and before[0] is raw:
            return before[1] if raw is part else part

        # The body has set this attribute itself.
        if raw is not began.get(name, raw) or (name not in began and name in attributes_of(value)):
            self._scratch.add((id(value), name))
            return part
        self._reads.refuse_unreadable(value, name, raw)
        given = self._note_read(value, name, raw, part)
        self._given[id(value), name] = raw, given
        return given

    def updates(self, names: Mapping[int, str]) -> Iterator[tuple[str, bool, bool]]:
        """Changes in place that the trace made and no later call will repeat: attributes that the
        body set, and containers that it read and changed.

        An attribute that the body read and then set is not among them: it differs from the recorded
        value, so the next call is traced again. Nor is an attribute that it set and then read, its
        own scratch space.

        Args:
            names: Names of the static values, by `id`.

        Returns:
            The path of each change, whether the attribute existed before, and whether it exists
            now.
        """
        objects = {id(value): value for value in self._alive}
        paths = {key: names.get(key) or type(value).__name__ for key, value in objects.items()}

        with suspend_readers():
            for key, began in [*self._began.items()]:
                value = objects[key]
                noted = self._reads.attributes[_place(value)][1]
                now = attributes_of(value)
                for name in dict.fromkeys((*began, *now)):
                    is_changed = began.get(name, ABSENT) is not now.get(name, ABSENT)
                    if (
                        is_changed
                        and name not in noted
                        and (key, name) not in self._scratch
                        and not _is_cached(value, name)
                    ):
                        yield f"{paths[key]}.{name}", name in began, name in now
            for (key, name), (raw, copied) in [*self._copied.items()]:
                if copied is not raw and _content(copied) != _content(raw):
                    yield f"{paths[key]}.{name}", True, True

    def _note_read(
        self,
        value: object,
        name: str,
        raw: object,
        part: object,
    ) -> object:
        referred = referent(raw)
        nested = (
            raw is part
            and referred is not None
            and owner_of_class(type(referred)) != "library"
            and self._reads.can_watch(referred)
        )
        self._reads.note(value, name, raw, nested=nested)
        if nested:
            self._add(referred)
            return part
        if raw is not part or is_immutable(part):
            return part
        copied = snapshot(part, self._copies)
        self._copied[id(value), name] = part, copied
        return copied


def _content(part: object) -> Hashable:
    """Contents of a container. Objects of plain classes count by identity, since they may contain
    the container.
    """
    try:
        return static_key(part)
    except Unkeyed:
        return state(part)


def _is_cached(value: object, name: str) -> bool:
    return isinstance(getattr(type(value), name, None), functools.cached_property)


def _weakly(value: object) -> object:
    """Stand-in for an object; the object itself if it is a class or cannot be weakly referenced."""
    return identity(value) if can_be_weak(type(value)) else value


def _place(value: object) -> int:
    """Identifier of an object. It is unique, even among later objects at the same address, while
    the stand-in is alive.
    """
    return id(_weakly(value))


def _strongly(held: object) -> object:
    """Inverse of `_weakly`; `_GONE` if the object is gone."""
    if type(held) is not Identity:
        return held
    value = held()
    return _GONE if value is None else value


def _has_dict(value: object) -> bool:
    try:
        _usual(value, "__dict__")
    except AttributeError:
        return False
    return True


def _dict_of(value: object) -> _Attributes:
    """`__dict__` of an object or a class; an empty one for an object that has only slots."""
    if isinstance(value, type):
        return value.__dict__
    return _usual(value, "__dict__") if _has_dict(value) else {}


def _raw(value: object, name: str) -> object:
    """Attribute as stored in the object or its classes: functions unbound, properties as such."""
    held = _dict_of(value)
    if name == "__dict__":
        return held
    if name in held or isinstance(value, type):
        return held.get(name, ABSENT)

    for base in type(value).__mro__:
        if name in base.__dict__:
            part = base.__dict__[name]
            # Slots and C-level attributes are descriptors without effects, so their value is read.
            if isinstance(part, (types.MemberDescriptorType, types.GetSetDescriptorType)):
                return getattr(value, name, ABSENT)
            return part

    return ABSENT
