"""Flat programs: a jaxpr as a list of steps, with calls inlined and a number for every value.

    jit[ a = sin x ]; b = mul a 2.0   ->   Step(sin, (0,), (1,)); Step(mul, (1, 2.0), (2,))

Analyses of `_remat` and `_sparsity` work on this form: positions of steps are integers, and the
readers of a value are known.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import jax
import numpy as np

from .._jax.programs.evaluation import (
    CallStack,
    Ref,
    as_const,
    number_results,
    numbers_of,
    values_at,
    without_calls,
)
from .._jax.programs.jaxprs import called_jaxpr, open_jaxpr, programs, rebind
from .._jax.programs.primitives import PLAIN_CALLS
from .._jax.trees import issubdtype
from .._jax.typed import AnyJaxpr, Aval, JaxprEqn


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

    def run(self, env: Mapping[int, object]) -> list[jax.Array]:
        return self.bind(values_at(self.reads, env))

    def bind(self, values: Sequence[object]) -> list[jax.Array]:
        return rebind(self.eqn, values)

    @cached_property
    def rule(self) -> tuple[Hashable, ...] | None:
        """Fingerprint of a function with a custom derivative rule, such as `jax.nn.relu`.

        It is the text of the jaxprs of the function and of its first two derivatives. None if these
        do not determine the function, or if a rule cannot be traced: it may refuse, or have no
        second derivative. JAX wraps a rule anew wherever it stands, so identity would distinguish
        equal rules.
        """
        if self.name not in ("custom_jvp_call", "custom_vjp_call"):
            return None
        operands = [atom.aval for atom in self.eqn.invars]
        avals = tuple(
            jax.ShapeDtypeStruct(aval.shape, aval.dtype)
            for aval in operands
            if hasattr(aval, "shape")
        )
        if not all(issubdtype(aval.dtype, np.inexact) for aval in avals):
            return None
        try:
            derived = self._derivative_jaxpr(avals)
        except Exception:  # noqa: BLE001 - code of the user's, which has its own errors, and may never be differentiated
            return None

        # The function itself runs where nothing is differentiated, and the derivatives do not
        # contain it.
        traced = [derived, *programs(self.eqn.params)]
        for program in traced:
            for inner in (program, *sub_jaxprs(program)):
                if getattr(inner, "consts", ()):
                    return None
        texts = tuple(map(str, traced))
        # The text of a jaxpr shows neither its constants nor the rule of a `custom_vjp` inside it.
        if any("custom_vjp" in text for text in texts):
            return None
        return ("rule", *texts)

    def _derivative_jaxpr(self, avals: Sequence[object]) -> object:
        """Jaxpr of the first two derivatives."""

        def function(*given: jax.Array) -> list[jax.Array]:
            return rebind(self.eqn, given)

        def pushed(values: object, tangents: object) -> object:
            return jax.jvp(function, values, tangents)

        def pushed_twice(values: object, tangents: object) -> object:
            return jax.jvp(pushed, (values, tangents), (tangents, values))

        def pulled(values: Sequence[jax.Array]) -> object:
            out, pull = jax.vjp(function, *values)
            return out, pull(out)

        def pulled_twice(values: object) -> object:
            out, pull = jax.vjp(pulled, values)
            return out, pull(out)

        forward = self.name == "custom_jvp_call"
        if forward:
            return jax.make_jaxpr(pushed_twice)(avals, avals)
        return jax.make_jaxpr(pulled_twice)(avals)


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
    avals: Mapping[int, Aval]

    @cached_property
    def sizes(self) -> Mapping[int, int]:
        """Bytes of each value."""
        return {n: bytes_of(aval) for n, aval in self.avals.items()}

    @property
    def results(self) -> set[int]:
        return set(numbers_of(self.gives))

    def reads_of(self, start: int, stop: int) -> list[int]:
        """Values that a range of steps reads from outside, in the order in which it reads them."""
        steps = self.steps[start:stop]
        made = {n for step in steps for n in step.makes}
        read = dict.fromkeys(n for step in steps for n in step.numbers)
        return [n for n in read if n not in made]

    def live_outputs(self, start: int, stop: int) -> list[int]:
        """Values of a range of steps that later steps read, or that are results."""
        later = self.results
        for step in self.steps[stop:]:
            later.update(step.numbers)
        made = [n for step in self.steps[start:stop] for n in step.makes]
        return [n for n in made if n in later]

    @cached_property
    def readers(self) -> Mapping[int, tuple[int, ...]]:
        """Steps that read each value; the index past the last step stands for the results of the
        program.
        """
        readers: defaultdict[int, list[int]] = defaultdict(list)
        for i, step in enumerate(self.steps):
            for n in step.numbers:
                readers[n].append(i)
        end = len(self.steps)
        for n in self.results:
            readers[n].append(end)
        return {n: tuple(places) for n, places in readers.items()}

    def crossing(self, without: Collection[str] = ()) -> list[int]:
        """Bytes of live values at each position: computed before it and read behind it.

        Position 0 is before the first step. Results of the equations in `without` do not count.
        """
        end = len(self.steps)
        last_read: dict[int, int] = {}
        for i, step in enumerate(self.steps):
            last_read.update(dict.fromkeys(step.numbers, i))
        last_read.update(dict.fromkeys(self.results, end))

        freed = [0] * (end + 1)
        live = 0
        crossing = [0]
        for i, step in enumerate(self.steps):
            if step.name not in without:
                for n in step.makes:
                    last = last_read.get(n, -1)
                    if last > i:
                        live += self.sizes[n]
                        freed[last] += self.sizes[n]
            live -= freed[i]
            crossing.append(live)
        return crossing


def flatten_program(jaxpr: object, calls: Collection[str] = PLAIN_CALLS) -> FlatProgram:
    """Flatten a program. By default only calls without a rule of their own are inlined. Its
    constants come before its arguments.
    """
    steps: list[Step] = []
    avals: dict[int, Aval] = {}

    def step(
        eqn: JaxprEqn,
        reads: list[Ref],
        _: CallStack,
    ) -> tuple[int, ...]:
        makes = number_results(eqn.outvars, avals)
        steps.append(Step(eqn, tuple(reads), makes))
        return makes

    def inside(eqn: JaxprEqn) -> object | None:
        return called_jaxpr(eqn) if eqn.primitive.name in calls else None

    program, _ = open_jaxpr(jaxpr)
    constants = number_results(program.constvars, avals)
    arguments = number_results(program.invars, avals)
    gives = without_calls(
        jaxpr,
        arguments,
        step,
        inside,
        constants=constants,
        constant=as_const,
    )
    takes = (*constants, *arguments)
    return FlatProgram(tuple(steps), takes, tuple(gives), avals)


def sub_jaxprs(program: object) -> Iterator[AnyJaxpr]:
    """Sub-jaxprs of a program, at any depth."""
    for eqn in open_jaxpr(program)[0].eqns:
        for inner in programs(eqn.params):
            yield inner
            yield from sub_jaxprs(inner)


def bytes_of(aval: Aval | jax.ShapeDtypeStruct) -> int:
    """Bytes of an array; extended dtypes have a size too."""
    return math.prod(aval.shape) * aval.dtype.itemsize if hasattr(aval, "shape") else 0
