"""How long a test waits for what has to happen.

The seconds of an idle machine, times how much slower this one is just now. Such a time only ends
what hangs. A test whose claim is a time measures it against another one in the same run, not
against a clock.
"""

from __future__ import annotations

import statistics
import time

_IDLE = 0.01
"""Seconds that `_lap` took on an idle core of the machine that the times in the tests were chosen
on.
"""


def patience(seconds: float) -> float:
    """`seconds`, longer on a slow or busy machine. Measured at each call, since load comes and
    goes.
    """
    return seconds * slowness()


def slowness() -> float:
    """A lap of plain Python here, in laps of an idle machine: 2.0 where it takes twice the time. At
    least 1.
    """
    laps = [_lap() for _ in range(5)]
    return max(1.0, statistics.mean(laps) / _IDLE)


def _lap() -> float:
    began = time.monotonic()
    total = 0
    for i in range(200_000):
        total += i & 7
    return time.monotonic() - began
