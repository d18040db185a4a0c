"""Reasons why a call runs whole, and the operations that forbid to compute a part of it alone.

A reason is a value: each function here returns one, or None where nothing forbids a part. So the
first of several is `effects_obstacle(jaxpr) or lapack_obstacle(jaxpr)`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ... import _axes
from ..._jax.equinox_checks import Insides
from ..._jax.programs.jaxprs import draws_jointly, source_of
from ..._view.layout import aval_parts

_LAPACK = (
    *("cholesky", "cholesky_update", "triangular_solve", "lu", "qr", "geqrf", "geqp3", "ormqr"),
    *("householder_product", "eig", "eigh", "svd", "schur", "hessenberg", "symmetric_product"),
    *("tridiagonal", "tridiagonal_solve", "ffi_call"),
)
# XLA (jax 0.10.2, CPU) divides a LAPACK kernel of many numbers over its own threads, and two Python
# threads that run such kernels at once may wait for each other for ever. `lu`, `qr`, `eigh` and
# `triangular_solve` did so in `jax.jit` alone, from 64,000 numbers on, and none with 13,000.
_MOST_OF_LAPACK = 4096


@dataclass(frozen=True)
class Unsplit:
    """Reason why a call runs whole.

    Args:
        what: The reason.
        is_refused: Whether `workers=2` asks for what cannot be done.
        fix: What to do then, besides leaving out `workers`.
    """

    what: str
    is_refused: bool = False
    fix: str = ""


def effects_obstacle(jaxpr: object) -> Unsplit | None:
    """Return what a program does besides computing its result, each element alone: it calls Python,
    has another effect, or draws for all elements from one key.
    """
    for eqn in Insides().equations(jaxpr):
        if draws_jointly(eqn):
            return Unsplit(
                f"{source_of(eqn) or 'it'} draws for all elements at once (`{eqn.primitive.name}`)",
                is_refused=True,
                fix='draw with keys of `jax.random.key(seed, impl="threefry2x32")`, ',
            )
    effect = _axes.find_effect(jaxpr)
    if effect is None:
        return None
    place, what = effect
    return Unsplit(
        f"{place or 'it'} {what}",
        is_refused=True,
        fix="move that line out of the function, ",
    )


def joint_rules_obstacle(places: Sequence[str]) -> Unsplit | None:
    """Return the first operation of an element that has a rule of its own for `jax.vmap`, which
    sees all elements together, and may make something else of a part of them.

    Args:
        places: The user's lines of those that have one.
    """
    if not places:
        return None
    return Unsplit(
        f"{places[0] or 'it'} has its own rule for `jax.vmap` (`custom_vmap`), which sees all"
        " elements",
        is_refused=True,
    )


def lapack_obstacle(jaxpr: object) -> Unsplit | None:
    """Return the first operation by which threads that run a program could wait for each other in
    LAPACK.
    """
    for eqn in Insides().equations(jaxpr):
        atoms = (*eqn.invars, *eqn.outvars)
        most = max((math.prod(aval_parts(atom.aval)[0]) for atom in atoms), default=0)
        if eqn.primitive.name in _LAPACK and most > _MOST_OF_LAPACK:
            return Unsplit(
                f"{source_of(eqn) or 'it'} runs `{eqn.primitive.name}` on {most:,} numbers at once,"
                f" and above {_MOST_OF_LAPACK:,} XLA may hang where two threads do so",
                is_refused=True,
                fix="cut the axis into narrower chunks, ",
            )
    return None
