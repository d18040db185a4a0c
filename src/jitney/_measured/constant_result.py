"""Dependence of results on arguments: XLA may compute a constant result at compile time."""

from __future__ import annotations

from collections.abc import Sequence

from .._errors import TraceError
from .._jax.programs.jaxprs import is_literal, open_jaxpr, runs
from .._jax.trees import attribute
from .._jax.typed import AnyJaxpr, Atom
from .arguments import Put


def is_constant(f: object, given: Put) -> bool:
    """Return whether no result of a compiled function depends on an array among its arguments.

    The answer comes from the jaxpr of the measured call. It is False for functions that are not
    compiled, whose jaxpr is unknown, and for padded functions, which depend on their size.
    """
    trace = attribute(f, "trace", None)
    pads = attribute(attribute(f, "options", None), "pad", ())
    if trace is None or attribute(f, "lower", None) is None or pads:
        return False
    try:
        program = trace(*given.args, **given.kwargs).jaxpr
    # The function runs without `jit`.
    except TraceError:
        return False
    results = _dependent_results(program, [True] * len(open_jaxpr(program)[0].invars))
    return bool(results) and not any(results)


def _dependent_results(program: AnyJaxpr, given: Sequence[bool]) -> list[bool]:
    """Return for each result whether it depends on one of the marked arguments.

    A forward pass over the jaxpr. Equations with effects count as dependent, since they may return
    anything.
    """
    jaxpr, _ = open_jaxpr(program)
    known: dict[Atom, bool] = dict(zip(jaxpr.invars, given, strict=True))

    def is_fed(atom: Atom) -> bool:
        return not is_literal(atom) and known.get(atom, False)

    for eqn in jaxpr.eqns:
        # A call with a sub-jaxpr (`jit`, `custom_jvp_call`, ...) is entered; any other primitive
        # depends on all of its operands, loops and branches included.
        operands, inner = [is_fed(atom) for atom in eqn.invars], runs(eqn)
        made = (
            [bool(eqn.effects) or any(operands)] * len(eqn.outvars)
            if inner is None
            else _dependent_results(inner, operands)
        )
        known.update(zip(eqn.outvars, made, strict=True))
    return [is_fed(atom) for atom in jaxpr.outvars]
