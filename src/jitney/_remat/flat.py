"""Flat programs: a jaxpr as a list of steps, with calls inlined and a number for every value.

    jit[ a = sin x ]; b = mul a 2.0   ->   Step(sin, (0,), (1,)); Step(mul, (1, 2.0), (2,))

Analyses of `_remat` and `_sparsity` work on this form: positions of steps are integers, and the
readers of a value are known.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np

from .._jax.evaluation import (
    CallStack,
    Ref,
    as_const,
    numbered,
    numbers_of,
    values_at,
    without_calls,
)
from .._jax.jaxprs import bound, called, opened, programs
from .._jax.primitives import PLAIN_CALLS
from .._jax.trees import issubdtype
from .._jax.typed import AnyJaxpr, JaxprEqn


@dataclass(frozen=True)
class Step:
    """Equation with the numbers of the values that it reads and computes."""

    eqn: JaxprEqn
    reads: tuple[Ref, ...]
    makes: tuple[int, ...]

    @property
    def name(self) -> str:
        return self.eqn.primitive.name

    @property
    def numbers(self) -> list[int]:
        """Operands other than constants."""
        return numbers_of(self.reads)

    def run(self, env: Mapping[int, object]) -> list[Any]:
        return self.bound(values_at(self.reads, env))

    def bound(self, values: Sequence[object]) -> list[Any]:
        return bound(self.eqn, values)

    @cached_property
    def rule(self) -> tuple[Hashable, ...] | None:
        """Fingerprint of a function with a custom derivative rule, such as `jax.nn.relu`.

        It is the text of the jaxprs of the function and of its first two derivatives. None if these
        do not determine the function, or if a rule cannot be traced: it may refuse, or have no
        second derivative. JAX wraps a rule anew wherever it stands, so identity would distinguish
        equal rules.
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
        # The function itself runs where nothing is differentiated, and the derivatives do not
        # contain it.
        told = [derived, *programs(self.eqn.params)]
        held = any(
            getattr(inner, "consts", ())
            for program in told
            for inner in (program, *within(program))
        )
        texts = tuple(map(str, told))
        # The text of a jaxpr shows neither its constants nor the rule of a `custom_vjp` inside it.
        return (
            ("rule", *texts)
            if not held and not any("custom_vjp" in text for text in texts)
            else None
        )

    def _derived(self, avals: Sequence[object]) -> Any:
        """Jaxpr of the first two derivatives."""

        def function(*given: Any) -> list[Any]:
            return bound(self.eqn, given)

        def pushed(values: object, tangents: object) -> Any:
            return jax.jvp(function, values, tangents)

        def pushed_twice(values: object, tangents: object) -> Any:
            return jax.jvp(pushed, (values, tangents), (tangents, values))

        def pulled(values: Any) -> Any:
            out, pull = jax.vjp(function, *values)
            return out, pull(out)

        def pulled_twice(values: object) -> Any:
            out, pull = jax.vjp(pulled, values)
            return out, pull(out)

        forward = self.name == "custom_jvp_call"
        return (
            jax.make_jaxpr(pushed_twice)(avals, avals)
            if forward
            else jax.make_jaxpr(pulled_twice)(avals)
        )


@dataclass(frozen=True)
class FlatProgram:
    """Program without calls.

    Args:
        steps: Equations in order.
        takes: Numbers of its constants, then of its arguments.
        gives: Results.
        avals: Abstract value of each number.
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
        """Values that a range of steps reads from outside, in the order in which it reads them."""
        made = {n for step in self.steps[start:stop] for n in step.makes}
        return list(
            dict.fromkeys(
                n for step in self.steps[start:stop] for n in step.numbers if n not in made
            )
        )

    def needed_after(self, start: int, stop: int) -> list[int]:
        """Values of a range of steps that later steps read, or that are results."""
        later = {n for step in self.steps[stop:] for n in step.numbers} | self.results
        return [n for step in self.steps[start:stop] for n in step.makes if n in later]

    @cached_property
    def readers(self) -> Mapping[int, tuple[int, ...]]:
        """Steps that read each value; the index past the last step stands for the results of the
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
        """Bytes of live values at each position: computed before it and read behind it.

        Position 0 is before the first step. Results of the equations in `without` do not count.
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


def flattened(jaxpr: object, calls: Collection[str] = PLAIN_CALLS) -> FlatProgram:
    """Flatten a program. By default only calls without a rule of their own are inlined. Its
    constants come before its arguments.
    """
    steps: list[Step] = []
    avals: dict[int, Any] = {}

    def step(eqn: JaxprEqn, reads: list[Ref], _: CallStack) -> tuple[int, ...]:
        makes = numbered(eqn.outvars, avals)
        steps.append(Step(eqn, tuple(reads), makes))
        return makes

    def inside(eqn: JaxprEqn) -> Any | None:
        return called(eqn) if eqn.primitive.name in calls else None

    program, _ = opened(jaxpr)
    constants, arguments = numbered(program.constvars, avals), numbered(program.invars, avals)
    gives = without_calls(jaxpr, arguments, step, inside, constants=constants, constant=as_const)
    return FlatProgram(tuple(steps), (*constants, *arguments), tuple(gives), avals)


def within(program: AnyJaxpr) -> Iterator[Any]:
    """Sub-jaxprs of a program, at any depth."""
    for eqn in opened(program)[0].eqns:
        for inner in programs(eqn.params):
            yield inner
            yield from within(inner)


def bytes_of(aval: Any) -> int:
    """Bytes of an array; extended dtypes have a size too."""
    return math.prod(aval.shape) * aval.dtype.itemsize if hasattr(aval, "shape") else 0
