"""Search for the way in which calls of one size run quickest: the order of the trials, and their
costs.

A way is how many elements run at a time, and whether several threads share them. One program of
threads is timed with one worker too, so that it tells of two ways. In this order, each as long as
nothing better is left:

    64 at a time            in threads, and in one
    the whole in threads    last but for devices, where it keeps the cores busy by itself
    1                       where a `cond` or `while_loop` of the body goes on until the slowest
                            element ends; before the whole in threads, if 64 was quicker than the
                            whole
    what is next to the     the next wider and the next narrower; past a width that is nearly as
    quickest width          quick as the quickest, too
    once more               what is not much slower than the best, in another call
    at last                 the best over CPU devices, where the process has several

What finding takes is bounded twice: at first by what calls may still save by the time that they
have taken 20 first compiles, later by a tenth of what they have taken. So a search is given up for
now, and goes on when the calls have taken long enough. What it has spent beyond a tenth by then is
written off, since waiting for it would save nothing: from then on the rest of the search takes a
tenth of the calls, in this process or in a later one, which takes over the trials.

Nothing here runs anything, so the whole of it can be read, and tested, without a clock.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

WIDTHS = (1, 16, 64, 256, 1024)
"""Elements at a time that are tried, besides all of them."""
LONG_WIDTHS = (1024, 4096, 16384, 65536, 262144)
"""The same of an axis of the signature, which is long, and which `memory` cuts."""
START = 64
# All that the search spends is repaid by the time that calls have taken this many first compiles,
# or by as many calls, where a call takes longer than the compile.
_REPAID = 20
# Later, all that the search spends is at most this part of what calls have taken.
_SHARE = 0.1
# Where the whole keeps this part of the cores busy by itself, threads that share it gain little.
_BUSY = 0.8
# Past a width that takes less than so many times the quickest, the next one is tried too.
_NEAR = 1.6
# A core that something else takes for a while doubles what threads take: a way that takes less than
# so many times the quickest is tried in a second call.
_DISTURBED = 1.9
# Threads that take so many times what their program takes with one worker had one core, probably,
# where those of another width take less than the second.
ONE_CORE, _MORE_CORES = 0.8, 0.7
# Where the first width takes so many times the whole, as on a GPU, 1 would take far more.
_HOPELESS = 16
# Ways that take less than so many times the best are compared with it on a whole call.
_CLOSE, _FINALISTS = 1.15, 3
# The part of their time that calls are hoped to save, before anything is known: half.
_HOPE = 0.5

Carrier = Literal["", "threads", "devices"]
"""What shares the elements of a call."""
_SHARED_BY: dict[Carrier, str] = {
    "": "",
    "threads": " in threads",
    "devices": " over devices",
}
Kind = Literal["mapped", "directions", "memory"]
"""Part of a call that runs at a time: elements of a mapped axis, directions of a Jacobian, or
elements of the axis that `memory` cuts.
"""


@dataclass(frozen=True)
class RunWay:
    """One way to run a call.

    Args:
        width: Elements at a time; None for all, or for as many as the options say.
        carrier: What shares them, as many as there are cores: threads, or CPU devices; "" if
            nothing does.
        kind: What the elements are.
        axis: The axis that `memory` cuts; the mode of a Jacobian.
        tried: Directions that are computed, where they are timed; None for all.
    """

    width: int | None = None
    carrier: Carrier = ""
    kind: Kind = "mapped"
    axis: str = ""
    tried: int | None = None

    def __str__(self) -> str:
        of = {"mapped": "", "directions": " directions", "memory": f" of {self.axis}"}[self.kind]
        width = "whole" if self.width is None else f"{self.width:,}{of} at a time"
        return f"{width}{_SHARED_BY[self.carrier]}"


WHOLE = RunWay()
"""The way of calls without `auto`."""


@dataclass(frozen=True)
class TrialRecord:
    """Trial of a way, as a later search takes it over.

    Args:
        width: Elements at a time; None for all.
        carrier: What shares them.
        share: Seconds of a call by those of the whole; infinite where the way cannot run.
        has_lost: Whether it was no quicker than the whole in a call.
    """

    width: int | None
    carrier: Carrier
    share: float
    has_lost: bool


def due_after(spent: float) -> float:
    """Return the seconds that calls have to take before what was spent is little beside them."""
    return spent / _SHARE


class Search:
    """Trials of the calls of one size, and their results.

    Args:
        size: Elements of the axis.
        widths: Widths that may be tried.
        threads: How many threads may share a call; 0 if none may.
        devices: Whether CPU devices may be tried in their place.
        joined: Whether the body has branches or loops, which `vmap` runs for all elements at once.
        compile_seconds: Seconds of the first compile.
        like: A way of the kind that is tried.
    """

    def __init__(
        self,
        size: int,
        widths: Sequence[int],
        compile_seconds: float,
        *,
        threads: int,
        devices: bool = False,
        joined: bool,
        like: RunWay = WHOLE,
    ):
        self.size = size
        self.widths = [width for width in widths if width < size]
        self.threads = threads
        self.devices = devices
        self.joined = joined
        self.compile_seconds = compile_seconds
        self.spent = 0.0
        # The part of it that need not be little beside what calls take.
        self._written_off = 0.0
        self._like = like
        # Seconds an element, by the ways that were tried; infinite where one cannot run.
        self._rates: dict[RunWay, float] = {}
        # Elements of the first trial, by the ways that had no second one.
        self._once: dict[RunWay, int] = {}
        # Seconds an element on slices, by the ways that were no quicker in one call.
        self._lost: dict[RunWay, float] = {}
        self._lost_before: set[RunWay] = set()
        # Of the programs that were tried.
        self._compiles: list[float] = []
        # Ways whose program has run all elements.
        self._programs: set[RunWay] = set()
        self._notes: list[str] = []

    def has_tried(self, way: RunWay) -> bool:
        """Return whether a way was tried."""
        return way in self._rates

    @property
    def quickest(self) -> float:
        """Seconds of an element in the quickest way that was tried."""
        return min(self._rates.values(), default=math.inf)

    def next_way(self, whole: float, busy: float = 1.0) -> RunWay | None:
        """Return the way to try next, if the whole takes so many seconds; None if no way is
        left.
        """
        return next(iter(self.next_ways(whole, busy)), None)

    def next_ways(self, whole: float, busy: float = 1.0) -> list[RunWay]:
        """Return the ways that were not tried, the next one first.

        Args:
            whole: Seconds of a call of the whole.
            busy: Cores that it keeps busy.
        """
        start = self._start
        first = self._seconds(start, whole) * self.size
        is_hopeless = _HOPELESS * whole < first < math.inf
        joined = self.widths[:1] if self.joined and not is_hopeless else []
        # Where 64 wait for each other less than all do, 1 waits for none.
        sooner = joined if first < whole else []
        is_busy = busy > _BUSY * self.threads
        left = [
            *map(self._open, (start, *sooner, *([] if is_busy else [None]))),
            *self._narrower(start),
            *map(self._open, (*joined, *self._around(whole), None)),
            *([] if self.again(whole) else self._over_devices(whole)),
        ]
        return [*dict.fromkeys(way for way in left if way is not None and way not in self._rates)]

    def again(self, whole: float) -> RunWay | None:
        """Return the way to try once more, if the whole takes so many seconds; None if no way is
        left. Its program is compiled.

        All runs of a trial are in one call, and may all be disturbed, so the least of two calls
        counts.
        """
        best = min(whole / self.size, self.quickest)
        near = {way: self._next_to(way, best) for way in self._once}
        left = [way for way in near if near[way] <= _DISTURBED * best < math.inf]
        return min(left, key=lambda way: near[way], default=None)

    def had_one_core(self, whole: float) -> RunWay | None:
        """Return threads whose only trial was disturbed, probably, and which may be the best; None
        if there are none.

        They were hardly quicker than their program with one worker, where threads of another width
        gained by far more; with as much gain they would be quicker than all others.
        """
        alone = {
            way: self._rates.get(replace(way, carrier=""), math.inf)
            for way in self._rates
            if way.carrier == "threads"
        }
        # Seconds in threads by those with one worker.
        shares = {
            way: self._rates[way] / rate
            for way, rate in alone.items()
            # A coarse clock may see no time pass.
            if 0 < rate < math.inf and self._rates[way] < math.inf
        }
        share = min(shares.values(), default=1.0)
        best = min(whole / self.size, self.quickest)
        left = [way for way in self._once if shares.get(way, 0.0) > ONE_CORE]
        left = [way for way in left if share < _MORE_CORES and alone[way] * share < best]
        return min(left, key=lambda way: alone[way], default=None)

    def first_elements(self, way: RunWay) -> int | None:
        """Return the elements of the only trial of a way; None if it had none, or two."""
        return self._once.get(way)

    def _next_to(self, way: RunWay, best: float) -> float:
        """Return the seconds of an element in a way, or in its program with one worker, whichever
        is nearer to the best.
        """
        rates = [self._rates[way], self._rates.get(replace(way, carrier=""), math.inf)]
        return min((rate for rate in rates if rate > best), default=math.inf)

    @property
    def _start(self) -> int | None:
        """The first width: each thread has several chunks of it."""
        wide = [width for width in self.widths if self._is_shared(width)]
        starts = [width for width in wide if width <= START] or wide or self.widths
        return max(starts, default=None)

    def _is_shared(self, width: int | None) -> bool:
        """Return whether threads have a chunk of a width or more each, so that sharing the whole is
        another way.
        """
        return width is not None and width * max(self.threads, 1) < self.size

    def _way(self, width: int | None, carrier: Carrier = "") -> RunWay:
        is_whole = width is None and not carrier
        return WHOLE if is_whole else replace(self._like, width=width, carrier=carrier)

    def _open(self, width: int | None) -> RunWay | None:
        """Return the way to try of a width: in threads, or in one where they cannot; None if there
        is none.
        """
        threaded = self._way(width if self._is_shared(width) else None, "threads")
        if self.threads and threaded not in self._rates:
            return threaded
        is_timed = self.threads and self._is_shared(width) and self._rates[threaded] < math.inf
        return None if width is None or is_timed else self._way(width)

    def _around(self, whole: float) -> list[int | None]:
        """Return the widths on both sides of the quickest: what is wider first."""
        widths = [*self.widths, None]
        seconds = [self._seconds(width, whole) for width in widths]
        least = min(seconds)
        at = seconds.index(least)
        left: list[int | None] = []
        for side in (range(at + 1, len(widths)), range(at - 1, -1, -1)):
            for each in side:
                left.append(widths[each])
                # A width that nobody has tried ends it, too.
                if seconds[each] > _NEAR * least:
                    break
        return left

    def _seconds(self, width: int | None, whole: float) -> float:
        """Return the seconds of an element in a width; infinite if it was not tried."""
        rates = {WHOLE: whole / self.size, **self._rates}
        return min(rates.get(self._way(width, carrier), math.inf) for carrier in _SHARED_BY)

    def _narrower(self, start: int | None) -> list[RunWay]:
        """Return threads of narrow chunks, where they cannot share wide ones: LAPACK of few numbers
        at a time may be shared where that of more may not.
        """
        shared = [self._rates[way] for way in self._rates if way.carrier == "threads"]
        if start is None or not shared or min(shared) < math.inf:
            return []
        narrower = [each for each in reversed(self.widths) if each <= start]
        return [self._way(each, "threads") for each in narrower]

    def _over_devices(self, whole: float) -> list[RunWay]:
        """Return the best way with devices in place of threads, once no other way is left."""
        if not (self.threads and self.devices):
            return []
        return [replace(self.best(whole), carrier="devices")]

    def best(self, whole: float) -> RunWay:
        """Return the quickest way so far, if the whole takes so many seconds."""
        rates = {WHOLE: whole / self.size, **self._rates}
        return min(rates, key=lambda way: rates[way])

    def finalists(self, whole: float, most: int = _FINALISTS) -> list[RunWay]:
        """Return the ways that run the call that decides: the best so far, those that have lost one
        call, and those of which trials cannot say whether they are quicker than the best; none if
        the whole is the best.
        """
        best = self.best(whole)
        if best == WHOLE:
            return []
        ways = sorted(self._rates, key=lambda way: self._rates[way])
        close = [way for way in ways if self._rates[way] <= _CLOSE * self._rates[best]][:most]
        return [*dict.fromkeys((best, *self._lost, *close))]

    def add(
        self,
        way: RunWay,
        elements: int,
        seconds: float,
        compile_seconds: float | None,
    ) -> None:
        """Take the seconds of a trial on so many elements; of a compile, if there was one."""
        before = self._rates.get(way)
        rate = seconds / elements
        if way not in self._lost:  # a call says more than a slice
            self._rates[way] = rate if before is None else min(rate, before)
        self._once.pop(way, None)
        if compile_seconds is not None:
            self._once[way] = elements
            self._compiles.append(compile_seconds)
            if elements == self.size:
                self._programs.add(way)
        again = "" if before is None else "again "
        self._notes.append(f"{way} {again}{rate * self.size * 1e3:.3g}")

    def drop(self, way: RunWay, why: str) -> None:
        """Take a way out of the search: it cannot run, or not be taken."""
        self._rates[way] = math.inf
        self._once.pop(way, None)
        self._lost.pop(way, None)
        self._notes.append(f"{way}: {why}")

    def lose(self, way: RunWay, seconds: float) -> None:
        """Take in that a call of all elements was no quicker than the whole; the second time the
        way is dropped.
        """
        if way in self._lost_before:
            self.drop(way, "no quicker")
            return
        self._lost_before.add(way)
        self._programs.add(way)
        self._once.pop(way, None)
        self._lost[way] = self._rates[way]
        self._rates[way] = seconds / self.size

    def compiles(self, ways: Iterable[RunWay]) -> int:
        """Return how many of some ways are still to be compiled for a call of all elements."""
        return len({*ways} - {WHOLE, *self._programs})

    def has_second_chance(self) -> bool:
        """Return whether ways have lost one call, and let them have another: the call may have been
        disturbed.
        """
        lost, self._lost = self._lost, {}
        self._rates |= lost
        return bool(lost)

    def affords(
        self,
        compiles: int,
        cost: float,
        whole: float,
        taken: float,
    ) -> bool:
        """Return whether all that was spent, and so much more, can still be repaid in time, or is
        little beside what calls have taken.

        Args:
            compiles: Compiles that are to come.
            cost: Seconds that are to be spent besides.
            whole: Seconds of a call of the whole.
            taken: Seconds that calls have taken.
        """
        rate = whole / self.size
        hope = max(_HOPE, 1.0 - self.quickest / rate)
        left = _REPAID * max(self.compile_seconds, whole) - taken
        needed = self.spent + self.cost_of(compiles) + cost
        return needed <= max(hope * left, self._written_off + _SHARE * taken)

    def due(self, cost: float) -> float:
        """Return the seconds that calls have to take before so much more is little beside them."""
        return due_after(self.spent + cost - self._written_off)

    def write_off(self, taken: float) -> None:
        """Let what was spent, beyond a tenth of what calls have taken, hold up no further trial."""
        if not self._written_off:
            self._written_off = max(0.0, self.spent - _SHARE * taken)

    def records(self, whole: float) -> tuple[TrialRecord, ...]:
        """Return the trials for a later search, if the whole takes so many seconds."""
        return tuple(
            TrialRecord(
                way.width,
                way.carrier,
                self._lost.get(way, rate) * self.size / whole,
                way in self._lost_before,
            )
            for way, rate in self._rates.items()
        )

    def take_over(
        self,
        records: Iterable[TrialRecord],
        whole: float,
        spent: float,
    ) -> list[RunWay]:
        """Take the trials of an earlier search, if the whole now takes so many seconds, and what
        that search has spent. Return their ways, whose programs are to be compiled anew.
        """
        self.spent += spent
        self.write_off(0.0)
        taken: list[RunWay] = []
        for record in records:
            way = self._way(record.width, record.carrier)
            # A file may say anything, and a shorter axis of the same bucket has fewer ways.
            if way == WHOLE or record.width not in (None, *self.widths):
                continue
            if record.carrier and record.width is not None and not self._is_shared(record.width):
                continue
            taken.append(way)
            self._rates[way] = record.share * whole / self.size
            if record.has_lost:
                self._lost_before.add(way)
            told = f"{record.share * whole * 1e3:.3g}" if record.share < math.inf else "left out"
            self._notes.append(f"{way} {told} earlier")
        return taken

    def cost_of(self, compiles: int) -> float:
        """Return the seconds of so many compiles, if they take as long as those of the ways that
        were tried.
        """
        each = statistics.fmean(self._compiles) if self._compiles else self.compile_seconds
        return compiles * each

    @property
    def tried(self) -> str:
        """The trials, in milliseconds of a whole call."""
        return ", ".join(self._notes)
