"""Fingerprints of library attributes, to detect monkeypatching."""

from __future__ import annotations

import types
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, partial

from .classes import LEFT_OUT

_PLAIN = (bool, int, float, complex, str, bytes, type(None))


class Fingerprinter:
    """Memoised fingerprints of many values, used up before any other code runs."""

    def __init__(self) -> None:
        # with a reference to the value, so that its id is not reused
        self._told: dict[tuple[bool, int], tuple[object, str]] = {}
        self._kinds: dict[type, _WrapperClass] = {}

    def fingerprint_each(
        self,
        values: Iterable[object],
        *,
        is_core: bool,
    ) -> list[str]:
        """Return a fingerprint of each value, which differs from that of a replacement. With
        `is_core`, numbers and texts are left out, since those of JAX and packages like it may be
        state.
        """
        all_told, said = self._told, list[str]()
        for value in values:
            told = all_told.get((is_core, id(value)))
            if told is None:
                told = all_told[is_core, id(value)] = value, self._whole(value, is_core=is_core)
            said.append(told[1])
        return said

    def _whole(self, value: object, *, is_core: bool) -> str:
        said: list[str] = []
        # a wrapper's fingerprint includes those of the functions that it wraps, eight levels deep
        for _ in range(8):
            said.append(self._itself(value, is_core=is_core))
            inside = self._kind(type(value)).inside
            value = None if inside is None else getattr(value, inside, None)
            if value is None:
                break
        return " of ".join(said)

    def _itself(self, value: object, *, is_core: bool) -> str:
        if isinstance(value, types.FunctionType):
            return _function(value)
        if isinstance(value, type):
            return _class(value, is_core=is_core)
        if isinstance(value, types.ModuleType):
            return value.__name__
        if not is_core and isinstance(value, _PLAIN):
            return repr(value)
        return (
            f"{self._kind(type(value)).name} {getattr(value, '__name__', '')}"
            if not is_core or callable(value)
            else ""
        )

    def _kind(self, kind: type) -> _WrapperClass:
        if kind not in self._kinds:
            self._kinds[kind] = _WrapperClass.of(kind)
        return self._kinds[kind]


@dataclass(frozen=True)
class _WrapperClass:
    """Class of a value, and the attribute that holds what its instances wrap.

    Args:
        name: Qualified name of the class.
        inside: Name of the attribute; None if instances wrap nothing.
    """

    name: str
    inside: str | None

    @classmethod
    def of(cls, kind: type) -> _WrapperClass:
        """Return the record of a class."""
        inside: str | None = "__wrapped__"
        if issubclass(kind, (type, types.ModuleType)):
            inside = None
        elif issubclass(kind, (staticmethod, classmethod, types.MethodType)):
            inside = "__func__"
        elif issubclass(kind, property):
            inside = "fget"
        elif issubclass(kind, (cached_property, partial)):
            inside = "func"
        return cls(f"{kind.__module__}.{kind.__qualname__}", inside)


def _function(value: types.FunctionType) -> str:
    code = value.__code__
    return f"{code.co_filename}:{code.co_firstlineno} {code.co_name}"


def _class(value: type, *, is_core: bool) -> str:
    """Return the fingerprint of a class: its attribute names, with plain values unless they may be
    state.
    """
    space = vars(value)
    names = sorted(space.keys() - LEFT_OUT)
    # jaxlib adds classes of iterators to its classes at their first loop.
    if value.__module__.startswith("jaxlib."):
        names = [name for name in names if not isinstance(space[name], type)]
    if not is_core:
        names = [
            f"{name}={space[name]!r}" if isinstance(space[name], _PLAIN) else name for name in names
        ]
    # an identifier cannot contain NUL
    return "\0".join((value.__module__, value.__qualname__, *names))
