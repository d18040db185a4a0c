"""The one walk over programs: what it gives, what it keeps, and how it takes calls apart."""

from __future__ import annotations

import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jitney._jax.programs.evaluation import CallStack, interpret, without_calls
from jitney._jax.programs.jaxprs import called_jaxpr, open_jaxpr, rebind
from jitney._jax.programs.ssa import Const, as_const, number_results

TABLE = np.linspace(-1.0, 1.0, 5, dtype=np.float32)


def mixed(x: Any) -> Any:
    """Literals, a constant, a call, a loop, a result that nobody reads, and a result that is an
    argument.
    """
    _, places = jax.lax.top_k(x, 2)
    total, _ = jax.lax.scan(lambda carry, row: (carry * 0.5 + row, row), jnp.float32(1.0), x)
    return jnp.where(x > 0, x, 2.0) + TABLE, places, total, x, 3.0


def test_evaluated_gives_what_the_function_gives():
    x = jnp.asarray([3.0, -1.0, 4.0, -1.5, 9.0])
    expected = jax.jit(mixed)(x)
    for got, wanted in zip(interpret(jax.make_jaxpr(mixed)(x), [x], rebind), expected, strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_constants_can_be_given():
    """In place of those that the program was traced with."""
    program = jax.make_jaxpr(lambda x: x + TABLE)(TABLE)
    (got,) = interpret(program, [TABLE], rebind, constants=[10 * TABLE])
    np.testing.assert_allclose(got, 11 * TABLE, rtol=1e-6)


def test_a_number_is_read_with_the_operation_that_reads_it():
    """None reads a constant of the program, or a number that is a result."""
    seen: list[tuple[float, str | None]] = []

    def constant(value: Any, _aval: Any, eqn: Any) -> Any:
        seen.append((float(np.max(value)), None if eqn is None else eqn.primitive.name))
        return value

    interpret(
        jax.make_jaxpr(lambda x: (x * 2.0 + TABLE, 3.0))(TABLE), [TABLE], rebind, constant=constant
    )
    assert seen == [(1.0, None), (2.0, "mul"), (3.0, None)]


class Value:
    """Something that a weak reference can be made to."""


def test_values_are_let_go_of_when_nothing_reads_them_any_more():
    """Of a chain of operations what is read and what is made is there at a time; what is never read
    is not kept.
    """
    there: list[weakref.ref[Value]] = []
    most = 0

    def results(eqn: Any, inputs: list[Value]) -> list[Value]:
        nonlocal most
        made = [Value() for _ in eqn.outvars]
        there.extend(map(weakref.ref, made))
        most = max(most, sum(ref() is not None for ref in there))
        return made

    def chain(x: Any) -> Any:
        for _ in range(9):
            x = jax.lax.top_k(jnp.sin(x), 4)[0]
        return x

    program = jax.make_jaxpr(chain)(jnp.ones(4))
    (result,) = interpret(program, [Value()], results, lets_go=True)
    assert len(there) == 27
    assert most <= 5
    assert [ref() for ref in there if ref() is not None] == [result]


def test_calls_are_taken_apart_and_leave_their_lines():
    @jax.jit
    def inner(x: Any) -> Any:
        return jnp.tanh(x)

    lines: list[str] = []

    def results(eqn: Any, operands: list[Any], within: CallStack) -> list[Any]:
        lines.append(within.line)
        return rebind(eqn, operands)

    program = jax.make_jaxpr(lambda x: inner(x) * 2)(TABLE)
    (got,) = without_calls(program, [TABLE], results, seen_at=CallStack(start="outside"))
    np.testing.assert_allclose(got, np.tanh(TABLE) * 2, rtol=1e-6)
    assert lines[0].startswith("test_evaluation.py:")
    assert lines[1] == "outside"


def test_a_program_by_numbers():
    """Values are numbered, constants are themselves, and a call leaves no trace."""
    avals: dict[int, Any] = {}
    steps: list[tuple[str, list[Any]]] = []

    def results(eqn: Any, reads: list[Any], _: CallStack) -> tuple[int, ...]:
        steps.append((eqn.primitive.name, reads))
        return number_results(eqn.outvars, avals)

    program = jax.make_jaxpr(jax.jit(lambda x: (x * 2.0, 3.0)))(TABLE)
    takes = number_results(open_jaxpr(program)[0].invars, avals)
    gives = without_calls(program, takes, results, called_jaxpr, constant=as_const)
    assert steps == [("mul", [0, Const(2.0)])]
    assert gives == [1, Const(3.0)]
    assert [aval.shape for aval in avals.values()] == [(5,), (5,)]


def test_too_few_arguments_are_an_error():
    with pytest.raises(ValueError, match="zip"):
        interpret(jax.make_jaxpr(jnp.add)(1.0, 2.0), [1.0], rebind)
