"""Go through programs of JAX operation by operation, in one way.

`evaluated` is the one place where what the variables of a program stand for is kept. What that is,
and what an operation makes of it, its callers say: numbers and tracers, values with their makers,
what depends on what, or the numbers of values.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from jax.extend import core

from .jaxprs import called, is_written, opened, source_of, variables

_core: Any = core
T = TypeVar("T")


def applied(program: Any, constants: Iterable[Any], arrays: Iterable[Any]) -> list[Any]:
    """The results of an open program as it is, by JAX's own evaluator."""
    return list(_core.jaxpr_as_fun(_core.ClosedJaxpr(program, list(constants)))(*arrays))


def _as_it_is(value: Any, _aval: Any, _eqn: Any) -> Any:
    return value


def evaluated(
    jaxpr: Any,
    values: Iterable[T],
    results: Callable[[Any, list[T]], Iterable[T]],
    *,
    constants: Iterable[T] | None = None,
    constant: Callable[[Any, Any, Any], T] = _as_it_is,
    lets_go: bool = False,
) -> list[T]:
    """Go through a program, operation by operation.

    Args:
        jaxpr: The program, closed or open.
        values: What its arguments are.
        results: From an operation, and what its operands are, to what its results are.
        constants: What its constants are; what `constant` makes of them if they are not given.
        constant: What a number of the program is: from the number, its type, and the operation that
            reads it. None of a constant, and of a number that is a result.
        lets_go: Whether a value is let go of when nothing reads it any more, which is worth its
            time where values take memory.
    """
    program, held = opened(jaxpr)
    if constants is None:
        constants = [
            constant(value, atom.aval, None)
            for value, atom in zip(held, program.constvars, strict=True)
        ]
    env: dict[Any, T] = dict(zip(program.constvars, constants, strict=True))
    env.update(zip(program.invars, values, strict=True))
    done = _done(program) if lets_go else None
    for eqn in program.eqns:
        inputs = [
            constant(atom.val, atom.aval, eqn) if is_written(atom) else env[atom]
            for atom in eqn.invars
        ]
        env.update(zip(eqn.outvars, results(eqn, inputs), strict=True))
        for atom in next(done) if done is not None else ():
            env.pop(atom, None)
    return [
        constant(atom.val, atom.aval, None) if is_written(atom) else env[atom]
        for atom in program.outvars
    ]


def _done(program: Any) -> Iterator[list[Any]]:
    """For each operation, in order, what nothing behind it reads: of what it reads, and of what it
    makes.
    """
    read = set(variables(program.outvars))
    done: list[list[Any]] = []
    for eqn in reversed(program.eqns):
        done.append([atom for atom in (*variables(eqn.invars), *eqn.outvars) if atom not in read])
        read.update(variables(eqn.invars))
    return reversed(done)


@dataclass(frozen=True, eq=False)
class SeenAt:
    """The calls that an operation stands in.

    Args:
        calls: From the outermost.
        start: The user's line of what holds the program.
    """

    calls: tuple[Any, ...] = ()
    start: str = ""

    @cached_property
    def line(self) -> str:
        """The user's line of the innermost call that has one. To look one up takes long, so that it
        is done when it is asked for.
        """
        return functools.reduce(
            lambda held_at, eqn: source_of(eqn, held_at), self.calls, self.start
        )


def without_calls(
    jaxpr: Any,
    values: Iterable[T],
    results: Callable[[Any, list[T], SeenAt], Iterable[T]],
    inside: Callable[[Any], Any | None] = called,
    *,
    constants: Iterable[T] | None = None,
    constant: Callable[[Any, Any, Any], T] = _as_it_is,
    seen_at: SeenAt = SeenAt(),
) -> list[T]:
    """Go through a program and those that it calls as if they were one.

    Args:
        jaxpr: The program, closed or open.
        values: What its arguments are.
        results: From an operation, what its operands are, and the calls that it stands in, to what
            its results are.
        inside: The program that is gone through in place of an operation; None of one that is an
            operation.
        constants: What its constants are; what `constant` makes of them if they are not given.
        constant: What a number of the program is; see `evaluated`.
        seen_at: What the program stands in.
    """

    def of(eqn: Any, inputs: list[T]) -> Iterable[T]:
        program = inside(eqn)
        if program is None:
            return results(eqn, inputs, seen_at)
        held_by = SeenAt((*seen_at.calls, eqn), seen_at.start)
        return without_calls(program, inputs, results, inside, constant=constant, seen_at=held_by)

    return evaluated(jaxpr, values, of, constants=constants, constant=constant)


# Values by number.


@dataclass(frozen=True)
class Const:
    """A value of a program that is known before anything runs; the others are numbered."""

    value: Any


Ref = int | Const


def numbers_of(refs: Iterable[Ref]) -> list[int]:
    """The numbers of the values that are not constants."""
    return [ref for ref in refs if isinstance(ref, int)]


def values_at(refs: Iterable[Ref], values: Mapping[int, Any]) -> list[Any]:
    """The values, of which those that are not constants are kept by number."""
    return [values[ref] if isinstance(ref, int) else ref.value for ref in refs]


def numbered(atoms: Iterable[Any], avals: dict[int, Any]) -> tuple[int, ...]:
    """A new number for each of the results of an operation, which is put down with its type."""
    numbers: list[int] = []
    for atom in atoms:
        numbers.append(len(avals))
        avals[numbers[-1]] = atom.aval
    return tuple(numbers)


def as_const(value: Any, _aval: Any, _eqn: Any) -> Const:
    """What a number of a program is, where the values of the program are numbered."""
    return Const(value)
