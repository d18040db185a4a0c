"""Folding of decisions by known floats into constants of a program, so that the sparsity pattern
and the program that runs use the same indices and masks.

    mask = lt (mul (iota 6) 0.1) 0.3   ->   mask = [True, True, True, False, False, False]

The value of `arange(n) * 0.1 < 0.3` depends on which operations the compiler fuses, and an index
computed from floats that do not fit into integers depends on the device. A pattern that was read
with other indices than the program runs with would give wrong elements.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax

from .._jax.programs.control import rebuild
from .._jax.programs.jaxprs import open_jaxpr, programs, rebind
from .._jax.programs.primitives import PLAIN_CALLS, REMATS
from .._jax.programs.ssa import flatten_program, values_at
from .._jax.typed import Array, JaxprEqn
from .constant_folding import FoldedValues

Arrays = Sequence[Array]
"""Operands or results of a program; a decision among them is on the host."""
_INSIDE = (*PLAIN_CALLS, "closed_call", "core_call")


def fold_decisions(traced: object, at: Sequence[object]) -> object:
    """Program with its decisions as constants; the program itself if there are none.

    Args:
        traced: A closed program.
        at: Its arguments, or abstract ones.
    """

    def run(arrays: Arrays) -> list[Array]:
        return _run(traced, arrays)

    if not _is_open(traced):
        return traced
    return jax.make_jaxpr(run)(list(at))


def _is_open(jaxpr: object) -> bool:
    """Return whether a program or its loops decide anything by known floats."""
    known = _fold_values(jaxpr)
    if known.decisions:
        return True
    return any(_rebuilds(step.eqn) for step in known.flat.steps)


def _rebuilds(eqn: JaxprEqn) -> bool:
    return eqn.primitive.name in _BUILDERS and any(map(_is_open, programs(eqn.params)))


def _fold_values(jaxpr: object) -> FoldedValues:
    flat = flatten_program(jaxpr, _INSIDE)
    _, constants = open_jaxpr(jaxpr)
    given = dict(zip(flat.takes, constants, strict=False))
    return FoldedValues(flat, given, decided=True)


def _run(jaxpr: object, operands: Arrays) -> list[Array]:
    known = _fold_values(jaxpr)
    flat = known.flat
    _, constants = open_jaxpr(jaxpr)
    env = dict(zip(flat.takes, (*constants, *operands), strict=True))
    # All decisions of this level, computed by one compiled program.
    decided = [number for step in known.decisions for number in step.makes]
    values_of_decisions = known.values(decided)
    for step in flat.steps:
        if step.makes and step.makes[0] in values_of_decisions:
            for number in step.makes:
                env[number] = values_of_decisions[number]
            continue

        values = values_at(step.reads, env)
        if _rebuilds(step.eqn):
            build = _BUILDERS[step.name]
            out = build(step.eqn, values)
        else:
            out = rebind(step.eqn, values)
        env.update(zip(step.makes, out, strict=True))
    return values_at(flat.gives, env)


def _control(eqn: JaxprEqn, operands: list[jax.Array]) -> list[Array]:
    return [*rebuild(eqn, operands, _run)]


def _checkpoint(eqn: JaxprEqn, operands: list[jax.Array]) -> list[Array]:
    def run(*values: jax.Array) -> list[Array]:
        return _run(eqn.params["jaxpr"], values)

    remat = jax.checkpoint(
        run,
        policy=eqn.params["policy"],
        prevent_cse=eqn.params["prevent_cse"],
    )
    return list(remat(*operands))


_BUILDERS = {
    **dict.fromkeys(("scan", "while", "cond"), _control),
    **dict.fromkeys(REMATS, _checkpoint),
}
