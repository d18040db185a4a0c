"""Buckets that pad the fewest elements, for sizes that are known: dynamic programming over their
histogram.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .._jax.typed import NumPyArray

_MOST = 512
"""Sizes that may be the end of a bucket; of more, this many at equal shares of the elements."""


def optimal_buckets(
    counts: Mapping[int, int],
    most: int,
) -> tuple[int, ...]:
    """The buckets that hold all sizes and add the fewest elements in all, in ascending order.

    Args:
        counts: Size -> how often it occurs, at least one of each.
        most: How many buckets there may be, 1 or more.
    """
    sizes = np.array(sorted(counts), np.int64)
    times = np.array([counts[size] for size in sizes.tolist()], np.int64)
    ends = _candidates(sizes, times)
    buckets = min(most, len(ends))

    # How many rows are at most as long as each candidate; none before the first one.
    up_to = np.concatenate([[0], np.cumsum(times)[ends]])
    lengths = sizes[ends]

    # least[j]: the fewest elements of all rows up to candidate j - 1, with so many buckets.
    least = np.full(len(ends) + 1, np.inf)
    least[0] = 0
    choices: list[NumPyArray] = []
    for _ in range(buckets):
        # Rows behind candidate i, up to j, are as long as j.
        between = up_to[1:, None] - up_to[None, :-1]
        totals = least[None, :-1] + between * lengths[:, None]
        totals[np.triu_indices(len(ends), 1)] = np.inf
        choices.append(totals.argmin(axis=1))
        least = np.concatenate([[np.inf], totals.min(axis=1)])

    chosen: list[int] = []
    j = len(ends)
    for choice in reversed(choices):
        if j == 0:
            break
        chosen.append(int(lengths[j - 1]))
        j = int(choice[j - 1])
    return tuple(reversed(chosen))


def _candidates(
    sizes: NumPyArray,
    times: NumPyArray,
) -> NumPyArray:
    """Positions of the sizes that may be the end of a bucket, the last one among them."""
    if len(sizes) <= _MOST:
        return np.arange(len(sizes))
    shares = np.cumsum(sizes * times)
    at = np.searchsorted(shares, np.linspace(0, shares[-1], _MOST + 1)[1:])
    return np.unique(np.append(at.clip(0, len(sizes) - 1), len(sizes) - 1))
