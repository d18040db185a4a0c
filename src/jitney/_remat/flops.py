"""Count of the floating-point operations of a jaxpr.

The compiler's `cost_analysis()` counts the body of a loop once however many iterations it has, and
leaves out calls into libraries, so it cannot compare a stack of layers with the same stack as a
loop.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from .._jax.programs.jaxprs import called_jaxpr, open_jaxpr, programs
from .._jax.programs.liveness import live_equations
from .._jax.programs.primitives import REARRANGED
from .._jax.typed import AnyJaxpr, Atom, JaxprEqn

_OTHERS = (
    "bitcast_convert_type convert_element_type copy copy_p device_put dynamic_slice"
    " dynamic_update_slice gather iota name optimization_barrier pad split stop_gradient"
)
_FREE = REARRANGED | frozenset(_OTHERS.split())


def flops(jaxpr: AnyJaxpr, wanted: Sequence[bool] | None = None) -> int:
    """Operations that the wanted results of a program take; dead code is not counted."""
    program, _ = open_jaxpr(jaxpr)
    results = program.outvars
    if wanted:
        pairs = zip(results, wanted, strict=True)
        results = [atom for atom, is_wanted in pairs if is_wanted]
    equations, _ = live_equations(program, results)
    return sum(of_equation(eqn, asked) for eqn, asked in equations)


def of_equation(eqn: JaxprEqn, asked: Sequence[bool] | None = None) -> int:
    """Operations of one equation: two per product that is added up, one per element that is
    computed or added.
    """
    name = eqn.primitive.name
    inner = called_jaxpr(eqn)
    if inner is not None:
        results = open_jaxpr(inner)[0].outvars
        wanted = asked if asked and len(asked) == len(results) else None
        return flops(inner, wanted)

    if name == "scan":
        length = int(eqn.params["length"])
        return length * flops(eqn.params["jaxpr"])
    # The costliest branch: which one runs is not known.
    if name == "cond":
        return max(map(flops, eqn.params["branches"]), default=0)
    # Other control flow counts once: the length of a `while` is not known.
    inside = programs(eqn.params)
    if inside:
        return sum(map(flops, inside))

    if name == "dot_general":
        (contracted, _), _ = eqn.params["dimension_numbers"]
        shape = eqn.invars[0].aval.shape
        products = math.prod(shape[axis] for axis in contracted)
        return 2 * _size(eqn.outvars[0]) * products
    if name == "conv_general_dilated":
        kernel = eqn.params["dimension_numbers"].rhs_spec
        shape = eqn.invars[1].aval.shape
        products = math.prod(shape[axis] for axis in kernel[1:])
        return 2 * _size(eqn.outvars[0]) * products
    if name in _FREE:
        return 0
    computed = sum(map(_size, eqn.outvars))
    # A reduction has one operation per element that it reads.
    if name.startswith(("reduce", "arg", "cum")):
        return max(computed, max(map(_size, eqn.invars), default=0))
    return computed


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
