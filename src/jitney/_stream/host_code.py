"""Text of the Python code that a program calls back, stable between processes and line numbers.

JAX prints such a function by its name and address, which differ between processes. The text here
holds the bytecode, the constants, and the same for functions and plain values that the function
closes over. Globals that the code looks up by name are not followed.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from types import CellType, CodeType, FunctionType

from .._jax.programs.jaxprs import CALLBACKS
from .._jax.typed import JaxprEqn

_CALLS = (*CALLBACKS, "pure_callback")
_PLAIN = (int, float, complex, str, bytes, bool, type(None))


def host_code(eqn: JaxprEqn) -> list[str]:
    """Text of each function behind a callback equation; empty for other primitives."""
    if eqn.primitive.name not in _CALLS:
        return []
    return [text for value in eqn.params.values() for text in _describe(value, set())]


def _describe(value: object, seen: set[int]) -> Iterator[str]:
    """Yield the text of a callback parameter and of everything it closes over, once per object."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, FunctionType):
        yield _text(value.__code__)
        closed_over = map(_content, value.__closure__ or ())
        for part in (*(value.__defaults__ or ()), *closed_over):
            yield from _describe(part, seen)
    elif isinstance(value, functools.partial):
        for part in (value.func, *value.args, *value.keywords.values()):
            yield from _describe(part, seen)
    elif isinstance(value, _PLAIN):
        yield repr(value)
    elif dataclasses.is_dataclass(value):
        # JAX wraps the called function in a dataclass of its own.
        for field in dataclasses.fields(value):
            yield from _describe(getattr(value, field.name), seen)


def _content(cell: CellType) -> object:
    try:
        return cell.cell_contents
    # The cell is not bound yet.
    except ValueError:
        return None


def _text(code: CodeType) -> str:
    # Nested functions are code constants: their `repr` would show an address and a line.
    constants = [
        _text(constant) if isinstance(constant, CodeType) else _constant(constant)
        for constant in code.co_consts
    ]
    return repr([code.co_code.hex(), constants, code.co_names])


def _constant(value: object) -> str:
    # A set of strings is in another order in each process, since their hashes are salted.
    if isinstance(value, frozenset):
        return f"{{{', '.join(sorted(map(repr, value)))}}}"
    return repr(value)
