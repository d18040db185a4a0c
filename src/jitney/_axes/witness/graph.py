"""A program as a graph of values at known sizes: calls are inlined, and a loop body refers to the
values that it closes over directly.

Two traces of one function may differ in how they are split into calls, and in which constants of a
loop are literals and which are operands. Their graphs do not differ in that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from ..._jax.equinox_checks import Insides, is_callback
from ..._jax.programs.evaluation import CallStack, without_calls
from ..._jax.programs.jaxprs import open_jaxpr, source_of
from ..._jax.trees import Tracer, attribute
from ..._jax.typed import (
    Array,
    Aval,
    JaxprEqn,
    Var,
)
from ..dims import Dim, evaluate, tree_dims
from ..interpreter import Op, mentions
from ..rules import RULES
from ..rules.control import inlined_program
from ..unified.number_of_size import NUMBER_OF_SIZE


@dataclass(eq=False)
class Value:
    """A value of a program; a node of its graph.

    Args:
        shape: Its shape at the sizes of `scope`.
        dtype: Its dtype; None for a token.
        eqn: The equation that defines it; None for an argument or a constant.
        index: Its position among the results of the equation.
        reads: The operands of the equation.
        const: The array, for a constant.
        key: Identity of an argument: equal keys are equal arguments.
        var: The variable of the program.
        scope: Symbol -> size.
        is_known: True if it depends on constants and sizes alone, and can be evaluated.
        is_sized: True if it is known and depends on a symbolic size.
        place: The user's line of the equation.
    """

    shape: tuple[int, ...]
    dtype: Any
    eqn: JaxprEqn | None = None
    index: int = 0
    reads: tuple[Value, ...] = ()
    const: Array | None = None
    key: object = None
    var: Var | None = None
    scope: Mapping[str, int] = field(default_factory=dict[str, int])
    is_known: bool = False
    is_sized: bool = False
    place: str = ""

    @property
    def name(self) -> str:
        """The primitive that defines it, or ""."""
        return "" if self.eqn is None else self.eqn.primitive.name

    @property
    def equation(self) -> JaxprEqn:
        """The equation that defines it, for a value that is neither an argument nor a constant."""
        if self.eqn is None:
            raise TypeError("no equation defines this value")
        return self.eqn

    @property
    def params(self) -> dict[str, Any]:
        return self.equation.params


@dataclass(frozen=True)
class Graph:
    """The results of a program, and its operations with side effects."""

    outs: tuple[Value, ...]
    effects: tuple[Value, ...]

    @property
    def roots(self) -> tuple[Value, ...]:
        """The values from which all others are reached."""
        return (*self.outs, *self.effects)


def constant(value: object, aval: Aval, _eqn: object) -> Value:
    """The node of a constant of a program; a tracer of an outer trace becomes an argument."""
    if isinstance(value, Tracer):
        return Value(tuple(value.shape), value.dtype, key=value)
    const = value if isinstance(value, jax.Array) else np.asarray(value, aval.dtype)
    return Value(tuple(const.shape), aval.dtype, const=const, is_known=True)


def arguments(
    jaxpr: object,
    sizes: Mapping[str, int],
    keys: Sequence[object],
) -> list[Value]:
    """Make a node for each argument of a program."""
    program, _ = open_jaxpr(jaxpr)
    values: list[Value] = []
    for var, key in zip(program.invars, keys, strict=True):
        shape, dtype = at(var.aval.shape, sizes), var.aval.dtype
        value = Value(shape, dtype, key=key, var=var, scope=sizes)
        values.append(value)
    return values


def graph_of(
    jaxpr: object,
    given: Sequence[Value],
    sizes: Mapping[str, int],
    seen_at: str = "",
) -> Graph:
    """Build the graph of a program from the nodes of its arguments."""
    effects: list[Value] = []

    # An operation with effects is a root of the graph besides the results; one without results gets
    # a value of its own.
    def results(
        eqn: JaxprEqn,
        reads: list[Value],
        within: CallStack,
    ) -> list[Value]:
        operands, line = tuple(reads), within.line
        outs = _results(eqn, operands, sizes, line)
        if eqn.effects and outs:
            effects.append(outs[0])
        elif eqn.effects:
            effect = Value((), None, eqn, 0, operands, scope=sizes, place=line)
            effects.append(effect)
        return outs

    outs = without_calls(
        jaxpr,
        given,
        results,
        inlined_program,
        constant=constant,
        seen_at=CallStack(start=seen_at),
    )
    return Graph(tuple(outs), tuple(effects))


def at(dims: Sequence[Dim], sizes: Mapping[str, int]) -> tuple[int, ...]:
    """A shape at the given sizes."""
    return tuple(int(evaluate(dim, sizes)) for dim in dims)


def _results(
    eqn: JaxprEqn,
    reads: tuple[Value, ...],
    sizes: Mapping[str, int],
    seen_at: str,
) -> list[Value]:
    known = all(value.is_known for value in reads) and not eqn.effects
    known = known and eqn.primitive.name != NUMBER_OF_SIZE and not _calls_back(eqn)
    of_sizes = known and (_has_dims(eqn.params) or mentions(Op(eqn)))
    # Only a rule can evaluate an equation with a symbolic size.
    known = known and (not of_sizes or eqn.primitive.name in RULES)
    sized = known and (of_sizes or any(value.is_sized for value in reads))
    return [
        Value(
            at(getattr(atom.aval, "shape", ()), sizes),
            getattr(atom.aval, "dtype", None),
            eqn,
            i,
            reads,
            var=atom,
            scope=sizes,
            is_known=known,
            is_sized=sized,
            place=seen_at,
        )
        for i, atom in enumerate(eqn.outvars)
    ]


def _calls_back(eqn: JaxprEqn) -> bool:
    """Return whether an equation calls Python. It is not evaluated ahead: JAX runs a callback of
    constants while it traces the branch that holds it, so that checks raise which have not failed.
    """
    return is_callback(eqn) or any(map(is_callback, Insides().nested_equations(eqn)))


def place_of(value: Value) -> str:
    """The user's line that a value comes from."""
    if value.eqn is None:
        return value.place
    return source_of(value.eqn, value.place)


def canonical(param: object, sizes: Mapping[str, int]) -> object:
    """Normalise a parameter of an equation so that it is equal in two traces of one function.
    Sub-jaxprs are left out, since they are compared as graphs.
    """
    if is_ragged_dim(param):
        return int(evaluate(param, sizes))
    if isinstance(param, (bool, str, bytes, type(None))):
        return param
    if isinstance(param, (int, np.integer)):
        return int(param)
    if isinstance(param, (tuple, list)):
        return tuple(canonical(part, sizes) for part in param)
    if isinstance(param, Mapping):
        items = [(str(key), canonical(part, sizes)) for key, part in param.items()]
        return tuple(sorted(items))
    if hasattr(getattr(param, "jaxpr", param), "eqns"):
        return "a program"
    if isinstance(param, np.ndarray):
        return (param.shape, str(param.dtype), param.tobytes())
    if isinstance(param, float):
        return repr(param)
    # Each trace makes its own function objects: compare them by name.
    if callable(param) and not isinstance(param, type):
        return attribute(param, "__qualname__", type(param).__qualname__)
    return param


def is_ragged_dim(param: object) -> bool:
    """Return whether a parameter is a symbolic size itself."""
    return _has_dims(param) and not isinstance(param, (tuple, list, Mapping))


def _has_dims(params: object) -> bool:
    return any(True for _ in tree_dims(params))
