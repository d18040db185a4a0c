"""Whether installed packages are what they were: the files whose code ran, and the names that this code uses.

A package is installed anew by writing its files, and patched by setting a name of a module or a class. Both are looked at, of what ran
alone: some thousand names, in a few milliseconds.
"""

from __future__ import annotations

import hashlib
import os
import sys
import types
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from .._jax.trees import is_a, space_of, type_of
from .._owners import STARTED, owner
from .classes import LEFT_OUT
from .instructions import Codes
from .unsure import Unsure
from .whose import CORE

_PLAIN = (bool, int, float, complex, str, bytes, type(None))


@dataclass(frozen=True)
class Libraries:
    """What ran of installed packages.

    Args:
        files: Size and time of change of each file.
        names: Of each module, the names that were used, and one digest of what they stood for.
    """

    files: Mapping[str, tuple[int, int]]
    names: Mapping[str, tuple[str, list[str]]]

    @classmethod
    def of(cls, ran: Codes) -> Libraries:
        """Those of the code that ran, with the module of each.

        Raises:
            Unsure: One was written while this process ran.
        """
        files = {code.co_filename: _stat(code.co_filename) for code, _ in ran if not code.co_filename.startswith("<")}
        for name, (_, changed) in files.items():
            if changed > STARTED:
                raise Unsure(f"{name} was written since this process began")
        used: dict[str, set[str]] = {}
        for code, module in ran:
            used.setdefault(module, set()).add(code.co_qualname.partition(".<locals>")[0])
            _names_used(code, module, used)
        look = _Look()
        said = {module: look.said(module, names) for module, names in used.items() if module in sys.modules}
        return cls(files, said)

    def changed(self) -> str | None:
        """What is not what it was; None where all is."""
        for name, before in self.files.items():
            if _stat(name) != tuple(before):
                return f"{name} has changed"
        look = _Look()
        for module, (digest, names) in self.names.items():
            if module in sys.modules and look.digest(module, names) != digest:
                return f"a name of {module} stands for something else"
        return None


def _names_used(code: types.CodeType, module: str, used: dict[str, set[str]]) -> None:
    """The globals that code names, and what it may name of the modules among them."""
    waiting, seen = [module], {module}
    while waiting:
        at = waiting.pop()
        space = vars(sys.modules[at]) if at in sys.modules else {}
        for name in code.co_names:
            if name in space:
                used.setdefault(at, set()).add(name)
                inner = getattr(space[name], "__name__", "") if is_a(space[name], types.ModuleType) else ""
                if inner and inner not in seen:
                    seen.add(inner)
                    waiting.append(inner)


def _stat(name: str) -> tuple[int, int]:
    try:
        status = os.stat(name)  # noqa: PTH116 - hundreds of them need no paths
    except OSError:
        return (-1, -1)
    return status.st_size, status.st_mtime_ns


class _Look:
    """One look at many names. Classes and modules that many of them lead to are told once; it is over before anything else runs."""

    def __init__(self) -> None:
        self._told: dict[tuple[int, bool], tuple[Any, str]] = {}  # with the value, so that its id stays its own
        self._kinds: dict[type, _Kind] = {}

    def said(self, module: str, names: set[str]) -> tuple[str, list[str]]:
        """What is noted of these names of a module: one digest of what they stand for, and the names."""
        listed = sorted(self._listed(module, name) for name in names)
        return self.digest(module, listed), listed

    def _listed(self, module: str, name: str) -> str:
        """A name, with what it stands for if that is a module, or one of jitney's that is imported when it is asked for (`_lazy.py`)."""
        space = vars(sys.modules[module])
        value = _found(space, name)
        is_lazy = "__getattr__" in space and owner(str(space.get("__file__", ""))) == "jitney"
        is_later = is_lazy or is_a(value, types.ModuleType)
        return f"{name}={self._described(value, is_core=_is_core(module))}" if is_later else name

    def digest(self, module: str, names: list[str]) -> str:
        """Of what names of a module stand for."""
        is_core, space = _is_core(module), vars(sys.modules[module])
        said = [self._named(space, name, is_core=is_core) for name in names]
        return hashlib.blake2b("\n".join(said).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()

    def _named(self, space: Mapping[str, Any], name: str, *, is_core: bool) -> str:
        """What a name is, or `name=what` of one that may be imported later, and is the same then."""
        value = space.get(name)  # as most are
        if value is not None:
            return self._described(value, is_core=is_core)
        plain, _, later = name.partition("=")
        value = _found(space, plain)
        return later if later and value is None else self._described(value, is_core=is_core)

    def _described(self, value: Any, *, is_core: bool) -> str:
        """What tells a value from another one that somebody put in its place. Numbers and texts of JAX and its like may be state."""
        kind = type_of(value)
        if kind is types.FunctionType and getattr(value, "__wrapped__", None) is None:  # most are
            return _function(value)
        if kind is types.ModuleType or is_a(value, type):
            told = self._told.get((id(value), is_core))
            if told is None:
                told = self._told[(id(value), is_core)] = value, self._itself(value, is_core=is_core)
            return told[1]
        said: list[str] = []
        for _ in range(8):  # a wrapper says what it wraps
            said.append(self._itself(value, is_core=is_core))
            inside = self._kind(type_of(value)).inside
            value = None if inside is None else getattr(value, inside, None)
            if value is None:
                break
        return " of ".join(said)

    def _itself(self, value: Any, *, is_core: bool) -> str:
        if is_a(value, types.FunctionType):
            return _function(value)
        if is_a(value, type):
            return _class(value, is_core=is_core)
        if is_a(value, types.ModuleType):
            return value.__name__
        if not is_core and is_a(value, _PLAIN):
            return repr(value)
        return f"{self._kind(type_of(value)).name} {getattr(value, '__name__', '')}" if not is_core or callable(value) else ""

    def _kind(self, kind: type) -> _Kind:
        if kind not in self._kinds:
            self._kinds[kind] = _Kind.of(kind)
        return self._kinds[kind]


@dataclass(frozen=True)
class _Kind:
    """A class of values.

    Args:
        name: Of the class.
        inside: The attribute with what its instances wrap.
    """

    name: str
    inside: str | None

    @classmethod
    def of(cls, kind: type) -> _Kind:
        """That of a class."""
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


def _is_core(module: str) -> bool:
    return owner(str(getattr(sys.modules[module], "__file__", ""))) in (*CORE, "stdlib")


def _found(space: Mapping[str, Any], name: str) -> Any:
    """What a dotted name of a module leads to, nothing being called on the way."""
    value: Any = None
    for part in name.split("."):
        if part not in space:
            return None
        value = space[part]
        space = space_of(value) if is_a(value, type) else {}
    return value


def _function(value: types.FunctionType) -> str:
    code = value.__code__
    return f"{code.co_filename}:{code.co_firstlineno} {code.co_name}"


def _class(value: type, *, is_core: bool) -> str:
    """A class by the names in it, and by plain values that are no state of JAX's."""
    space = space_of(value)
    names = sorted(space.keys() - LEFT_OUT)
    if value.__module__.startswith("jaxlib."):  # those of iterators, by the first loop
        names = [name for name in names if not is_a(space[name], type)]
    if not is_core:
        names = [f"{name}={space[name]!r}" if is_a(space[name], _PLAIN) else name for name in names]
    return "\0".join((value.__module__, value.__qualname__, *names))  # no name that is written holds that
