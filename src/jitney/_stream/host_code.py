"""The Python code that a program calls back, as text that is the same in another process, wherever
its lines stand.

JAX prints such a function by its name and address. What counts is what it does: its instructions,
its constants, and the same of the functions and plain values it closes over. What it looks up by a
global name is not followed.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

from .._jax.jaxprs import CALLBACKS
from .._jax.trees import is_a

_CALLS = (*CALLBACKS, "pure_callback")
_PLAIN = (int, float, complex, str, bytes, bool, type(None))


def host_code(eqn: Any) -> list[str]:
    """The code behind a callback; empty for other operations."""
    return (
        [text for value in eqn.params.values() for text in _described(value, set())]
        if eqn.primitive.name in _CALLS
        else []
    )


def _described(value: Any, seen: set[int]) -> Iterator[str]:
    if id(value) in seen:
        return
    seen.add(id(value))
    if is_a(value, FunctionType):
        yield _text(value.__code__)
        for held in (*(value.__defaults__ or ()), *map(_content, value.__closure__ or ())):
            yield from _described(held, seen)
    elif is_a(value, functools.partial):
        for held in (value.func, *value.args, *value.keywords.values()):
            yield from _described(held, seen)
    elif is_a(value, _PLAIN):
        yield repr(value)
    elif dataclasses.is_dataclass(value):  # in which JAX wraps what is called
        for part in dataclasses.fields(value):
            yield from _described(getattr(value, part.name), seen)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not bound yet
        return None


def _text(code: CodeType) -> str:
    constants = [
        _text(constant) if is_a(constant, CodeType) else _constant(constant)
        for constant in code.co_consts
    ]
    return repr([code.co_code.hex(), constants, code.co_names])


def _constant(value: Any) -> str:
    return f"{{{', '.join(sorted(map(repr, value)))}}}" if is_a(value, frozenset) else repr(value)
