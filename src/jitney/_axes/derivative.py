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

from .._jax.jaxprs import equations, source_of
from .._jax.trees import Tracer, issubdtype
from .._jax.typed import AnyJaxpr
from .refusal import ClosesOver, Refused

_SymbolicZero: Any = jax.custom_derivatives.SymbolicZero
P = TypeVar("P")

Derivative = Callable[[tuple[int, ...]], P]
"""Positions of the varying arguments -> the program from the arguments and the tangents of these to
the results and their tangents.
"""


def with_derivative(
    run: Callable[[Sequence[Any], Any], list[Any]],
    along: Callable[[P, Sequence[Any], Any, Sequence[Any]], list[Any]],
    derivative: Derivative[P],
    arrays: Sequence[Any],
    beside: Any,
    count: int,
) -> list[Any]:
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

    def rule(primals: Any, tangents: Any) -> tuple[list[Any], list[Any]]:
        (arrays, beside), (moved, _) = primals, tangents
        varying = tuple(
            i
            for i, x in enumerate(arrays)
            if not isinstance(moved[i], _SymbolicZero) and issubdtype(x.dtype, np.inexact)
        )

        # Only arguments with a tangent are differentiated: symbolic zeros mark the others.
        program = derivative(varying)
        given = [moved[i] for i in varying]

        def made_along(
            arrays: Sequence[jax.Array], beside: object, given: Sequence[object]
        ) -> Sequence[Any]:
            return along(program, arrays, beside, given)[count:]

        # Refused now, with the user's line at hand: in reverse mode JAX would fail much later.
        _demand_transposable(made_along, arrays, beside, given)
        both = along(program, arrays, beside, given)
        results, made = _in_front(both[:count], (arrays, beside)), iter(both[count:])
        # JAX wants float0 tangents for integer results; the program has none for these.
        return results, [
            next(made) if issubdtype(x.dtype, np.inexact) else np.zeros(x.shape, jax.dtypes.float0)
            for x in results
        ]

    def evaluate(arrays: Any, beside: Any) -> list[Any]:
        return _in_front(run(arrays, beside), (arrays, beside))

    evaluated = jax.custom_jvp(evaluate)
    evaluated.defjvp(rule, symbolic_zeros=True)
    return evaluated(list(arrays), beside)


def _in_front(results: Sequence[Any], given: object) -> list[Any]:
    """Return the results unchanged, but under an outer `vmap` of any of `given` with the mapped
    axis in front in each of them.

    A workaround: JAX takes the batch dimension of a `custom_jvp`'s results from its function, also
    where the rule ran and had the axis elsewhere or not at all. Then `grad(vmap(jit(f)))` silently
    gives wrong numbers (jax 0.10.2 and 0.12.0.1).
    """

    def rule(size: int, batched: Any, results: Any, given: Any) -> tuple[Any, Any]:
        del given
        whole = [
            x if has else jax.lax.broadcast(x, (size,))
            for x, has in zip(results, batched[0], strict=True)
        ]
        return whole, [True] * len(whole)

    same = jax.custom_batching.custom_vmap(_first)
    same.def_vmap(rule)
    return same(list(results), given)


def _first(results: object, given: object) -> Any:
    del given
    return results


def _demand_transposable(
    along: Callable[..., Sequence[object]], arrays: object, beside: object, tangents: Any
) -> None:
    """Check on abstract values that JAX can transpose the derivative with respect to the tangents.

    Raises:
        Refused: It cannot; a loop of as many iterations as the size is an example.
    """

    def back(arrays: Any, beside: Any, tangents: Any) -> Any:
        def of_tangents(*tangents: object) -> Any:
            return along(arrays, beside, tangents)

        return jax.linear_transpose(of_tangents, *tangents)(
            jax.tree.map(_zeros, jax.eval_shape(of_tangents, *tangents))
        )

    # AssertionError is JAX's own, where linear values are multiplied inside of a loop.
    try:
        jax.eval_shape(back, *jax.tree.map(_abstract, (arrays, beside, tangents)))
    except (ValueError, NotImplementedError, AssertionError) as error:
        why = str(error).partition("\n")[0]
        raise Refused(
            "", f"has a derivative that JAX cannot go through backwards: {why}"
        ) from error


def _abstract(x: jax.Array) -> Any:
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def _zeros(x: jax.Array) -> Any:
    return jax.lax.full(x.shape, 0, x.dtype)


def jvp_function(
    fn: Callable[..., Sequence[object]], count: int, varying: Sequence[int]
) -> Callable[..., list[Any]]:
    """The JVP of a function of `count` arrays, as a function of these and the tangents of the
    varying ones: its results, and the tangents of all that are not integers.
    """

    def pushed(*given: object) -> list[Any]:
        arrays, tangents = given[:count], given[count:]

        def of_varying(*at: object) -> list[Any]:
            whole = list(arrays)
            for i, x in zip(varying, at, strict=True):
                whole[i] = x
            return list(fn(*whole))

        results, along = jax.jvp(of_varying, [arrays[i] for i in varying], list(tangents))
        return [*results, *(x for x in along if x.dtype != jax.dtypes.float0)]

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


def demand_no_tracers(jaxpr: Any) -> None:
    """Check that a body closes over no tracer of an outer transform: the derivative is with respect
    to its arguments alone.

    Raises:
        ClosesOver: The body closes over one.
    """
    if any(isinstance(constant, Tracer) for constant in jaxpr.consts):
        raise ClosesOver
