"""Names that a body may look up in the class of an object instead of the object: `type(self).rate`,
`super().f`, `cls.rate`.

`read_hooks.py` cannot observe reads of a class, because its metaclass belongs to Python. So the
bytecode is read: of the functions of the class, of the body, and of the functions that the body
calls by name. All names in a function that can reach a class count. Functions that bypass
`__getattribute__` by asking `object` are detected here too.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from .._owners import owner, owner_of_class
from .attributes import closure_variables

_TO_CLASSES = frozenset(("type", "super", "__class__", "__mro__", "mro"))
_PAST = frozenset(("__getattribute__", "getattr_static"))
# Maximum number of functions that are examined.
_MOST = 1000
_OURS = ("user", "generated", "library")
_HOLDERS = (
    functools.partial,
    functools.partialmethod,
    functools.cached_property,
    functools.singledispatchmethod,
)


@dataclass(frozen=True)
class AttributeNames:
    """Names that occur in functions."""

    # Names that may be looked up in a class.
    names: frozenset[str] = frozenset()
    # True if attributes may be read past the `__getattribute__` of their object's class.
    looks_past: bool = False


@dataclass
class ClassNames:
    """Names that occur in a body, and in each class with it."""

    own: AttributeNames
    _known: dict[type, AttributeNames] = field(default_factory=dict[type, "AttributeNames"])

    def of(self, kind: type) -> AttributeNames:
        """Names that occur in the functions of a class, its metaclass and the body."""
        known = self._known.get(kind)
        if known is None:
            functions = [part for base in bases_of(kind) for part in [*vars(base).values()]]
            # Only functions of the class that can reach a class count; those of its metaclass are
            # handed the class as their first argument, so all of them count.
            of_class = _names(code for part in functions for code in _codes(part))
            of_metaclass = [
                part for base in bases_of(type(kind)) for part in [*vars(base).values()]
            ]
            given = _names((code, True) for part in of_metaclass for code, _ in _codes(part))
            known = self._known[kind] = AttributeNames(
                of_class.names | given.names | self.own.names, of_class.looks_past
            )
        return known


def occurring_names(body: object) -> AttributeNames:
    """Names that occur in a body and in the functions that it calls."""
    return _names(_reachable_codes(body))


def bases_of(kind: type) -> list[type]:
    """Base classes that somebody may change, in method resolution order."""
    return [base for base in kind.__mro__ if owner_of_class(base) in _OURS]


def _names(codes: Iterable[tuple[types.CodeType, bool]]) -> AttributeNames:
    names: set[str] = set()
    past = False
    for code, of_class in codes:
        # `co_names` holds globals and attributes. Constants may be names for `getattr`. The free
        # variable `__class__` reveals a `super()` without arguments.
        named = {*code.co_names, *(part for part in code.co_consts if isinstance(part, str))}
        past = past or not _PAST.isdisjoint(named)
        if of_class or not _TO_CLASSES.isdisjoint((*named, *code.co_freevars)):
            names |= named
    return AttributeNames(frozenset(names), past)


def _codes(part: object) -> Iterator[tuple[types.CodeType, bool]]:
    """Code objects of the functions behind a class attribute and of the functions nested in them,
    each with whether it is a class method.
    """
    waiting = [function.__code__ for function in _functions(part)]
    while waiting:
        code = waiting.pop()
        yield code, isinstance(part, classmethod)
        waiting += [each for each in code.co_consts if isinstance(each, types.CodeType)]


def _functions(part: object) -> Iterator[types.FunctionType]:
    """The function, or the functions inside a property, a program, a derivative or another
    wrapper.
    """
    waiting, seen = [part], list[object]()
    while waiting:
        each = waiting.pop()
        if each is None or any(each is other for other in seen):
            continue
        seen.append(each)
        if isinstance(each, types.FunctionType):
            yield each
        if isinstance(each, property):
            waiting += [each.fget, each.fset]
        elif isinstance(each, (staticmethod, classmethod, types.MethodType)):
            waiting.append(each.__func__)
        elif isinstance(each, _HOLDERS):
            waiting.append(each.func)
        elif callable(each) and not isinstance(each, type):
            waiting += [getattr(each, name, None) for name in ("__wrapped__", "fn")]


def _reachable_codes(body: object) -> Iterator[tuple[types.CodeType, bool]]:
    """Code objects of a function and of the user's functions that it reaches by global names and
    closures.
    """
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
        for value in closure_variables(function).values():
            waiting += _functions(value)
