"""Colours for symmetric matrices, where an element can be read at its own place or at its mirror
image: fewer than columns need.

The method is star colouring, algorithm 4.1 of Gebremedhin, Manne and Pothen (2005), "What color is
your Jacobian?": neighbours differ, and no path of four has two colours alone. What it gives is
checked element by element, so that only the symmetry is taken on trust, and that is of Hessians of
plain compositions of JAX's operations. A function with a derivative rule of its own may have any.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..._jax.jaxprs import opened, programs
from ..._jax.primitives import LOGIC, PLAIN_CALLS, REARRANGED, REMATS
from ..pattern import Pattern, union
from ..typed_numpy import np
from .colouring import Scheme, orders

# `pow` is not among them: where the base is 0 its rule gives second derivatives that are not
# symmetric.
_SMOOTH = (
    "abs acos acosh add add_any asin asinh atan atan2 atanh cbrt ceil convert_element_type copy"
    " copy_p cos cosh cumsum div dot_general dynamic_slice dynamic_update_slice erf exp exp2 expm1"
    " floor gather integer_pow iota log log1p logistic max min mul neg pad reduce_max reduce_min"
    " reduce_sum round rsqrt scan scatter-add sign sin sinh split sqrt square stop_gradient sub tan"
    " tanh"
)
_PROVEN = frozenset((*_SMOOTH.split(), *LOGIC, *REARRANGED, *PLAIN_CALLS, *REMATS, "cond"))


def has_symmetric_hessian(traced: Any) -> bool:
    """Whether a program is made of operations alone whose own derivatives of derivatives are
    symmetric, as JAX computes them.
    """
    return all(
        eqn.primitive.name in _PROVEN and all(map(has_symmetric_hessian, _inside(eqn)))
        for eqn in opened(traced)[0].eqns
    )


def _inside(eqn: Any) -> Sequence[Any]:
    return () if eqn.primitive.name.startswith("scatter") else programs(eqn.params)


def star_scheme(pattern: Pattern, most: float) -> Scheme | None:
    """Forward passes that give all elements of a symmetric matrix; None if they are not fewer than
    `most`.

    Args:
        pattern: Of the matrix. An element whose mirror image is no element counts in what is
            checked, and is not given.
        most: How many passes are too many.
    """
    whole = union([pattern, pattern.transposed])
    best: Scheme | None = None
    for order in orders(whole):
        colours = _coloured(whole, order)
        count = int(colours.max(initial=-1)) + 1
        if count < most:
            mirrored = _mirrored(pattern, whole, colours, count)
            if mirrored is not None:
                best, most = (
                    Scheme("forward", colours, count, np.zeros(0, np.int64), mirrored),
                    count,
                )
    return best


def _coloured(pattern: Pattern, order: Any) -> Any:
    ends, columns = pattern.starts.tolist(), pattern.indices.tolist()
    neighbours: list[list[int]] = [
        [w for w in columns[ends[v] : ends[v + 1]] if w != v] for v in range(pattern.size)
    ]
    colours = [-1] * pattern.size
    # of each, its neighbours that have a colour
    by_colour = [dict[int, list[int]]() for _ in neighbours]
    # of each, the colours of those whose neighbours have its colour twice
    closed = [set[int]() for _ in neighbours]
    for v in map(int, order):
        taken: set[int] = set()
        for w in neighbours[v]:
            taken.update(by_colour[w] if colours[w] < 0 else {colours[w], *closed[w]})
        colour = next(c for c in range(len(taken) + 1) if c not in taken)
        colours[v] = colour
        for alike in by_colour[v].values():
            for w in alike if len(alike) > 1 else ():
                closed[w].add(colour)
        for x in neighbours[v]:
            alike = by_colour[x].setdefault(colour, [])
            alike.append(v)
            if colours[x] >= 0 and len(alike) > 1:
                for w in alike if len(alike) == 2 else (v,):
                    closed[w].add(colours[x])
    return np.asarray(colours, np.int64)


def _mirrored(pattern: Pattern, whole: Pattern, colours: Any, count: int) -> Any:
    """Which elements are read at their mirror image; None if one can be read at neither place."""
    alone = (
        np.bincount(whole.rows * count + colours[whole.indices], minlength=whole.size * count) == 1
    )
    here = alone[pattern.rows * count + colours[pattern.indices]]
    there = alone[pattern.indices * count + colours[pattern.rows]]
    return ~here if bool((here | there).all()) else None
