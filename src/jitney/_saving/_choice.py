"""Choose what is saved for the backward pass: the least that is computed again, of what fits.

Options are ordered by what the program says, and the compiler says of those that are likely what they take. What it says puts the guesses
right for the options of the same kind, so that few are compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from .._errors import BudgetError, Where, sentence
from .._memory import counted_bytes, text
from .._trees import issubdtype
from ._estimate import Estimate, layers_of
from ._flat import Flat, flattened
from ._flops import flops, of_equation
from ._layers import Stack, stacks_of
from ._option import EVERYTHING, Chain, Option, Saved, program_of

_jax: Any = jax
_STEPS = 12  # for how many numbers of layers there is an option, at most
_MOST = 20  # options that are compiled for one choice
_SEARCHED = 8  # of them before anything fits
# What comes after the memory is laid out: it counts the same bytes, in half of the time. As `compiler="fast"`.
_QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
_LOOP = 2  # turns that make a loop worth while


@dataclass(frozen=True)
class Point:
    """An option as it was measured.

    Args:
        option: What is saved.
        bytes: Temporaries and arguments of the gradient, by the compiler.
        flops: Operations that the gradient does besides those it does when everything is saved.
    """

    option: Option
    bytes: int
    flops: int


class Nothing(Exception):
    """No option fits; with what was measured."""

    def __init__(self, points: Sequence[Point]):
        super().__init__("nothing fits")
        self.points = tuple(points)


@dataclass(frozen=True)
class Chosen:
    """A function as its backward pass will see it.

    Args:
        fn: Of its arguments, as a list.
        point: The option.
        points: All that was measured.
    """

    fn: Callable[[Sequence[Any]], list[Any]]
    point: Point
    points: tuple[Point, ...]

    def text(self, budget: int) -> str:
        most = next(point for point in self.points if point.option == EVERYTHING)
        if self.point.option == EVERYTHING:
            return f"saves everything: {text(most.bytes)} of {text(budget)}"
        again = f"{flops_text(self.point.flops)} recomputed"
        tried = f"{len(self.points)} options compiled"
        return f"saves {self.point.option}: {text(self.point.bytes)} instead of {text(most.bytes)}, of {text(budget)}; {again}; {tried}"


class Problem:
    """A program whose gradient is wanted.

    Args:
        traced: The program: arrays in, arrays out.
        wrt: With respect to which of its arguments.
    """

    def __init__(self, traced: Any, wrt: Sequence[int] | None = None):
        self.flat: Flat = flattened(traced)
        self.constants: list[Any] = list(getattr(traced, "consts", ()))
        count = len(self.constants)
        arguments = self.flat.takes[count:]
        chosen = range(len(arguments)) if wrt is None else wrt
        self.wrt = [count + i for i in chosen if issubdtype(self.flat.avals[arguments[i]].dtype, np.inexact)]
        kinds = [getattr(self.flat.avals[ref] if isinstance(ref, int) else ref.value, "dtype", None) for ref in self.flat.gives]
        self.results = [i for i, dtype in enumerate(kinds) if dtype is not None and issubdtype(dtype, np.inexact)]
        self.stacks: tuple[Stack, ...] = stacks_of(self.flat)
        self.points: dict[Option, Point] = {}
        self._everything = 0

    @property
    def has_gradient(self) -> bool:
        return bool(self.wrt) and any(isinstance(self.flat.gives[i], int) for i in self.results)

    def fn(self, option: Option) -> Callable[[Sequence[Any]], list[Any]]:
        made = program_of(self.flat, self.stacks, option)
        return lambda arrays: made([*self.constants, *arrays])

    def measure(self, option: Option) -> Point:
        """What the compiler and the program say of an option."""
        if option not in self.points:
            run = program_of(self.flat, self.stacks, option)

            def gradient(values: Any, cotangents: Any) -> Any:
                def of(chosen: Any) -> Any:
                    given = list(values)
                    for i, value in zip(self.wrt, chosen, strict=True):
                        given[i] = value
                    out = run(given)
                    return [out[i] for i in self.results]

                out, pull = _jax.vjp(of, [values[i] for i in self.wrt])
                return out, pull(cotangents)[0]

            traced = _jax.jit(gradient).trace(*self._avals())
            work = flops(traced.jaxpr)
            if option == EVERYTHING:
                self._everything = work
            else:
                self.measure(EVERYTHING)
            self.points[option] = Point(option, counted_bytes(traced.lower().compile(_QUICK)), max(0, work - self._everything))
        return self.points[option]

    def _avals(self) -> Any:
        values = [self._abstract(n) for n in self.flat.takes]
        given = [self.flat.gives[i] for i in self.results]
        return values, [self._abstract(ref) if isinstance(ref, int) else _form(ref.value) for ref in given]

    def _abstract(self, n: int) -> Any:
        aval = self.flat.avals[n]
        return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)

    @property
    def least(self) -> int:
        """Bytes of the smallest that was measured."""
        return min(point.bytes for point in self.points.values())

    @property
    def forward(self) -> int:
        """Operations of the program itself."""
        return sum(of_equation(step.eqn) for step in self.flat.steps)

    def options(self) -> list[Option]:
        """All there are. None saves nothing of the whole program: that computes everything again and holds it all at once."""
        saved: list[Saved] = ["dots", "nothing"]
        if unsupported() is None:
            saved.insert(1, "offloaded")
        pure = not any(step.eqn.effects for step in self.flat.steps)  # `jax.checkpoint` takes no others
        found = [EVERYTHING, *(Option(each, whole=True) for each in saved if each != "nothing" and pure)]
        count = sum(stack.count for stack in self.stacks)
        rolls = any(stack.alike and Chain.of(self.flat, stack, stack.count) for stack in self.stacks)
        for rolled in (False, True) if rolls else (False,):
            for group in groups_of(count):
                least = _LOOP * group if rolled else group
                for each in saved:
                    found += [Option(each, layers, group, rolled) for layers in numbers_of(count, group) if layers >= least]
        return found


def _form(value: Any) -> Any:
    return jax.ShapeDtypeStruct(np.shape(value), value.dtype)


def groups_of(count: int) -> list[int]:
    """How many layers are recomputed together: one, two, about the root of all, where what is kept of the groups and what is
    recomputed of one are alike, and twice that."""
    root = min((d for d in range(1, count + 1) if count % d == 0), key=lambda d: abs(d - count**0.5), default=1)
    return sorted({g for g in (1, 2, root, 2 * root) if g < count})


def numbers_of(count: int, group: int) -> list[int]:
    """How many layers are recomputed, in steps of a group."""
    step = group * max(1, -(-count // (group * _STEPS)))
    return sorted({*range(step, count + 1, step), count})


def unsupported() -> str | None:
    """Why nothing is offloaded; None if it can be."""
    device: Any = _jax.local_devices()[0]
    if device.platform == "cpu":
        return "the memory of a CPU is that of the host"
    kinds = {memory.kind for memory in device.addressable_memories()}
    return None if "pinned_host" in kinds else f"{device.device_kind} has no memory space pinned_host, only {', '.join(sorted(kinds))}"


def choose(problem: Problem, budget: int) -> Chosen:
    """The option that computes the least again, of those that fit.

    Raises:
        Nothing: None fits.
    """
    best = problem.measure(EVERYTHING)
    if best.bytes > budget:
        best = _searched(problem, budget, best)
    return Chosen(problem.fn(best.option), best, tuple(problem.points.values()))


def _searched(problem: Problem, budget: int, most: Point) -> Point:
    guess = Guess(problem, Estimate(layers_of(problem.flat, problem.stacks), most.bytes))
    options = problem.options()
    measured = [point for point in problem.points.values() if point.bytes <= budget]
    best: Point | None = min(measured, key=lambda point: point.flops, default=None)
    for tried in range(_MOST):
        left = [option for option in options if option not in problem.points]
        likely = [o for o in left if guess.bytes(o) <= budget and (best is None or guess.flops(o) < best.flops)]
        if likely:
            option = min(likely, key=lambda o: (guess.flops(o), guess.bytes(o)))
        elif firsts := guess.firsts(left, best):
            option = firsts[0]
        elif best is None and tried < _SEARCHED and (smallest := guess.smallest(left)):
            option = smallest
        else:
            break
        point = problem.measure(option)
        if point.bytes <= budget and (best is None or point.flops < best.flops):
            best = point
    if best is None:
        raise Nothing(tuple(problem.points.values()))
    return best


class Guess:
    """What options take, from the program and from those that were measured."""

    def __init__(self, problem: Problem, estimate: Estimate):
        self.problem = problem
        self.estimate = estimate

    def bytes(self, option: Option) -> float:
        """By the line through measured options that differ in the number of layers alone; else the estimate, put right by how far
        another of its kind was off."""
        kin = self._kin(option)
        if len(kin) > 1:
            return float(_on_line([p.option.layers for p in kin], [p.bytes for p in kin], option.layers))
        most = self.estimate.everything
        return most - self._share(option) * (most - self.estimate.bytes(option))

    def flops(self, option: Option) -> float:
        kin = self._kin(option)
        if len(kin) > 1:
            return float(_on_line([p.option.layers for p in kin], [p.flops for p in kin], option.layers))
        return self.estimate.flops(option)

    def firsts(self, options: Sequence[Option], best: Point | None) -> list[Option]:
        """Of each kind, what the program says takes the least, and all layers each by itself: those that may be better than the best,
        however little their kind has brought so far. The one that recomputes the least is first."""
        found: list[Option] = []
        for kind in dict.fromkeys(_kind(option) for option in options if not option.whole):
            alike = [option for option in self.problem.options() if _kind(option) == kind]
            found += [min(alike, key=self.estimate.bytes), max(alike, key=lambda o: (-o.group, o.layers))]
        better = [o for o in dict.fromkeys(found) if o in options and (best is None or self.flops(o) < best.flops)]
        return sorted(better, key=lambda o: (self.estimate.flops(o), self.estimate.bytes(o)))

    def smallest(self, options: Sequence[Option]) -> Option | None:
        """The option that is guessed to take the least, if that is less than all that were measured."""
        found = min(options, key=self.bytes, default=None)
        return found if found is not None and self.bytes(found) < self.problem.least else None

    def _share(self, option: Option) -> float:
        """Which part of what the estimate promises came true for the options most like this one."""
        alike = [p for p in self.problem.points.values() if p.option != EVERYTHING and _kind(p.option) == _kind(option)]
        return max(map(self._came_true, alike), default=1.0)

    def _came_true(self, point: Point) -> float:
        promised = self.estimate.everything - self.estimate.bytes(point.option)
        return max(0.0, (self.estimate.everything - point.bytes) / promised) if promised > 0 else 0.0

    def _kin(self, option: Option) -> list[Point]:
        if option.whole:
            return []
        found = [p for p in self.problem.points.values() if p.option == EVERYTHING or _family(p.option) == _family(option)]
        return sorted(found, key=lambda p: p.option.layers)


def _kind(option: Option) -> Any:
    return option.saved, option.rolled, option.whole


def _family(option: Option) -> Any:
    return option.saved, option.group, option.rolled, option.whole


def _on_line(xs: Sequence[int], ys: Sequence[int], x: int) -> float:
    """Between two points that were measured, or on the line through the last two."""
    if x <= xs[-1]:
        return float(np.interp(x, xs, ys))
    return ys[-1] + (ys[-1] - ys[-2]) / (xs[-1] - xs[-2]) * (x - xs[-1])


def flops_text(count: float) -> str:
    """A number of operations, to be read."""
    for unit in ("", "k", "M", "G", "T"):
        if count < _STEP:
            return f"{count:.3g} {unit}FLOP"
        count /= _STEP
    return f"{count:.3g} PFLOP"


_STEP = 1000


def not_fitting(where: Where, points: Sequence[Point], budget: int) -> BudgetError:
    """The error for a gradient that no option brings below its budget, with all that was measured."""
    least = min(points, key=lambda point: point.bytes)
    most = next(point for point in points if point.option == EVERYTHING)
    listed = [f"  {text(p.bytes):>11}  {flops_text(p.flops):>10} recomputed  saves {p.option}" for p in frontier_of(points)]
    what = f"its gradient does not fit into {text(budget)}: the least is {text(least.bytes)}, saving everything takes {text(most.bytes)}."
    rule = "`memory` bounds temporaries and arguments of the gradient, as the compiler counts them. What was found:\n" + "\n".join(listed)
    fix = f"give it memory={least.bytes}, take the batch in parts with `jitney.accumulate`, or make it smaller."
    return BudgetError(sentence(where, what, rule, fix))


def frontier_of(points: Sequence[Point]) -> list[Point]:
    """Those of which no other takes less memory and recomputes no more, from the most memory to the least."""
    found: list[Point] = []
    for point in sorted(points, key=lambda p: (p.flops, p.bytes)):
        if not found or point.bytes < found[-1].bytes:
            found.append(point)
    return found
