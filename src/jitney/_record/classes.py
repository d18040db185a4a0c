"""What is in a class and in an instance, of which a method or a trace may read anything."""

from __future__ import annotations

import abc
import collections
import collections.abc
import contextlib
import dataclasses
import enum
import numbers
import os
import sys
import types
from collections.abc import Iterator
from typing import Any

import equinox
import jax
import jax.core
import numpy as np

from .._jax.trees import Tracer, attribute, is_a, space_of, type_of
from .whose import is_installed, static_attribute, whose

_core: Any = jax.core
LEFT_OUT = frozenset(
    (
        "__dict__",
        "__weakref__",
        "__doc__",
        "__module__",
        "__qualname__",
        "__annotations__",
        "__annotate__",
        "__annotate_func__",
        "__annotations_cache__",
        "__classdictcell__",
        "__static_attributes__",
        "__firstlineno__",
        "_abc_impl",
        "__abstractmethods__",
        "__parameters__",
        "__orig_bases__",
        "__dataclass_fields__",
        "__dataclass_params__",
        "__type_params__",
        "__signature__",
        "__is_protocol__",
        "__abstractvars__",
        "__abstractclassvars__",
    )
)
"""Positions, texts, and what Python makes of the rest of the class."""
_BASES = (
    object,
    int,
    float,
    complex,
    str,
    bytes,
    tuple,
    list,
    dict,
    set,
    frozenset,
    enum.Enum,
    BaseException,
    Exception,
    collections.OrderedDict,
    collections.defaultdict,
)


def class_items(kind: Any) -> list[tuple[str, Any]]:
    """Everything in a class of the user's, by name."""
    items = [
        (name, value) for name, value in sorted(space_of(kind).items()) if name not in LEFT_OUT
    ]
    fields = space_of(kind).get("__dataclass_fields__")
    if fields is None:
        return items
    said = [
        (
            name,
            (
                f.default is not dataclasses.MISSING and f.default,
                _factory(f),
                f.init,
                f.repr,
                f.kw_only,
                dict(f.metadata),
            ),
        )
        for name, f in fields.items()
    ]
    return [*items, ("fields", said)]


def _factory(field: Any) -> Any:
    return None if field.default_factory is dataclasses.MISSING else field.default_factory


def is_set_by_user(value: Any) -> bool:
    """Whether a value in an installed class may be one that somebody has put there: no function of
    something installed.
    """
    if is_a(value, (staticmethod, classmethod)):
        value = value.__func__
    elif is_a(value, property):
        value = value.fget
    if is_a(value, types.FunctionType):
        return not is_installed(str(value.__module__))
    module = str(type_of(value).__module__)  # those of types of other languages nobody can import
    return is_a(value, (*_BASES[1:], np.ndarray)) or (
        module in sys.modules and not is_installed(module)
    )


def answers_itself(kind: Any) -> str | None:
    """By which name instances of a user's class, or the class itself, say what they hold instead of
    Python; None where they do not.

    Nothing is asked of the class in a way that its metaclass could answer.
    """
    for base in (*static_attribute(kind, "__mro__"), *static_attribute(type_of(kind), "__mro__")):
        if is_installed(str(static_attribute(base, "__module__"))):
            continue
        space = static_attribute(base, "__dict__")
        for name in ("__getattribute__", "__class__", "__dict__"):
            if name in space and not is_a(space[name], types.GetSetDescriptorType):
                return name
    return None


def array_classes() -> list[Any]:
    """Those of what a traced function is given: no value of it leads to them, and somebody may have
    set an attribute of theirs.
    """
    found: list[Any] = [jax.Array, _core.ShapedArray, Tracer]
    for kind in found:
        found += [sub for sub in type.__subclasses__(kind) if sub not in found]
    return found


def registered(kind: Any) -> list[str]:
    """The classes that pass for subclasses of this abstract one because somebody registered them
    (`abc.ABCMeta.register`).

    Python shows the registry by `abc._get_dump` alone, tried on 3.11 to 3.14.
    """
    if not is_a(kind, abc.ABCMeta):
        return []
    return sorted({name for _, name in _registered_under([kind])})


def registered_anywhere() -> list[str]:
    """Those of abstract classes that installed packages ask for, or of classes under these, each
    behind the one it is registered at.
    """
    return sorted(
        f"{at.__module__}.{at.__qualname__} {name}" for at, name in _registered_under(list(_ROOTS))
    )


def _registered_under(roots: list[Any]) -> Iterator[tuple[Any, str]]:
    dump: Any = getattr(abc, "_get_dump")  # noqa: B009 - not in its types
    waiting, seen = roots, set(roots)
    while waiting:
        at = waiting.pop()
        if "_abc_impl" in space_of(at):
            members: list[Any] = [
                member
                for member in (reference() for reference in dump(at)[0])
                if member is not None
            ]
            yield from (
                (at, f"{m.__module__}.{m.__qualname__}")
                for m in members
                if not _are_installed(at, m)
            )
        under = [sub for sub in type.__subclasses__(at) if sub not in seen]
        seen.update(under)
        waiting += under


