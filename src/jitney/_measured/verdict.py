"""From the ratios of two times, round by round, to what may be said of them.

The rule is the sign test turned around: the median of all ratios lies between two of those seen,
counted from both ends, as often as `CONFIDENCE` says, however they are distributed. Nothing is
drawn at random, so that the same times give the same verdict.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Outcome = Literal["faster", "slower", "no difference", "unknown"]
CONFIDENCE = 0.99
RESOLUTION = 1.02
"""Ratios nearer to 1 are no difference: where code and data happen to lie makes as much."""
_ALIKE = 1.05


@dataclass(frozen=True)
class Verdict:
    """What the ratios say.

    Args:
        outcome: "faster", "slower", "no difference" or "unknown".
        low: The ratio of the times is at least this, with `CONFIDENCE`; 0 where the rounds are too
            few to say.
        high: And at most this.
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


def judged(ratios: Sequence[float]) -> Verdict:
    """The verdict on the times of the other way, divided by those of the first, of each round."""
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
    """Between which of the values the median of all that could be lies; None where they are too few
    to say.
    """
    n, tail = len(values), 0.0
    left_out = 0  # at each end
    while (tail := tail + math.comb(n, left_out) / 2**n) <= (1 - confidence) / 2:
        left_out += 1
    if not left_out:
        return None
    inside = sorted(values)[left_out - 1 : n - left_out + 1]
    return inside[0], inside[-1]


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """The first, the median and the third."""
    ordered = sorted(values)

    def at(part: float) -> float:
        i, rest = divmod(part * (len(ordered) - 1), 1)
        return ordered[int(i)] + rest * (
            ordered[min(int(i) + 1, len(ordered) - 1)] - ordered[int(i)]
        )

    return at(0.25), at(0.5), at(0.75)
