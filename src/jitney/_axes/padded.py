"""The padded evaluator: a program with symbolic sizes, run at the sizes of its buckets; and its
derivative, which is padded as well.

JAX transposes what is linear in the derivative. A transposed program multiplies the zeros that come
back for what is not valid by what stood there; so that is finite.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .._jax.jaxprs import is_written, opened, programs
from .._jax.primitives import CALLS
from .._jax.trees import issubdtype
from .derivative import Derivative, with_derivative
from .rules import RULES
from .walk import Op, Walk, shape_of


def run_padded(
    jaxpr: Any,
    arrays: Sequence[Any],
    allocated: Mapping[str, int],
    valid: Mapping[str, Any],
    numbers: Mapping[Any, Any] | None = None,
) -> list[Any]:
    """The results of a program, of which the leading parts are valid.

    Args:
        jaxpr: A program of which `demand` has proven that it can be padded.
        arrays: Its arguments, as long as allocated; what stands behind the valid part is never
            looked at.
        allocated: Symbol -> the size of the arrays.
        valid: Symbol -> the true size, an int32 scalar.
        numbers: What Python made of the true size, by variables of the program.
    """
    return Walk(allocated, valid, RULES, numbers=numbers).run(jaxpr, arrays)


class _Finite(Walk):
    """An evaluation of a derivative, in which all that is not valid is 1: of what tangents are
    multiplied by, not of them.

    Args:
        allocated: As of `Walk`.
        valid: As of `Walk`.
        tangents: Variables of the program that are tangents.
    """

    is_differentiated = True

    def __init__(
        self, allocated: Mapping[str, int], valid: Mapping[str, Any], tangents: Sequence[Any]
    ):
        super().__init__(allocated, valid, RULES)
        self._linear: set[Any] = set(tangents)
        self._masks: dict[Any, Any] = {}

    def run(self, jaxpr: Any, values: Sequence[Any]) -> list[Any]:
        # what is made inside a loop or a branch is not there outside
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

    def inside(self, dims: Sequence[Any], axis: int) -> Any:
        """Made once for each shape: JAX keeps it for the way back, and would keep each."""
        key = (self.shape(dims), axis, str(dims[axis]))
        mask = self._masks.get(key)
        if mask is None:
            mask = self._masks[key] = super().inside(dims, axis)
        return mask

    def make(self, op: Op, values: Sequence[Any]) -> list[Any]:
        linear = [not is_written(atom) and atom in self._linear for atom in op.eqn.invars]
        if op.name in CALLS and any(linear):
            return self._called(op, values, linear)
        if any(linear) and not any(True for _ in programs(op.params)):
            self._linear.update(op.eqn.outvars)
            return super().make(op, values)
        return [
            self._finite(x, atom)
            for x, atom in zip(super().make(op, values), op.eqn.outvars, strict=True)
        ]

    def _called(self, op: Op, values: Sequence[Any], linear: Sequence[bool]) -> list[Any]:
        """A call, some of whose arguments are tangents, and so some of its results. Calls may share
        a program.
        """
        program = opened(op.params[CALLS[op.name]])[0]
        outside, self._linear = (
            self._linear,
            {var for var, is_linear in zip(program.invars, linear, strict=True) if is_linear},
        )
        try:
            results = super().make(op, values)
            made = zip(op.eqn.outvars, program.outvars, strict=True)
            outside |= {
                var for var, inner in made if not is_written(inner) and inner in self._linear
            }
        finally:
            self._linear = outside
        return results

    def _finite(self, x: Any, atom: Any) -> Any:
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
    """`run_padded`, for whoever differentiates it once.

    Args:
        jaxpr: A program of which `demand` has proven that it can be padded; it has no numbers of
            the size.
        derivative: Its derivative, proven in the same way.
        arrays: Its arguments.
        allocated: Symbol -> the size of the arrays.
        valid: Symbol -> the true size, an int32 scalar.
    """

    def run(arrays: Sequence[Any], valid: Mapping[str, Any]) -> list[Any]:
        return run_padded(jaxpr, arrays, allocated, valid)

    def along(
        program: Any, arrays: Sequence[Any], valid: Mapping[str, Any], tangents: Sequence[Any]
    ) -> list[Any]:
        return _Finite(allocated, valid, opened(program)[0].invars[len(arrays) :]).run(
            program, [*arrays, *tangents]
        )

    return with_derivative(run, along, derivative, arrays, dict(valid), len(jaxpr.out_avals))
