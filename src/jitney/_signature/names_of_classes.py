"""Which names a body may look up in the class of an object, and not in the object:
`type(self).rate`, `super().f`, `cls.rate`.

Nothing tells when a class is read: its own class is Python's. So the code says it, of the functions
of the class, and of the body with those that it calls by name: all names in one that can get at a
class. One that asks `object` itself for attributes is found here too.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from .._jax.trees import is_a
from .._owners import owner, owner_of_class

_TO_CLASSES = frozenset(("type", "super", "__class__", "__mro__", "mro"))
_PAST = frozenset(("__getattribute__", "getattr_static"))
_MOST = 1000  # functions that are looked at
_OURS = ("user", "generated", "library")
_HOLDERS = (
    functools.partial,
    functools.partialmethod,
    functools.cached_property,
    functools.singledispatchmethod,
)


@dataclass(frozen=True)
class Names:
    """What functions name."""

    names: frozenset[str] = frozenset()  # those that may be looked up in a class
    # whether attributes may be read in a way that the class of their object does not see
    looks_past: bool = False


@dataclass
class ClassNames:
    """What a body names, and each class with it."""

    own: Names
    _known: dict[type, Names] = field(default_factory=dict[type, "Names"])

    def of(self, kind: type) -> Names:
        """What is named where a class can be got at."""
        known = self._known.get(kind)
        if known is None:
            functions = [part for base in bases_of(kind) for part in [*vars(base).values()]]
            of_class = _names(code for part in functions for code in _codes(part))
            of_metaclass = [
                part for base in bases_of(type(kind)) for part in [*vars(base).values()]
            ]
            given = _names((code, True) for part in of_metaclass for code, _ in _codes(part))
            known = self._known[kind] = Names(
                of_class.names | given.names | self.own.names, of_class.looks_past
            )
        return known


def named_by(body: Any) -> Names:
    """What a body names, and the functions that it calls."""
    return _names(_reached(body))


def bases_of(kind: type) -> list[type]:
    """The classes of an object that somebody may change, in order."""
    return [base for base in kind.__mro__ if owner_of_class(base) in _OURS]


def _names(codes: Iterable[tuple[types.CodeType, bool]]) -> Names:
    names: set[str] = set()
    past = False
    for code, of_class in codes:
        named = {*code.co_names, *(part for part in code.co_consts if is_a(part, str))}
        past = past or not _PAST.isdisjoint(named)
        if of_class or not _TO_CLASSES.isdisjoint((*named, *code.co_freevars)):
            names |= named
    return Names(frozenset(names), past)


def _codes(part: Any) -> Iterator[tuple[types.CodeType, bool]]:
    """The code of the functions in what a class holds, with that of functions inside of them; and
    whether it is given the class.
    """
    waiting: list[Any] = [function.__code__ for function in _functions(part)]
    while waiting:
        code = waiting.pop()
        yield code, is_a(part, classmethod)
        waiting += [each for each in code.co_consts if is_a(each, types.CodeType)]


def _functions(part: Any) -> Iterator[types.FunctionType]:
    """A function, or those that something is made of: a property, a program, a derivative."""
    waiting, seen = [part], list[Any]()
    while waiting:
        each = waiting.pop()
        if each is None or any(each is other for other in seen):
            continue
        seen.append(each)
        if is_a(each, types.FunctionType):
            yield each
        if is_a(each, property):
            waiting += [each.fget, each.fset]
        elif is_a(each, (staticmethod, classmethod, types.MethodType)):
            waiting.append(each.__func__)
        elif is_a(each, _HOLDERS):
            waiting.append(each.func)
        elif callable(each) and not is_a(each, type):
            waiting += [getattr(each, name, None) for name in ("__wrapped__", "fn")]


def _reached(body: Any) -> Iterator[tuple[types.CodeType, bool]]:
    """The code of a function, and of all that it calls by their names, of the user's."""
    waiting, seen = list(_functions(body)), set[types.CodeType]()
    while waiting and len(seen) < _MOST:
        function = waiting.pop()
        if function.__code__ in seen or owner(function.__code__.co_filename) not in _OURS:
            continue
        seen.add(function.__code__)
        for code, of_class in _codes(function):
            yield code, of_class
            waiting += [
                each
                for name in code.co_names
                for each in _functions(function.__globals__.get(name))
            ]
        for cell in function.__closure__ or ():
            with suppress(ValueError):  # an empty one
                waiting += _functions(cell.cell_contents)
