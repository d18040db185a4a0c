"""Detection of layers in a program: repeated ranges of steps, loops, or else pieces with little
between them.

A stack of layers from a Python loop is the same equations on values of the same shapes, over and
over. So it is found as a period in the sequence of steps, and cut where the fewest bytes cross.

    steps     dot add tanh dot add tanh dot add tanh sum
    labels     0   1   2    0   1   2    0   1   2    3     ->   Stack(bounds=(0, 3, 6, 9))
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import jax
import numpy as np

from .._jax.evaluation import Const
from .._jax.jaxprs import opened, programs
from .._jax.typed import AnyJaxpr, Atom, JaxprEqn
from .flat import FlatProgram, Step, bytes_of
from .flops import of_equation

# Steps of a layer, at most.
_PERIOD = 2000
# Part of the bytes of a program below which a repetition is not a stack.
_SHARE = 0.1
# A shorter period is the layer if it covers nearly as much.
_NEAR = 0.98
# Pieces of a program in which nothing repeats.
_PIECES = 8
_SLICES = ("slice", "squeeze")
_PLAIN = (str, int, float, bool, bytes, tuple, type(None))


@dataclass(frozen=True)
class Stack:
    """Layers that follow one another.

    Args:
        bounds: Step at which each begins, and the step behind the last one.
        turns: Iterations of a loop, which is a single step. 0 for layers that stand one behind the
            other.
        alike: True if the layers are identical, so that they can become a loop.
    """

    bounds: tuple[int, ...]
    turns: int = 0
    identical: bool = False

    @property
    def count(self) -> int:
        return self.turns or len(self.bounds) - 1

    @property
    def start(self) -> int:
        return self.bounds[0]

    @property
    def stop(self) -> int:
        return self.bounds[-1]


def stacks_of(flat: FlatProgram) -> tuple[Stack, ...]:
    """Stacks of a program in its order; where nothing repeats, one stack of pieces of about
    equal work.
    """
    weights = [sum(flat.sizes[n] for n in step.makes) + _inside(step) for step in flat.steps]
    crossing = flat.crossing()
    labels = _numbered([_label(step) for step in flat.steps])
    stacks = [
        *_repeated(
            flat,
            np.asarray(labels),
            np.asarray(weights, float),
            crossing,
            0,
            len(labels),
            _SHARE * sum(weights),
        )
    ]

    # Loops that are not part of a repetition are stacks of their iterations.
    covered = {i for stack in stacks for i in range(stack.start, stack.stop)}
    for i, step in enumerate(flat.steps):
        if (
            i not in covered
            and step.name == "scan"
            and step.eqn.params["length"] > 1
            and weights[i] >= _SHARE * sum(weights)
        ):
            stacks.append(Stack((i, i + 1), int(step.eqn.params["length"])))
    return tuple(sorted(stacks, key=lambda stack: stack.start)) or _pieces(flat, crossing)


def repetitions(flat: FlatProgram, least: int) -> tuple[Stack, ...]:
    """Repeated ranges of at least `least` steps, whether or not they are identical in everything
    else.

    Slices do not count: all layers may take slices of one array.
    """
    labels = np.asarray(_numbered([_label(step) for step in flat.steps]))
    weights = np.asarray([step.name not in _SLICES for step in flat.steps], float)
    found = _repeated(flat, labels, weights, flat.crossing(_SLICES), 0, len(labels), least)
    return tuple(sorted(found, key=lambda stack: stack.start))


def _repeated(
    flat: FlatProgram,
    labels: Any,
    weights: Any,
    crossing: Sequence[int],
    low: int,
    high: int,
    least: float,
) -> Iterator[Stack]:
    """Find the repetition with the most weight, then those before and behind it."""
    best = _best(labels[low:high], weights[low:high])
    if best is None or best[0] < least:
        return
    _, first, length, period = best
    first, end = low + first, low + first + length
    stack = _cut(flat, crossing, first, end, period)
    yield from _repeated(flat, labels, weights, crossing, low, stack.start, least)
    yield stack
    yield from _repeated(flat, labels, weights, crossing, stack.stop, high, least)


def _best(labels: Any, weights: Any) -> tuple[float, int, int, int] | None:
    """Weight, start, length and period of the repetition with the most weight."""
    sums = np.concatenate([[0.0], np.cumsum(weights)])
    best: tuple[float, int, int, int] | None = None
    for period in range(1, min(len(labels) // 2, _PERIOD) + 1):
        # Runs of labels that are equal to the label one period later. A run of n such labels is a
        # repetition of n + period steps.
        same = np.concatenate([[0], (labels[:-period] == labels[period:]).astype(np.int8), [0]])
        edges = np.flatnonzero(np.diff(same))
        for first, last in zip(edges[::2], edges[1::2], strict=True):
            if last - first >= period:
                stop = int(last) + period
                weight = float(sums[stop] - sums[first])
                if best is None or weight * _NEAR > best[0]:
                    best = (weight, int(first), stop - int(first), period)
    return best


def _cut(flat: FlatProgram, crossing: Sequence[int], first: int, end: int, period: int) -> Stack:
    """Cut a repetition where the fewest bytes cross."""
    # Steps by which the cuts may move: the incomplete layer, and a whole one if there are enough.
    spare = (end - first) % period + (period if (end - first) // period > 2 else 0)
    starts = range(first, first + min(spare, period - 1) + 1)
    begin = min(
        starts, key=lambda at: (sum(crossing[at:end:period]) / len(crossing[at:end:period]), at)
    )
    bounds = tuple(range(begin, begin + (end - begin) // period * period + 1, period))
    kinds = {canonical_form(flat, a, b).form for a, b in pairwise(bounds)}
    pure = not any(step.eqn.effects for step in flat.steps[bounds[0] : bounds[-1]])
    return Stack(bounds, identical=len(kinds) == 1 and pure)


def _pieces(flat: FlatProgram, crossing: Sequence[int]) -> tuple[Stack, ...]:
    """Pieces of about equal work, cut where few bytes cross."""
    work = list(accumulate(of_equation(step.eqn) + 1 for step in flat.steps))
    if len(work) < 2 * _PIECES:
        return ()
    bounds = [0]
    for i in range(1, _PIECES):
        low, high = (bisect(work, work[-1] * (i + part) / _PIECES) for part in (-0.25, 0.25))
        at = min(
            range(max(low, bounds[-1] + 1), max(high, bounds[-1] + 1) + 1), key=crossing.__getitem__
        )
        if bounds[-1] < at < len(flat.steps):
            bounds.append(at)
    return (Stack((*bounds, len(flat.steps))),)


def _inside(step: Step) -> int:
    """Bytes that a loop computes over all iterations."""
    if step.name != "scan":
        return 0
    program, _ = opened(step.eqn.params["jaxpr"])
    return int(step.eqn.params["length"]) * sum(
        bytes_of(atom.aval) for eqn in program.eqns for atom in eqn.outvars
    )


def _numbered(labels: Sequence[Hashable]) -> list[int]:
    known: dict[Hashable, int] = {}
    return [known.setdefault(label, len(known)) for label in labels]


def _label(step: Step) -> Hashable:
    """Hash key of an equation: primitive, plain parameters and types, coarse enough to find
    repetitions.
    """
    eqn = step.eqn
    params = tuple(
        (name, repr(value) if isinstance(value, _PLAIN) else type(value).__name__)
        for name, value in sorted(eqn.params.items())
    )
    inner = tuple(len(opened(program)[0].eqns) for program in programs(eqn.params))
    return (
        step.name,
        params,
        inner,
        tuple(_kind(a) for a in eqn.invars),
        tuple(_kind(a) for a in eqn.outvars),
    )


def _kind(atom: Atom) -> Hashable:
    return (
        getattr(atom.aval, "shape", ()),
        str(getattr(atom.aval, "dtype", "")),
        getattr(atom.aval, "weak_type", False),
    )


@dataclass(frozen=True)
class CanonicalForm:
    """Canonical form of a range of steps: ranges of equal form compute the same function of what
    they read.

    Args:
        form: Hashable form.
        reads: Numbers of the values read from outside, in an order that is the same for all of one
            form.
        makes: Numbers of the values computed.
        numbers: Literals of the program, likewise: two layers of one form may differ in these.
    """

    form: tuple[Hashable, ...]
    reads: list[int]
    makes: list[int]
    numbers: list[np.ndarray[Any, Any]]


def canonical_form(flat: FlatProgram, start: int, stop: int) -> CanonicalForm:
    """Canonical form of a range of steps.

    Functions among the parameters are compared by identity: two derivative rules may differ
    although their programs agree.
    """
    made: dict[int, int] = {}
    outside: dict[int, int] = {}
    numbers: list[np.ndarray[Any, Any]] = []
    form: list[Hashable] = []

    # Values are renamed by the order of their first occurrence, and literals are replaced by a
    # mark.
    def place(ref: Any, atom: Atom) -> Hashable:
        if is_number(ref):
            numbers.append(np.asarray(ref.value, atom.aval.dtype))
            return ("number",)
        if isinstance(ref, Const):
            return ("constant", *_identity(ref.value))
        return (
            ("made", made[ref]) if ref in made else ("read", outside.setdefault(ref, len(outside)))
        )

    for step in flat.steps[start:stop]:
        reads = tuple(map(place, step.reads, step.eqn.invars))
        for n in step.makes:
            made[n] = len(made)
        params = step.rule or tuple(
            (name, _identity(value)) for name, value in sorted(step.eqn.params.items())
        )
        kinds = tuple(_kind(a) for a in (*step.eqn.invars, *step.eqn.outvars))
        form.append((step.name, params, reads, kinds, bool(step.eqn.effects)))
    return CanonicalForm(tuple(form), list(outside), list(made), numbers)


def is_number(ref: object) -> bool:
    """Return whether an operand is a scalar literal of the program."""
    return (
        isinstance(ref, Const) and np.ndim(ref.value) == 0 and not isinstance(ref.value, jax.Array)
    )


def _identity(value: object) -> tuple[Any, ...]:
    # Tuples may hold programs too, and the text of a tuple shows nothing of their rules.
    if isinstance(value, (tuple, list)):
        return (type(value).__name__, *map(_identity, value))
    if isinstance(value, (_PLAIN, np.dtype, np.generic)):
        return (repr(value),)
    if isinstance(value, np.ndarray) and value.ndim == 0:
        return (repr(value),)
    program, constants = opened(value)
    if hasattr(program, "eqns") and not constants:
        return (
            "program",
            *(_equation(eqn) for eqn in program.eqns),
            str(program) if not programs_inside(program) else id(value),
        )
    try:
        hash(value)
    except TypeError:
        return ("object", id(value))
    return ("value", value) if type(value).__eq__ is not object.__eq__ else ("object", id(value))


def programs_inside(program: AnyJaxpr) -> bool:
    return any(programs(eqn.params) for eqn in program.eqns)


def _equation(eqn: JaxprEqn) -> Hashable:
    return eqn.primitive.name, tuple(
        (name, _identity(value)) for name, value in sorted(eqn.params.items())
    )
