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
from typing import TypeGuard

import jax
import numpy as np

from .._jax.programs.jaxprs import open_jaxpr, programs
from .._jax.programs.ssa import Const, FlatProgram, Ref, Step, bytes_of, is_pure
from .._jax.typed import AnyJaxpr, Atom, JaxprEqn, NumPyArray
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
        identical: True if the layers are identical, so that they can become a loop.
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
    weights: list[int] = []
    for step in flat.steps:
        computed = sum(flat.sizes[n] for n in step.makes)
        weights.append(computed + _inside(step))
    least = _SHARE * sum(weights)
    crossing = flat.crossing()
    labels = _number_labels([_label(step) for step in flat.steps])
    stacks = list(
        _find_repetitions(
            flat,
            np.asarray(labels),
            np.asarray(weights, float),
            crossing,
            0,
            len(labels),
            least,
        )
    )

    # Loops that are not part of a repetition are stacks of their iterations.
    covered = {i for stack in stacks for i in range(stack.start, stack.stop)}
    for i, step in enumerate(flat.steps):
        if i in covered or step.name != "scan":
            continue
        length = int(step.eqn.params["length"])
        if length > 1 and weights[i] >= least:
            stacks.append(Stack((i, i + 1), length))
    stacks.sort(key=lambda stack: stack.start)
    return tuple(stacks) or _pieces(flat, crossing)


def repetitions(flat: FlatProgram, least: int) -> tuple[Stack, ...]:
    """Repeated ranges of at least `least` steps, whether or not they are identical in everything
    else.

    Slices do not count: all layers may take slices of one array.
    """
    labels = _number_labels([_label(step) for step in flat.steps])
    counts = [step.name not in _SLICES for step in flat.steps]
    stacks = _find_repetitions(
        flat,
        np.asarray(labels),
        np.asarray(counts, float),
        flat.crossing(_SLICES),
        0,
        len(labels),
        least,
    )
    return tuple(sorted(stacks, key=lambda stack: stack.start))


