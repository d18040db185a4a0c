"""What the traces of a program have read of objects of plain classes among its static values: the
program holds while that is what it was.

Such an object is keyed by itself, which says nothing of what it holds: `self.tolerance = 1e-6`
between two calls of a method must not give the first number again. All that it holds would be too
much: a trainer keeps its weights in itself, which are new after each step, and hands them on as
arguments. So each attribute that a trace reads is noted (`watching.py`), and what was read is
compared at each call. An object whose class cannot be watched, and one inside of other static
values, is compared as a whole.

Nothing here keeps such an object alive, nor what may lead back to it: a child knows its parent, a
callback its object.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

from .._errors import StaticError, Where, repr_of
from .._jax.trees import is_a, type_of
from .._owners import owner_of_class
from .array_likes import array_like_error, array_likes
from .attributes import attributes_of
from .copies import Copies, snapshot
from .identity import Identity, can_be_weak, identity, living
from .names_of_classes import ClassNames, Names, bases_of, named_by
from .plain_objects import (
    article,
    bytes_in,
    first_used_up,
    is_called_unasked,
    is_settled,
    leads_nowhere,
    objects_by_identity,
    plain_objects,
    referent,
    state,
)
from .static_values import Unkeyed, static_key
from .watching import ABSENT, WatchedClasses, can_be_watched, next_number, unwatched

_held_by: Callable[[Any], dict[str, Any]] = vars
_usual: Any = object.__getattribute__
_WHOLE = (
    "__dict__",
    "__reduce_ex__",
    "__reduce__",
    "__getstate__",
)  # who copies or pickles an object asks for one of these


class Statics:
    """The static values of an entry, which keep no object alive that only itself is equal to; and
    what its traces have read of them.

    Attributes:
        held: The values, with stand-ins for such objects.
        identities: These.
        reads: None where nothing they hold can change.
    """

    def __init__(self, values: Sequence[Any], reads: Reads | None = None):
        objects = {id(each): each for value in values for each in objects_by_identity(value)}
        self.identities = tuple(map(identity, objects.values()))
        copies = Copies()
        copies.update(
            (id(each), (each, stand_in))
            for each, stand_in in zip(objects.values(), self.identities, strict=True)
        )
        self.held = tuple(snapshot(value, copies) for value in values) if objects else tuple(values)
        self.reads = reads

    @classmethod
    def of(cls, values: Sequence[Any], loose: Sequence[Any], body: Any, where: Where) -> Statics:
        """Those of a call of a function; `loose` are other things that a caller can change. Without
        the function nothing is watched.
        """
        reads = Reads(values, loose, body, where)
        return cls(values, reads if reads.attributes or reads.wholes else None)

    def values(self) -> tuple[Any, ...]:
        """The values themselves.

        Raises:
            ReferenceError: An object among them is gone, so that no call can have it.
        """
        if not self.identities:
            return self.held
        copies = Copies()
        copies.update((id(each), (each, living(each))) for each in self.identities)
        return tuple(
            copies[id(value)][1] if type(value) is Identity else snapshot(value, copies)
            for value in self.held
        )


_GONE: Any = object()
_SHOWN = 60  # letters
_FEW = 10  # parts


class _Seen:
    """One thing that was read: whether that it is the same is enough, and its state; of a nested
    one reads are noted.

    Args:
        value: It. What may lead to the object that it was read of is held weakly, or the two would
            keep each other alive.
        nested: Whether reads of it are noted.
        by_class: Whether a class holds it, which lives as long as its objects.
    """

    __slots__ = ("_then", "nested", "settled", "size", "state", "words")

    def __init__(self, value: Any, *, nested: bool = False, by_class: bool = False):
        self.settled = nested or value is ABSENT or is_settled(value)
        self.nested = nested
        is_alone = leads_nowhere(value) or not (can_be_weak(type_of(value)) or is_a(value, tuple))
        is_strong = (
            value is ABSENT
            or (by_class and hasattr(type_of(value), "__get__"))
            or (self.settled and is_alone)
        )
        self._then = (
            value if is_strong else identity(value) if can_be_weak(type_of(value)) else _GONE
        )
        self.state = None if is_strong or nested else state(value)
        self.words = "" if is_strong else _words(value)
        self.size = 0 if is_strong else bytes_in(value)

    @property
    def then(self) -> Any:
        """What was read, if that is still there; ABSENT's place is taken by no value."""
        if type(self._then) is not Identity:
            return self._then
        value = self._then()
        return _GONE if value is None else value

    @property
    def is_quick(self) -> bool:
        """Whether that it is the same is told by comparing it with `then`."""
        return self.settled and self._then is not _GONE

    @property
    def held(self) -> Any:
        """What was read, or its stand-in."""
        return self._then

    @property
    def is_weak(self) -> bool:
        return type(self._then) is Identity

    @property
    def was(self) -> Any:
        """What it was, or words for it."""
        return Words(self.words) if self.then is _GONE else self.then

    def is_over(self) -> bool:
        """Whether it can be the same no more: it counted by being itself, and is gone."""
        stand_in = self._then
        if type(stand_in) is not Identity or stand_in() is not None:
            return False
        return self.nested or self.state in (stand_in, (stand_in.kind, stand_in))

    def holds(self, now: Any) -> bool:
        if now is ABSENT or self.then is ABSENT:
            return now is self.then
        if self.settled and now is self.then:
            return True
        return not self.nested and state(now) == (
            state(self._then) if self.state is None else self.state
        )


