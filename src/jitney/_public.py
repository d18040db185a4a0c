"""The module that users import a class from, and the names that completion offers of an object."""

from __future__ import annotations

import importlib
import typing
from collections.abc import Callable, Collection, Iterable
from typing import TypeVar

_Class = TypeVar("_Class", bound=type)


def public_in(home: str) -> Callable[[_Class], _Class]:
    """Decorate a class that users import from the module `home`: tracebacks, pickles and `help`
    name that module.

    The class is an attribute of its home at once, since a class is identified by looking its name
    up there. Its annotations remember the module whose names they use, because
    `typing.get_type_hints` looks for names in the module that a class gives as its own.
    """

    def settle(cls: _Class) -> _Class:
        annotations: dict[str, object] = vars(cls).get("__annotations__", {})
        for name, hint in annotations.items():
            # A named tuple has made references of its texts already.
            text = hint.__forward_arg__ if isinstance(hint, typing.ForwardRef) else hint
            if isinstance(text, str):
                annotations[name] = typing.ForwardRef(
                    text, is_argument=False, module=cls.__module__, is_class=True
                )
        cls.__module__ = home
        setattr(importlib.import_module(home), cls.__name__, cls)
        return cls

    return settle


def completed_names(value: object) -> list[str]:
    """Return the names that `dir` shows of an object: those of its attributes that begin without an
    underscore, and those of Python with two.
    """
    return _shown(object.__dir__(value), getattr(type(value), "_inside", ()))


class CompletedType(type):
    """Class whose own `dir` has public names alone: IPython completes an instance by the names of
    its class too.

    `_inside` are attributes without an underscore that only jitney's own modules use.
    """

    _inside: Collection[str] = ()

    def __dir__(cls) -> list[str]:
        return _shown(type.__dir__(cls), cls._inside)


def _shown(names: Iterable[str], inside: Collection[str]) -> list[str]:
    return [
        name
        for name in names
        if name not in inside and (name.startswith("__") or not name.startswith("_"))
    ]
