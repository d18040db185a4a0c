"""Guesses of what options take, from the estimate and from similar options that were compiled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .estimate import Estimate
from .option import EVERYTHING, Option
from .problem import MeasuredOption, Problem


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
            return float(
                _on_line([p.option.layers for p in kin], [p.bytes for p in kin], option.layers)
            )
        most = self.estimate.everything
        return most - self._share(option) * (most - self.estimate.bytes(option))

    def flops(self, option: Option) -> float:
        kin = self._kin(option)
        if len(kin) > 1:
            return float(
                _on_line([p.option.layers for p in kin], [p.flops for p in kin], option.layers)
            )
        return self.estimate.flops(option)

    def firsts(self, options: Sequence[Option], best: MeasuredOption | None) -> list[Option]:
        """Options of each kind that may beat the best one, however little its kind has saved so
        far.

        For each kind these are the option with the smallest estimate, and all layers each by
        itself. The option that recomputes the least comes first.
        """
        firsts: list[Option] = []
        for kind in dict.fromkeys(_kind(option) for option in options if not option.whole):
            alike = [option for option in self.problem.options() if _kind(option) == kind]
            firsts += [
                min(alike, key=self.estimate.bytes),
                max(alike, key=lambda o: (-o.group, o.layers)),
            ]
        better = [
            o
            for o in dict.fromkeys(firsts)
            if o in options and (best is None or self.flops(o) < best.flops)
        ]
        return sorted(better, key=lambda o: (self.estimate.flops(o), self.estimate.bytes(o)))

    def smallest(self, options: Sequence[Option]) -> Option | None:
        """Option with the smallest guess, if it is less than all measurements."""
        smallest = min(options, key=self.bytes, default=None)
        return (
            smallest if smallest is not None and self.bytes(smallest) < self.problem.least else None
        )

    def near(self, options: Sequence[Option]) -> Option | None:
        """Neighbour of the smallest measured option of the kind that was compiled least.

        A neighbour has more or fewer layers, or other groups of them. The compiler may take less
        for some layers and more again for all, which no line through measured options shows.
        """
        neighbours: list[tuple[int, int, Option]] = []
        for kind in {
            _kind(point.option) for point in self.problem.points.values() if point.option.layers
        }:
            measured = [
                point
                for point in self.problem.points.values()
                if point.option.layers and _kind(point.option) == kind
            ]
            here = min(measured, key=lambda point: point.bytes)
            alike = [
                option
                for option in self.problem.options()
                if option.layers and _kind(option) == kind
            ]
            beside = next(
                (option for option in _neighbours(alike, here.option) if option in options), None
            )
            if beside is not None:
                neighbours.append((len(measured), here.bytes, beside))
        return min(neighbours, key=lambda neighbour: neighbour[:2], default=(0, 0, None))[2]

    def _share(self, option: Option) -> float:
        """Part of the estimated saving that the most similar measured options have reached."""
        alike = [
            p
            for p in self.problem.points.values()
            if p.option != EVERYTHING and _kind(p.option) == _kind(option)
        ]
        return max(map(self._came_true, alike), default=1.0)

    def _came_true(self, point: MeasuredOption) -> float:
        promised = self.estimate.everything - self.estimate.bytes(point.option)
        return (
            max(0.0, (self.estimate.everything - point.bytes) / promised) if promised > 0 else 0.0
        )

    def _kin(self, option: Option) -> list[MeasuredOption]:
        if option.whole:
            return []
        kin = [
            p
            for p in self.problem.points.values()
            if p.option == EVERYTHING or _family(p.option) == _family(option)
        ]
        return sorted(kin, key=lambda p: p.option.layers)


def _kind(option: Option) -> Any:
    return option.saved, option.rolled, option.whole


def _family(option: Option) -> Any:
    return option.saved, option.group, option.rolled, option.whole


def _neighbours(alike: Sequence[Option], here: Option) -> list[Option]:
    """Options of a kind that differ by one step: in the size of a group, then in the number of
    recomputed layers.
    """
    neighbours: list[Option] = []
    for group in _beside({option.group for option in alike}, here.group):
        of_group = [option for option in alike if option.group == group]
        neighbours.append(
            min(of_group, key=lambda option: (abs(option.layers - here.layers), option.layers))
        )
    layers = {option.layers for option in alike if option.group == here.group}
    return neighbours + [replace(here, layers=number) for number in _beside(layers, here.layers)]


def _beside(numbers: Iterable[int], number: int) -> list[int]:
    """Next larger and next smaller number."""
    ordered = sorted(numbers)
    at = ordered.index(number)
    return [*ordered[at + 1 : at + 2], *ordered[max(0, at - 1) : at]]


def _on_line(xs: Sequence[int], ys: Sequence[int], x: int) -> float:
    """Interpolate between two measured points, or extrapolate from the last two."""
    if x <= xs[-1]:
        return float(np.interp(x, xs, ys))
    return ys[-1] + (ys[-1] - ys[-2]) / (xs[-1] - xs[-2]) * (x - xs[-1])
