"""Colouring of Jacobians: columns that share no row have one colour and go into one direction.

    1 1 0 0        colours of the columns: 0 1 0 1
    0 1 1 0   ->   seed matrix: (1 0 1 0) and (0 1 0 1)
    0 0 1 1        two forward passes instead of four

The method is that of Curtis, Powell and Reid (1974), as greedy distance-2 colouring (Gebremedhin,
Manne and Pothen 2005, "What color is your Jacobian?"). Dense rows, as in an arrow matrix, are taken
out and computed one by one in the other mode.

In a symmetric matrix an element can be read at its own position or at its mirror image, so fewer
colours are needed: star colouring, algorithm 4.1 of the same paper. Neighbours have different
colours, and no path of four vertices has two colours only. The result is checked element by
element, so only the symmetry is taken on trust. That holds for Hessians of plain compositions of
JAX primitives; a function with a custom derivative rule may have any Hessian.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from ..._jax.programs.jaxprs import open_jaxpr, programs
from ..._jax.programs.primitives import LOGIC, PLAIN_CALLS, REARRANGED, REMATS
from ..._jax.typed import AnyJaxpr, JaxprEqn
from ..pattern import Pattern, union
from ..typed_numpy import Bools, Ints, np
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


# `pow` is left out: where the base is 0 its rule gives second derivatives that are not symmetric.
_SMOOTH = (
    "abs acos acosh add add_any asin asinh atan atan2 atanh cbrt ceil convert_element_type copy"
    " copy_p cos cosh cumsum div dot_general dynamic_slice dynamic_update_slice erf exp exp2 expm1"
    " floor gather integer_pow iota log log1p logistic max min mul neg pad reduce_max reduce_min"
    " reduce_sum round rsqrt scan scatter-add sign sin sinh split sqrt square stop_gradient sub tan"
    " tanh"
)
_PROVEN = frozenset((*_SMOOTH.split(), *LOGIC, *REARRANGED, *PLAIN_CALLS, *REMATS, "cond"))


def has_symmetric_hessian(traced: object) -> bool:
    """Return whether a program consists of primitives whose second derivatives are symmetric, as
    JAX computes them.
    """
    return all(
        eqn.primitive.name in _PROVEN and all(map(has_symmetric_hessian, _inside(eqn)))
        for eqn in open_jaxpr(traced)[0].eqns
    )


def _inside(eqn: JaxprEqn) -> Sequence[AnyJaxpr]:
    return () if eqn.primitive.name.startswith("scatter") else programs(eqn.params)


def star_scheme(pattern: Pattern, most: float) -> Colouring | None:
    """Forward passes that give all elements of a symmetric matrix; None if they are not fewer than
    `most`.

    Args:
        pattern: Pattern of the matrix. An element whose mirror image is not in the pattern takes
            part in the check, and is not returned.
        most: Number of passes that is too many.
    """
    whole = union([pattern, pattern.transpose])
    best: Colouring | None = None
    for order in orders(whole):
        colours = _colour_vertices(whole, order)
        count = int(colours.max(initial=-1)) + 1
        if count >= most:
            continue
        mirrored = _mirror_elements(pattern, whole, colours, count)
        if mirrored is not None:
            none_apart = np.zeros(0, np.int64)
            best = Colouring("forward", colours, count, none_apart, mirrored)
            most = count
    return best


def _colour_vertices(pattern: Pattern, order: Ints) -> Ints:
    ends, columns = pattern.starts.tolist(), pattern.indices.tolist()
    neighbours: list[list[int]] = []
    for v in range(pattern.size):
        row = columns[ends[v] : ends[v + 1]]
        neighbours.append([w for w in row if w != v])
    colours = [-1] * pattern.size
    # For each vertex, its coloured neighbours by colour.
    by_colour = [dict[int, list[int]]() for _ in neighbours]
    # For each vertex w, the colours that its neighbours must not have: those of a neighbour x with
    # a second neighbour of w's colour, since v-w-x-w' would have two colours only.
    closed = [set[int]() for _ in neighbours]

    # Greedy, in the given order: each vertex gets the least colour that is not taken.
    for v in map(int, order):
        taken: set[int] = set()
        for w in neighbours[v]:
            # An uncoloured neighbour: v must differ from all of its coloured neighbours. A coloured
            # one: v must differ from it, and must not complete a path in two colours.
            if colours[w] < 0:
                taken.update(by_colour[w])
            else:
                taken.add(colours[w])
                taken.update(closed[w])
        colour = 0
        while colour in taken:
            colour += 1
        colours[v] = colour

        # Update `closed` for the paths in which v is an inner vertex x, then for those that v ends.
        for alike in by_colour[v].values():
            if len(alike) > 1:
                for w in alike:
                    closed[w].add(colour)
        for x in neighbours[v]:
            alike = by_colour[x].setdefault(colour, [])
            alike.append(v)
            if colours[x] >= 0 and len(alike) > 1:
                ends_of_paths = alike if len(alike) == 2 else (v,)
                for w in ends_of_paths:
                    closed[w].add(colours[x])
    return np.asarray(colours, np.int64)


def _mirror_elements(
    pattern: Pattern,
    whole: Pattern,
    colours: Ints,
    count: int,
) -> Bools | None:
    """Elements that are read at their mirror image; None if some element can be read at neither
    position.
    """
    # An entry of the compressed matrix gives an element if no other element of its row has the same
    # colour.
    entries = whole.rows * count + colours[whole.indices]
    alone = np.bincount(entries, minlength=whole.size * count) == 1

    own_entries = pattern.rows * count + colours[pattern.indices]
    mirror_entries = pattern.indices * count + colours[pattern.rows]
    here, there = alone[own_entries], alone[mirror_entries]
    return ~here if bool((here | there).all()) else None
