"""Verdicts on the ratios of two times, round by round, by a confidence interval of their median.

The interval is that of the sign test. It lies between two order statistics, counted from both ends,
and contains the median with probability `CONFIDENCE` for any distribution of the ratios. No random
numbers are drawn, so the same times give the same verdict.

Whether one function is faster than another by a factor is a sequential test: rounds are added until
the interval lies on one side of the factor. "no" needs as many measurements in a row as there are
tries, each from rounds of its own, so that a single disturbance of a loaded machine raises no
alarm.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from .._public import public_in
from .rounds import Side, one_round, pause_gc, set_laps

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


# Numbers of rounds after which the interval is computed.
LOOKS = (16, 32, 64)


@dataclass(frozen=True)
class Faster:
    """Result of the test.

    Args:
        outcome: "yes"; "no", if all tries agree; or "unknown".
        low: Lower bound of the ratio: the first function is at least so many times as fast, by the
            last try.
        high: Upper bound of the ratio.
        tries: Number of tries.
        rounds: Rounds of the last try.
    """

    outcome: Literal["yes", "no", "unknown"]
    low: float
    high: float
    tries: int
    rounds: int


def faster(
    ways: Sequence[Side],
    by: float,
    tries: int,
    seconds: float,
) -> Faster:
    """Test whether the first function is faster than the second by a factor.

    Args:
        ways: The two.
        by: The factor.
        tries: Measurements that have to agree on "no".
        seconds: Time after which no rounds are added; each try takes the rounds of the first look
            in any case.
    """
    until = time.perf_counter() + seconds
    with pause_gc():
        set_laps(ways)
        for tried in range(1, tries + 1):
            outcome, low, high, count = _one_try(ways, by, until)
            if outcome != "no" or tried == tries:
                return Faster(outcome, low, high, tried, count)
    raise AssertionError("there is one try at least")


def _one_try(
    ways: Sequence[Side],
    by: float,
    until: float,
) -> tuple[Literal["yes", "no", "unknown"], float, float, int]:
    ratios: list[float] = []
    low, high = 0.0, float("inf")
    for look in LOOKS:
        while len(ratios) < look:
            ours, theirs = one_round(ways, turned=len(ratios) % 2 == 1)
            ratios.append(theirs / ours)
        low, high = interval(ratios) or (low, high)
        if low >= by:
            return "yes", low, high, len(ratios)
        # A factor that is missed by less than the resolution of the measurement is not a "no".
        if high < by / RESOLUTION:
            return "no", low, high, len(ratios)
        if time.perf_counter() > until:
            break
    return "unknown", low, high, len(ratios)
