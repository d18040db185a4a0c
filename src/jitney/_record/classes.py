"""Contents of classes and instances, of which a method or a trace may read anything."""

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
from collections.abc import Callable, Iterator

import equinox
import jax
import jax.core
import numpy as np

from .._jax.trees import Tracer, attribute
from .._values.attributes import attributes_of
from .origin import is_installed, module_origin, static_attribute

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
"""Attributes of classes that hold positions, docstrings, or what Python derives from the others."""
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


def class_items(kind: object) -> list[tuple[str, object]]:
    """Return all attributes of a user's class, by name; of a dataclass also the options of its
    fields.
    """
    items = [(name, value) for name, value in sorted(vars(kind).items()) if name not in LEFT_OUT]
    fields = vars(kind).get("__dataclass_fields__")
    if fields is None:
        return items
    options = [(name, _field_options(field)) for name, field in fields.items()]
    return [*items, ("fields", options)]


def _field_options(field: dataclasses.Field[object]) -> tuple[object, ...]:
    return (
        field.default is not dataclasses.MISSING and field.default,
        _factory(field),
        field.init,
        field.repr,
        field.kw_only,
        dict(field.metadata),
    )


def _factory(field: dataclasses.Field[object]) -> object:
    return None if field.default_factory is dataclasses.MISSING else field.default_factory


def is_set_by_user(value: object) -> bool:
    """Return whether a value in an installed class may be one that the user has set there: anything
    but a function of an installed module.
    """
    if isinstance(value, (staticmethod, classmethod)):
        value = value.__func__
    elif isinstance(value, property):
        value = value.fget
    if isinstance(value, types.FunctionType):
        return not is_installed(str(value.__module__))

    # Types of extension modules may name a module that cannot be imported; they are not the user's.
    module = str(type(value).__module__)
    return isinstance(value, (*_BASES[1:], np.ndarray)) or (
        module in sys.modules and not is_installed(module)
    )


def answers_itself(kind: type) -> str | None:
    """Return the name of the attribute by which a user's class, or its metaclass, overrides how
    Python reads its instances (`__getattribute__`, `__class__`, `__dict__`); None without one.

    Nothing is read in a way that the metaclass could intercept.
    """
    for base in (*static_attribute(kind, "__mro__"), *static_attribute(type(kind), "__mro__")):
        if is_installed(str(static_attribute(base, "__module__"))):
            continue
        space = static_attribute(base, "__dict__")
        for name in ("__getattribute__", "__class__", "__dict__"):
            if name in space and not isinstance(space[name], types.GetSetDescriptorType):
                return name
    return None


def array_classes() -> list[type]:
    """Return the classes of arrays and tracers, on which the user may have set attributes: no value
    that is hashed leads to them.
    """
    classes: list[type] = [jax.Array, jax.core.ShapedArray, Tracer]
    for kind in classes:
        classes += [sub for sub in type.__subclasses__(kind) if sub not in classes]
    return classes


def virtual_subclasses(kind: object) -> list[str]:
    """Return the virtual subclasses of an abstract class, added by `abc.ABCMeta.register`.

    Python shows the registry by `abc._get_dump` only; tried on 3.11 to 3.14.
    """
    if not isinstance(kind, abc.ABCMeta):
        return []
    return sorted({name for _, name in _registry_name([kind])})


def registered_anywhere() -> list[str]:
    """Return the virtual subclasses of the abstract classes that installed packages test for, and
    of their subclasses, each after the class that it is registered at.
    """
    return sorted(
        f"{at.__module__}.{at.__qualname__} {name}" for at, name in _registry_name(list(_ROOTS))
    )


def _registry_name(roots: list[type]) -> Iterator[tuple[type, str]]:
    dump = getattr(abc, "_get_dump")  # noqa: B009 - not in its types
    waiting, seen = roots, set(roots)
    while waiting:
        at = waiting.pop()
        if "_abc_impl" in vars(at):
            members = [
                member
                for member in (reference() for reference in dump(at)[0])
                if member is not None
            ]
            yield from (
                (at, f"{m.__module__}.{m.__qualname__}")
                for m in members
                if not _are_installed(at, m)
            )

        # `type.__subclasses__` of the class, since a metaclass may override the method.
        under = [sub for sub in type.__subclasses__(at) if sub not in seen]
        seen.update(under)
        waiting += under


