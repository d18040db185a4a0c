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

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager

from .._errors import StaticError, Where
from .array_likes import array_like_error, array_likes
from .class_attribute_names import AttributeNames, ClassNames, bases_of, occurring_names
from .copies import Copies, snapshot
from .identity import Identity, dereference, identity
from .mutable_objects import (
    article,
    first_consumable,
    is_called_unasked,
    objects_by_identity,
    plain_objects,
)
from .read_hooks import ABSENT, WatchedClasses, can_be_watched, next_number, suspend_readers
from .read_trace import ReadTrace
from .recorded_reads import (
    GONE,
    Attributes,
    RecordedRead,
    has_dict,
    place_of,
    raw_attribute,
    strong_value,
    weak_stand_in,
)

_QuickPlan = tuple[
    object,
    tuple[type, ...],
    tuple[tuple[str, object], ...],
    tuple[tuple[str, Identity], ...],
    tuple[tuple[str, tuple[Attributes, ...], tuple[Attributes, object]], ...],
]
"""Stand-in of an object, its classes, and the attributes that identity decides, by name: those in
the object, held strongly; those in it, held weakly; those in one of its classes, with the dicts of
the classes before it.
"""
_Change = tuple[object, str, object, object]
"""An object, the name of a changed attribute, its recorded and its current value."""
_held_by: Callable[[object], dict[str, object]] = vars


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
        # An object (or a class of one) and its recorded attributes, by `place_of` of the object.
        self.attributes: dict[int, tuple[object, dict[str, RecordedRead]]] = {}
        # Method resolution orders of their classes, to detect an assignment to `__class__`.
        self._classes: dict[int, tuple[type, ...]] = {}
        # Result of `_quickly`; None until the first call and after each new attribute.
        self._quick: tuple[bool, list[_QuickPlan]] | None = None
        # Number of recorded attributes.
        self._count = 0

        with suspend_readers():
            # Static fields of modules are held by the layout too, so they may be held strongly
            # here.
            self.wholes: list[tuple[object, RecordedRead]] = [
                (value, RecordedRead(value)) for value in loose
            ]
            for value in statics:
                if is_watched and not self._named.own.looks_past and self.can_watch(value):
                    self.add(value)
                else:
                    for part in plain_objects(value):
                        self.wholes.append((weak_stand_in(part), RecordedRead(part)))

    def can_watch(self, value: object) -> bool:
        """Return whether reads of an object can be recorded."""
        kind = type(value)
        return can_be_watched(kind) and not self._named.of(kind).looks_past

    def add(self, value: object) -> None:
        """Record the reads of an object from now on, and at once the attributes of its classes that
        a body reads without reading the object.
        """
        if place_of(value) in self.attributes:
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
        if place_of(value) not in self.attributes:
            self._classes[place_of(value)] = type(value).__mro__
            self.attributes[place_of(value)] = weak_stand_in(value), {}
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
            strong_value(value) is GONE or seen.is_over() for value, seen in self._recorded_reads()
        )

    def _recorded_reads(self) -> Iterator[tuple[object, RecordedRead]]:
        for value, attributes in [*self.attributes.values()]:
            yield from ((value, seen) for seen in [*attributes.values()])
        yield from self.wholes

    def read(self) -> Iterator[tuple[object, str, object]]:
        """Triples of an object, the name of a recorded attribute, and its current value."""
        for held, attributes in [*self.attributes.values()]:
            value = strong_value(held)
            if value is not GONE:
                yield from ((value, name, raw_attribute(value, name)) for name in [*attributes])

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
            value = strong_value(stand_in)
            classes = type(value).__mro__
            if classes is not self._classes[id(stand_in)] or not has_dict(value):
                slow = True
                continue
            own: list[tuple[str, object]] = []
            weak: list[tuple[str, Identity]] = []
            of_class: list[tuple[str, tuple[Attributes, ...], tuple[Attributes, object]]] = []
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
            strong_value(value) is GONE for value, _ in [*self.attributes.values(), *self.wholes]
        )

    def changes(self) -> list[_Change]:
        """Quadruples of an object, the name of a changed attribute ("" for a whole object), its
        recorded and its current value.
        """
        with suspend_readers():
            return [*self._changes()]

    def _changes(self) -> Iterator[_Change]:
        for held, attributes in [*self.attributes.values()]:
            value = strong_value(held)
            if value is GONE:
                continue
            if type(value).__mro__ is not self._classes[id(held)]:
                yield value, "__class__", self._classes[id(held)][0], type(value)
            for name, seen in [*attributes.items()]:
                now = raw_attribute(value, name)
                if not seen.holds(now):
                    yield value, name, seen.was, now
        for held, seen in self.wholes:
            value = strong_value(held)
            if value is not GONE and not seen.holds(value):
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
        noted = self.attributes[place_of(value)][1]
        if name not in noted:
            noted[name] = RecordedRead(raw, nested=nested, by_class=isinstance(value, type))
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
