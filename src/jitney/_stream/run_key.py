"""Digests of a program and its arguments that are the same in another process, for checkpoints."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator
from types import CellType, CodeType, FunctionType
from typing import Any

import jax
import jaxlib
import numpy as np

from .._axes import Passes
from .._jax.programs.jaxprs import CALLBACKS, is_literal, open_jaxpr, programs
from .._jax.programs.ssa import Ref
from .._jax.typed import JaxprEqn
from .._processes.compare_processes import digest


def program_key(passes: Passes) -> list[object]:
    """Every equation with its parameters and constants, those inside loops and calls too."""
    nodes = [
        (_describe_equation(node.op.eqn), list(map(_read, node.reads)), node.makes)
        for node in passes.flat.steps
    ]
    directions = [turn.back for turn in passes.passes]
    numbers = [value_key(x) for x in passes.numbers.values()]
    return [nodes, directions, numbers]


def _read(ref: Ref) -> object:
    """A value by its number in the program; a literal by its content."""
    return ref if isinstance(ref, int) else value_key(ref.value)


def _describe_equation(eqn: JaxprEqn) -> tuple[str, list[object]]:
    """Printed form of an equation, with constants and callback code, which JAX does not print."""
    # JAX prints functions among the parameters with their addresses, which change per process.
    text = re.sub(r"0x[0-9a-f]+", "", str(eqn))
    return text, [*map(value_key, _constants(eqn)), *_callback_code(eqn)]


def _callback_code(eqn: JaxprEqn) -> Iterator[str]:
    yield from host_code(eqn)
    for part in programs(eqn.params):
        for inside in open_jaxpr(part)[0].eqns:
            yield from _callback_code(inside)


def _constants(eqn: JaxprEqn) -> Iterator[object]:
    yield from (atom.val for atom in eqn.invars if is_literal(atom))
    for part in programs(eqn.params):
        program, constants = open_jaxpr(part)
        yield from constants
        for inside in program.eqns:
            yield from _constants(inside)


def value_key(x: Any) -> tuple[object, ...]:
    """Dtype, shape and digest of the numbers of a value."""
    array = x if hasattr(x, "dtype") and hasattr(x, "shape") else np.asarray(x)
    return str(array.dtype), tuple(array.shape), digest(array)


def platform() -> tuple[str, ...]:
    """Versions of JAX and jaxlib, and the kind of the default device."""
    device = jax.devices()[0]
    version: str = getattr(jaxlib, "__version__")  # noqa: B009 - the stubs do not export it
    return jax.__version__, version, device.platform, device.device_kind


# Text of the Python code that a program calls back, stable between processes and line numbers.
#
# JAX prints such a function by its name and address, which differ between processes. The text here
# holds the bytecode, the constants, and the same for functions and plain values that the function
# closes over. Globals that the code looks up by name are not followed.


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
