"""Sequential test of whether one function is faster than another by a factor.

Rounds are added until the confidence interval of the ratios lies on one side of the factor. "no"
needs as many measurements in a row as there are tries, each from rounds of its own, so that a
single disturbance of a loaded machine raises no alarm.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from .rounds import Side, one_round, pause_gc, set_laps
from .verdict import RESOLUTION, interval

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
