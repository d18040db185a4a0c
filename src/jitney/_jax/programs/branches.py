"""Branches that `jax.vmap` chooses for each element: a `cond` whose index is computed from mapped
values becomes a select of both branches, and JAX cannot transpose the select that it makes of a
derivative (`stop_gradient` of a tangent; jax 0.10.0 to 0.12.0.1).
"""

from __future__ import annotations

from collections.abc import Sequence

from ..typed import JaxprEqn
from .jaxprs import inside, is_literal, open_jaxpr, programs, runs, scan_parts


def branches_on(jaxpr: object, given: Sequence[bool]) -> bool:
    """Return whether a `cond` of a jaxpr may choose by its given arguments."""
    return _follow(jaxpr, given)[0]


def _follow(jaxpr: object, given: Sequence[bool]) -> tuple[bool, list[bool]]:
    """Return whether a `cond` may choose by given arguments, and which results are made of them."""
    program, _ = open_jaxpr(jaxpr)
    made = {var for var, is_given in zip(program.invars, given, strict=True) if is_given}
    for eqn in program.eqns:
        reads = [not is_literal(atom) and atom in made for atom in eqn.invars]
        if not any(reads):
            continue
        found, results = _of_equation(eqn, reads)
        if found:
            return True, []
        pairs = zip(eqn.outvars, results, strict=True)
        made.update(var for var, is_made in pairs if is_made)
    return False, [not is_literal(atom) and atom in made for atom in program.outvars]


def _of_equation(eqn: JaxprEqn, reads: Sequence[bool]) -> tuple[bool, Sequence[bool]]:
    """Return the same of an equation, of which some operands are made of given arguments."""
    name, whole = eqn.primitive.name, [True] * len(eqn.outvars)
    called = runs(eqn)
    if called is not None:
        return _follow(called, reads)
    if name == "cond":
        if reads[0]:
            return True, whole
        found = [_follow(branch, reads[1:])[0] for branch in programs(eqn.params)]
        return any(found), whole
    if name == "scan":
        fixed, carry, rows = scan_parts(eqn, list(reads))
        program = eqn.params["jaxpr"]
        # Until the carry gains nothing more.
        while True:
            found, results = _follow(program, [*fixed, *carry, *rows])
            if found:
                return True, whole
            after = [a or b for a, b in zip(carry, results, strict=False)]
            if after == carry:
                return False, results
            carry = after
    # Of other loops and the like each branch counts.
    return any(inner.primitive.name == "cond" for inner in inside(eqn)), whole
