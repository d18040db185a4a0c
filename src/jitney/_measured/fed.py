"""Whether what a program returns depends on what it is given. If not, XLA may compute it once,
while compiling.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._errors import TraceError
from .._jax.jaxprs import is_written, opened, runs
from .._jax.trees import attribute
from .arguments import Put


def is_constant(f: Any, given: Put) -> bool:
    """Whether no result of a compiled function depends on an array that it is given, by the program
    that its call has traced. Of what is not compiled nobody knows, and what is padded is fed with
    its size.
    """
    trace = attribute(f, "trace", None)
    pads = attribute(attribute(f, "options", None), "pad", ())
    if trace is None or attribute(f, "lower", None) is None or pads:
        return False
    try:
        program = trace(*given.args, **given.kwargs).jaxpr
    except TraceError:  # it runs un-jitted
        return False
    results = _fed(program, [True] * len(opened(program)[0].invars))
    return bool(results) and not any(results)


def _fed(program: Any, given: Sequence[bool]) -> list[bool]:
    """Which results depend on those arguments that are marked; what does something besides
    computing may return anything.
    """
    jaxpr, _ = opened(program)
    known: dict[Any, bool] = dict(zip(jaxpr.invars, given, strict=True))

    def is_fed(atom: Any) -> bool:
        return not is_written(atom) and known.get(atom, False)

    for eqn in jaxpr.eqns:
        operands, inner = [is_fed(atom) for atom in eqn.invars], runs(eqn)
        made = (
            [bool(eqn.effects) or any(operands)] * len(eqn.outvars)
            if inner is None
            else _fed(inner, operands)
        )
        known.update(zip(eqn.outvars, made, strict=True))
    return [is_fed(atom) for atom in jaxpr.outvars]
