"""Search for the way in which calls of one size run quickest: the order of the trials, and their
costs.

A way is how many elements run at a time, and whether several threads share them. 64 at a time is
tried first, then the better of that and of the whole in threads, then what is next to the best:

    a width is the best     the next wider and the next narrower, each as long as it is quicker
    the whole is the best   the widest; and 1, where a `cond` or `while_loop` of the body goes on
                            until the slowest element ends; and the quickest width in threads
    at last                 the best over CPU devices, where the process has several

Nothing here runs anything, so the whole of it can be read, and tested, without a clock.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

WIDTHS = (1, 16, 64, 256, 1024)
"""Elements at a time that are tried, besides all of them."""
LONG_WIDTHS = (1024, 4096, 16384, 65536, 262144)
"""The same of an axis of the signature, which is long, and which `memory` cuts."""
_START = 64
# All that the search spends is repaid by the time that calls have taken this many first compiles,
# or by as many calls, where a call takes longer than the compile.
_REPAID = 20
# A width that takes less than so many times the whole may be the quicker in threads: of two cores.
_SHARED = 2.0
# The part of their time that calls are hoped to save, before anything is known: half.
_HOPE = 0.5

Carrier = Literal["", "threads", "devices"]
"""What shares the elements of a call."""
_SHARED_BY = {"": "", "threads": " in threads", "devices": " over devices"}
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


class Search:
    """Trials of the calls of one size, and their results.

    Args:
        size: Elements of the axis.
        widths: Widths that may be tried.
        threads: Whether threads may be tried.
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
        threads: bool,
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
        self._like = like
        # Seconds an element, by the ways that were tried; infinite where one cannot run.
        self._rates: dict[RunWay, float] = {}
        self._compiles: list[float] = [compile_seconds]
        self._notes: list[str] = []

    def next_way(self, whole: float) -> RunWay | None:
        """Return the way to try next, if the whole takes so many seconds; None if no way is
        left.
        """
        around = self._around(self.best(whole))
        left = [*self._first(whole), *around, *self._shared(whole), *self._over_devices(whole)]
        return next((way for way in left if way not in self._rates), None)

    def _way(self, width: int | None, carrier: Carrier = "") -> RunWay:
        return replace(self._like, width=width, carrier=carrier)

    def _first(self, whole: float) -> list[RunWay]:
        """Return the ways that are tried first: a width, and the better of it and of the whole in
        threads.
        """
        start = next((width for width in self.widths if width == _START), None)
        width = start or max(self.widths, default=None)
        ways = [] if width is None else [self._way(width)]
        threaded = [way for way in self._rates if way.carrier]
        if not self.threads or any(way not in self._rates for way in ways):
            return ways
        if not threaded:
            ways.append(self._way(self.best(whole).width, "threads"))
        # What threads cannot share whole they may share in chunks.
        elif width is not None and all(self._rates[way] == math.inf for way in threaded):
            # LAPACK of few numbers at a time may be shared where that of more may not.
            narrower = [each for each in reversed(self.widths) if each <= width]
            ways += [self._way(each, "threads") for each in narrower]
        return ways

    def _shared(self, whole: float) -> list[RunWay]:
        """Return the quickest width in threads, where the whole is quickest in one, and threads
        could make up for what the width takes more.
        """
        rates = {way: self._rates[way] for way in self._rates if not way.carrier}
        if not self.threads or not rates or self.best(whole) != WHOLE:
            return []
        narrow = min(rates, key=lambda way: rates[way])
        is_near = rates[narrow] < _SHARED * whole / self.size
        return [replace(narrow, carrier="threads")] if is_near else []

    def _over_devices(self, whole: float) -> list[RunWay]:
        """Return the best way with devices in place of threads, once no other way is left."""
        if not (self.threads and self.devices):
            return []
        return [replace(self.best(whole), carrier="devices")]

    def _around(self, best: RunWay) -> list[RunWay]:
        """Return the ways next to the best so far."""
        widths = self.widths
        if best.carrier == "devices":
            return []
        if best.width is None:
            left = [*widths[-1:], *(widths[:1] if self.joined else ())]
        else:
            at = widths.index(best.width)
            left = [*widths[at + 1 : at + 2], *widths[max(at - 1, 0) : at]]
        return [self._way(width, best.carrier) for width in left]

    def best(self, whole: float) -> RunWay:
        """Return the quickest way so far, if the whole takes so many seconds."""
        rates = {WHOLE: whole / self.size, **self._rates}
        return min(rates, key=lambda way: rates[way])

    def add(
        self,
        way: RunWay,
        elements: int,
        seconds: float,
        compile_seconds: float,
    ) -> None:
        """Take the seconds of a trial on so many elements."""
        self._rates[way] = seconds / elements
        self._compiles.append(compile_seconds)
        self._notes.append(f"{way} {seconds / elements * self.size * 1e3:.3g}")

    def drop(self, way: RunWay, why: str) -> None:
        """Take a way out of the search: it cannot run, or not be taken."""
        self._rates[way] = math.inf
        self._notes.append(f"{way}: {why}")

    def affords(
        self,
        compiles: int,
        cost: float,
        whole: float,
        taken: float,
    ) -> bool:
        """Return whether all that was spent, and so much more, can still be repaid in time.

        Args:
            compiles: Compiles that are to come.
            cost: Seconds that are to be spent besides.
            whole: Seconds of a call of the whole.
            taken: Seconds that calls have taken.
        """
        rate = whole / self.size
        known = min(self._rates.values(), default=math.inf)
        hope = max(_HOPE, 1.0 - known / rate)
        left = _REPAID * max(self.compile_seconds, whole) - taken
        return self.spent + compiles * max(self._compiles) + cost <= hope * left

    @property
    def tried(self) -> str:
        """The trials, in milliseconds of a whole call."""
        return ", ".join(self._notes)
