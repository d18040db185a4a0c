"""Observation of the attributes that a trace reads from objects of plain classes.

The body of a trace gets the objects themselves: a proxy would not be identical (`is`) to a
sentinel, a parent or a dict key that refers to the object. Instead the class of each watched object
gets a `__getattribute__` for the duration of the trace. It returns what the attribute is without
it, and reports the read to the traces of its thread. JAX's caches of earlier traces are not used
meanwhile, since a body that does not run reads nothing.
"""

from __future__ import annotations

import contextlib
import threading
import types
from collections.abc import Generator
from contextlib import contextmanager
from itertools import count
from typing import Protocol

from .._jax.user_contexts import WATCHED
from .mutable_objects import is_plain

ABSENT = object()
_usual = object.__getattribute__
_numbers = count()
# Bit of `type.__flags__`.
_IMMUTABLE = 1 << 8
_lock = threading.RLock()
# Number of traces that watch each class.
_watching: dict[type, int] = {}


class ReadObserver(Protocol):
    """Observer of reads. `read` returns the value that the body gets."""

    number: int

    def read(self, value: object, name: str, part: object) -> object: ...


class _Here(threading.local):
    # All observers of the traces under way in this thread, outermost first.
    all: tuple[ReadObserver, ...] = ()
    # The observers that are active: `all`, or none inside of `suspend_readers`.
    readers: tuple[ReadObserver, ...] = ()


_here = _Here()


def _read(self: object, name: str) -> object:
    readers = _here.readers
    if not readers or name == "__class__":
        return _usual(self, name)
    try:
        part = _usual(self, name)
    except AttributeError:
        _tell(readers, self, name, ABSENT)
        raise
    return _tell(readers, self, name, part)


def _tell(
    readers: tuple[ReadObserver, ...],
    value: object,
    name: str,
    part: object,
) -> object:
    given = part
    with suspend_readers():
        try:
            for reader in readers:
                got = reader.read(value, name, part)
                given = given if got is part else got
        # An AttributeError would tell the body that this attribute is missing.
        except AttributeError as error:
            raise RuntimeError(
                f"{name!r} of a {type(value).__name__} could not be looked at: {error}"
            ) from error
    return given


@contextmanager
def suspend_readers() -> Generator[None]:
    """Suspend the observers: reads inside are jitney's own."""
    readers, _here.readers = _here.readers, ()
    try:
        yield
    finally:
        _here.readers = readers


def next_number() -> int:
    """Get the number of a new observer."""
    return next(_numbers)


def can_be_watched(kind: type[object]) -> bool:
    """Return whether reads from instances of a class can be observed: it is an ordinary class with
    the ordinary attribute lookup.
    """
    lookup = kind.__getattribute__
    if (
        not is_plain(kind)
        or (lookup is not _usual and lookup is not _read)
        or kind.__flags__ & _IMMUTABLE
    ):
        return False
    metaclass = type(kind)
    metaclasses = metaclass.__mro__[:-2]  # without `type` and `object`
    own = [vars(each)["__setattr__"] for each in metaclasses if "__setattr__" in vars(each)]
    # A `__setattr__` of a metaclass written in C would have to be called, so only functions of
    # Python's may be bypassed.
    return all(isinstance(each, types.FunctionType) for each in own)


class WatchedClasses:
    """Classes that one trace watches."""

    def __init__(self) -> None:
        self._kinds: list[type] = []

    def add(self, value: object) -> None:
        """Watch the class of an object."""
        kind = type(value)
        if kind in self._kinds:
            return
        self._kinds.append(kind)
        with _lock:
            times = _watching[kind] = _watching.get(kind, 0) + 1
            if times == 1:
                # A metaclass may override `__setattr__`, which `type.__setattr__` bypasses.
                type.__setattr__(kind, "__getattribute__", _read)

    @contextmanager
    def telling(self, reader: ReadObserver) -> Generator[None]:
        """Report the thread's reads to this observer and to those of the enclosing traces."""
        before = _here.all, _here.readers
        _here.all = _here.readers = (*_here.all, reader)
        try:
            # The numbers are part of JAX's trace context, so that no trace from before is reused.
            with WATCHED(tuple(each.number for each in _here.all)):
                yield
        finally:
            _here.all, _here.readers = before

    def end(self) -> None:
        """Restore the classes."""
        with _lock:
            for kind in self._kinds:
                _watching[kind] -= 1
                if not _watching[kind]:
                    del _watching[kind]
                    # The body may have removed it.
                    with contextlib.suppress(AttributeError):
                        type.__delattr__(kind, "__getattribute__")
            self._kinds.clear()
