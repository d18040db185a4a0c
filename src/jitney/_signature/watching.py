"""Watch what a trace reads of objects of plain classes, by their classes, for as long as it lasts.

The body of a trace gets the objects themselves: a stand-in would not be `is` what else refers to
it, a sentinel, a parent, a key of a dict. So the class of each object that is watched has a
`__getattribute__` for that time, which gives what it would give without, and tells the traces of
its thread. No trace of JAX's from before is used meanwhile, since a body that does not run reads
nothing.
"""

from __future__ import annotations

import contextlib
import threading
import types
from collections.abc import Generator
from contextlib import contextmanager
from itertools import count
from typing import Any, Protocol

from .._jax.trees import is_a, space_of, type_of
from .._jax.user_contexts import WATCHED
from .plain_objects import is_plain

ABSENT: Any = object()
_usual: Any = object.__getattribute__
_numbers = count()
_IMMUTABLE = 1 << 8  # of `type.__flags__`
_lock = threading.RLock()
_watching: dict[type, int] = {}  # by how many traces


class Noting(Protocol):
    """What is told of each read; it gives what the body gets."""

    number: int

    def read(self, value: Any, name: str, part: Any) -> Any: ...


class _Here(threading.local):
    all: tuple[Noting, ...] = ()  # of the traces that are under way, from the outside in
    readers: tuple[Noting, ...] = ()  # those that are told: all, or none


_here = _Here()


def _read(self: Any, name: str) -> Any:
    readers = _here.readers
    if not readers or name == "__class__":
        return _usual(self, name)
    try:
        part = _usual(self, name)
    except AttributeError:
        _tell(readers, self, name, ABSENT)
        raise
    return _tell(readers, self, name, part)


def _tell(readers: tuple[Noting, ...], value: Any, name: str, part: Any) -> Any:
    given = part
    with unwatched():
        try:
            for reader in readers:
                got = reader.read(value, name, part)
                given = given if got is part else got
        except AttributeError as error:  # of what it holds; it is not this attribute that is absent
            raise RuntimeError(
                f"{name!r} of a {type_of(value).__name__} could not be looked at: {error}"
            ) from error
    return given


@contextmanager
def unwatched() -> Generator[None]:
    """What is read inside is read by jitney itself."""
    readers, _here.readers = _here.readers, ()
    try:
        yield
    finally:
        _here.readers = readers


def next_number() -> int:
    """One that no reader has."""
    return next(_numbers)


def can_be_watched(kind: type[Any]) -> bool:
    """Whether what is read of instances of a class can be seen: an ordinary class that looks
    attributes up in the ordinary way.
    """
    lookup: Any = kind.__getattribute__
    if (
        not is_plain(kind)
        or (lookup is not _usual and lookup is not _read)
        or kind.__flags__ & _IMMUTABLE
    ):
        return False
    metaclasses: tuple[Any, ...] = type_of(kind).__mro__[:-2]  # without `type` and `object`
    own = [space_of(each)["__setattr__"] for each in metaclasses if "__setattr__" in space_of(each)]
    # else it is C's, which has to be asked
    return all(is_a(each, types.FunctionType) for each in own)


class WatchedClasses:
    """The classes that one trace watches."""

    def __init__(self) -> None:
        self._kinds: list[type] = []

    def add(self, value: Any) -> None:
        """Watch the class of an object too."""
        kind = type_of(value)
        if kind in self._kinds:
            return
        self._kinds.append(kind)
        with _lock:
            times = _watching[kind] = _watching.get(kind, 0) + 1
            if times == 1:
                type.__setattr__(kind, "__getattribute__", _read)

    @contextmanager
    def telling(self, reader: Noting) -> Generator[None]:
        """Tell this reader, and those around it, of what the thread reads."""
        before = _here.all, _here.readers
        _here.all = _here.readers = (*_here.all, reader)
        try:
            with WATCHED(tuple(each.number for each in _here.all)):
                yield
        finally:
            _here.all, _here.readers = before

    def end(self) -> None:
        """Leave the classes as they were."""
        with _lock:
            for kind in self._kinds:
                _watching[kind] -= 1
                if not _watching[kind]:
                    del _watching[kind]
                    with contextlib.suppress(AttributeError):
                        type.__delattr__(kind, "__getattribute__")
            self._kinds.clear()
