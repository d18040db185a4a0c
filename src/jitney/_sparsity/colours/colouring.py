"""How few directions give all elements of a sparse matrix: columns that share no row go into one
direction.

The method is that of Curtis, Powell and Reid (1974), as greedy distance-2 colouring (Gebremedhin,
Manne and Pothen 2005, "What color is your Jacobian?"). Rows that are long by themselves, as in an
arrow, are taken out and made by the other mode.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..pattern import Ints, Pattern
from .ways import REVERSE, WAYS, Way


@dataclass(frozen=True)
class Scheme:
    """Directions that give all elements of a Jacobian.

    Args:
        by: Whether directions are of the arguments ("forward") or of the results ("reverse").
        colours: The direction that each argument element (or result element) belongs to.
        count: How many directions there are.
        apart: Long rows (or columns) that are made one by one by the other mode.
        mirrored: For each element of a symmetric matrix, whether it is read at its mirror image;
            None where none is.
    """

    by: Way
    colours: Ints
    count: int
    apart: Ints
    mirrored: Any = None

    @property
    def cost(self) -> int:
        """In forward passes."""
        forward, reverse = self._passes
        return forward + REVERSE * reverse

    @property
    def _passes(self) -> tuple[int, int]:
        return (
            (self.count, len(self.apart)) if self.by == "forward" else (len(self.apart), self.count)
        )

    @property
    def text(self) -> str:
        """In words: `3 forward passes and 1 backward one`."""
        forward, reverse = self._passes
        parts = [_count(forward, "forward pass"), _count(reverse, "backward pass")]
        return " and ".join(part for part in parts if part) or "no pass"


def _count(count: int, what: str) -> str:
    return f"{count} {what}{'es' if count > 1 else ''}" if count else ""


def scheme_of(pattern: Pattern, ways: Collection[Way], limit: float = math.inf) -> Scheme | None:
    """The cheapest scheme found for a Jacobian of this pattern, of the passes that there are; None
    if it would cost more than the limit.
    """
    apart = len(ways) > 1
    best: Scheme | None = None
    for way in WAYS:
        if way in ways:
            scheme = _coloured(
                pattern if way == "forward" else pattern.transposed, way, limit, apart=apart
            )
            if scheme is not None and (best is None or scheme.cost < best.cost):
                best, limit = scheme, scheme.cost
    return best


def _coloured(pattern: Pattern, by: Way, limit: float, *, apart: bool) -> Scheme | None:
    mine, other = (1, REVERSE) if by == "forward" else (REVERSE, 1)
    lengths = np.sort(pattern.lengths)[::-1]
    counts = [0, *(1 << np.arange(_MOST_APART.bit_length()))] if apart else [0]
    bounds = [
        (mine * int(lengths[d]) if d < len(lengths) else 0) + other * d
        for d in counts
        if d <= len(lengths)
    ]
    best = counts[int(np.argmin(bounds))]
    if min(bounds) > limit:  # a row has as many colours as it has columns
        return None
    return _with_apart(pattern, by, best, (limit - other * best) / mine)


def scheme_by(pattern: Pattern, by: Way, apart: int, most: float) -> Scheme | None:
    """A scheme of a given form: by which passes, with how many long rows (or columns) taken out,
    and of how many colours at most.
    """
    return _with_apart(pattern if by == "forward" else pattern.transposed, by, apart, most)


def _with_apart(pattern: Pattern, by: Way, apart: int, most: float) -> Scheme | None:
    """The longest rows taken out, and the others coloured; None if that takes more colours than
    `most`.
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
    return Scheme(by, colours, int(colours.max(initial=-1)) + 1, long)


_MOST_APART = 64


def orders(pattern: Pattern) -> Iterator[Any]:
    """As they stand, which is best for bands; and those first that share rows with most others."""
    yield np.arange(pattern.columns)
    by_column = pattern.transposed
    degrees = np.add.reduceat(
        np.append(pattern.lengths[by_column.indices], 0), by_column.starts[:-1]
    ) * (by_column.lengths > 0)
    if len(np.unique(degrees)) > 1:
        yield np.argsort(-degrees, kind="stable")


def _greedy(pattern: Pattern, order: Any, most: float) -> Ints | None:
    """The least colour for each column that no column has which shares a row with it; None if more
    are needed than allowed.
    """
    # a row that has them all: no two share a colour
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
