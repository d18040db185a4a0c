"""Search for the residuals to save: of the options that fit the budget, the one that recomputes
least.

Options are ordered by an estimate from the jaxpr, and the likely ones are compiled for their true
size. Each measurement corrects the guesses of similar options, so that few are compiled.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from .._errors import BudgetError, Where
from .._jax.typed import Array
from .._jax.xla.memory import text
from .chain import Arrays
from .estimate import Estimate, layers_of
from .flops import flops_text
from .option import EVERYTHING, Option
from .problem import MeasuredOption, Problem

# Options compiled for one choice, if one fits.
_MOST = 20
# Options among them that are tried for their small size before anything fits.
_SEARCHED = 8
# Options compiled before it is an error that nothing fits.
_HARDER = 40


@dataclass(frozen=True)
class NoneFits:
    """Failure of the search: no option fits. It holds what was measured."""

    points: tuple[MeasuredOption, ...]


@dataclass(frozen=True)
class Chosen:
    """Function as its backward pass will see it.

    Args:
        fn: Takes its arguments as a list.
        point: The option.
        points: All measured options.
    """

    fn: Callable[[Arrays], list[Array]]
    point: MeasuredOption
    points: tuple[MeasuredOption, ...]

    def text(self, budget: int) -> str:
        most = next(point for point in self.points if point.option == EVERYTHING)
        if self.point.option == EVERYTHING:
            return f"saves everything: {text(most.bytes)} of {text(budget)}"
        again = f"{flops_text(self.point.flops)} recomputed"
        tried = f"{len(self.points)} options compiled"
        return (
            f"saves {self.point.option}: {text(self.point.bytes)} instead of {text(most.bytes)}, of"
            f" {text(budget)}; {again}; {tried}"
        )


def choose(problem: Problem, budget: int) -> Chosen | NoneFits:
    """Option that recomputes the least, of those that fit."""
    best: MeasuredOption | None = problem.measure(EVERYTHING)
    if best.bytes > budget:
        best = _search_options(problem, budget, best)
    if best is None:
        return NoneFits(tuple(problem.points.values()))
    fn = problem.fn(best.option)
    return Chosen(fn, best, tuple(problem.points.values()))


def _search_options(
    problem: Problem,
    budget: int,
    most: MeasuredOption,
) -> MeasuredOption | None:
    layers = layers_of(problem.flat, problem.stacks)
    guess = Guess(problem, Estimate(layers, most.bytes))
    options = problem.options()
    measured = [point for point in problem.points.values() if point.bytes <= budget]
    best: MeasuredOption | None = min(measured, key=lambda point: point.flops, default=None)
    for tried in range(_HARDER):
        if best is not None and tried >= _MOST:
            break
        left = [option for option in options if option not in problem.points]

        # Options that are guessed to fit and to recompute less than the best so far.
        likely = [option for option in left if guess.bytes(option) <= budget]
        if best is not None:
            likely = [option for option in likely if guess.flops(option) < best.flops]
        # In this order: the cheapest likely option; one of each kind, to correct its estimate; the
        # smallest, if nothing fits yet; neighbours of the smallest ones.
        if likely:
            option = min(likely, key=lambda o: (guess.flops(o), guess.bytes(o)))
        elif firsts := guess.firsts(left, best):
            option = firsts[0]
        elif best is None and tried < _SEARCHED and (smallest := guess.smallest(left)):
            option = smallest
        elif best is None and (near := guess.near(left)):
            option = near
        else:
            break
        point = problem.measure(option)
        if point.bytes <= budget and (best is None or point.flops < best.flops):
            best = point
    return best


def not_fitting(
    where: Where,
    points: Sequence[MeasuredOption],
    budget: int,
) -> BudgetError:
    """Error for a gradient that no option brings below its budget, with all that was measured."""
    least = min(points, key=lambda point: point.bytes)
    most = next(point for point in points if point.option == EVERYTHING)
    listed = [
        f"  {text(p.bytes):>11}  {flops_text(p.flops):>10} recomputed  saves {p.option}"
        for p in frontier_of(points)
    ]
    what = (
        f"its gradient does not fit into {text(budget)}: the least is {text(least.bytes)}, saving"
        f" everything takes {text(most.bytes)}."
    )
    rule = (
        "`memory` bounds temporaries and arguments of the gradient, as the compiler counts them."
        " What was found:\n" + "\n".join(listed)
    )
    fix = (
        f"give it memory={least.bytes}, take the batch in parts with `jitney.accumulate`, or make"
        " it smaller."
    )
    return BudgetError(where, what, rule, fix)


def frontier_of(points: Sequence[MeasuredOption]) -> list[MeasuredOption]:
    """Pareto frontier of memory and recomputation, from the most memory to the least."""
    by_flops = sorted(points, key=lambda point: (point.flops, point.bytes))
    frontier: list[MeasuredOption] = []
    for point in by_flops:
        if not frontier or point.bytes < frontier[-1].bytes:
            frontier.append(point)
    return frontier


class Guess:
    """Estimates of a program's options, corrected by measurements."""

    def __init__(self, problem: Problem, estimate: Estimate):
        self.problem = problem
        self.estimate = estimate

    def bytes(self, option: Option) -> float:
        """Bytes of an option.

        The line through measured options that differ in the number of layers only; else the
        estimate, corrected by how far it was off for another option of its kind.
        """
        kin = self._kin(option)
        if len(kin) > 1:
            layers = [point.option.layers for point in kin]
            return float(_on_line(layers, [point.bytes for point in kin], option.layers))
        most = self.estimate.everything
        saved = most - self.estimate.bytes(option)
        return most - self._share(option) * saved

    def flops(self, option: Option) -> float:
        kin = self._kin(option)
        if len(kin) > 1:
            layers = [point.option.layers for point in kin]
            return float(_on_line(layers, [point.flops for point in kin], option.layers))
        return self.estimate.flops(option)

    def firsts(
        self,
        options: Sequence[Option],
        best: MeasuredOption | None,
    ) -> list[Option]:
        """Options of each kind that may beat the best one, however little its kind has saved so
        far.

        For each kind these are the option with the smallest estimate, and all layers each by
        itself. The option that recomputes the least comes first.
        """
        kinds = dict.fromkeys(_kind(option) for option in options if not option.whole)
        every = self.problem.options()
        firsts: dict[Option, None] = {}
        for kind in kinds:
            alike = [option for option in every if _kind(option) == kind]
            smallest = min(alike, key=self.estimate.bytes)
            one_by_one = max(alike, key=_size_of_groups)
            firsts[smallest] = None
            firsts[one_by_one] = None

        left = [option for option in firsts if option in options]
        if best is not None:
            left = [option for option in left if self.flops(option) < best.flops]
        return sorted(left, key=self._estimate_costs)

    def _estimate_costs(self, option: Option) -> tuple[int, int]:
        return self.estimate.flops(option), self.estimate.bytes(option)

    def smallest(self, options: Sequence[Option]) -> Option | None:
        """Option with the smallest guess, if it is less than all measurements."""
        smallest = min(options, key=self.bytes, default=None)
        if smallest is None or self.bytes(smallest) >= self.problem.least:
            return None
        return smallest

    def near(self, options: Sequence[Option]) -> Option | None:
        """Neighbour of the smallest measured option of the kind that was compiled least.

        A neighbour has more or fewer layers, or other groups of them. The compiler may take less
        for some layers and more again for all, which no line through measured options shows.
        """
        by_kind: defaultdict[Hashable, list[MeasuredOption]] = defaultdict(list)
        for point in self.problem.points.values():
            if point.option.layers:
                kind = _kind(point.option)
                by_kind[kind].append(point)

        layered = [option for option in self.problem.options() if option.layers]
        best: tuple[int, int] | None = None
        nearest: Option | None = None
        for kind, measured in by_kind.items():
            here = min(measured, key=lambda point: point.bytes)
            rank = (len(measured), here.bytes)
            if best is not None and rank >= best:
                continue
            alike = [option for option in layered if _kind(option) == kind]
            for neighbour in _neighbours(alike, here.option):
                if neighbour in options:
                    best, nearest = rank, neighbour
                    break
        return nearest

    def _share(self, option: Option) -> float:
        """Part of the estimated saving that the most similar measured options have reached."""
        kind = _kind(option)
        points = self.problem.points.values()
        alike = [p for p in points if p.option != EVERYTHING and _kind(p.option) == kind]
        return max(map(self._came_true, alike), default=1.0)

    def _came_true(self, point: MeasuredOption) -> float:
        most = self.estimate.everything
        promised = most - self.estimate.bytes(point.option)
        if promised <= 0:
            return 0.0
        return max(0.0, (most - point.bytes) / promised)

    def _kin(self, option: Option) -> list[MeasuredOption]:
        if option.whole:
            return []
        family = _family(option)
        points = self.problem.points.values()
        kin = [p for p in points if p.option == EVERYTHING or _family(p.option) == family]
        return sorted(kin, key=lambda p: p.option.layers)


