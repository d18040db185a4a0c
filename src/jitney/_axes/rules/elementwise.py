"""Elementwise operations: element i of the result depends on element i of the operands alone, so
the valid part of the operands gives the valid part of the result.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..._jax.programs.primitives import ARITHMETIC, LOGIC
from ..._jax.typed import Value, Values
from ..interpreter import Op, PaddedInterpreter
from ..rule import POINTWISE, Rule, no_uses
from ..xla_faults.library_fusions import CHANGED, CONVERSION, outside_fusions

# `ARITHMETIC` and `LOGIC` are shared with other parts of jitney, which rely on more than this: on
# one step of arithmetic, or on no rounding. These operations are elementwise and no more.
_OTHERS = (
    "bessel_i0e bessel_i1e bitcast_convert_type clz copy_p device_put eq_to igamma igamma_grad_a"
    " igammac le_to lt_to nonbatchable optimization_barrier polygamma polynomial population_count"
    " reduce_precision regularized_incomplete_beta shift_left shift_right_arithmetic"
    " shift_right_logical zeta mulhi one_minus_square random_gamma_grad threefry2x32"
    " random_wrap random_unwrap random_clone random_seed"
)


def _outside_fusions(
    walk: PaddedInterpreter,
    op: Op,
    values: Values,
) -> Values:
    # JAX transposes conversions of tangents, and choosing by a NaN is not linear.
    if op.name == CONVERSION and any(map(walk.may_be_linear, op.eqn.invars)):
        return walk.bind(op, values)

    def bind(operands: Sequence[Value]) -> Values:
        return walk.bind(op, operands)

    return outside_fusions(op.eqn, values, bind)


RULES: dict[str, Rule] = {
    **dict.fromkeys((*sorted(ARITHMETIC | LOGIC), *_OTHERS.split()), POINTWISE),
    **dict.fromkeys(CHANGED, Rule(no_uses, _outside_fusions)),
}
