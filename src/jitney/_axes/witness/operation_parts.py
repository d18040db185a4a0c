"""Parts of an operation that are compared between a trace with symbolic sizes and one with numbers:
its name, its parameters, its sub-jaxprs, and what the functions hold that it calls at run time.

A callback is called with numbers. One that holds a symbolic size, in a closure, a default, a
partial argument or an attribute, cannot compute with it; one that holds what Python has made of a
size (its text, a comparison) would answer for another size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import cast

import jax
import numpy as np

from ..._jax.equinox_checks import is_of_check, messages_of
from ..._jax.programs.jaxprs import open_jaxpr, solve_operands
from ..._jax.programs.program_parts import content_of
from ..._jax.trees import Tracer, attribute
from ..._values.attributes import attributes_of, closure_variables
from ..._values.kinds import METHOD, PARTIAL, kind_of
from ..dims import is_symbolic
from .constants import Evaluator
from .graph import (
    Graph,
    Value,
    arguments,
    canonical,
    graph_of,
    place_of,
)

_SAME_NAME = {"add_any": "add", "copy_p": "copy"}
# Parameters that do not affect the result, or that follow from the operands.
_PARAMETERS = (
    "sharding out_sharding unroll num_carry num_consts ft_in ft_out const_lengths linear"
    " body_nconsts cond_nconsts weak_type indices_are_sorted unique_indices debug result_avals"
    " _split_transpose"
)
_HOW = frozenset(_PARAMETERS.split())
# Parameters that hold functions of the user's, which are called at run time.
_CALLED = ("callback", "callback_func")
# What holds more objects than this is not compared.
_MOST = 2_000
_PLAIN = (bool, int, float, complex, str, bytes, type(None), np.generic)
_SHARED = (type, ModuleType, BuiltinFunctionType, Tracer)
"""Kinds that are the same objects in both traces, or cannot be called with numbers."""


def operation_name(value: Value) -> str:
    """Return the name of an operation, the same for two names of one operation."""
    return _SAME_NAME.get(value.name, value.name)


def body_graph(
    value: Value,
    program: object,
    given: Sequence[Value],
    keys: Sequence[object],
) -> Graph:
    """The graph of a sub-jaxpr, whose leading arguments are given."""
    values = arguments(
        program,
        value.scope,
        [*given, *keys],
    )
    values[: len(given)] = given
    return graph_of(program, values, value.scope, place_of(value))


def count_free(program: object, given: Sequence[Value]) -> int:
    """The number of arguments of a sub-jaxpr behind those that are given."""
    jaxpr, _ = open_jaxpr(program)
    return len(jaxpr.invars) - len(given)


def solve_parts(value: Value) -> tuple[list[Value], list[Value]]:
    """The constants and the right-hand sides of the `solve` program of a `custom_linear_solve`."""
    operands = solve_operands(value.equation, list(value.reads))
    count = len(value.reads) - sum(value.params["const_lengths"])
    constants = operands[: len(operands) - count]
    return constants, operands[len(constants) :]


def differing_parameter(a: Value, b: Value) -> str | None:
    """The name of a parameter that differs; None if all are equal."""
    names = a.params.keys() | b.params.keys()
    for name in sorted(names - _HOW):
        if name in _CALLED:
            differs = _called(a, name) != _called(b, name)
        else:
            mine = canonical(a.params.get(name), a.scope)
            differs = mine != canonical(b.params.get(name), b.scope)
        if differs:
            return name
    return None


def _called(value: Value, name: str) -> object:
    """What a callback is compared by: the messages of a check, else what its function holds."""
    if is_of_check(value.equation):
        return messages_of(value.equation)
    return _contents(value.params.get(name))


def _contents(function: object) -> object:
    """Return a description that is equal in two traces which agree: names, and the plain values
    and arrays that a function holds, at any depth. One that holds a symbolic size, or too much, is
    equal to none.
    """
    seen: dict[int, object] = {}
    described = _described(function, seen)
    return object() if len(seen) > _MOST else described


def _described(
    value: object,
    seen: dict[int, object],
) -> object:
    if is_symbolic(value):
        return object()
    name = attribute(value, "__qualname__", type(value).__qualname__)
    if isinstance(value, _PLAIN):
        return name, repr(value)
    if isinstance(value, _SHARED) or id(value) in seen or len(seen) > _MOST:
        return name
    # The value itself is kept, so that its id is of nothing else meanwhile.
    seen[id(value)] = value
    if isinstance(value, (np.ndarray, jax.Array)) and value.dtype != object:
        return value.shape, str(value.dtype), content_of(value)
    return name, tuple(_described(part, seen) for part in _parts(value))


def _parts(value: object) -> Iterator[object]:
    """Yield what a container, a function or another object holds."""
    if isinstance(value, np.ndarray):
        yield value.tolist()
    elif isinstance(value, Sequence):
        yield from cast("Sequence[object]", value)
    elif isinstance(value, Set):
        yield from sorted(map(repr, cast("Set[object]", value)))
    elif isinstance(value, Mapping):
        for key, part in cast("Mapping[object, object]", value).items():
            yield repr(key)
            yield part
    elif kind_of(value) in (PARTIAL, METHOD):
        yield from kind_of(value).parts(value)
    elif isinstance(value, FunctionType):
        yield from (value.__defaults__, value.__kwdefaults__)
        yield from closure_variables(value, unset=None).values()
    # A function, and a class that extends a container, have attributes too.
    yield from attributes_of(value).values()


def without_unit(value: Value, known: Evaluator) -> Value:
    """Strip an operation that changes nothing, such as 0 + x or 1 * x: JAX counts positions by
    0 + 1 * iota where a size is a symbol.
    """
    unit = {"mul": 1, "add": 0}.get(value.name)
    if unit is None:
        return value
    for read, other in (value.reads, value.reads[::-1]):
        if read.const is None or other.shape != value.shape:
            continue
        if np.all(np.asarray(read.const) == unit):
            return other
    return value
