"""Functions that are made anew: whether two are of the same code, and what they close over.

A lambda or closure is another function each time its line runs, and each has a program of its own.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from .._jax.trees import attribute, is_a, type_of
from .._signature.identity import Identity
from .._signature.static_values import Unkeyed, static_key
from .._view.layout import static_text

_PLAIN = (int, float, str, bool, bytes, type(None))


def is_same(old: Any, new: Any) -> bool:
    """Whether two static values share programs."""
    if old is new:
        return True
    try:
        return type_of(old) is type_of(new) and static_key(old) == static_key(new)
    # a static field of a module may be anything; nothing is said of what cannot be compared
    except Unkeyed:
        return True


def has_same_code(old: Any, new: Any) -> bool:
    """Whether two functions are one, made twice; a partial of the same arguments counts by its
    function.
    """
    if is_a(old, functools.partial) and is_a(new, functools.partial):
        return is_same((old.args, old.keywords), (new.args, new.keywords)) and has_same_code(
            old.func, new.func
        )
    a, b = attribute(old, "__code__", None), attribute(new, "__code__", None)
    return a is not None and b is not None and a == b and a.co_filename == b.co_filename


def cells(fn: Any) -> tuple[tuple[str, Any], ...]:
    """What a function closes over, by name, in a form that keeps nothing alive: see `worded`."""
    fn = fn.func if is_a(fn, functools.partial) else fn
    if type(fn) is Identity:
        return getattr(fn, "cells", ())
    code = attribute(fn, "__code__", None)
    if code is None:
        return ()
    found: list[tuple[str, Any]] = []
    for name, cell in zip(code.co_freevars, fn.__closure__ or (), strict=True):
        try:
            found.append((name, worded(cell.cell_contents)))
        except ValueError:  # not bound yet
            found.append((name, "..."))
    return tuple(found)


def worded(value: Any) -> Any:
    """A value that keeps nothing alive: itself if it is a number or a text, the code of a function,
    else its type and words.
    """
    if type_of(value) in _PLAIN:
        return value
    code = attribute(value, "__code__", None)
    if code is not None:
        return code
    says = is_a(value, (type, Sequence, dict, set, frozenset))
    return f"{type_of(value).__name__} {static_text(value)}" if says else type_of(value).__name__


def changed_cells(old: Sequence[tuple[str, Any]], new: Sequence[tuple[str, Any]]) -> list[str]:
    """The names under which two functions of the same code close over other values."""
    before = dict(old)
    return [name for name, value in new if before.get(name) != value]


def line_of(fn: Any) -> str:
    """The line of a function, ` of line 12`; empty where there is none."""
    code = attribute(fn, "__code__", None)
    return "" if code is None else f" of line {code.co_firstlineno}"
