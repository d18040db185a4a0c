"""Programs in SSA form: a jaxpr as one list of steps, with calls inlined and a number for every
value.

    jit[ a = sin x ]; b = mul a 2.0   ->   Step(sin, (0,), (1,)); Step(mul, (1, 2.0), (2,))

Analyses work on this form: positions of steps are integers, the readers of a value are known, and
backward liveness is one sweep. Those that note more about a step derive from `Step`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

import jax

from ..typed import Array, Atom, Aval, JaxprEqn
from .custom_rules import fingerprint
from .evaluation import CallStack, without_calls
from .jaxprs import called_jaxpr, open_jaxpr, rebind
from .primitives import PLAIN_CALLS


@dataclass(frozen=True)
class Const:
    """A value that is known before anything runs; all other values are numbered."""

    value: Any


Ref = int | Const


def numbers_of(refs: Iterable[Ref]) -> list[int]:
    """Return the references that are numbers, without the constants."""
    return [ref for ref in refs if isinstance(ref, int)]


def values_at(refs: Iterable[Ref], values: Mapping[int, object]) -> list[Any]:
    """Resolve references: numbers through `values`, constants to themselves."""
    return [values[ref] if isinstance(ref, int) else ref.value for ref in refs]


def number_results(atoms: Iterable[Atom], avals: dict[int, Aval]) -> tuple[int, ...]:
    """Allot a new number to each result of an equation, and record its abstract value."""
    numbers: list[int] = []
    for atom in atoms:
        numbers.append(len(avals))
        avals[numbers[-1]] = atom.aval
    return tuple(numbers)


def as_const(value: object, _aval: object, _eqn: object) -> Const:
    """Wrap a literal of a jaxpr whose values are numbered; a `constant` for `interpret`."""
    return Const(value)


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

    @property
    def marks(self) -> tuple[int, ...]:
        """Numbers that keep it alive: those of its results."""
        return self.makes

    def run(self, env: Mapping[int, object]) -> list[jax.Array]:
        return self.bind(values_at(self.reads, env))

    def bind(self, values: Sequence[object]) -> list[jax.Array]:
        return rebind(self.eqn, values)

    @cached_property
    def rule(self) -> tuple[Hashable, ...] | None:
        """Fingerprint of its derivative rule, if it is a function with one; see `fingerprint`."""
        return fingerprint(self.eqn)


AnyStep = TypeVar("AnyStep", bound=Step)
StepT = TypeVar("StepT", bound=Step, covariant=True)


@dataclass(frozen=True)
class SSAProgram(Generic[StepT]):
    """Program without calls.

    Args:
        steps: Equations in order.
        takes: Numbers of its constants, if they are numbered, then of its arguments.
        gives: Results.
        avals: Abstract value of each number.
    """

    steps: tuple[StepT, ...]
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

    @cached_property
    def makers(self) -> Mapping[int, int]:
        """Step that computes each value; arguments and constants have none."""
        return {n: i for i, step in enumerate(self.steps) for n in step.makes}

    def crossing(self, without: Collection[str] = ()) -> list[int]:
        """Bytes of live values at each position: computed before it and read behind it.

        Position 0 is before the first step. Results of the equations in `without` do not count.
        """
        end = len(self.steps)
        freed = [0] * (end + 1)
        live = 0
        crossing = [0]
        for i, step in enumerate(self.steps):
            if step.name not in without:
                for n in step.makes:
                    last = self.readers.get(n, (-1,))[-1]
                    if last > i:
                        live += self.sizes[n]
                        freed[last] += self.sizes[n]
            live -= freed[i]
            crossing.append(live)
        return crossing


FlatProgram = SSAProgram[Step]
"""Program of steps that nothing more is known about."""


def flatten_program(
    jaxpr: object,
    calls: Collection[str] = PLAIN_CALLS,
) -> FlatProgram:
    """Flatten a program. By default only calls without a rule of their own are inlined. Its
    constants come before its arguments.
    """

    def inside(eqn: JaxprEqn) -> object | None:
        return called_jaxpr(eqn) if eqn.primitive.name in calls else None

    avals: dict[int, Aval] = {}
    constants = number_results(open_jaxpr(jaxpr)[0].constvars, avals)
    return flatten_into(avals, jaxpr, Step, inside, constants)


def flatten_into(
    avals: dict[int, Aval],
    jaxpr: object,
    step_of: Callable[[JaxprEqn, tuple[Ref, ...], tuple[int, ...]], AnyStep],
    inside: Callable[[JaxprEqn], object | None],
    constants: tuple[int, ...] | None = None,
) -> SSAProgram[AnyStep]:
    """Flatten a program.

    Args:
        avals: Abstract values of the numbers that are allotted already; filled in.
        jaxpr: The program.
        step_of: Step of an equation, from its operands and the numbers of its results.
        inside: Jaxpr to inline for an equation; None for a step.
        constants: Numbers of its constants; None if they are no values of the program.
    """
    steps: list[AnyStep] = []

    def results(
        eqn: JaxprEqn,
        reads: list[Ref],
        _: CallStack,
    ) -> tuple[int, ...]:
        makes = number_results(eqn.outvars, avals)
        steps.append(step_of(eqn, tuple(reads), makes))
        return makes

    arguments = number_results(open_jaxpr(jaxpr)[0].invars, avals)
    gives = without_calls(
        jaxpr,
        arguments,
        results,
        inside,
        constants=constants,
        constant=as_const,
    )
    takes = (*(constants or ()), *arguments)
    return SSAProgram(tuple(steps), takes, tuple(gives), avals)


def run_steps(steps: Iterable[Step], env: dict[int, Array] | dict[int, object]) -> None:
    """Evaluate steps in order, and add their results to the values that there are."""
    for step in steps:
        env.update(zip(step.makes, step.run(env), strict=True))


def live_steps(
    steps: Sequence[AnyStep],
    roots: Iterable[int],
    known: Container[int] = (),
) -> tuple[list[AnyStep], set[int]]:
    """Backward liveness: the steps that some values need, in order, and the numbers of all that is
    live.

    Args:
        steps: The steps.
        roots: The values.
        known: Values that are there already. They are live if they are read, and need nothing.
    """
    # One sweep is enough, since the program is straight-line.
    live = set(roots)
    needed: list[AnyStep] = []
    for step in reversed(steps):
        if any(n in live and n not in known for n in step.marks):
            needed.append(step)
            live.update(step.numbers)
    return needed[::-1], live


def is_pure(steps: Iterable[Step]) -> bool:
    """Return whether steps do nothing besides computing, so that they may run twice or not at
    all.
    """
    return not any(step.eqn.effects for step in steps)


def bytes_of(aval: Aval | jax.ShapeDtypeStruct) -> int:
    """Bytes of an array; extended dtypes have a size too."""
    return math.prod(aval.shape) * aval.dtype.itemsize if hasattr(aval, "shape") else 0