def _size_of_groups(option: Option) -> tuple[int, int]:
    """Key by which the largest option recomputes all layers, each by itself."""
    return -option.group, option.layers


def _kind(option: Option) -> Hashable:
    return option.saved, option.rolled, option.whole


def _family(option: Option) -> Hashable:
    return option.saved, option.group, option.rolled, option.whole


def _neighbours(alike: Sequence[Option], here: Option) -> list[Option]:
    """Options of a kind that differ by one step: in the size of a group, then in the number of
    recomputed layers.
    """

    def distance(option: Option) -> tuple[int, int]:
        return abs(option.layers - here.layers), option.layers

    neighbours: list[Option] = []
    groups = {option.group for option in alike}
    for group in _nearest_numbers(groups, here.group):
        of_group = [option for option in alike if option.group == group]
        neighbours.append(min(of_group, key=distance))

    layers = {option.layers for option in alike if option.group == here.group}
    counts = _nearest_numbers(layers, here.layers)
    return neighbours + [replace(here, layers=count) for count in counts]


def _nearest_numbers(numbers: Iterable[int], number: int) -> list[int]:
    """Next larger and next smaller number."""
    ordered = sorted(numbers)
    at = ordered.index(number)
    larger = ordered[at + 1 : at + 2]
    smaller = ordered[max(0, at - 1) : at]
    return [*larger, *smaller]


def _on_line(xs: Sequence[int], ys: Sequence[int], x: int) -> float:
    """Interpolate between two measured points, or extrapolate from the last two."""
    last = xs[-1]
    if x <= last:
        return float(np.interp(x, xs, ys))
    slope = (ys[-1] - ys[-2]) / (last - xs[-2])
    return ys[-1] + slope * (x - last)
