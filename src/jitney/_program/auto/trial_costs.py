"""Costs of trials, before they are run, and how often their ways are timed."""

from __future__ import annotations

from ..runners.workers.parts import Spread
from .calls_of_size import CallsOfSize
from .search import RunWay, Search

# All of a call is a slice where so many calls take no longer than a compile, since the end of the
# search would compile for all once more. One element at a time may take so many times the whole.
BRIEF, ONE = 8, 16
# A way is timed so often, or more often where that is cheap.
TIMES, OFTEN = 3, 10
# A way that takes so many times the best is not timed a third time.
SLOWER = 1.5
# Seconds of a slice, and those from which a call is long: its ways run once.
WORK, LONG = 0.005, 0.25

# A way that is quicker than the whole by this factor needs no further turn of the whole beside it,
# and a long call none at all.
CLEARLY = 0.8


def rounds(calls: CallsOfSize) -> int:
    """Return how often ways take turns at the end: more often, where that costs little beside a
    compile.
    """
    whole = calls.times.least or WORK
    cheap = (calls.compile_seconds or 0.0) / (2 * BRIEF * whole)
    return round(min(OFTEN, max(TIMES, cheap)))


def close_rounds(calls: CallsOfSize) -> int:
    """Return how many more turns the best way and the whole take where they are close: those that
    take half as long as the compile together.
    """
    whole = calls.times.least or WORK
    return round(min(OFTEN, (calls.compile_seconds or 0.0) / (4 * whole)))


def is_brief(calls: CallsOfSize, width: int) -> bool:
    """Return whether a call takes little time beside a compile, so that ways run all of it."""
    whole = calls.times.least or WORK
    most = BRIEF * (ONE if width == 1 else 1)
    return most * whole <= (calls.compile_seconds or 0.0)


def trial_cost(
    whole: float,
    spread: Spread,
    way: RunWay,
    search: Search,
) -> float:
    """Return the seconds of a trial on some elements, and of the comparison at the end, without
    their compiles.

    The first run is expected to take as long as the whole. What is slower than the best so far by
    more than a factor has no further runs.
    """
    share = spread.count / spread.size
    ways = 2 if way.carrier == "threads" and way.width is not None else 1
    # The first run of threads has no compile in it.
    long = ways if way.carrier else 2
    runs = long if whole > LONG else TIMES + ways
    again = min(whole, SLOWER * search.quickest * search.size)
    return (whole + (runs - 1) * again) * share + end_cost(whole, search)


def end_cost(whole: float, search: Search) -> float:
    """Return the seconds of the comparison at the end, of the whole and of the best way by then."""
    best = min(whole, search.quickest * search.size)
    if whole > LONG:
        return whole
    # Where the best is clearly quicker, the whole has one turn.
    return (1 if best <= CLEARLY * whole else TIMES) * whole + TIMES * best
