"""What the traces of a program have read of objects of plain classes among its static values: the program holds while that is what it was.

Such an object is keyed by itself, which says nothing of what it holds: `self.tolerance = 1e-6` between two calls of a method must not
give the first number again. All that it holds would be too much: a trainer keeps its weights in itself, which are new after each step,
and hands them on as arguments. So each attribute that a trace reads is noted (`watching.py`), and what was read is compared at each call.
An object whose class cannot be watched, and one inside of other static values, is compared as a whole.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from .._errors import StaticError, Where, sentence
from .._jax.trees import is_a, type_of
from .._owners import owner_of_class
from .array_likes import array_like_error, array_likes
from .attributes import attributes_of
from .copies import Copies, snapshot
from .names_of_classes import ClassNames, Names, bases_of, named_by
from .plain_objects import article, first_used_up, is_called_unasked, is_settled, plain_objects, referent, state
from .watching import ABSENT, WatchedClasses, can_be_watched, next_number, unwatched

_held_by: Callable[[Any], dict[str, Any]] = vars
_usual: Any = object.__getattribute__
_WHOLE = (
    "__dict__",
    "__reduce_ex__",
    "__reduce__",
    "__getstate__",
)  # who copies or pickles an object asks for one of these


class Statics(tuple[Any, ...]):
    """The static values of an entry, with what its traces have read of them; None where nothing they hold can change."""

    reads: Reads | None = None

    @classmethod
    def of(cls, values: Sequence[Any], loose: Sequence[Any], body: Any, where: Where) -> Statics:
        """Those of a call of a function; `loose` are other things that a caller can change. Without the function nothing is watched."""
        statics = cls(values)
        reads = Reads(values, loose, body, where)
        if reads.attributes or reads.wholes:
            statics.reads = reads
        return statics


class _Seen:
    """One thing that was read: the object then, whether that it is the same is enough, and its state; of a nested one reads are noted."""

    __slots__ = ("nested", "settled", "state", "then")

    def __init__(self, value: Any, *, nested: bool = False):
        self.then = value
        self.settled = nested or value is ABSENT or is_settled(value)
        self.nested = nested
        self.state = None if self.settled else state(value)

    def holds(self, now: Any) -> bool:
        if self.settled:
            return now is self.then or (
                not self.nested and now is not ABSENT and self.then is not ABSENT and state(now) == state(self.then)
            )
        return now is not ABSENT and state(now) == self.state


class Reads:
    """What the traces of one entry have read of the plain objects among its static values.

    Args:
        statics: The static values, which keep these objects alive.
        loose: Other things that its traces can see and callers can change: static fields of modules.
        body: The function that reads them; None where what it reads is not watched.
        where: What messages call it.
    """

    def __init__(self, statics: Sequence[Any], loose: Sequence[Any], body: Any, where: Where):
        self.number = next_number()
        self._where = where
        is_watched = body is not None and any(can_be_watched(type_of(value)) for value in statics)
        self._named = ClassNames(named_by(body) if is_watched else Names())
        self.attributes: dict[int, tuple[Any, dict[str, _Seen]]] = {}  # by the `id` of an object, or of a class of one
        self._classes: dict[int, tuple[type, ...]] = {}  # what their classes are
        self._quick: tuple[bool, list[Any]] | None = None  # of `_quickly`; none until a call asks, and after each first read
        self._count = 0  # of attributes that were read
        with unwatched():
            self.wholes: list[tuple[Any, _Seen]] = [(value, _Seen(value)) for value in loose]
            for value in statics:
                if is_watched and not self._named.own.looks_past and self.can_watch(value):
                    self.add(value)
                else:
                    self.wholes += [(part, _Seen(part)) for part in plain_objects(value)]

    def can_watch(self, value: Any) -> bool:
        """Whether what is read of an object can be noted."""
        kind = type_of(value)
        return can_be_watched(kind) and not self._named.of(kind).looks_past

    def add(self, value: Any) -> None:
        """Note what is read of an object from now on; and what its classes say that is not read of it, but of them."""
        if id(value) in self.attributes:
            return
        self._put(value)
        names = self._named.of(type_of(value)).names
        bases = bases_of(type_of(value))
        for base in bases:
            self._put(base)
            for name, part in [*base.__dict__.items()]:
                if is_called_unasked(name, part):
                    self.note(base, name, part)
            for name in names:
                if any(name in other.__dict__ for other in bases):
                    self.note(base, name, base.__dict__.get(name, ABSENT))

    def _put(self, value: Any) -> None:
        if id(value) not in self.attributes:
            self._classes[id(value)] = type_of(value).__mro__
            self.attributes[id(value)] = value, {}
            self._quick = None

    def hold(self) -> bool:
        """Whether all that was read is what it was."""
        slow, quick = self._quick or self._quickly()
        for value, classes, own, of_class in quick:
            if type_of(value).__mro__ is not classes:
                return False
            held = _held_by(value)
            for name, then in own:
                if held.get(name, ABSENT) is not then:
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
            classes = type_of(value).__mro__
            if classes is not self._classes[id(value)] or not _has_dict(value):
                slow = True
                continue
            own: list[Any] = []
            of_class: list[Any] = []
            held = _held_by(value)
            for name, seen in [*attributes.items()]:
                owner = next((i for i, base in enumerate(classes) if name in base.__dict__), None)
                if not seen.settled or name == "__dict__" or (seen.then is ABSENT and not is_a(value, type)):
                    slow = True
                elif held.get(name, ABSENT) is seen.then:
                    own.append((name, seen.then))
                elif owner is not None and classes[owner].__dict__[name] is seen.then:
                    dicts = [base.__dict__ for base in classes[: owner + 1]]
                    of_class.append((name, tuple(dicts[:-1]), (dicts[-1], seen.then)))
                else:
                    slow = True
            if own or of_class or not is_a(value, type):
                quick.append((value, classes, tuple(own), tuple(of_class)))
        if count == self._count:  # no other thread has read more meanwhile
            self._quick = slow, quick
        return slow, quick

    def _hold_as_states(self) -> bool:
        with unwatched():
            return next(self._changed(), None) is None

    def changed(self) -> list[tuple[Any, str, Any, Any]]:
        """Objects, attributes ("" for a whole), what they were and what they are, where these differ."""
        with unwatched():
            return [*self._changed()]

    def _changed(self) -> Iterator[tuple[Any, str, Any, Any]]:
        for value, attributes in [*self.attributes.values()]:
            if type_of(value).__mro__ is not self._classes[id(value)]:
                yield value, "__class__", self._classes[id(value)][0], type_of(value)
            for name, seen in [*attributes.items()]:
                now = _raw(value, name)
                if not (now is seen.then and seen.settled) and not seen.holds(now):
                    yield value, name, seen.then, now
        for value, seen in self.wholes:
            if not seen.holds(value):
                yield value, "", value, value

    @contextmanager
    def tracing(self) -> Generator[Trace]:
        """While this stands, what the thread reads of the objects is noted, for one trace."""
        watch = WatchedClasses()
        try:
            trace = Trace(self, watch)
            with watch.telling(trace):
                yield trace
        finally:
            watch.end()

    def note(self, value: Any, name: str, raw: Any, *, nested: bool = False) -> None:
        """Remember what an attribute is, if it is read for the first time."""
        noted = self.attributes[id(value)][1]
        if name not in noted:
            noted[name] = _Seen(raw, nested=nested)
            self._count += 1
            self._quick = None

    def refuse_unreadable(self, value: Any, name: str, part: Any) -> None:
        """Check that what an attribute holds can be read for more than one call.

        Raises:
            StaticError: An iterator or a coroutine.
            ContractError: What looks like an array and is none, and cannot be compared by what it holds.
        """
        reads = f"it reads {name!r} of a {type_of(value).__name__}, which is or holds"
        for found in array_likes(part):
            if type_of(found).__hash__ is not None:  # of what has none, what it holds is compared
                raise array_like_error(self._where, reads, found, f"self.{name}")
        used_up = first_used_up(part)
        if used_up is not None:
            raise StaticError(
                sentence(self._where, f"{reads} {article(used_up)}.",
                         "It can be read once, and what is traced once serves many calls.",
                         "keep a list, a tuple or an array there, or pass what it gives as an argument.")
            )  # fmt: skip


class Trace:
    """One trace: what its body is given where others can change it."""

    def __init__(self, reads: Reads, watch: WatchedClasses):
        self.number = reads.number
        self._reads = reads
        self._watch = watch
        self._began: dict[int, dict[str, Any]] = {}  # what objects held when they were first seen: what they hold else is the body's own
        self._copies = Copies()
        self._given: dict[tuple[int, str], tuple[Any, Any]] = {}  # what lay in an object, and what the body got
        self._scratch: set[tuple[int, str]] = set()  # attributes that the body set and then read: for itself, it seems
        for value, _ in [*reads.attributes.values()]:
            if not is_a(value, type):
                self._add(value)

    def _add(self, value: Any) -> None:
        if id(value) not in self._began:
            self._began[id(value)] = {**attributes_of(value)}
            self._reads.add(value)
            self._watch.add(value)

    def read(self, value: Any, name: str, part: Any) -> Any:
        """What a body gets that reads an attribute: it, or a copy that no caller can change."""
        began = self._began.get(id(value))
        if began is None:
            return part
        if name in _WHOLE:
            for own in attributes_of(value).keys() - _raw(value, "__dict__").keys():
                self._reads.note(value, own, _raw(value, own))
            self._reads.note(value, "__dict__", _raw(value, "__dict__"))
            return part
        raw = _raw(value, name)
        before = self._given.get((id(value), name))
        if before is not None and before[0] is raw:
            return before[1] if raw is part else part
        if raw is not began.get(name, raw) or (name not in began and name in attributes_of(value)):
            self._scratch.add((id(value), name))
            return part
        self._reads.refuse_unreadable(value, name, raw)
        given = self._noted(value, name, raw, part)
        self._given[id(value), name] = raw, given
        return given

    def updates(self, names: Mapping[int, str]) -> Iterator[tuple[str, bool, bool]]:
        """What the body has changed in place and no later call will: attributes that it set, and what lies in those that it read.

        An attribute that it read and then set is not among them: it differs from what was read, so the next call is traced again. Nor is
        one that it set and then read: a scratch of its own.

        Args:
            names: What the static values are called, by `id`.

        Returns:
            The path of each, and whether it was there, and is.
        """
        with unwatched():
            for key, began in [*self._began.items()]:
                value, noted = self._reads.attributes[key]
                path, now = names.get(key) or type_of(value).__name__, attributes_of(value)
                for name in dict.fromkeys((*began, *now)):
                    is_changed = began.get(name, ABSENT) is not now.get(name, ABSENT)
                    if is_changed and name not in noted and (key, name) not in self._scratch and not _is_cached(value, name):
                        yield f"{path}.{name}", name in began, name in now
            for (key, name), (raw, given) in [*self._given.items()]:
                if given is not raw and type_of(given) is type_of(raw) and state(given) != state(raw):  # not a method of a function
                    yield f"{names.get(key) or type_of(self._reads.attributes[key][0]).__name__}.{name}", True, True

    def _noted(self, value: Any, name: str, raw: Any, part: Any) -> Any:
        referred = referent(raw)
        nested = raw is part and referred is not None and owner_of_class(type_of(referred)) != "library" and self._reads.can_watch(referred)
        self._reads.note(value, name, raw, nested=nested)
        if nested:
            self._add(referred)
            return part
        if raw is not part or is_settled(part):
            return part
        return snapshot(part, self._copies)


def _is_cached(value: Any, name: str) -> bool:
    return is_a(getattr(type_of(value), name, None), functools.cached_property)


def _has_dict(value: Any) -> bool:
    try:
        _usual(value, "__dict__")
    except AttributeError:
        return False
    return True


def _raw(value: Any, name: str) -> Any:
    """An attribute as it lies in the object or its classes: functions unbound, properties as what they are."""
    held: Any = value.__dict__ if is_a(value, type) else _usual(value, "__dict__") if _has_dict(value) else {}
    if name == "__dict__":
        return held
    if name in held or is_a(value, type):
        return held.get(name, ABSENT)
    for base in type_of(value).__mro__:
        if name in base.__dict__:
            part = base.__dict__[name]
            return getattr(value, name, ABSENT) if is_a(part, (types.MemberDescriptorType, types.GetSetDescriptorType)) else part
    return ABSENT
