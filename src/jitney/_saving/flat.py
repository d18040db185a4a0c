"""A program as a list of operations: calls are taken apart, and every value has a number."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np

from .._jax.evaluation import Ref, SeenAt, as_const, numbered, numbers_of, values_at, without_calls
from .._jax.jaxprs import bound, called, opened, programs
from .._jax.primitives import PLAIN_CALLS
from .._jax.trees import issubdtype

_jax: Any = jax


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
        return self.bound(values_at(self.reads, env))

    def bound(self, values: Sequence[Any]) -> list[Any]:
        return bound(self.eqn, values)

    @cached_property
    def rule(self) -> tuple[Hashable, ...] | None:
        """What a function with a rule of differentiation of its own, such as `jax.nn.relu`,
        computes, and its first two derivatives, as the text of these programs; None if that does
        not tell all, or a rule cannot be asked: it may refuse, or have no second derivative. JAX
        wraps the rule anew wherever it stands, so identity would tell each from the next.
        """
        avals = tuple(
            jax.ShapeDtypeStruct(atom.aval.shape, atom.aval.dtype)
            for atom in self.eqn.invars
            if hasattr(atom.aval, "shape")
        )
        if self.name not in ("custom_jvp_call", "custom_vjp_call") or not all(
            issubdtype(aval.dtype, np.inexact) for aval in avals
        ):
            return None
        try:
            derived = self._derived(avals)
        except Exception:  # noqa: BLE001 - code of the user's, which has its own errors, and may never be differentiated
            return None
        # what runs where nothing is differentiated is no part of the derivatives
        told = [derived, *programs(self.eqn.params)]
        held = any(
            getattr(inner, "consts", ())
            for program in told
            for inner in (program, *within(program))
        )
        texts = tuple(map(str, told))
        return (
            ("rule", *texts)
            if not held and not any("custom_vjp" in text for text in texts)
            else None
        )

    def _derived(self, avals: Sequence[Any]) -> Any:
        """The program of the first two derivatives."""

        def function(*given: Any) -> list[Any]:
            return bound(self.eqn, given)

        def pushed(values: Any, tangents: Any) -> Any:
            return _jax.jvp(function, values, tangents)

        def pushed_twice(values: Any, tangents: Any) -> Any:
            return _jax.jvp(pushed, (values, tangents), (tangents, values))

        def pulled(values: Any) -> Any:
            out, pull = _jax.vjp(function, *values)
            return out, pull(out)

        def pulled_twice(values: Any) -> Any:
            out, pull = _jax.vjp(pulled, values)
            return out, pull(out)

        forward = self.name == "custom_jvp_call"
        return (
            _jax.make_jaxpr(pushed_twice)(avals, avals)
            if forward
            else _jax.make_jaxpr(pulled_twice)(avals)
        )


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
        return list(
            dict.fromkeys(
                n for step in self.steps[start:stop] for n in step.numbers if n not in made
            )
        )

    def needed_after(self, start: int, stop: int) -> list[int]:
        """What steps make that is read behind them, or is a result."""
        later = {n for step in self.steps[stop:] for n in step.numbers} | self.results
        return [n for step in self.steps[start:stop] for n in step.makes if n in later]

    @cached_property
    def readers(self) -> Mapping[int, tuple[int, ...]]:
        """Which steps read each value; one behind the last stands for the results of the
        program.
        """
        readers: dict[int, list[int]] = {}
        for i, step in enumerate(self.steps):
            for n in step.numbers:
                readers.setdefault(n, []).append(i)
        for n in self.results:
            readers.setdefault(n, []).append(len(self.steps))
        return {n: tuple(places) for n, places in readers.items()}

    def crossing(self, without: Collection[str] = ()) -> list[int]:
        """Bytes of what is made before each place and read behind it: at 0 before the first step,
        and so on. Operations may be left out.
        """
        last = {n: i for i, step in enumerate(self.steps) for n in step.numbers} | dict.fromkeys(
            self.results, len(self.steps)
        )
        ends = [0] * (len(self.steps) + 1)
        live, crossing = 0, [0]
        for i, step in enumerate(self.steps):
            for n in step.makes if step.name not in without else ():
                if last.get(n, -1) > i:
                    live += self.sizes[n]
                    ends[last[n]] += self.sizes[n]
            live -= ends[i]
            crossing.append(live)
        return crossing


def flattened(jaxpr: Any, calls: Collection[str] = PLAIN_CALLS) -> FlatProgram:
    """Take calls of a program apart, by default those without a rule of their own. Its constants
    come before its arguments.
    """
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


def within(program: Any) -> Iterator[Any]:
    """The programs inside of a program."""
    for eqn in opened(program)[0].eqns:
        for inner in programs(eqn.params):
            yield inner
            yield from within(inner)


def bytes_of(aval: Any) -> int:
    """Of an array; extended dtypes have a size too."""
    return math.prod(aval.shape) * aval.dtype.itemsize if hasattr(aval, "shape") else 0
