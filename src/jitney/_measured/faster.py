"""Whether one way is faster than another by so many times: until it is decided, and no longer.

Rounds are added until the interval of the ratios lies on one side. That a way is too slow is said
only when as many measurements in a row say so as there are tries, each from rounds of its own, so
that what a loaded machine does once raises no alarm.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from .rounds import Side, one_round, set_laps, undisturbed
from .verdict import RESOLUTION, interval

LOOKS = (16, 32, 64)  # rounds after which it is looked


@dataclass(frozen=True)
class Faster:
    """Whether it is.

    Args:
        outcome: "yes"; "no", as all tries said; or "unknown".
        low: How many times as fast the first way is, at least, by the last try.
        high: And at most.
        tries: How many there were.
        rounds: Of the last try.
    """

    outcome: Literal["yes", "no", "unknown"]
    low: float
    high: float
    tries: int
    rounds: int


def faster(ways: Sequence[Side], by: float, tries: int, seconds: float) -> Faster:
    """Whether the first way is faster than the second by so many times.

    Args:
        ways: The two.
        by: How many times.
        tries: So many measurements have to say that it is not.
        seconds: Past these no rounds are added; each try takes those of the first look in any case.
    """
    until = time.perf_counter() + seconds
    with undisturbed():
        set_laps(ways)
        for tried in range(1, tries + 1):
            outcome, low, high, count = _one_try(ways, by, until)
            if outcome != "no" or tried == tries:
                return Faster(outcome, low, high, tried, count)
    raise AssertionError("there is one try at least")


def _one_try(
    ways: Sequence[Side], by: float, until: float
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
        if high < by / RESOLUTION:
            return "no", low, high, len(ratios)
        if time.perf_counter() > until:
            break
    return "unknown", low, high, len(ratios)
