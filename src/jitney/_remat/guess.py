"""Guesses of what options take, from the estimate and from similar options that were compiled."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace

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
