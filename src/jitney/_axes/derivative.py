"""First derivative of a padded or chunked evaluation, by `jax.custom_jvp`.

JAX's derivative of such an evaluation would be wrong: padding may be infinite or tie with a
maximum, and the maxima of two chunks may tie where no elements of the body do. So the derivative is
a program of its own: the JVP of the body, traced with symbolic sizes, proven and evaluated like any
other. In reverse mode JAX transposes its linear part.

    body         f(x), at any size n
    derivative   jvp(f): (x, dx) -> (f(x), df), at any size n, then padded or chunked
    custom_jvp   the evaluation of `f` with the evaluation of `jvp(f)` as its rule
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import numpy as np
from jax.custom_derivatives import SymbolicZero

from .._jax.programs.jaxprs import equations, source_of
from .._jax.trees import Tracer, issubdtype
from .._jax.typed import AnyJaxpr, ClosedJaxpr
from .refusal import ClosesOver, Refused

P = TypeVar("P")
Extra = TypeVar("Extra")
T = TypeVar("T")

Derivative = Callable[[tuple[int, ...]], P]
"""Positions of the varying arguments -> the program from the arguments and the tangents of these to
the results and their tangents.
"""


def with_derivative(
    run: Callable[[Sequence[jax.Array], Extra], list[jax.Array]],
    along: Callable[[P, Sequence[jax.Array], Extra, Sequence[jax.Array]], list[jax.Array]],
    derivative: Derivative[P],
    arrays: Sequence[object],
    beside: Extra,
    count: int,
) -> list[jax.Array]:
    """Evaluate a program so that JAX can differentiate it once.

    Args:
        run: Evaluates the program on `arrays` and `beside`.
        along: Evaluates the derivative: from its program, `arrays`, `beside`, and the tangents of
            the varying arguments.
        derivative: Makes the program of the derivative; called when JAX differentiates.
        arrays: The arguments.
        beside: Further arrays, which have no tangents.
        count: The number of results.
    """

    def rule(
        primals: tuple[Sequence[jax.Array], Extra],
        tangents: tuple[Sequence[jax.Array | SymbolicZero], object],
    ) -> tuple[list[jax.Array], list[Any]]:
        arrays, beside = primals
        # Only arguments with a tangent are differentiated: symbolic zeros mark the others.
        varying: list[int] = []
        moved: list[jax.Array] = []
        for i, (x, tangent) in enumerate(zip(arrays, tangents[0], strict=True)):
            if not isinstance(tangent, SymbolicZero) and issubdtype(x.dtype, np.inexact):
                varying.append(i)
                moved.append(tangent)
        program = derivative(tuple(varying))

        def tangents_along(
            arrays: Sequence[jax.Array],
            beside: Extra,
            moved: Sequence[jax.Array],
        ) -> Sequence[jax.Array]:
            return along(program, arrays, beside, moved)[count:]

        # Refused now, with the user's line at hand: in reverse mode JAX would fail much later.
        _demand_transposable(tangents_along, arrays, beside, moved)
        both = along(program, arrays, beside, moved)
        results = _in_front(both[:count], (arrays, beside))

        # JAX wants float0 tangents for integer results; the program has none for these.
        made = iter(both[count:])
        out: list[Any] = []
        for x in results:
            if issubdtype(x.dtype, np.inexact):
                out.append(next(made))
            else:
                out.append(np.zeros(x.shape, jax.dtypes.float0))
        return results, out

    def evaluate(arrays: Sequence[jax.Array], beside: Extra) -> list[jax.Array]:
        return _in_front(run(arrays, beside), (arrays, beside))

    evaluated = jax.custom_jvp(evaluate)
    evaluated.defjvp(rule, symbolic_zeros=True)
    return evaluated(list(arrays), beside)


def _in_front(results: Sequence[jax.Array], given: object) -> list[jax.Array]:
    """Return the results unchanged, but under an outer `vmap` of any of `given` with the mapped
    axis in front in each of them.

    A workaround: JAX takes the batch dimension of a `custom_jvp`'s results from its function, also
    where the rule ran and had the axis elsewhere or not at all. Then `grad(vmap(jit(f)))` silently
    gives wrong numbers (jax 0.10.2 and 0.12.0.1).
    """

    def rule(
        size: int,
        batched: tuple[Sequence[bool], object],
        results: Sequence[jax.Array],
        given: object,
    ) -> tuple[list[jax.Array], list[bool]]:
        del given
        whole = [
            x if has_axis else jax.lax.broadcast(x, (size,))
            for x, has_axis in zip(results, batched[0], strict=True)
        ]
        return whole, [True] * len(whole)

    same = jax.custom_batching.custom_vmap(_first)
    same.def_vmap(rule)
    return same(list(results), given)


def _first(results: T, given: object) -> T:
    del given
    return results


def _demand_transposable(
    along: Callable[[Sequence[jax.Array], Extra, Sequence[jax.Array]], Sequence[jax.Array]],
    arrays: Sequence[jax.Array],
    beside: Extra,
    tangents: Sequence[jax.Array],
) -> None:
    """Check on abstract values that JAX can transpose the derivative with respect to the tangents.

    Raises:
        Refused: It cannot; a loop of as many iterations as the size is an example.
    """

    def back(
        arrays: Sequence[jax.Array],
        beside: Extra,
        tangents: Sequence[jax.Array],
    ) -> object:
        # What it gives, noted while JAX traces it: to ask for the shapes would trace it again.
        results: list[jax.ShapeDtypeStruct] = []

        def of_tangents(*tangents: jax.Array) -> Sequence[jax.Array]:
            made = along(arrays, beside, tangents)
            results[:] = map(_abstract, made)
            return made

        transposed = jax.linear_transpose(of_tangents, *tangents)
        return transposed([*map(_zeros, results)])

    # AssertionError is JAX's own, where linear values are multiplied inside of a loop.
    avals = jax.tree.map(_abstract, (arrays, beside, tangents))
    try:
        jax.eval_shape(back, *avals)
    except (ValueError, NotImplementedError, AssertionError) as error:
        why = str(error).partition("\n")[0] or type(error).__name__
        raise Refused(
            "", f"has a derivative that JAX cannot go through backwards: {why}"
        ) from error


def _abstract(x: jax.Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def _zeros(x: jax.ShapeDtypeStruct) -> jax.Array:
    return jax.lax.full(x.shape, 0, x.dtype)


def jvp_function(
    fn: Callable[..., Sequence[object]],
    count: int,
    varying: Sequence[int],
) -> Callable[..., list[jax.Array]]:
    """The JVP of a function of `count` arrays, as a function of these and the tangents of the
    varying ones: its results, and the tangents of all that are not integers.
    """

    def pushed(*operands: jax.Array) -> list[jax.Array]:
        arrays, tangents = operands[:count], operands[count:]

        def of_varying(*values: jax.Array) -> list[object]:
            whole = list(arrays)
            for i, x in zip(varying, values, strict=True):
                whole[i] = x
            return list(fn(*whole))

        at = [arrays[i] for i in varying]
        results, along = jax.jvp(of_varying, at, list(tangents))
        moving = [x for x in along if x.dtype != jax.dtypes.float0]
        return [*results, *moving]

    return pushed


def demand_no_backward_rules(jaxpr: AnyJaxpr) -> None:
    """Check that a program of tangents holds none of a `jax.custom_vjp`, which JAX can transpose
    but not evaluate.

    Raises:
        Refused: The program holds one.
    """
    for eqn in equations(jaxpr):
        # The primitive's name in jax 0.10.0 to 0.12.0.1.
        if eqn.primitive.name == "custom_lin":
            raise Refused(
                source_of(eqn),
                "has a derivative of its own (`jax.custom_vjp`), of which there is no forward mode"
                " to be padded",
            )


def demand_no_tracers(jaxpr: ClosedJaxpr) -> None:
    """Check that a body closes over no tracer of an outer transform: the derivative is with respect
    to its arguments alone.

    Raises:
        ClosesOver: The body closes over one.
    """
    if any(isinstance(constant, Tracer) for constant in jaxpr.consts):
        raise ClosesOver
