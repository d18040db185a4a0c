"""A program as a list of operations: calls are taken apart, and every value has a number."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from jax.extend import core

from .._jax.jaxprs import CALLS, Const, Ref, bound, opened
from .._jax.trees import is_a


@dataclass(frozen=True)
class Step:
    """One operation, with what it reads and makes by number."""

    eqn: Any
    reads: tuple[Ref, ...]
    makes: tuple[int, ...]

    @property
    def name(self) -> str:
        return self.eqn.primitive.name

    @property
    def numbers(self) -> list[int]:
        """What it reads, besides constants."""
        return [ref for ref in self.reads if isinstance(ref, int)]

    def run(self, env: Mapping[int, Any]) -> list[Any]:
        return bound(self.eqn, [env[ref] if isinstance(ref, int) else ref.value for ref in self.reads])


@dataclass(frozen=True)
class FlatProgram:
    """A program without calls.

    Args:
        steps: Its operations.
        takes: Its constants and arguments, by number.
        gives: Its results.
        avals: Shape and dtype of each value.
    """

    steps: tuple[Step, ...]
    takes: tuple[int, ...]
    gives: tuple[Ref, ...]
    avals: Mapping[int, Any]

    @cached_property
    def sizes(self) -> Mapping[int, int]:
        """Bytes of each value."""
        return {n: bytes_of(aval) for n, aval in self.avals.items()}

    @property
    def results(self) -> set[int]:
        return {ref for ref in self.gives if isinstance(ref, int)}

    def reads_of(self, start: int, stop: int) -> list[int]:
        """What steps read that they do not make, in the order in which it is read."""
        made = {n for step in self.steps[start:stop] for n in step.makes}
        return list(dict.fromkeys(n for step in self.steps[start:stop] for n in step.numbers if n not in made))

    def needed_after(self, start: int, stop: int) -> list[int]:
        """What steps make that is read behind them, or is a result."""
        later = {n for step in self.steps[stop:] for n in step.numbers} | self.results
        return [n for step in self.steps[start:stop] for n in step.makes if n in later]

    def crossing(self) -> list[int]:
        """Bytes of what is made before each place and read behind it: at 0 before the first step, and so on."""
        last = {n: i for i, step in enumerate(self.steps) for n in step.numbers} | dict.fromkeys(self.results, len(self.steps))
        ends = [0] * (len(self.steps) + 1)
        live, found = 0, [0]
        for i, step in enumerate(self.steps):
            for n in step.makes:
                if last.get(n, -1) > i:
                    live += self.sizes[n]
                    ends[last[n]] += self.sizes[n]
            live -= ends[i]
            found.append(live)
        return found


def flattened(jaxpr: Any, calls: Collection[str] = ("jit", "pjit")) -> FlatProgram:
    """Take calls of a program apart, by default those without a rule of their own. Its constants come before its arguments."""
    steps: list[Step] = []
    avals: dict[int, Any] = {}

    def number(atom: Any) -> int:
        n = len(avals)
        avals[n] = atom.aval
        return n

    def go(program: Any, constants: Sequence[Ref], given: Sequence[Ref]) -> list[Ref]:
        env: dict[Any, Ref] = dict(zip((*program.constvars, *program.invars), (*constants, *given), strict=True))

        def ref(atom: Any) -> Ref:
            return Const(atom.val) if is_a(atom, core.Literal) else env[atom]

        for eqn in program.eqns:
            reads = tuple(ref(atom) for atom in eqn.invars)
            if eqn.primitive.name in calls:
                inner, inside = opened(eqn.params[CALLS[eqn.primitive.name]])
                env.update(zip(eqn.outvars, go(inner, [Const(value) for value in inside], reads), strict=True))
            else:
                makes = tuple(number(atom) for atom in eqn.outvars)
                env.update(zip(eqn.outvars, makes, strict=True))
                steps.append(Step(eqn, reads, makes))
        return [ref(atom) for atom in program.outvars]

    program, _ = opened(jaxpr)
    takes = [number(atom) for atom in (*program.constvars, *program.invars)]
    split = len(program.constvars)
    gives = go(program, takes[:split], takes[split:])
    return FlatProgram(tuple(steps), tuple(takes), tuple(gives), avals)


def bytes_of(aval: Any) -> int:
    """Of an array; extended dtypes have a size too."""
    return math.prod(aval.shape) * aval.dtype.itemsize if hasattr(aval, "shape") else 0
