"""The padded evaluator: runs a jaxpr with symbolic sizes at the sizes of its buckets, and its
derivative likewise.

Reverse mode transposes the part of the derivative that is linear in the tangents. The transpose
multiplies the cotangents of padding, which are zero, by the values of padding. 0 * inf is NaN, so
in a derivative the padding of all non-linear values is set to 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from .._jax.jaxprs import is_literal, opened, programs
from .._jax.primitives import CALLS
from .._jax.trees import issubdtype
from .._jax.typed import AnyJaxpr, Atom
from .derivative import Derivative, with_derivative
from .interpreter import Op, PaddedInterpreter, shape_of
from .rules import RULES


def run_padded(
    jaxpr: AnyJaxpr,
    arrays: Sequence[object],
    allocated: Mapping[str, int],
    valid: Mapping[str, object],
    numbers: Mapping[Any, Any] | None = None,
) -> list[Any]:
    """Evaluate a program on padded arrays; the leading parts of the results are valid.

    Args:
        jaxpr: A program that `demand` has proven to be paddable.
        arrays: Its arguments, at the allocated sizes; their padding is never read.
        allocated: Symbol -> the size of the arrays.
        valid: Symbol -> the true size, an int32 scalar.
        numbers: Values that Python computed from the true size, by variables of the program.
    """
    return PaddedInterpreter(allocated, valid, RULES, numbers=numbers).run(jaxpr, arrays)


class _Finite(PaddedInterpreter):
    """Interpreter of a derivative, in which the padding of values that are not linear in the
    tangents is 1.

    Args:
        allocated: Symbol -> the size of the arrays.
        valid: Symbol -> the size of the valid part, an int32 scalar of the program.
        tangents: Variables of the program that are tangents.
    """

    is_differentiated = True

    def __init__(
        self, allocated: Mapping[str, int], valid: Mapping[str, Any], tangents: Sequence[Any]
    ):
        super().__init__(allocated, valid, RULES)
        self._linear: set[Any] = set(tangents)
        self._masks: dict[Any, Any] = {}

    def run(self, jaxpr: object, values: Sequence[object]) -> list[Any]:
        # A mask that is made inside of a loop or branch is a tracer of that scope: not to be read
        # outside of it.
        outside, self._masks = self._masks, dict(self._masks)
        try:
            return super().run(
                jaxpr,
                [
                    self._finite(x, atom)
                    for x, atom in zip(values, opened(jaxpr)[0].invars, strict=True)
                ],
            )
        finally:
            self._masks = outside

    def inside(self, dims: Sequence[object], axis: int) -> Any:
        """The mask of `Walk.inside`, memoised by shape: JAX stores each mask as a residual."""
        key = (self.shape(dims), axis, str(dims[axis]))
        mask = self._masks.get(key)
        if mask is None:
            mask = self._masks[key] = super().inside(dims, axis)
        return mask

    def make(self, op: Op, values: Sequence[object]) -> list[Any]:
        # Forward dataflow: a result is linear if an operand is. Linear values keep their padding:
        # only the values that they are multiplied by have to be finite.
        linear = [not is_literal(atom) and atom in self._linear for atom in op.eqn.invars]
        if op.name in CALLS and any(linear):
            return self._called(op, values, linear)
        if any(linear) and not any(True for _ in programs(op.params)):
            self._linear.update(op.eqn.outvars)
            return super().make(op, values)
        return [
            self._finite(x, atom)
            for x, atom in zip(super().make(op, values), op.eqn.outvars, strict=True)
        ]

    def _called(self, op: Op, values: Sequence[object], linear: Sequence[bool]) -> list[Any]:
        """Evaluate a call with tangents among its arguments, and find the tangents among its
        results.
        """
        # Calls may share a jaxpr, hence its variables: each call starts with a fresh set.
        program = opened(op.params[CALLS[op.name]])[0]
        outside, self._linear = (
            self._linear,
            {var for var, is_linear in zip(program.invars, linear, strict=True) if is_linear},
        )
        try:
            results = super().make(op, values)
            made = zip(op.eqn.outvars, program.outvars, strict=True)
            outside |= {
                var for var, inner in made if not is_literal(inner) and inner in self._linear
            }
        finally:
            self._linear = outside
        return results

    def _finite(self, x: Any, atom: Atom) -> Any:
        dims = shape_of(atom)
        if not dims or atom in self._linear or not issubdtype(x.dtype, np.inexact):
            return x
        return self.keep(x, dims, range(len(dims)), 1)


def run_differentiable(
    jaxpr: Any,
    derivative: Derivative[Any],
    arrays: Sequence[Any],
    allocated: Mapping[str, int],
    valid: Mapping[str, Any],
) -> list[Any]:
    """`run_padded`, differentiable once.

    Args:
        jaxpr: A program that `demand` has proven to be paddable; it holds no values that Python
            computes from the size.
        derivative: Its derivative, proven in the same way.
        arrays: Its arguments.
        allocated: Symbol -> the size of the arrays.
        valid: Symbol -> the true size, an int32 scalar.
    """

    def run(arrays: Sequence[jax.Array], valid: Mapping[str, object]) -> list[Any]:
        return run_padded(jaxpr, arrays, allocated, valid)

    def along(
        program: AnyJaxpr,
        arrays: Sequence[jax.Array],
        valid: Mapping[str, object],
        tangents: Sequence[object],
    ) -> list[Any]:
        return _Finite(allocated, valid, opened(program)[0].invars[len(arrays) :]).run(
            program, [*arrays, *tangents]
        )

    return with_derivative(run, along, derivative, arrays, dict(valid), len(jaxpr.out_avals))
