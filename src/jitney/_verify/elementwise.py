"""Elementwise results of a program: each operation on the way treats every element alone, or only
moves it.

Such results are promised to the bit under `pad`: the operations and the numbers are the same, in
whatever shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from .._jax.programs.evaluation import CallStack, without_calls
from .._jax.programs.jaxprs import open_jaxpr, runs
from .._jax.programs.primitives import ARITHMETIC, LOGIC, REARRANGED
from .._jax.typed import JaxprEqn

_ALONE: Final = ARITHMETIC | LOGIC
_MOVED: Final = REARRANGED | {"iota"}


def elementwise(closed: object) -> list[bool]:
    """Return for each result of a program whether it is elementwise."""
    program, _ = open_jaxpr(closed)
    # A forward analysis with booleans as abstract values; their join is `all`.
    return without_calls(
        closed,
        [True] * len(program.invars),
        _results,
        runs,
        constant=_alone,
    )


def _results(
    eqn: JaxprEqn,
    inside: Sequence[bool],
    _: CallStack,
) -> Sequence[bool]:
    name = eqn.primitive.name
    is_alone = all(inside) and (name in _ALONE or name in _MOVED)
    return [is_alone] * len(eqn.outvars)


def _alone(
    _value: object,
    _aval: object,
    _eqn: object,
) -> bool:
    return True
