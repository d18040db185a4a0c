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
        said = {module: _said(module, names) for module, names in used.items() if module in sys.modules}
        return cls(files, said)

    def changed(self) -> str | None:
        """What is not what it was; None where all is."""
        for name, before in self.files.items():
            if _stat(name) != tuple(before):
                return f"{name} has changed"
        for module, (digest, names) in self.names.items():
            if module in sys.modules and _digest(module, names) != digest:
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


def _said(module: str, names: set[str]) -> tuple[str, list[str]]:
    listed = sorted(_listed(module, name) for name in names)
    return _digest(module, listed), listed


def _digest(module: str, names: list[str]) -> str:
    is_core = _is_core(module)
    said = [_named(vars(sys.modules[module]), name, is_core=is_core) for name in names]
    return hashlib.blake2b("\n".join(said).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _named(space: Mapping[str, Any], name: str, *, is_core: bool) -> str:
    """What a name is, or `name=what` of one that may be imported later, and is the same then."""
    plain, _, later = name.partition("=")
    value = _found(space, plain)
    return later if later and value is None else _described(value, is_core=is_core)


def _listed(module: str, name: str) -> str:
    """A name, with what it stands for if that is a module, or one of jitney's that is imported when it is asked for (`_lazy.py`)."""
    space = vars(sys.modules[module])
    value = _found(space, name)
    is_lazy = "__getattr__" in space and owner(str(space.get("__file__", ""))) == "jitney"
    return f"{name}={_described(value, is_core=_is_core(module))}" if is_lazy or is_a(value, types.ModuleType) else name


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


def _described(value: Any, *, is_core: bool) -> str:
    """What tells a value from another one that somebody put in its place. Numbers and texts of JAX and its like may be state."""
    if type_of(value) is types.FunctionType and "__wrapped__" not in space_of(value):  # most are
        return _itself(value, is_core=is_core)
    said: list[str] = []
    for _ in range(8):  # a wrapper says what it wraps
        said.append(_itself(value, is_core=is_core))
        inner = None if is_a(value, (type, types.ModuleType)) else getattr(value, "__wrapped__", None)
        if is_a(value, (staticmethod, classmethod, types.MethodType)):
            inner = value.__func__
        elif is_a(value, property):
            inner = value.fget
        elif is_a(value, (cached_property, partial)):
            inner = value.func
        if inner is None:
            break
        value = inner
    return " of ".join(said)


def _itself(value: Any, *, is_core: bool) -> str:
    if is_a(value, types.FunctionType):
        code = value.__code__
        return f"{code.co_filename}:{code.co_firstlineno} {code.co_name}"
    if is_a(value, type):
        made_late = type if value.__module__.startswith("jaxlib.") else ()  # those of iterators, by the first loop
        space = [(name, part) for name, part in sorted(space_of(value).items()) if name not in LEFT_OUT and not is_a(part, made_late)]
        inside = [name if is_core or not is_a(part, _PLAIN) else f"{name}={part!r}" for name, part in space]
        return f"{value.__module__}.{value.__qualname__} {inside}"
    if is_a(value, types.ModuleType):
        return value.__name__
    if not is_core and is_a(value, _PLAIN):
        return repr(value)
    kind = type_of(value)
    return f"{kind.__module__}.{kind.__qualname__} {getattr(value, '__name__', '')}" if not is_core or callable(value) else ""
