"""Stand-ins for objects that are equal to nothing but themselves: they tell one from all others,
and keep none alive.

Programs are kept by static values. An object held by a key would live as long as its program, with
all that it holds, and the program as long as the function: a fresh object for each call would never
go. So keys, static values, and what was read of objects hold the stand-ins. There is one for each
object, and none is ever that of another, though Python gives the place of a dead object to the
next: a number of its place (`id`) would find the program of the dead one. With the object go the
programs that were made for it.
"""

from __future__ import annotations

import sys
import threading
import types
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from .._jax.trees import type_of

_LONG_LIVED = (type, types.ModuleType)
_lock = threading.RLock()
_known: dict[int, Identity] = {}
_over: deque[Identity] = deque()  # of which the objects are gone


class Identity(weakref.ref[Any]):
    """The stand-in of one object, which it gives when it is called; None once that is gone."""

    __slots__ = ("__code__", "__qualname__", "_followers", "cells", "kind", "place")
    __eq__ = object.__eq__  # not those of the object
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        value = self()
        return f"<a {self.kind.__qualname__} that is gone>" if value is None else repr(value)

    def tell(self, follower: Any) -> None:
        """Call the `object_is_gone` of a follower, which is held weakly, when the object is
        gone.
        """
        if not hasattr(self, "_followers"):
            self._followers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._followers.add(follower)

    def remember_code(self, cells: Callable[[Any], tuple[tuple[str, Any], ...]]) -> None:
        """Keep in words what a function is, for reports on one that is made anew."""
        value: Any = self()
        if type_of(value) is types.FunctionType and not hasattr(self, "cells"):
            self.__code__, self.__qualname__, self.cells = (
                value.__code__,
                value.__qualname__,
                cells(value),
            )


def _ended(gone: Identity, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
    """Runs wherever Python collects garbage, so it takes no lock; at the end of Python too, where
    modules are empty already.
    """
    if is_finalizing():
        return
    _over.append(gone)
    for follower in [*getattr(gone, "_followers", ())]:
        follower.object_is_gone()


def identity(value: Any) -> Identity:
    """The stand-in of an object that can be weak."""
    known = _known.get(id(value))
    return known if known is not None and known() is value else _made(value)


def _made(value: Any) -> Identity:
    with _lock:
        while _over:
            gone = _over.pop()
            if _known.get(gone.place) is gone:
                del _known[gone.place]
        known = _known.get(id(value))
        if known is None or known() is not value:
            known = _known[id(value)] = Identity(value, _ended)
            known.kind, known.place = type_of(value), id(value)
        return known


def living(stand_in: Identity) -> Any:
    """The object itself.

    Raises:
        ReferenceError: It is gone.
    """
    value = stand_in()
    if value is None:
        raise ReferenceError(f"{stand_in!r} was a static value of this program")
    return value


def kind_of(value: Any) -> type[Any]:
    """The class of a value, or of what it stands for."""
    return value.kind if type(value) is Identity else type_of(value)


def can_be_weak(kind: type[Any]) -> bool:
    """Whether instances of a class can be held without being kept alive."""
    return kind.__weakrefoffset__ != 0 and not issubclass(kind, _LONG_LIVED)


def is_by_identity(kind: type[Any]) -> bool:
    """Whether instances of a class are equal to nothing but themselves, and can be held without
    being kept alive.
    """
    return kind.__hash__ is object.__hash__ and kind.__eq__ is object.__eq__ and can_be_weak(kind)
