"""Star colouring of symmetric matrices: an element can be read at its own position or at its mirror
image, so fewer colours are needed than for columns.

The method is algorithm 4.1 of Gebremedhin, Manne and Pothen (2005), "What color is your Jacobian?":
neighbours have different colours, and no path of four vertices has two colours only. The result is
checked element by element, so only the symmetry is taken on trust. That holds for Hessians of plain
compositions of JAX primitives; a function with a custom derivative rule may have any Hessian.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..._jax.programs.jaxprs import open_jaxpr, programs
from ..._jax.programs.primitives import LOGIC, PLAIN_CALLS, REARRANGED, REMATS
from ..._jax.typed import AnyJaxpr, JaxprEqn
from ..pattern import Pattern, union
from ..typed_numpy import Bools, Ints, np
from .colouring import Colouring, orders

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
