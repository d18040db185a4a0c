"""The derivative of a program that is evaluated in a way of ours, padded or cut into chunks, for
whoever differentiates it once.

It is not JAX's derivative of that evaluation: what stands behind a valid part may be infinite or
tie with a maximum, and the extremes of two chunks may tie where the elements do not. It is a
program of its own, made of the body's derivative at any size, proven and evaluated as every other.
In reverse mode JAX transposes what is linear in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import numpy as np

from .._jax.jaxprs import equations, source_of
from .._jax.trees import Tracer, is_a, issubdtype
from .refusal import ClosesOver, Refused

_jax: Any = jax
_SymbolicZero: Any = _jax.custom_derivatives.SymbolicZero
P = TypeVar("P")

Derivative = Callable[[tuple[int, ...]], P]
"""From the positions of the arguments that vary to the program of the results and their tangents:
of the arguments, then their tangents.
"""


def with_derivative(
    run: Callable[[Sequence[Any], Any], list[Any]],
    along: Callable[[P, Sequence[Any], Any, Sequence[Any]], list[Any]],
    derivative: Derivative[P],
    arrays: Sequence[Any],
    beside: Any,
    count: int,
) -> list[Any]:
    """The results of a program, for whoever differentiates it once.

    Args:
        run: Evaluates it, by its arguments and what is given beside them.
        along: Evaluates its derivative, by the program of it, the arguments, what is beside them,
            and the tangents of those that vary.
        derivative: The program of the derivative. It is asked when JAX differentiates.
        arrays: The arguments.
        beside: Arrays that do not vary.
        count: How many results there are.
    """

    def rule(primals: Any, tangents: Any) -> tuple[list[Any], list[Any]]:
        (arrays, beside), (moved, _) = primals, tangents
        varying = tuple(
            i
            for i, x in enumerate(arrays)
            if not is_a(moved[i], _SymbolicZero) and issubdtype(x.dtype, np.inexact)
        )
        program = derivative(varying)
        given = [moved[i] for i in varying]

        def made_along(arrays: Sequence[Any], beside: Any, given: Sequence[Any]) -> Sequence[Any]:
            return along(program, arrays, beside, given)[count:]

        _demand_transposable(made_along, arrays, beside, given)
        both = along(program, arrays, beside, given)
        results, made = _in_front(both[:count], (arrays, beside)), iter(both[count:])
        return results, [
            next(made) if issubdtype(x.dtype, np.inexact) else np.zeros(x.shape, jax.dtypes.float0)
            for x in results
        ]

    def evaluate(arrays: Any, beside: Any) -> list[Any]:
        return _in_front(run(arrays, beside), (arrays, beside))

    evaluated: Any = _jax.custom_jvp(evaluate)
    evaluated.defjvp(rule, symbolic_zeros=True)
    return evaluated(list(arrays), beside)


def _in_front(results: Sequence[Any], given: Any) -> list[Any]:
    """The results; under an outer `vmap` of anything that was given they all have its axis, in
    front.

    JAX takes the axis of a `custom_jvp`'s results for where its function has it, also where the
    rule ran, and the rule had it elsewhere or not at all: `grad(vmap(jit(f)))` has wrong numbers
    then, without a word. Tried with 0.10.2 and 0.12.0.1.
    """

    def rule(size: int, batched: Any, results: Any, given: Any) -> tuple[Any, Any]:
        del given
        whole = [
            x if has else _jax.lax.broadcast(x, (size,))
            for x, has in zip(results, batched[0], strict=True)
        ]
        return whole, [True] * len(whole)

    same: Any = _jax.custom_batching.custom_vmap(_first)
    same.def_vmap(rule)
    return same(list(results), given)


def _first(results: Any, given: Any) -> Any:
    del given
    return results


def _demand_transposable(
    along: Callable[..., Sequence[Any]], arrays: Any, beside: Any, tangents: Any
) -> None:
    """Check that JAX can go backwards through what is linear in the tangents, on abstract values.

    Raises:
        Refused: It cannot, as through a loop of as many turns as the size has.
    """

    def back(arrays: Any, beside: Any, tangents: Any) -> Any:
        def of_tangents(*tangents: Any) -> Any:
            return along(arrays, beside, tangents)

        return _jax.linear_transpose(of_tangents, *tangents)(
            _jax.tree.map(_zeros, _jax.eval_shape(of_tangents, *tangents))
        )

    try:
        _jax.eval_shape(back, *_jax.tree.map(_abstract, (arrays, beside, tangents)))
    # an assertion of JAX's: what is linear is multiplied inside a loop
    except (ValueError, NotImplementedError, AssertionError) as error:
        why = str(error).partition("\n")[0]
        raise Refused(
            "", f"has a derivative that JAX cannot go through backwards: {why}"
        ) from error


def _abstract(x: Any) -> Any:
    return _jax.ShapeDtypeStruct(x.shape, x.dtype)


def _zeros(x: Any) -> Any:
    return _jax.lax.full(x.shape, 0, x.dtype)


def pushed_forward(
    fn: Callable[..., Sequence[Any]], count: int, varying: Sequence[int]
) -> Callable[..., list[Any]]:
    """A function of `count` arrays with the tangents of those that vary behind them: its results,
    and the tangents of the real ones.
    """

    def pushed(*given: Any) -> list[Any]:
        arrays, tangents = given[:count], given[count:]

        def of_varying(*at: Any) -> list[Any]:
            whole = list(arrays)
            for i, x in zip(varying, at, strict=True):
                whole[i] = x
            return list(fn(*whole))

        results, along = _jax.jvp(of_varying, [arrays[i] for i in varying], list(tangents))
        return [*results, *(x for x in along if x.dtype != jax.dtypes.float0)]

    return pushed


def demand_no_backward_rules(jaxpr: Any) -> None:
    """Check that a program of tangents holds none of a `jax.custom_vjp`, which JAX can transpose
    and not evaluate.

    Raises:
        Refused: It does.
    """
    for eqn in equations(jaxpr):
        if eqn.primitive.name == "custom_lin":  # in jax 0.10.0 to 0.12.0.1
            raise Refused(
                source_of(eqn),
                "has a derivative of its own (`jax.custom_vjp`), of which there is no forward mode"
                " to be padded",
            )


def demand_no_tracers(jaxpr: Any) -> None:
    """Check that a body closes over nothing that is differentiated: the derivative is of its
    arguments.

    Raises:
        ClosesOver: It does.
    """
    if any(is_a(constant, Tracer) for constant in jaxpr.consts):
        raise ClosesOver
