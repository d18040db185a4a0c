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
from typing import Any

import numpy as np

from ..pattern import Ints, Pattern
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
    mirrored: Any = None

    @property
    def cost(self) -> int:
        """Cost in forward passes."""
        forward, reverse = self._passes
        return forward + REVERSE * reverse

    @property
    def _passes(self) -> tuple[int, int]:
        return (
            (self.count, len(self.apart)) if self.by == "forward" else (len(self.apart), self.count)
        )

    @property
    def text(self) -> str:
        """Number of passes in words: `3 forward passes and 1 backward one`."""
        forward, reverse = self._passes
        parts = [_count(forward, "forward pass"), _count(reverse, "backward pass")]
        return " and ".join(part for part in parts if part) or "no pass"


def _count(count: int, what: str) -> str:
    return f"{count} {what}{'es' if count > 1 else ''}" if count else ""


def scheme_of(
    pattern: Pattern, ways: Collection[PassMode], limit: float = math.inf
) -> Colouring | None:
    """Cheapest scheme found for a pattern, of the allowed modes; None if it costs more than the
    limit.
    """
    apart = len(ways) > 1
    best: Colouring | None = None
    for way in WAYS:
        if way in ways:
            scheme = _coloured(
                pattern if way == "forward" else pattern.transposed, way, limit, apart=apart
            )
            if scheme is not None and (best is None or scheme.cost < best.cost):
                best, limit = scheme, scheme.cost
    return best


def _coloured(pattern: Pattern, by: PassMode, limit: float, *, apart: bool) -> Colouring | None:
    mine, other = (1, REVERSE) if by == "forward" else (REVERSE, 1)
    lengths = np.sort(pattern.lengths)[::-1]

    # The number of rows to take out: 0, or a power of 2. A row needs as many colours as it has
    # columns, so the longest row that stays bounds the cost from below.
    counts = [0, *(1 << np.arange(_MOST_APART.bit_length()))] if apart else [0]
    bounds = [
        (mine * int(lengths[d]) if d < len(lengths) else 0) + other * d
        for d in counts
        if d <= len(lengths)
    ]
    best = counts[int(np.argmin(bounds))]
    # Not even the lower bound is cheap enough.
    if min(bounds) > limit:
        return None
    return _with_apart(pattern, by, best, (limit - other * best) / mine)


def scheme_by(pattern: Pattern, by: PassMode, apart: int, most: float) -> Colouring | None:
    """Scheme of a given form: mode, number of dense rows (or columns) taken out, and most
    colours.
    """
    return _with_apart(pattern if by == "forward" else pattern.transposed, by, apart, most)


def _with_apart(pattern: Pattern, by: PassMode, apart: int, most: float) -> Colouring | None:
    """Take out the longest rows and colour the others; None if that takes more than `most`
    colours.
    """
    long = np.sort(np.argsort(-pattern.lengths, kind="stable")[:apart])
    rest = pattern
    if apart:
        kept = np.ones(pattern.size, bool)
        kept[long] = False
        rest = pattern.keep(kept)
    colourings = [
        colours
        for colours in (_greedy(rest, order, most) for order in orders(rest))
        if colours is not None
    ]
    if not colourings:
        return None
    colours = min(colourings, key=lambda colouring: colouring.max(initial=-1))
    return Colouring(by, colours, int(colours.max(initial=-1)) + 1, long)


_MOST_APART = 64


def orders(pattern: Pattern) -> Iterator[Any]:
    """Orders of the columns for greedy colouring: the natural one, which is best for bands, and
    by decreasing degree.
    """
    yield np.arange(pattern.columns)
    by_column = pattern.transposed
    # Sum of the lengths of a column's rows. The appended 0 gives `reduceat` an element for empty
    # columns at the end.
    degrees = np.add.reduceat(
        np.append(pattern.lengths[by_column.indices], 0), by_column.starts[:-1]
    ) * (by_column.lengths > 0)
    if len(np.unique(degrees)) > 1:
        yield np.argsort(-degrees, kind="stable")


def _greedy(pattern: Pattern, order: Any, most: float) -> Ints | None:
    """Greedy distance-2 colouring: each column gets the least colour that no column in its rows
    has.

    None if it takes more than `most` colours.
    """
    # A full row: no two columns share a colour.
    if pattern.lengths.max(initial=0) == pattern.columns:
        return np.arange(pattern.columns) if pattern.columns <= most else None
    by_column = pattern.transposed
    colours = np.full(pattern.columns, -1)
    starts, rows = by_column.starts.tolist(), by_column.indices.tolist()
    row_starts, columns = pattern.starts.tolist(), pattern.indices
    for column in order:
        taken: set[int] = set()
        for row in rows[starts[column] : starts[column + 1]]:
            taken.update(colours[columns[row_starts[row] : row_starts[row + 1]]].tolist())
        colour = 0
        while colour in taken:
            colour += 1
        if colour >= most:
            return None
        colours[column] = colour
    return colours
