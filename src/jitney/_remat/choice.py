"""Search for the residuals to save: of the options that fit the budget, the one that recomputes
least.

Options are ordered by an estimate from the jaxpr, and the likely ones are compiled for their true
size. Each measurement corrects the estimates of similar options, so that few are compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .._errors import BudgetError, Where
from .._jax.typed import Array
from .._jax.xla.memory import text
from .chain import Arrays
from .estimate import Estimate, layers_of
from .flops import flops_text
from .guess import Guess
from .option import EVERYTHING
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
