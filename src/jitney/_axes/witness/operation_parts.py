"""Parts of an operation that are compared: its name, its parameters and its sub-jaxprs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..._jax.equinox_checks import is_of_check, messages_of
from ..._jax.programs.jaxprs import open_jaxpr, solve_operands
from .constants import Evaluator
from .function_contents import contents
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
    return contents(value.params.get(name))


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
