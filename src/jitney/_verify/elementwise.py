"""Which results of a program are elementwise: each operation on the way treats every element alone, or only moves it.

Such results are promised to the bit under `pad`: the same operations on the same numbers, in whatever shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from .._jax.jaxprs import CALLS, opened
from .._jax.primitives import ARITHMETIC, LOGIC

_ALONE: Final = ARITHMETIC | LOGIC
_MOVED: Final = frozenset((
    "broadcast_in_dim", "concatenate", "expand_dims", "iota", "reshape", "rev", "slice", "squeeze", "transpose",
))  # fmt: skip


def elementwise(closed: Any) -> list[bool]:
    """For each result of a program, whether it is."""
    program, _ = opened(closed)
    return _results(program, [True] * len(program.invars))


def _results(program: Any, given: Sequence[bool]) -> list[bool]:
    alone: dict[Any, bool] = dict(zip(program.invars, given, strict=True))

    def is_alone(atom: Any) -> bool:
        return hasattr(atom, "val") or alone.get(atom, True)

    for eqn in program.eqns:
        inside = [is_alone(atom) for atom in eqn.invars]
        name = eqn.primitive.name
        if name in CALLS and len(opened(eqn.params[CALLS[name]])[0].invars) == len(inside):
            out = _results(opened(eqn.params[CALLS[name]])[0], inside)
        else:
            out = [all(inside) and (name in _ALONE or name in _MOVED)] * len(eqn.outvars)
        alone.update(zip(eqn.outvars, out, strict=True))
    return [is_alone(atom) for atom in program.outvars]
