"""Sizes at which a range would have to end, for a comparison that stopped a symbolic trace to be
decided.

`pos[:n]` has n rows only up to the length of `pos`. With 12 of them and n from 9 to 16 JAX cannot
tell, and does not add it to n rows; from 9 to 12 it can.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..dims import Dim, extent, is_ragged
from ..interpreter import Ranges
from ..refusal import Refused

_MOST = 1 << 20


def range_ends(undecided: Sequence[Dim], ranges: Ranges) -> dict[str, list[int]]:
    """Symbol -> the sizes behind which a difference becomes negative, or is so no more.

    Args:
        undecided: Differences whose sign was asked for.
        ranges: Symbol -> the least and the largest size it stands for.
    """
    ends: dict[str, list[int]] = {}
    for difference in undecided:
        symbols = extent(difference).symbols if is_ragged(difference) else frozenset[str]()
        # With two symbols it depends on the size of each where the sign changes.
        if len(symbols) != 1:
            continue
        (symbol,) = symbols
        low, high = ranges[symbol]
        if high - low > _MOST:
            continue
        sizes = np.arange(low, high + 1)
        try:
            negative = np.asarray(extent(difference).at({symbol: sizes})) < 0
        # A form that jitney does not know.
        except Refused:
            continue
        changes = np.flatnonzero(negative[1:] != negative[:-1])
        # A sign that comes and goes, as of a remainder, would leave ranges of a few sizes.
        if len(changes) == 1:
            ends.setdefault(symbol, []).append(low + int(changes[0]))
    return ends