def _are_installed(kind: object, member: object) -> bool:
    """Return whether both classes are of installed packages, so that the registration is theirs
    too.

    Built-in types and NumPy's do not count: they exist from the start, so anybody may register
    them.
    """
    if str(member.__module__) in ("builtins", "numpy"):
        return False
    return _is_installed(str(kind.__module__)) and _is_installed(str(member.__module__))


def _is_installed(module: str) -> bool:
    """Return whether a module, or its top-level package, is installed: classes of extension modules
    may name modules that are never imported.
    """
    return is_installed(module) or is_installed(module.partition(".")[0])


_ROOTS: tuple[type, ...] = (
    *(value for value in vars(collections.abc).values() if isinstance(value, abc.ABCMeta)),
    numbers.Number,
    contextlib.AbstractContextManager,
    os.PathLike,
    equinox.Module,
)


def annotations_text(value: object) -> list[str]:
    """Return the annotations of a function or a class as texts; contracts are built from them."""
    try:
        said = dict(attribute(value, "__annotations__", {}))
    # Python 3.14 evaluates annotations when they are read: a name may not be defined yet.
    except NameError:
        return ["not known yet"]
    return [f"{name}: {_annotation(part)}" for name, part in said.items()]


def _annotation(part: object) -> str:
    return f"{part.__module__}.{part.__qualname__}" if isinstance(part, type) else repr(part)


def instance_items(value: object) -> list[tuple[str, object]]:
    """Return everything that an instance holds: its attributes, its slots, and its value as one of
    Python's own types.
    """
    items = [
        (name, part) for name, part in sorted(attributes_of(value).items()) if name not in LEFT_OUT
    ]

    # The value of a subclass of a built-in type, by the methods of that type, not the overridden
    # ones.
    items += [("", plain(value)) for kind, plain in _PLAINLY if isinstance(value, kind)]
    if isinstance(value, collections.defaultdict):
        items.append(("default_factory", value.default_factory))
    if isinstance(value, BaseException):
        items.append(("args", value.args))
    return items


_PLAINLY: tuple[tuple[type, Callable[..., object]], ...] = (
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


def holds_hidden_state(kind: type) -> bool:
    """Return whether instances of a class may hold state that Python does not show.

    They may if a base is an extension type, or if they are larger than their visible attributes and
    slots explain, as is a `deque`, although its module is written in Python.
    """
    if any(base not in _BASES and not _is_python(base) for base in kind.__mro__):
        return True
    shown = max(base.__basicsize__ for base in kind.__mro__ if base in _BASES)
    slots = sum(
        isinstance(part, types.MemberDescriptorType)
        for base in kind.__mro__
        for part in vars(base).values()
    )
    return kind.__basicsize__ > shown + _WORD * (
        slots + bool(kind.__dictoffset__) + bool(kind.__weakrefoffset__)
    )


# size of a pointer in bytes
_WORD = tuple.__itemsize__
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
"""Modules of the standard library whose instances hold nothing but their attributes."""


def _is_python(kind: type) -> bool:
    """Return whether a `class` statement defined a class, by the file of its module: a Python file,
    or none.
    """
    module = sys.modules.get(str(kind.__module__))
    file = getattr(module, "__file__", None)
    if (
        module_origin(str(kind.__module__)) == "stdlib"
        and str(kind.__module__).partition(".")[0] not in _OF_PYTHON
    ):
        return False
    if not kind.__flags__ & HEAP or (
        module is not None and not isinstance(file, str) and kind.__module__ != "__main__"
    ):
        return False
    return file is None or str(file).endswith((".py", ".pyc"))


# `Py_TPFLAGS_HEAPTYPE`: the type was created at run time
HEAP = 1 << 9
