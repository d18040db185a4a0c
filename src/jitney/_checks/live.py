"""What of a program is needed for its results. XLA drops the rest, and with it the checks of values
that nothing reads.

An array without elements is one such value: whatever makes it, XLA puts another of its type there.
So does who evaluates a program here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from jax.dtypes import float0

from .._jax.jaxprs import is_written, opened, runs, scan_parts, while_parts
from .._jax.trees import extended, is_a, issubdtype

Used = tuple[bool, ...]


def is_empty(aval: Any) -> bool:
    """Whether an array has no elements, and can be made of its type alone."""
    if 0 not in [size for size in getattr(aval, "shape", ()) if is_a(size, int)]:
        return False
    return not (
        getattr(aval, "weak_type", False)
        or aval.dtype == float0
        or issubdtype(aval.dtype, extended)
    )


def _is_needed(atom: Any) -> bool:
    return not (is_written(atom) or is_empty(atom.aval))


@dataclass(frozen=True)
class Live:
    """What some results of a program need.

    Args:
        inputs: Which of its arguments.
        results: Of each operation that is needed, by identity, which of its results.
    """

    inputs: Used
    results: dict[int, Used] = field(compare=False)


class Liveness:
    """What is needed, of each program that was asked for, which it keeps."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, Used], tuple[Any, Live]] = {}

    def of(self, program: Any, used: Sequence[bool]) -> Live:
        """What these results of a program need."""
        plain, _ = opened(program)
        key = (id(plain), tuple(used))
        if key not in self._known:
            self._known[key] = (plain, self._of(plain, key[1]))
        return self._known[key][1]

    def _of(self, plain: Any, used: Used) -> Live:
        needed = {
            atom
            for atom, is_used in zip(plain.outvars, used, strict=True)
            if is_used and _is_needed(atom)
        }
        results: dict[int, Used] = {}
        for eqn in reversed(plain.eqns):
            mine = tuple(atom in needed for atom in eqn.outvars)
            if any(mine) or eqn.effects:
                results[id(eqn)] = mine
                read = zip(eqn.invars, self.inputs(eqn, mine), strict=True)
                needed.update(atom for atom, is_read in read if is_read and _is_needed(atom))
        return Live(tuple(atom in needed for atom in plain.invars), results)

    def inputs(self, eqn: Any, used: Used) -> Used:
        """Which operands of an operation these of its results need."""
        name, params = eqn.primitive.name, eqn.params
        program = runs(eqn)
        if program is not None:
            return self.of(program, used).inputs
        if name == "cond":
            branches = [self.of(branch, used).inputs for branch in params["branches"]]
            return (True, *map(any, zip(*branches, strict=True)))
        if name == "scan":
            fixed, _, rows = scan_parts(
                eqn, list(self.of(params["jaxpr"], self.looped(eqn, used)).inputs)
            )
            carry = self.looped(eqn, used)[: len(eqn.invars) - len(fixed) - len(rows)]
            return (*fixed, *carry, *rows)
        if name == "while":
            carry = self.looped(eqn, used)
            test, turn = (
                self.of(params["cond_jaxpr"], (True,)).inputs,
                self.of(params["body_jaxpr"], carry).inputs,
            )
            return (*test[: params["cond_nconsts"]], *turn[: params["body_nconsts"]], *carry)
        return (True,) * len(eqn.invars)

    def looped(self, eqn: Any, used: Used) -> Used:
        """Which results of a loop are needed if these are: what it carries is needed for what its
        turns need, too.
        """
        if eqn.primitive.name == "scan":
            _, carry, _ = scan_parts(eqn, list(range(len(eqn.invars))))
            return self._fixed(eqn.params["jaxpr"], used, carry)
        tested, told, _ = while_parts(eqn, list(eqn.invars))
        asked = self.of(eqn.params["cond_jaxpr"], (True,)).inputs[len(tested) :]
        used = tuple(map(any, zip(used, asked, strict=True)))
        return self._fixed(eqn.params["body_jaxpr"], used, range(len(told), len(told) + len(used)))

    def _fixed(self, body: Any, used: Used, carry: Sequence[int]) -> Used:
        """The same, from a body and the places of what is carried among its arguments, which is
        what it returns first.
        """
        while True:
            inputs = self.of(body, used).inputs
            more = tuple(
                mine or (i < len(carry) and inputs[carry[i]]) for i, mine in enumerate(used)
            )
            if more == used:
                return used
            used = more
