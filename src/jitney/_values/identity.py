"""Weak stand-ins for objects that are equal to nothing but themselves.

The cache of programs is keyed by static values. A key that held an object would keep it alive as
long as its program, and the program lives as long as the function: objects created for each call
would pile up. So keys, static values and recorded reads hold an `Identity`. Each object has exactly
one, and no other object ever gets the same, although Python reuses the address of a dead object: a
key of the bare `id` would find the program of the dead one. The programs compiled for an object are
dropped with it.
"""

from __future__ import annotations

import sys
import threading
import types
import weakref
from collections import deque
from collections.abc import Callable
from typing import Protocol

_LONG_LIVED = (type, types.ModuleType)
_lock = threading.RLock()
_known: dict[int, Identity] = {}
# Stand-ins of objects that are gone, to be removed from `_known`. A deque appends atomically, which
# the weak reference callback relies on.
_over: deque[Identity] = deque()


class Follower(Protocol):
    """Object that is notified when another object is gone."""

    def on_object_death(self) -> None: ...


class Identity(weakref.ref[object]):
    """Stand-in of one object. Calling it gives the object, or None once that is gone."""

    __slots__ = ("__code__", "__qualname__", "_followers", "cells", "kind", "place")
    # A plain weak reference compares and hashes by its object; a stand-in by itself.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        value = self()
        return f"<a {self.kind.__qualname__} that is gone>" if value is None else repr(value)

    def tell(self, follower: Follower) -> None:
        """Register a follower, held weakly, whose `on_object_death` is called when the object is
        gone.
        """
        with _lock:
            if not hasattr(self, "_followers"):
                self._followers: weakref.WeakSet[Follower] = weakref.WeakSet()
            self._followers.add(follower)

    def remember_code(self, cells: Callable[[object], tuple[tuple[str, object], ...]]) -> None:
        """Record a function's code and closure, for reports about a function that is defined
        anew.
        """
        value = self()
        if type(value) is types.FunctionType and not hasattr(self, "cells"):
            self.__code__, self.__qualname__, self.cells = (
                value.__code__,
                value.__qualname__,
                cells(value),
            )


def _on_death(
    gone: Identity,
    is_finalizing: Callable[[], bool] = sys.is_finalizing,
) -> None:
    """Callback of the weak reference.

    It runs wherever Python collects garbage, so it takes no lock; and also at interpreter exit,
    when modules are already empty.
    """
    if is_finalizing():
        return
    _over.append(gone)
    for follower in [*getattr(gone, "_followers", ())]:
        follower.on_object_death()


def identity(value: object) -> Identity:
    """Get the stand-in of an object that can be weakly referenced."""
    known = _known.get(id(value))
    return known if known is not None and known() is value else _make_identity(value)


def _make_identity(value: object) -> Identity:
    with _lock:
        # The callback of a dead object takes no lock, so its entry is removed here, under the lock.
        # The address may belong to a new object by now.
        while _over:
            gone = _over.pop()
            if _known.get(gone.place) is gone:
                del _known[gone.place]
        known = _known.get(id(value))
        if known is None or known() is not value:
            known = _known[id(value)] = Identity(value, _on_death)
            known.kind, known.place = type(value), id(value)
        return known


def dereference(stand_in: Identity) -> object:
    """Get the object behind a stand-in.

    Raises:
        ReferenceError: It is gone.
    """
    value = stand_in()
    if value is None:
        raise ReferenceError(f"{stand_in!r} was a static value of this program")
    return value


def kind_of(value: object) -> type[object]:
    """Class of a value, or of the object that a stand-in represents."""
    return value.kind if type(value) is Identity else type(value)


def can_be_weak(kind: type[object]) -> bool:
    """Return whether instances of a class can be weakly referenced, and are not modules or classes,
    which live long anyway.
    """
    return kind.__weakrefoffset__ != 0 and not issubclass(kind, _LONG_LIVED)


def is_by_identity(kind: type[object]) -> bool:
    """Return whether instances of a class are equal to nothing but themselves and can be weakly
    referenced.
    """
    return kind.__hash__ is object.__hash__ and kind.__eq__ is object.__eq__ and can_be_weak(kind)
