"""A program as a list of operations: calls are taken apart, and every value has a number."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from .._jax.evaluation import Ref, SeenAt, as_const, numbered, numbers_of, values_at, without_calls
from .._jax.jaxprs import bound, called, opened
from .._jax.primitives import PLAIN_CALLS


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
        return numbers_of(self.reads)

    def run(self, env: Mapping[int, Any]) -> list[Any]:
        return bound(self.eqn, values_at(self.reads, env))


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
        return set(numbers_of(self.gives))

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
        live, crossing = 0, [0]
        for i, step in enumerate(self.steps):
            for n in step.makes:
                if last.get(n, -1) > i:
                    live += self.sizes[n]
                    ends[last[n]] += self.sizes[n]
            live -= ends[i]
            crossing.append(live)
        return crossing


def flattened(jaxpr: Any, calls: Collection[str] = PLAIN_CALLS) -> FlatProgram:
    """Take calls of a program apart, by default those without a rule of their own. Its constants come before its arguments."""
    steps: list[Step] = []
    avals: dict[int, Any] = {}

    def step(eqn: Any, reads: list[Ref], _: SeenAt) -> tuple[int, ...]:
        makes = numbered(eqn.outvars, avals)
        steps.append(Step(eqn, tuple(reads), makes))
        return makes

    def inside(eqn: Any) -> Any | None:
        return called(eqn) if eqn.primitive.name in calls else None

    program, _ = opened(jaxpr)
    constants, arguments = numbered(program.constvars, avals), numbered(program.invars, avals)
    gives = without_calls(jaxpr, arguments, step, inside, constants=constants, constant=as_const)
    return FlatProgram(tuple(steps), (*constants, *arguments), tuple(gives), avals)


def bytes_of(aval: Any) -> int:
    """Of an array; extended dtypes have a size too."""
    return math.prod(aval.shape) * aval.dtype.itemsize if hasattr(aval, "shape") else 0
