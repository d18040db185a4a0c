"""Seconds of calls in other ways: of a trial on some elements, and of ways that take turns.

a trial     the first run, with its compile, then more until their least is settled, or is
            clearly more than the best; of threads, their program with one worker too
turns       a call runs in each way and whole, one after the other and again: what disturbs the
            machine for a while disturbs all of them
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import jax

from ..._errors import AxisError
from ..._host.switches import EXACT
from ..._jax.equinox_checks import FAILURE
from ..._jax.typed import Array
from ..compiled_calls import CompiledCalls
from ..runners.workers.parts import Spread
from . import call_times
from .calls_of_size import CallsOfSize
from .cut_axes import refused_memory
from .search import (
    ONE_CORE,
    WHOLE,
    RunWay,
    Search,
)
from .trial_costs import (
    CLEARLY,
    LONG,
    OFTEN,
    SLOWER,
    TIMES,
    close_rounds,
    rounds,
)

if TYPE_CHECKING:
    from .auto_calls import AutoCalls

FAILURES = (FAILURE, RuntimeError, ValueError, AxisError)
"""Exceptions of a trial: a failed check, too little memory, an axis that cannot be cut."""
# A way is timed more often for so many seconds; or until it has run for long, or for so many calls
# of the whole, or is slower than the best by a factor.
_SETTLED, _WHOLES = 0.01, 2
# Threads that had one core run again for so many seconds.
_WAKING = 0.05
# It runs once more, though slower, as its first run starts threads and takes new memory, unless it
# is so many times slower. With one worker it is timed too, unless it is that in threads.
_MUCH = 4


class WayRuns:
    """Runs calls of an entry in other ways, and times them.

    Args:
        calls: The calls of the entry.
    """

    def __init__(self, calls: AutoCalls):
        self._calls = calls

    @property
    def _entry(self) -> CompiledCalls:
        return self._calls.entry

    def once(self, way: RunWay, arrays: Sequence[Array]) -> tuple[object, float]:
        """Return the result of a call, and its seconds."""
        began = call_times.clock()
        out = jax.block_until_ready(self._calls.run_way(way, arrays))
        return out, call_times.clock() - began

    def trial(
        self,
        search: Search,
        way: RunWay,
        spread: Spread,
        arrays: Sequence[Array],
        whole: float,
    ) -> object:
        """Time a way on some elements, where a call of the whole takes so many seconds, and return
        their result; None if it cannot run.
        """
        began = call_times.clock()
        some, ran = spread.of(arrays), way
        # Directions are cut in the program, and not in its arrays.
        if way.kind == "directions" and not spread.is_whole:
            ran = replace(way, tried=spread.count)
        refused = self._refused(ran, spread, some, arrays)
        if refused:
            search.drop(way, refused)
            return None
        # What threads run, and what `memory` bounds, is compiled by now.
        compiled = call_times.clock() - began
        out, first = self.once(ran, some)

        known = min(search.quickest, whole / spread.size) * spread.count
        limit = min(LONG, _WHOLES * whole) if spread.is_whole else LONG
        is_first = not search.has_tried(way)
        # The first run of all others has their compile in it, but not that of a second trial.
        times = [first] if way.carrier or not is_first else []
        least = _least(
            lambda: self.once(ran, some)[1],
            times,
            limit,
            known,
        )
        if not way.carrier:
            compiled += max(0.0, first - least)
        # The same program with one worker is another way; it may be the quicker, where XLA uses
        # all cores for one operation.
        alone = None
        if way.carrier == "threads" and way.width is not None and least <= _MUCH * known:
            run = partial(self._once_alone, way, some)
            alone = _least(
                run,
                [],
                limit,
                known,
            )
            enough = ONE_CORE * alone
            if least > enough:
                least = _until(
                    lambda: self.once(ran, some)[1],
                    least,
                    enough,
                )
        search.add(
            way,
            spread.count,
            least,
            compiled if is_first else None,
        )
        if alone is not None:
            search.add(
                replace(way, carrier=""),
                spread.count,
                alone,
                None,
            )
        return out

    def _refused(
        self,
        way: RunWay,
        spread: Spread,
        some: Sequence[Array],
        arrays: Sequence[Array],
    ) -> str:
        """Return why a way cannot run on some elements of a call; "" if it can."""
        refused = refused_memory(self._entry, self._calls.entry_of(way), some)
        if refused or not way.carrier:
            return refused
        # Not even on a slice where the call itself could not be shared: XLA may hang.
        if not spread.is_whole:
            refused = self._calls.refused_threads(self._calls.entry_of(way), arrays)
        return refused or self._calls.refused_program(way, some)

    def _once_alone(self, way: RunWay, arrays: Sequence[Array]) -> float:
        began = call_times.clock()
        jax.block_until_ready(self._calls.run_alone(way, arrays))
        return call_times.clock() - began

    def in_turns(
        self,
        calls: CallsOfSize,
        ways: Sequence[RunWay],
        arrays: Sequence[Array],
    ) -> Turns:
        """Run a call in some ways and in the whole; not in the whole if a long call is clearly
        quicker in one of the ways.

        A whole that is clearly slower has one turn, and the lesser of its seconds and the usual
        ones.
        """
        least, usual = calls.times.least or 0.0, calls.times.usual or math.inf
        is_long = least > LONG
        turns = Turns(self, arrays)
        for way in ways:
            turns.begin(way)
        is_clear = is_long and turns.quickest <= CLEARLY * least
        if not turns.results or (is_clear and self._entry.options.auto != EXACT):
            return turns

        in_turn = [*turns.results, WHOLE]
        turns.take(WHOLE)
        whole = min(turns.seconds(WHOLE), usual)
        if turns.quickest <= CLEARLY * whole:
            # More turns would change nothing, except among several ways.
            turns.settle(WHOLE, whole)
            in_turn = turns.order if len(turns.order) > 1 else []
        if is_long:
            return turns
        for _ in range(rounds(calls)):
            for way in in_turn:
                turns.take(way)

        # Turns of some milliseconds differ by a tenth beside other work.
        if CLEARLY * turns.seconds(WHOLE) < turns.quickest < turns.seconds(WHOLE):
            best = turns.order[0]
            for _ in range(close_rounds(calls)):
                for way in (best, WHOLE):
                    turns.take(way)
        return turns


class Turns:
    """Turns of several ways, which run one call.

    The seconds of a way are the median of its turns: the least would be those of the turn that
    found memory which another way had just freed, and a caller's calls do not.

    Args:
        runs: What runs it.
        arrays: The arrays of the call.
    """

    def __init__(self, runs: WayRuns, arrays: Sequence[Array]):
        self._runs = runs
        self._arrays = arrays
        self._seconds: dict[RunWay, list[float]] = {}
        self.results: dict[RunWay, object] = {}
        """The last result in each way that runs."""
        self.failed: dict[RunWay, str] = {}
        """Exceptions of the ways that do not, by name."""

    def begin(self, way: RunWay) -> None:
        """Run the call in a way for the first time, once for its compile and once to be timed."""
        try:
            self._runs.once(way, self._arrays)
        except FAILURES as error:
            self.failed[way] = type(error).__name__
        else:
            self.take(way)

    def take(self, way: RunWay) -> None:
        """Run the call in a way once more, unless the way has failed.

        Raises:
            EquinoxRuntimeError, RuntimeError, ValueError: The whole fails, so the call does.
        """
        if way in self.failed:
            return
        try:
            self.results[way], seconds = self._runs.once(way, self._arrays)
        except FAILURES as error:
            if way == WHOLE:
                raise
            self.results.pop(way, None)
            self.failed[way] = type(error).__name__
        else:
            self._seconds.setdefault(way, []).append(seconds)

    def settle(self, way: RunWay, seconds: float) -> None:
        """Take these seconds for a way."""
        self._seconds[way] = [seconds]

    def seconds(self, way: RunWay) -> float:
        """Return the seconds of a way."""
        return statistics.median_low(self._seconds[way])

    @property
    def order(self) -> list[RunWay]:
        """The ways that run, without the whole, and the quickest first."""
        return sorted((way for way in self.results if way != WHOLE), key=self.seconds)

    @property
    def quickest(self) -> float:
        """Seconds of the quickest of them; infinite if none runs."""
        return min(map(self.seconds, self.order), default=math.inf)


def _least(
    run: Callable[[], float],
    times: list[float],
    limit: float,
    known: float,
) -> float:
    """Return the least seconds of some runs, besides those that are known.

    Args:
        run: Runs once, and returns the seconds.
        times: Those known.
        limit: Seconds of all runs, after which there is no further one.
        known: Seconds of the best so far. One that takes many times as long has no second run,
            and two that take clearly longer no third.
    """
    while not times or sum(times) < limit:
        slower = _MUCH if len(times) == 1 else SLOWER
        if times and min(times) > slower * known:
            break
        if len(times) >= (OFTEN if sum(times) < _SETTLED else TIMES):
            break
        times.append(run())
    return min(times)


def _until(run: Callable[[], float], least: float, enough: float) -> float:
    """Return the least seconds of threads that had one core, probably, and of further runs: a
    system that has just woken them moves one to another core after some milliseconds only. The
    first run that takes no more than `enough` ends it.
    """
    took = least
    for _ in range(OFTEN):
        if took >= _WAKING or least <= enough:
            break
        again = run()
        took += again
        least = min(least, again)
    return least
