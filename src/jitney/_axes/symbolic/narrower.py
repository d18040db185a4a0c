"""Narrower ranges of sizes, in which a comparison that stopped a symbolic trace is decided.

`pos[:n]` has n rows only up to the length of `pos`. With 12 of them and n from 9 to 16 JAX cannot
tell, and does not add it to n rows; from 9 to 12 it can.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..dims import Dim, extent, is_ragged
from ..interpreter import Ranges

_MOST = 1 << 20


def narrower_ranges(
    undecided: Sequence[Dim],
    ranges: Ranges,
    sizes: Mapping[str, int],
) -> dict[str, tuple[int, int]]:
    """Symbol -> the sizes around a known one at which a difference is negative, or not, as it is
    there; of several differences, the longest range.

    Args:
        undecided: Differences whose sign was asked for.
        ranges: Symbol -> the least and the largest size it stands for.
        sizes: Symbol -> a size.
    """
    found: dict[str, tuple[int, int]] = {}
    for difference in undecided:
        symbols = extent(difference).symbols if is_ragged(difference) else frozenset[str]()
        # With two symbols it depends on the size of each where the sign changes.
        if len(symbols) != 1:
            continue
        (symbol,) = symbols
        part = _same_sign(difference, symbol, ranges[symbol], sizes[symbol])
        if part is not None and _length(part) > _length(found.get(symbol, (0, -1))):
            found[symbol] = part
    return found


def _length(bounds: tuple[int, int]) -> int:
    low, high = bounds
    return high - low + 1


def _same_sign(
    difference: Dim,
    symbol: str,
    bounds: tuple[int, int],
    size: int,
) -> tuple[int, int] | None:
    """The part of a range around a size; None if the sign does not change just once."""
    low, high = bounds
    if high - low > _MOST:
        return None
    negative = np.asarray(extent(difference).at({symbol: np.arange(low, high + 1)})) < 0
    changes = np.flatnonzero(negative[1:] != negative[:-1])
    if len(changes) != 1:
        return None
    last = low + int(changes[0])
    return (low, last) if size <= last else (last + 1, high)
