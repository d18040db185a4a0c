"""Count of the floating-point operations of a jaxpr.

The compiler's `cost_analysis()` counts the body of a loop once however many iterations it has, and
leaves out calls into libraries, so it cannot compare a stack of layers with the same stack as a
loop.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from .._jax.jaxprs import called, opened, programs, variables
from .._jax.primitives import REARRANGED
from .._jax.typed import AnyJaxpr, Atom, JaxprEqn

_OTHERS = (
    "bitcast_convert_type convert_element_type copy copy_p device_put dynamic_slice"
    " dynamic_update_slice gather iota name optimization_barrier pad split stop_gradient"
)
_FREE = REARRANGED | frozenset(_OTHERS.split())


def flops(jaxpr: AnyJaxpr, wanted: Sequence[bool] | None = None) -> int:
    """Operations that the wanted results of a program take; dead code is not counted."""
    program, _ = opened(jaxpr)
    pairs = zip(program.outvars, wanted or [True] * len(program.outvars), strict=True)
    needed = set(variables(atom for atom, asked in pairs if asked))
    total = 0
    for eqn in reversed(program.eqns):
        asked = [atom in needed for atom in eqn.outvars]
        if any(asked) or eqn.effects:
            needed.update(variables(eqn.invars))
            total += of_equation(eqn, asked)
    return total


def of_equation(eqn: JaxprEqn, asked: Sequence[bool] | None = None) -> int:
    """Operations of one equation: two per product that is added up, one per element that is
    computed or added.
    """
    name = eqn.primitive.name
    inner = called(eqn)
    if inner is not None:
        return flops(
            inner, asked if asked and len(opened(inner)[0].outvars) == len(asked) else None
        )

    if name == "scan":
        return int(eqn.params["length"]) * flops(eqn.params["jaxpr"])
    # The costliest branch: which one runs is not known.
    if name == "cond":
        return max(map(flops, eqn.params["branches"]), default=0)
    # Other control flow counts once: the length of a `while` is not known.
    inside = programs(eqn.params)
    if inside:
        return sum(map(flops, inside))

    if name == "dot_general":
        (contracted, _), _ = eqn.params["dimension_numbers"]
        return (
            2
            * _size(eqn.outvars[0])
            * math.prod(eqn.invars[0].aval.shape[axis] for axis in contracted)
        )
    if name == "conv_general_dilated":
        kernel = eqn.params["dimension_numbers"].rhs_spec
        shape = eqn.invars[1].aval.shape
        return 2 * _size(eqn.outvars[0]) * math.prod(shape[axis] for axis in kernel[1:])
    if name in _FREE:
        return 0
    # A reduction has one operation per element that it reads.
    return max(
        sum(map(_size, eqn.outvars)),
        max(map(_size, eqn.invars), default=0) if name.startswith(("reduce", "arg", "cum")) else 0,
    )


def _size(atom: Atom) -> int:
    return math.prod(getattr(atom.aval, "shape", ()))


def flops_text(count: float) -> str:
    """Number of operations with a unit, for people."""
    for unit in ("", "k", "M", "G", "T"):
        if count < _STEP:
            return f"{count:.3g} {unit}FLOP"
        count /= _STEP
    return f"{count:.3g} PFLOP"


_STEP = 1000
