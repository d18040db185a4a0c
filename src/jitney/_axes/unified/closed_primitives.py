"""Closed primitives: those of other packages than JAX, of which no rule is known.

Their implementation is a function that JAX traces when it compiles them, so an equation of such a
primitive can be expanded to a program of JAX's own:

    linear_solve[operator=..., solver=LU] a b    lu a;   triangular_solve ...
"""

from __future__ import annotations

from ..._jax.programs.jaxprs import abstract, equations, programs
from ..._jax.programs.primitives import CALLS
from ..._jax.typed import ClosedJaxpr, JaxprEqn
from ..interpreter import Op, mentions
from ..rules import RULES
from ..typed_jax import make_jaxpr


def is_closed(eqn: JaxprEqn) -> bool:
    """Return whether an equation is of a closed primitive."""
    primitive = eqn.primitive
    name, impl = primitive.name, primitive.impl
    if name in RULES or name in CALLS or (programs(eqn.params) and name == "shard_map"):
        return False
    maker = getattr(impl, "func", impl)
    package = str(getattr(maker, "__module__", "jax")).partition(".")[0]
    return package not in ("jax", "jaxlib", "jitney")


def reads_sizes_inside(jaxpr: object) -> bool:
    """Return whether a symbolic size occurs in a closed primitive of a program, at any depth."""
    return any(is_closed(eqn) and mentions(Op(eqn)) for eqn in equations(jaxpr))


def expansion(eqn: JaxprEqn) -> ClosedJaxpr | None:
    """The program of a closed primitive, from its implementation; None if JAX cannot trace that."""
    avals = [abstract(atom.aval) for atom in eqn.invars]
    primitive = eqn.primitive

    def computed(*operands: object) -> list[object]:
        out = primitive.impl(*operands, **eqn.params)
        return list(out) if primitive.multiple_results else [out]

    # Code of others: it may ask for a number, or call NumPy.
    try:
        with eqn.ctx.manager:
            return make_jaxpr(computed)(*avals)
    except (AttributeError, NotImplementedError, TypeError, ValueError):
        return None
