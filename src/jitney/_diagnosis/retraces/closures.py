"""Functions that are created anew: comparison of their code and of the values they close over.

A lambda or a closure is a new function object each time its line runs, and each has a program of
its own.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from ..._jax.trees import attribute
from ..._owners import short
from ..._values.attributes import closure_variables
from ..._values.identity import Identity
from ..._values.static_values import Unkeyed, static_key
from ..._view.layout import static_text

_PLAIN = (int, float, str, bool, bytes, type(None))


def is_same(old: object, new: object) -> bool:
    """Return whether two static values share programs."""
    if old is new:
        return True
    try:
        return type(old) is type(new) and static_key(old) == static_key(new)
    # A static field of a module may be anything; if two cannot be compared, no difference is
    # reported.
    except Unkeyed:
        return True


def has_same_code(old: object, new: object) -> bool:
    """Return whether two functions come from the same code; partials of equal arguments count by
    their functions.
    """
    if isinstance(old, functools.partial) and isinstance(new, functools.partial):
        if not is_same((old.args, old.keywords), (new.args, new.keywords)):
            return False
        return has_same_code(old.func, new.func)

    a = attribute(old, "__code__", None)
    b = attribute(new, "__code__", None)
    if a is None or b is None:
        return False
    return a == b and a.co_filename == b.co_filename


def cells(fn: Any) -> tuple[tuple[str, object], ...]:
    """Values that a function closes over, by name, in a form that keeps nothing alive: see
    `weak_stand_in`.
    """
    fn = fn.func if isinstance(fn, functools.partial) else fn
    # A stand-in of a function that may be gone, which has recorded its cells.
    if type(fn) is Identity:
        return getattr(fn, "cells", ())
    code = attribute(fn, "__code__", None)
    if code is None:
        return ()
    values: list[tuple[str, object]] = []
    for name, value in closure_variables(fn, unset=_UNSET).items():
        values.append((name, "..." if value is _UNSET else weak_stand_in(value)))
    return tuple(values)


_UNSET = object()


def weak_stand_in(value: object) -> object:
    """Stand-in of a value that keeps nothing alive: a number or text itself, the code of a
    function, else the type and a short text.
    """
    if type(value) in _PLAIN:
        return value
    code = attribute(value, "__code__", None)
    if code is not None:
        return code
    name = type(value).__name__
    if isinstance(value, (type, Sequence, dict, set, frozenset)):
        return f"{name} {static_text(value)}"
    return name


def changed_cells(
    old: Sequence[tuple[str, object]], new: Sequence[tuple[str, object]]
) -> list[str]:
    """Names under which two functions of the same code close over different values."""
    before = dict(old)
    return [name for name, value in new if before.get(name) != value]


def place_of_code(fn: object) -> str:
    """Place of a function as ` at fit.py:12`; empty if it has no code."""
    code = attribute(fn, "__code__", None)
    return "" if code is None else f" at {short(code.co_filename)}:{code.co_firstlineno}"