class Words(str):
    """A text that stands for a value."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _words(value: Any) -> str:
    if is_a(value, (np.ndarray, np.generic, jax.Array)):
        return f"{value.dtype}[{','.join(map(str, value.shape))}]"
    return (
        repr_of(value)[:_SHOWN]
        if is_a(value, (list, tuple, dict, set, frozenset)) and len(value) < _FEW
        else type_of(value).__name__
    )


class Reads:
    """What the traces of one entry have read of the plain objects among its static values.

    Args:
        statics: The static values.
        loose: Other things that its traces can see and callers can change: static fields of
            modules.
        body: The function that reads them; None where what it reads is not watched.
        where: What messages call it.
    """

    def __init__(self, statics: Sequence[Any], loose: Sequence[Any], body: Any, where: Where):
        self.number = next_number()
        self._where = where
        is_watched = body is not None and any(can_be_watched(type_of(value)) for value in statics)
        self._named = ClassNames(named_by(body) if is_watched else Names())
        # of an object, or of a class of one, by `_place`
        self.attributes: dict[int, tuple[Any, dict[str, _Seen]]] = {}
        self._classes: dict[int, tuple[type, ...]] = {}  # what their classes are
        # of `_quickly`; none until a call asks, and after each first read
        self._quick: tuple[bool, list[Any]] | None = None
        self._count = 0  # of attributes that were read
        with unwatched():
            # the layout holds these too
            self.wholes: list[tuple[Any, _Seen]] = [(value, _Seen(value)) for value in loose]
            for value in statics:
                if is_watched and not self._named.own.looks_past and self.can_watch(value):
                    self.add(value)
                else:
                    self.wholes += [(_weakly(part), _Seen(part)) for part in plain_objects(value)]

    def can_watch(self, value: Any) -> bool:
        """Whether what is read of an object can be noted."""
        kind = type_of(value)
        return can_be_watched(kind) and not self._named.of(kind).looks_past

    def add(self, value: Any) -> None:
        """Note what is read of an object from now on; and what its classes say that is not read of
        it, but of them.
        """
        if _place(value) in self.attributes:
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
        if _place(value) not in self.attributes:
            self._classes[_place(value)] = type_of(value).__mro__
            self.attributes[_place(value)] = _weakly(value), {}
            self._quick = None

    @property
    def size(self) -> int:
        """About how many bytes are kept of what was read, and once more as constants of the
        programs.
        """
        return sum(seen.size for _, seen in self._all())

    def is_over(self) -> bool:
        """Whether it can hold no more, since something is gone for good."""
        return any(_strongly(value) is _GONE or seen.is_over() for value, seen in self._all())

    def _all(self) -> Iterator[tuple[Any, _Seen]]:
        for value, attributes in [*self.attributes.values()]:
            yield from ((value, seen) for seen in [*attributes.values()])
        yield from self.wholes

    def read(self) -> Iterator[tuple[Any, str, Any]]:
        """Objects, attributes that were read of them, and what these are now."""
        for held, attributes in [*self.attributes.values()]:
            value = _strongly(held)
            if value is not _GONE:
                yield from ((value, name, _raw(value, name)) for name in [*attributes])

    def hold(self) -> bool:
        """Whether all that was read is what it was."""
        slow, quick = self._quick or self._quickly()
        for stand_in, classes, own, weak, of_class in quick:
            value = stand_in() if type(stand_in) is Identity else stand_in
            # which those of None, for one that is gone, are not
            if type_of(value).__mro__ is not classes:
                return False
            held = _held_by(value)
            for name, then in own:
                if held.get(name, ABSENT) is not then:
                    return self._hold_as_states()
            for name, then in weak:
                if held.get(name, ABSENT) is not then():
                    return self._hold_as_states()
            for name, before, then in of_class:
                if (
                    name in held
                    or any(name in each for each in before)
                    or then[0].get(name) is not then[1]
                ):
                    return self._hold_as_states()
        return not slow or self._hold_as_states()

    def _quickly(self) -> tuple[bool, list[Any]]:
        """Whether something is to be compared by what it holds; and what by identity: objects, what
        lies in them, and in which class.
        """
        quick: list[Any] = []
        slow, count = bool(self.wholes), self._count
        for stand_in, attributes in [*self.attributes.values()]:
            value = _strongly(stand_in)
            classes = type_of(value).__mro__
            if classes is not self._classes[id(stand_in)] or not _has_dict(value):
                slow = True
                continue
            own: list[Any] = []
            weak: list[Any] = []
            of_class: list[Any] = []
            held = _held_by(value)
            for name, seen in [*attributes.items()]:
                owner = next((i for i, base in enumerate(classes) if name in base.__dict__), None)
                if (
                    not seen.is_quick
                    or name == "__dict__"
                    or (seen.then is ABSENT and not is_a(value, type))
                ):
                    slow = True
                elif held.get(name, ABSENT) is seen.then:
                    (weak if seen.is_weak else own).append((name, seen.held))
                elif seen.is_weak:
                    slow = True
                elif owner is not None and classes[owner].__dict__[name] is seen.then:
                    dicts = [base.__dict__ for base in classes[: owner + 1]]
                    of_class.append((name, tuple(dicts[:-1]), (dicts[-1], seen.then)))
                else:
                    slow = True
            if own or weak or of_class or not is_a(value, type):
                quick.append((stand_in, classes, tuple(own), tuple(weak), tuple(of_class)))
        if count == self._count:  # no other thread has read more meanwhile
            self._quick = slow, quick
        return slow, quick

    def _hold_as_states(self) -> bool:
        with unwatched():
            return not self._is_gone() and next(self._changed(), None) is None

    def _is_gone(self) -> bool:
        """Whether one of the objects is."""
        return any(
            _strongly(value) is _GONE for value, _ in [*self.attributes.values(), *self.wholes]
        )

    def changed(self) -> list[tuple[Any, str, Any, Any]]:
        """Objects, attributes ("" for a whole), what they were and what they are, where these
        differ.
        """
        with unwatched():
            return [*self._changed()]

    def _changed(self) -> Iterator[tuple[Any, str, Any, Any]]:
        for held, attributes in [*self.attributes.values()]:
            value = _strongly(held)
            if value is _GONE:
                continue
            if type_of(value).__mro__ is not self._classes[id(held)]:
                yield value, "__class__", self._classes[id(held)][0], type_of(value)
            for name, seen in [*attributes.items()]:
                now = _raw(value, name)
                if not seen.holds(now):
                    yield value, name, seen.was, now
        for held, seen in self.wholes:
            value = _strongly(held)
            if value is not _GONE and not seen.holds(value):
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
        noted = self.attributes[_place(value)][1]
        if name not in noted:
            noted[name] = _Seen(raw, nested=nested, by_class=is_a(value, type))
            self._count += 1
            self._quick = None

    def refuse_unreadable(self, value: Any, name: str, part: Any) -> None:
        """Check that what an attribute holds can be read for more than one call.

        Raises:
            StaticError: An iterator or a coroutine.
            ContractError: What looks like an array and is none, and cannot be compared by what it
                holds.
        """
        reads = f"it reads {name!r} of a {type_of(value).__name__}, which is or holds"
        for found in array_likes(part):
            if type_of(found).__hash__ is not None:  # of what has none, what it holds is compared
                raise array_like_error(self._where, reads, found, f"self.{name}")
        used_up = first_used_up(part)
        if used_up is not None:
            raise StaticError(
                self._where,
                f"{reads} {article(used_up)}.",
                "It can be read once, and what is traced once serves many calls.",
                "keep a list, a tuple or an array there, or pass what it gives as an argument.",
            )


class Trace:
    """One trace: what its body is given where others can change it."""

    def __init__(self, reads: Reads, watch: WatchedClasses):
        self.number = reads.number
        self._reads = reads
        self._watch = watch
        self._alive: list[Any] = []  # the objects, for which `id` is told
        # what objects held when they were first seen: what they hold else is the body's own
        self._began: dict[int, dict[str, Any]] = {}
        self._copies = Copies()
        # what lay in an object, and what the body got
        self._given: dict[tuple[int, str], tuple[Any, Any]] = {}
        self._copied: dict[tuple[int, str], tuple[Any, Any]] = {}  # the same, where it is a copy
        # attributes that the body set and then read: for itself, it seems
        self._scratch: set[tuple[int, str]] = set()
        for held, _ in [*reads.attributes.values()]:
            value = _strongly(held)
            if value is not _GONE and not is_a(value, type):
                self._add(value)

    def _add(self, value: Any) -> None:
        if id(value) not in self._began:
            self._alive.append(value)
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
        """What the body has changed in place and no later call will: attributes that it set, and
        what lies in those that it read.

        An attribute that it read and then set is not among them: it differs from what was read, so
        the next call is traced again. Nor is one that it set and then read: a scratch of its own.

        Args:
            names: What the static values are called, by `id`.

        Returns:
            The path of each, and whether it was there, and is.
        """
        objects = {id(value): value for value in self._alive}
        paths = {key: names.get(key) or type_of(value).__name__ for key, value in objects.items()}
        with unwatched():
            for key, began in [*self._began.items()]:
                noted, now = (
                    self._reads.attributes[_place(objects[key])][1],
                    attributes_of(objects[key]),
                )
                for name in dict.fromkeys((*began, *now)):
                    is_changed = began.get(name, ABSENT) is not now.get(name, ABSENT)
                    if (
                        is_changed
                        and name not in noted
                        and (key, name) not in self._scratch
                        and not _is_cached(objects[key], name)
                    ):
                        yield f"{paths[key]}.{name}", name in began, name in now
            for (key, name), (raw, copied) in [*self._copied.items()]:
                if copied is not raw and _content(copied) != _content(raw):
                    yield f"{paths[key]}.{name}", True, True

    def _noted(self, value: Any, name: str, raw: Any, part: Any) -> Any:
        referred = referent(raw)
        nested = (
            raw is part
            and referred is not None
            and owner_of_class(type_of(referred)) != "library"
            and self._reads.can_watch(referred)
        )
        self._reads.note(value, name, raw, nested=nested)
        if nested:
            self._add(referred)
            return part
        if raw is not part or is_settled(part):
            return part
        copied = snapshot(part, self._copies)
        self._copied[id(value), name] = part, copied
        return copied


def _content(part: Any) -> Hashable:
    """What lies in a container: objects of plain classes by identity, of which it may be a part
    itself.
    """
    try:
        return static_key(part)
    except Unkeyed:
        return state(part)


def _is_cached(value: Any, name: str) -> bool:
    return is_a(getattr(type_of(value), name, None), functools.cached_property)


def _weakly(value: Any) -> Any:
    """A stand-in for an object; itself if it is a class, or cannot be weak."""
    return identity(value) if can_be_weak(type_of(value)) else value


def _place(value: Any) -> int:
    """What tells an object from others, those too that come after it in its place in memory, while
    its stand-in is held.
    """
    return id(_weakly(value))


def _strongly(held: Any) -> Any:
    """What `_weakly` was given, or that it is gone."""
    if type(held) is not Identity:
        return held
    value = held()
    return _GONE if value is None else value


def _has_dict(value: Any) -> bool:
    try:
        _usual(value, "__dict__")
    except AttributeError:
        return False
    return True


def _raw(value: Any, name: str) -> Any:
    """An attribute as it lies in the object or its classes: functions unbound, properties as what
    they are.
    """
    held: Any = (
        value.__dict__
        if is_a(value, type)
        else _usual(value, "__dict__")
        if _has_dict(value)
        else {}
    )
    if name == "__dict__":
        return held
    if name in held or is_a(value, type):
        return held.get(name, ABSENT)
    for base in type_of(value).__mro__:
        if name in base.__dict__:
            part = base.__dict__[name]
            return (
                getattr(value, name, ABSENT)
                if is_a(part, (types.MemberDescriptorType, types.GetSetDescriptorType))
                else part
            )
    return ABSENT
