"""Verdict on the ratios of two times, round by round: a confidence interval of their median.

The interval is that of the sign test. It lies between two order statistics, counted from both ends,
and contains the median with probability `CONFIDENCE` for any distribution of the ratios. No random
numbers are drawn, so the same times give the same verdict.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from .._public import public_in

Outcome = Literal["faster", "slower", "no difference", "unknown"]
CONFIDENCE = 0.99
RESOLUTION = 1.02
"""Ratio below which there is no difference: the addresses of code and data alone change as much."""
# Ratio within which the whole interval must lie for "no difference".
_ALIKE = 1.05


@public_in("jitney.types")
@dataclass(frozen=True)
class Verdict:
    """Verdict on two functions.

    Args:
        outcome: "faster", "slower", "no difference" or "unknown".
        low: Lower bound of the ratio of the times, with `CONFIDENCE`; 0 if there are too few rounds
            for one.
        high: Upper bound.
    """

    outcome: Outcome
    low: float
    high: float

    def __str__(self) -> str:
        if self.outcome == "faster":
            return f"faster by {self.low:.3g} to {self.high:.3g} times"
        if self.outcome == "slower":
            return f"slower by {1 / self.high:.3g} to {1 / self.low:.3g} times"
        if self.outcome == "no difference":
            return f"no difference seen (within {max(self.high, 1 / self.low) - 1:.1%})"
        if not self.low:
            return "unknown: too few rounds"
        return f"unknown: too noisy (between {self.low:.3g} and {self.high:.3g} times as fast)"


def judge_ratios(ratios: Sequence[float]) -> Verdict:
    """Return the verdict on the other function's time by that of the first, round by round."""
    found = interval(ratios)
    if found is None:
        return Verdict("unknown", 0.0, math.inf)
    low, high = found
    if low > RESOLUTION:
        return Verdict("faster", low, high)
    if high < 1 / RESOLUTION:
        return Verdict("slower", low, high)
    return Verdict("no difference" if high < _ALIKE and low > 1 / _ALIKE else "unknown", low, high)


def interval(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float] | None:
    """Return a confidence interval of the median of a distribution from its samples.

    None if there are too few samples for that confidence.
    """
    n, tail = len(values), 0.0
    left_out = 0
    # The median is below the k-th smallest of n values with probability sum(C(n, i) for i < k) /
    # 2^n, and likewise above the k-th largest. Find the largest k for which each tail has at most
    # half of the error.
    while (tail := tail + math.comb(n, left_out) / 2**n) <= (1 - confidence) / 2:
        left_out += 1
    if not left_out:
        return None
    inside = sorted(values)[left_out - 1 : n - left_out + 1]
    return inside[0], inside[-1]


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the first quartile, the median and the third quartile, linearly interpolated."""
    ordered = sorted(values)

    def at(part: float) -> float:
        i, rest = divmod(part * (len(ordered) - 1), 1)
        return ordered[int(i)] + rest * (
            ordered[min(int(i) + 1, len(ordered) - 1)] - ordered[int(i)]
        )

    return at(0.25), at(0.5), at(0.75)