def _are_installed(kind: Any, member: Any) -> bool:
    """Whether both are, so that who registered one with the other is too: not of Python's own types
    and NumPy's, which are there from the start, and what registers them later may be anybody.
    """
    if str(member.__module__) in ("builtins", "numpy"):
        return False
    return _is_installed(str(kind.__module__)) and _is_installed(str(member.__module__))


def _is_installed(module: str) -> bool:
    """Whether a module is, or the package that it says it is of: what is written in another
    language names modules that nobody imports.
    """
    return is_installed(module) or is_installed(module.partition(".")[0])


_ROOTS: Any = (
    *(value for value in vars(collections.abc).values() if is_a(value, abc.ABCMeta)),
    numbers.Number,
    contextlib.AbstractContextManager,
    os.PathLike,
    equinox.Module,
)


def annotations_text(value: Any) -> list[str]:
    """The annotations of a function or a class, in words; contracts are made of them."""
    try:
        said = dict(attribute(value, "__annotations__", {}))
    except NameError:  # a name that is not defined yet, in Python 3.14
        return ["not known yet"]
    return [f"{name}: {_annotation(part)}" for name, part in said.items()]


def _annotation(part: Any) -> str:
    return f"{part.__module__}.{part.__qualname__}" if is_a(part, type) else repr(part)


def instance_items(value: Any) -> list[tuple[str, Any]]:
    """All that an instance holds: what it is as one of Python's own types, its attributes, its
    slots.
    """
    items = [
        (name, part)
        for name, part in sorted(attribute(value, "__dict__", {}).items())
        if name not in LEFT_OUT
    ]
    for kind in type_of(value).__mro__:
        slots = space_of(kind).get("__slots__", ())
        for slot in (slots,) if is_a(slots, str) else tuple(slots):
            if slot in ("__dict__", "__weakref__"):
                continue
            name = (
                f"_{kind.__name__.lstrip('_')}{slot}"
                if slot.startswith("__") and not slot.endswith("__")
                else slot
            )
            try:
                # without asking a `__getattr__` of the user's for it
                items.append((name, object.__getattribute__(value, name)))
            except AttributeError:
                continue
    items += [("", plain(value)) for kind, plain in _PLAINLY if is_a(value, kind)]
    if is_a(value, collections.defaultdict):
        items.append(("default_factory", value.default_factory))
    if is_a(value, BaseException):
        items.append(("args", value.args))
    return items


_PLAINLY: tuple[tuple[type, Any], ...] = (
    (tuple, tuple),
    (list, list),
    (dict, dict),
    (set, set),
    (frozenset, frozenset),
    (str, str.__str__),
    (bytes, bytes),
    (int, int.__int__),
    (float, float.__float__),
    (complex, complex),
)


def holds_hidden_state(kind: Any) -> bool:
    """Whether instances of a class may hold what Python does not show: one of its bases is written
    in another language, or they are larger than what Python shows of them, as is a `deque`, whose
    module is one of Python.
    """
    if any(base not in _BASES and not _is_python(base) for base in kind.__mro__):
        return True
    shown = max(base.__basicsize__ for base in kind.__mro__ if base in _BASES)
    slots = sum(
        is_a(part, types.MemberDescriptorType)
        for base in kind.__mro__
        for part in space_of(base).values()
    )
    return kind.__basicsize__ > shown + _WORD * (
        slots + bool(kind.__dictoffset__) + bool(kind.__weakrefoffset__)
    )


_WORD = tuple.__itemsize__  # a pointer
_OF_PYTHON = (
    "collections",
    "dataclasses",
    "enum",
    "fractions",
    "typing",
    "contextlib",
    "abc",
    "numbers",
)
"""Modules of the standard library whose instances are what their attributes are."""


def _is_python(kind: Any) -> bool:
    """Whether a class was made by a `class` statement, by its module: one of Python, or one that is
    no file.
    """
    module = sys.modules.get(str(kind.__module__))
    file: Any = getattr(module, "__file__", None)
    if (
        whose(str(kind.__module__)) == "stdlib"
        and str(kind.__module__).partition(".")[0] not in _OF_PYTHON
    ):
        return False
    if not kind.__flags__ & HEAP or (
        module is not None and not is_a(file, str) and kind.__module__ != "__main__"
    ):
        return False
    return file is None or str(file).endswith((".py", ".pyc"))


HEAP = 1 << 9  # `Py_TPFLAGS_HEAPTYPE`: made while Python runs
