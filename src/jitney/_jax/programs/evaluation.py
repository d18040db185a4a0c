"""Interpreters of jaxprs, equation by equation, over any domain of values.

`interpret` is the one place that keeps the environment from variables to values. Its callers choose
the domain and the transfer function: concrete arrays and tracers, values with their producers,
dependence sets, or numbers in an SSA list.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from jax.extend import core

from ..typed import Atom, Aval, ClosedJaxpr, Jaxpr, JaxprEqn, Var
from .jaxprs import called_jaxpr, is_literal, open_jaxpr, source_of, variables

T = TypeVar("T")


def evaluate_jaxpr(
    program: Jaxpr,
    constants: Iterable[object],
    arrays: Iterable[object],
) -> list[Any]:
    """Evaluate an open jaxpr with JAX's own evaluator."""
    closed: Any = ClosedJaxpr(program, list(constants))
    return list(core.jaxpr_as_fun(closed)(*arrays))


def _as_it_is(value: object, _aval: object, _eqn: object) -> Any:
    return value


def interpret(
    jaxpr: object,
    values: Iterable[T],
    results: Callable[[JaxprEqn, list[T]], Iterable[T]],
    *,
    constants: Iterable[T] | None = None,
    constant: Callable[[Any, Aval, JaxprEqn | None], T] = _as_it_is,
    lets_go: bool = False,
) -> list[T]:
    """Interpret a jaxpr, equation by equation, and return the values of its results.

    Args:
        jaxpr: The jaxpr, closed or open.
        values: Values of its arguments.
        results: Transfer function: from an equation and the values of its operands to the values of
            its results.
        constants: Values of its constants; by default `constant` of each.
        constant: Value of a literal or constant: from the number, its abstract value, and the
            equation that reads it (None for a constant, and for a literal that is a result).
        lets_go: Whether to drop a value after its last use. That takes time, so it is for values
            that take memory.
    """
    program, held = open_jaxpr(jaxpr)
    if constants is None:
        constants = [
            constant(value, atom.aval, None)
            for value, atom in zip(held, program.constvars, strict=True)
        ]
    env: dict[Atom, T] = dict(zip(program.constvars, constants, strict=True))
    env.update(zip(program.invars, values, strict=True))

    # A variable lives from its equation to its last use, or to the end.
    done = _dead_variables(program) if lets_go else None
    for eqn in program.eqns:
        inputs = [
            constant(atom.val, atom.aval, eqn) if is_literal(atom) else env[atom]
            for atom in eqn.invars
        ]
        env.update(zip(eqn.outvars, results(eqn, inputs), strict=True))
        # A variable occurs twice if one equation reads it twice.
        for atom in next(done) if done is not None else ():
            env.pop(atom, None)
    return [
        constant(atom.val, atom.aval, None) if is_literal(atom) else env[atom]
        for atom in program.outvars
    ]


def _dead_variables(program: Jaxpr) -> Iterator[list[Var]]:
    """Return, for each equation in order, the variables that are dead after it (backward
    liveness).
    """
    read = set(variables(program.outvars))
    done: list[list[Var]] = []
    for eqn in reversed(program.eqns):
        done.append([atom for atom in (*variables(eqn.invars), *eqn.outvars) if atom not in read])
        read.update(variables(eqn.invars))
    return reversed(done)


@dataclass(frozen=True, eq=False)
class CallStack:
    """Stack of the call equations around an equation.

    Args:
        calls: The call equations, outermost first.
        start: The user's line of the equation that holds the outermost jaxpr.
    """

    calls: tuple[JaxprEqn, ...] = ()
    start: str = ""

    @cached_property
    def line(self) -> str:
        """The user's line of the innermost call that has one; computed on demand, since a look-up
        is slow.
        """
        return functools.reduce(
            lambda held_at, eqn: source_of(eqn, held_at), self.calls, self.start
        )


def without_calls(
    jaxpr: object,
    values: Iterable[T],
    results: Callable[[JaxprEqn, list[T], CallStack], Iterable[T]],
    inside: Callable[[JaxprEqn], object | None] = called_jaxpr,
    *,
    constants: Iterable[T] | None = None,
    constant: Callable[[Any, Aval, JaxprEqn | None], T] = _as_it_is,
    seen_at: CallStack = CallStack(),
) -> list[T]:
    """Interpret a jaxpr with its calls inlined.

    Args:
        jaxpr: The jaxpr, closed or open.
        values: Values of its arguments.
        results: Transfer function: from an equation, the values of its operands, and the calls
            around it, to the values of its results.
        inside: Jaxpr to inline for an equation; None to pass the equation to `results`.
        constants: Values of its constants; by default `constant` of each.
        constant: Value of a literal or constant; see `interpret`.
        seen_at: Calls around the jaxpr itself.
    """

    def of(eqn: JaxprEqn, inputs: list[T]) -> Iterable[T]:
        program = inside(eqn)
        if program is None:
            return results(eqn, inputs, seen_at)
        held_by = CallStack((*seen_at.calls, eqn), seen_at.start)
        return without_calls(program, inputs, results, inside, constant=constant, seen_at=held_by)

    return interpret(jaxpr, values, of, constants=constants, constant=constant)
