"""Colouring of Jacobians: columns that share no row have one colour and go into one direction.

    1 1 0 0        colours of the columns: 0 1 0 1
    0 1 1 0   ->   seed matrix: (1 0 1 0) and (0 1 0 1)
    0 0 1 1        two forward passes instead of four

The method is that of Curtis, Powell and Reid (1974), as greedy distance-2 colouring (Gebremedhin,
Manne and Pothen 2005, "What color is your Jacobian?"). Dense rows, as in an arrow matrix, are taken
out and computed one by one in the other mode.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np

from ..pattern import Pattern
from ..typed_numpy import Bools, Ints
from .modes import REVERSE, WAYS, PassMode


@dataclass(frozen=True)
class Colouring:
    """Directions that give all elements of a Jacobian.

    Args:
        by: Mode of the directions: of the arguments ("forward") or of the results ("reverse").
        colours: Colour of each element of the arguments (or of the results), which is the index of
            its direction.
        count: Number of directions.
        apart: Dense rows (or columns) that are computed one by one in the other mode.
        mirrored: For each element of a symmetric matrix, whether it is read at its mirror image;
            None if the matrix is not read so.
    """

    by: PassMode
    colours: Ints
    count: int
    apart: Ints
    mirrored: Bools | None = None

    @property
    def cost(self) -> int:
        """Cost in forward passes."""
        forward, reverse = self._passes
        return forward + REVERSE * reverse

    @property
    def _passes(self) -> tuple[int, int]:
        apart = len(self.apart)
        return (self.count, apart) if self.by == "forward" else (apart, self.count)

    @property
    def text(self) -> str:
        """Number of passes in words: `3 forward passes and 1 backward one`."""
        forward, reverse = self._passes
        parts = [_count(forward, "forward pass"), _count(reverse, "backward pass")]
        return " and ".join(part for part in parts if part) or "no pass"


def _count(count: int, what: str) -> str:
    if not count:
        return ""
    plural = "es" if count > 1 else ""
    return f"{count} {what}{plural}"


def scheme_of(
    pattern: Pattern,
    ways: Collection[PassMode],
    limit: float = math.inf,
) -> Colouring | None:
    """Cheapest scheme found for a pattern, of the allowed modes; None if it costs more than the
    limit.
    """
    apart = len(ways) > 1
    best: Colouring | None = None
    for way in WAYS:
        if way not in ways:
            continue
        columns = pattern if way == "forward" else pattern.transpose
        scheme = _colour(columns, way, limit, apart=apart)
        if scheme is not None and (best is None or scheme.cost < best.cost):
            best = scheme
            limit = scheme.cost
    return best


def _colour(
    pattern: Pattern,
    by: PassMode,
    limit: float,
    *,
    apart: bool,
) -> Colouring | None:
    mine, other = (1, REVERSE) if by == "forward" else (REVERSE, 1)
    lengths = np.sort(pattern.lengths)[::-1]

    # The number of rows to take out: 0, or a power of 2. A row needs as many colours as it has
    # columns, so the longest row that stays bounds the cost from below.
    counts = [0]
    if apart:
        counts += [1 << power for power in range(_MOST_APART.bit_length())]
    bounds: list[int] = []
    for count in counts:
        if count <= len(lengths):
            longest = int(lengths[count]) if count < len(lengths) else 0
            bounds.append(mine * longest + other * count)
    best = counts[int(np.argmin(bounds))]
    # Not even the lower bound is cheap enough.
    if min(bounds) > limit:
        return None
    most = (limit - other * best) / mine
    return _colour_without_longest(pattern, by, best, most)


def scheme_by(
    pattern: Pattern,
    by: PassMode,
    apart: int,
    most: float,
) -> Colouring | None:
    """Scheme of a given form: mode, number of dense rows (or columns) taken out, and most
    colours.
    """
    columns = pattern if by == "forward" else pattern.transpose
    return _colour_without_longest(columns, by, apart, most)


def _colour_without_longest(
    pattern: Pattern,
    by: PassMode,
    apart: int,
    most: float,
) -> Colouring | None:
    """Take out the longest rows and colour the others; None if that takes more than `most`
    colours.
    """
    by_length = np.argsort(-pattern.lengths, kind="stable")
    long = np.sort(by_length[:apart])
    rest = pattern
    if apart:
        stays = np.ones(pattern.size, bool)
        stays[long] = False
        rest = pattern.keep(stays)

    colourings: list[Ints] = []
    for order in orders(rest):
        colours = _greedy(rest, order, most)
        if colours is not None:
            colourings.append(colours)
    if not colourings:
        return None
    colours = min(colourings, key=lambda colouring: colouring.max(initial=-1))
    count = int(colours.max(initial=-1)) + 1
    return Colouring(by, colours, count, long)


_MOST_APART = 64


def orders(pattern: Pattern) -> Iterator[Ints]:
    """Orders of the columns for greedy colouring: the natural one, which is best for bands, and
    by decreasing degree.
    """
    yield np.arange(pattern.columns)
    by_column = pattern.transpose
    # Sum of the lengths of a column's rows. The appended 0 gives `reduceat` an element for empty
    # columns at the end.
    row_lengths = pattern.lengths[by_column.indices]
    sums = np.add.reduceat(np.append(row_lengths, 0), by_column.starts[:-1])
    degrees = sums * (by_column.lengths > 0)
    if len(np.unique(degrees)) > 1:
        yield np.argsort(-degrees, kind="stable")


def _greedy(pattern: Pattern, order: Ints, most: float) -> Ints | None:
    """Greedy distance-2 colouring: each column gets the least colour that no column in its rows
    has.

    None if it takes more than `most` colours.
    """
    # A full row: no two columns share a colour.
    if pattern.lengths.max(initial=0) == pattern.columns:
        return np.arange(pattern.columns) if pattern.columns <= most else None
    by_column = pattern.transpose
    colours = np.full(pattern.columns, -1)
    starts, rows = by_column.starts.tolist(), by_column.indices.tolist()
    row_starts, columns = pattern.starts.tolist(), pattern.indices
    for column in order:
        taken: set[int] = set()
        for row in rows[starts[column] : starts[column + 1]]:
            neighbours = columns[row_starts[row] : row_starts[row + 1]]
            taken.update(colours[neighbours].tolist())
        colour = 0
        while colour in taken:
            colour += 1
        if colour >= most:
            return None
        colours[column] = colour
    return colours
