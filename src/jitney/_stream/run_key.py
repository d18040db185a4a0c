"""Digests of a program and its arguments that are the same in another process, for checkpoints."""

from __future__ import annotations

import dataclasses
import functools
import re
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, MethodType
from typing import Any, cast

import jax
import jaxlib
import numpy as np

from .._axes import Passes
from .._jax.programs.jaxprs import CALLBACKS, is_literal, open_jaxpr, programs
from .._jax.programs.ssa import Ref
from .._jax.typed import JaxprEqn
from .._processes.compare_processes import digest
from .._record.classes import class_items, instance_items
from .._record.functions import is_users
from .._record.instructions import codes_in
from .._record.origin import is_installed
from .._values.attributes import closure_variables


def program_key(passes: Passes) -> list[object]:
    """Every equation with its parameters and constants, those inside loops and calls too."""
    nodes: list[object] = []
    for node in passes.flat.steps:
        equation = _describe_equation(node.op.eqn)
        reads = [_read(ref) for ref in node.reads]
        nodes.append((equation, reads, node.makes))
    directions = [turn.back for turn in passes.passes]
    numbers = [value_key(x) for x in passes.numbers.values()]
    return [nodes, directions, numbers]


def _read(ref: Ref) -> object:
    """A value by its number in the program; a literal by its content."""
    return ref if isinstance(ref, int) else value_key(ref.value)


def host_texts(passes: Passes) -> list[str]:
    """Texts of the Python code that a program calls back, and of the data that it reads now."""
    texts: list[str] = []
    for node in passes.flat.steps:
        texts += _callback_code(node.op.eqn)
    return texts


def _describe_equation(eqn: JaxprEqn) -> tuple[str, list[object]]:
    """Printed form of an equation, with constants, which JAX does not print."""
    # JAX prints functions among the parameters with their addresses, which change per process.
    text = re.sub(r"0x[0-9a-f]+", "", str(eqn))
    return text, [*map(value_key, _constants(eqn))]


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
    is_array = hasattr(x, "dtype") and hasattr(x, "shape")
    array = x if is_array else np.asarray(x)
    dtype, shape = str(array.dtype), tuple(array.shape)
    return dtype, shape, digest(array)


def platform() -> tuple[str, ...]:
    """Versions of JAX and jaxlib, and the kind of the default device."""
    device = jax.devices()[0]
    version: str = getattr(jaxlib, "__version__")  # noqa: B009 - the stubs do not export it
    return jax.__version__, version, device.platform, device.device_kind


# Text of the Python code that a program calls back, stable between processes and line numbers.
#
# JAX prints such a function by its name and address, which differ between processes. The text here
# holds the bytecode, the constants, and the same for functions, methods, plain values and arrays
# that the function closes over, has as defaults or looks up among the globals of its module; of
# objects of a class of the user's, their attributes. Lists, dictionaries and sets are left out, as
# callbacks write notes into them, by which no later run should be another one; so are objects of
# installed packages.
#
# It is a walk of its own beside `_record/values.py`, whose digest counts lists and refuses what it
# cannot compare: one value of another package would leave all arrays of a callback uncompared.


_CALLS = (*CALLBACKS, "pure_callback")
_PLAIN = (int, float, complex, str, bytes, bool, type(None))
_ARRAYS = (np.ndarray, np.generic, jax.Array)


def host_code(eqn: JaxprEqn) -> list[str]:
    """Text of each function behind a callback equation; empty for other primitives."""
    if eqn.primitive.name not in _CALLS:
        return []
    texts: list[str] = []
    for value in eqn.params.values():
        texts += _describe(value, {})
    return texts


def _describe(value: object, seen: dict[int, tuple[int, object]]) -> Iterator[str]:
    """Yield the text of a callback parameter and of everything that it reads; of an object that
    comes again, its number. `seen` has the objects too, so that no other one gets the id of one.
    """
    if isinstance(value, _PLAIN):
        yield repr(value)
        return
    if isinstance(value, _ARRAYS) and not _has_objects(value):
        yield repr(value_key(value))
        return
    if id(value) in seen:
        yield f"again {seen[id(value)][0]}"
        return
    seen[id(value)] = len(seen), value
    yield f"{type(value).__module__}.{type(value).__qualname__}"
    if isinstance(value, FunctionType):
        yield _text(value.__code__)
    # The names separate the parts of one value from those of the next.
    for name, part in _parts(value):
        yield name
        yield from _describe(part, seen)
    yield "end"


def _has_objects(array: Any) -> bool:
    # Random keys have a dtype without that attribute.
    return getattr(array.dtype, "hasobject", False)


def _parts(value: object) -> Iterator[tuple[str, object]]:
    """Yield what a value reads, or consists of, by name."""
    if isinstance(value, FunctionType):
        yield from _read_by(value)
    elif isinstance(value, MethodType):
        yield "function", value.__func__
        yield "object", value.__self__
    elif isinstance(value, functools.partial):
        yield "function", value.func
        for part in value.args:
            yield "positional", part
        yield from value.keywords.items()
    elif isinstance(value, tuple):
        for part in cast("tuple[object, ...]", value):
            yield "element", part
    elif _is_users(type(value)) and not isinstance(value, type):
        yield from instance_items(value)
        yield from _class_items(type(value))
    elif dataclasses.is_dataclass(value):
        # JAX wraps the called function in a dataclass of its own.
        for field in dataclasses.fields(value):
            yield field.name, getattr(value, field.name, None)


def _read_by(fn: FunctionType) -> Iterator[tuple[str, object]]:
    """Yield what a function closes over, its defaults, and the globals that a user's code names."""
    for part in fn.__defaults__ or ():
        yield "default", part
    yield from (fn.__kwdefaults__ or {}).items()
    for value in closure_variables(fn, unset=None).values():
        yield "cell", value
    if not is_users(fn):
        return
    names: set[str] = set()
    for code in codes_in(fn.__code__):
        names.update(code.co_names)
    for name in sorted(names):
        if name in fn.__globals__:
            yield name, fn.__globals__[name]


def _is_users(class_: type) -> bool:
    return class_.__module__ in sys.modules and not is_installed(class_.__module__)


def _class_items(class_: type) -> Iterator[tuple[str, object]]:
    """Yield the methods, numbers and arrays of a user's class and of those it inherits from."""
    kept = (FunctionType, *_PLAIN, *_ARRAYS, tuple)
    for base in filter(_is_users, class_.__mro__):
        for name, part in class_items(base):
            if isinstance(part, kept):
                yield name, part


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