def _find_repetitions(
    flat: FlatProgram,
    labels: NumPyArray,
    weights: NumPyArray,
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
    yield from _find_repetitions(flat, labels, weights, crossing, low, stack.start, least)
    yield stack
    yield from _find_repetitions(flat, labels, weights, crossing, stack.stop, high, least)


def _best(labels: NumPyArray, weights: NumPyArray) -> tuple[float, int, int, int] | None:
    """Weight, start, length and period of the repetition with the most weight."""
    sums = np.concatenate([[0.0], np.cumsum(weights)])
    best: tuple[float, int, int, int] | None = None
    longest = min(len(labels) // 2, _PERIOD)
    for period in range(1, longest + 1):
        # Runs of labels that are equal to the label one period later. A run of n such labels is a
        # repetition of n + period steps.
        equal = labels[:-period] == labels[period:]
        padded = np.concatenate([[0], equal.astype(np.int8), [0]])
        edges = np.flatnonzero(np.diff(padded))
        for first, last in zip(edges[::2], edges[1::2], strict=True):
            if last - first < period:
                continue
            start = int(first)
            stop = int(last) + period
            weight = float(sums[stop] - sums[start])
            if best is None or weight * _NEAR > best[0]:
                best = (weight, start, stop - start, period)
    return best


def _cut(
    flat: FlatProgram,
    crossing: Sequence[int],
    first: int,
    end: int,
    period: int,
) -> Stack:
    """Cut a repetition where the fewest bytes cross."""
    # Steps by which the cuts may move: the incomplete layer, and a whole one if there are enough.
    count, spare = divmod(end - first, period)
    if count > 2:
        spare += period
    last_start = first + min(spare, period - 1)

    def bytes_at(start: int) -> tuple[float, int]:
        """Average bytes that cross the cuts; of equal starts the first one counts."""
        crossed = crossing[start:end:period]
        return sum(crossed) / len(crossed), start

    begin = min(range(first, last_start + 1), key=bytes_at)
    count = (end - begin) // period
    bounds = tuple(range(begin, begin + count * period + 1, period))
    kinds = {canonical_form(flat, a, b).form for a, b in pairwise(bounds)}
    steps = flat.steps[bounds[0] : bounds[-1]]
    return Stack(bounds, identical=len(kinds) == 1 and is_pure(steps))


def _pieces(flat: FlatProgram, crossing: Sequence[int]) -> tuple[Stack, ...]:
    """Pieces of about equal work, cut where few bytes cross."""
    work = list(accumulate(of_equation(step.eqn) + 1 for step in flat.steps))
    if len(work) < 2 * _PIECES:
        return ()
    bounds = [0]
    for i in range(1, _PIECES):
        # A quarter of a piece in either direction.
        low = bisect(work, work[-1] * (i - 0.25) / _PIECES)
        high = bisect(work, work[-1] * (i + 0.25) / _PIECES)
        after = bounds[-1] + 1
        places = range(max(low, after), max(high, after) + 1)
        at = min(places, key=crossing.__getitem__)
        if bounds[-1] < at < len(flat.steps):
            bounds.append(at)
    return (Stack((*bounds, len(flat.steps))),)


def _inside(step: Step) -> int:
    """Bytes that a loop computes over all iterations."""
    if step.name != "scan":
        return 0
    program, _ = open_jaxpr(step.eqn.params["jaxpr"])
    results = [atom for eqn in program.eqns for atom in eqn.outvars]
    per_iteration = sum(bytes_of(atom.aval) for atom in results)
    return int(step.eqn.params["length"]) * per_iteration


def _number_labels(labels: Sequence[Hashable]) -> list[int]:
    known: dict[Hashable, int] = {}
    return [known.setdefault(label, len(known)) for label in labels]


def _label(step: Step) -> Hashable:
    """Hash key of an equation: primitive, plain parameters and types, coarse enough to find
    repetitions.
    """
    eqn = step.eqn
    params: list[Hashable] = []
    for name, value in sorted(eqn.params.items()):
        text = repr(value) if isinstance(value, _PLAIN) else type(value).__name__
        params.append((name, text))
    inner = tuple(len(open_jaxpr(program)[0].eqns) for program in programs(eqn.params))
    return (
        step.name,
        tuple(params),
        inner,
        tuple(map(_kind, eqn.invars)),
        tuple(map(_kind, eqn.outvars)),
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
    numbers: list[NumPyArray]


def canonical_form(
    flat: FlatProgram,
    start: int,
    stop: int,
) -> CanonicalForm:
    """Canonical form of a range of steps.

    Functions among the parameters are compared by identity: two derivative rules may differ
    although their programs agree.
    """
    made: dict[int, int] = {}
    outside: dict[int, int] = {}
    numbers: list[NumPyArray] = []
    form: list[Hashable] = []

    # Values are renamed by the order of their first occurrence, and literals are replaced by a
    # mark.
    def place(ref: Ref, atom: Atom) -> Hashable:
        if is_number(ref):
            numbers.append(np.asarray(ref.value, atom.aval.dtype))
            return ("number",)
        if isinstance(ref, Const):
            return ("constant", *_identity(ref.value))
        if ref in made:
            return ("made", made[ref])
        return ("read", outside.setdefault(ref, len(outside)))

    for step in flat.steps[start:stop]:
        eqn = step.eqn
        reads = tuple(map(place, step.reads, eqn.invars))
        for n in step.makes:
            made[n] = len(made)
        params = step.rule or _params(eqn)
        kinds = tuple(map(_kind, (*eqn.invars, *eqn.outvars)))
        form.append((step.name, params, reads, kinds, bool(eqn.effects)))
    return CanonicalForm(tuple(form), list(outside), list(made), numbers)


def is_number(ref: object) -> TypeGuard[Const]:
    """Return whether an operand is a scalar literal of the program."""
    if not isinstance(ref, Const) or np.ndim(ref.value):
        return False
    return not isinstance(ref.value, jax.Array)


def _identity(value: object) -> tuple[Hashable, ...]:
    # Tuples may hold programs too, and the text of a tuple shows nothing of their rules.
    if isinstance(value, (tuple, list)):
        return (type(value).__name__, *map(_identity, value))
    if isinstance(value, (_PLAIN, np.dtype, np.generic)):
        return (repr(value),)
    if isinstance(value, np.ndarray) and value.ndim == 0:
        return (repr(value),)

    program, constants = open_jaxpr(value)
    if hasattr(program, "eqns") and not constants:
        equations = map(_equation, program.eqns)
        whole = id(value) if programs_inside(program) else str(program)
        return ("program", *equations, whole)

    by_identity = ("object", id(value))
    try:
        hash(value)
    except TypeError:
        return by_identity
    has_equality = type(value).__eq__ is not object.__eq__
    return ("value", value) if has_equality else by_identity


def programs_inside(program: AnyJaxpr) -> bool:
    return any(programs(eqn.params) for eqn in program.eqns)


def _equation(eqn: JaxprEqn) -> Hashable:
    return eqn.primitive.name, _params(eqn)


def _params(eqn: JaxprEqn) -> tuple[Hashable, ...]:
    params = sorted(eqn.params.items())
    return tuple((name, _identity(value)) for name, value in params)
