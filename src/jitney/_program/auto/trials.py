"""Trials of one size: slices of real calls in other ways, and at last the call itself.

Each trial is part of a call of the user's, which gets the result of the whole from it, except from
the last: there the best way on slices and the whole run the same call, and the choice falls.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import jax
import numpy as np

from ..._errors import AxisError
from ..._host.limits import allowed_cores
from ..._host.switches import EXACT
from ..._jax.equinox_checks import FAILURE
from ..._jax.trees import extended, issubdtype, tree_flatten
from ..._jax.typed import Array
from ..compiled_calls import CompiledCalls
from ..program_digest import CHANGED
from ..runners.unsplit import Unsplit
from ..runners.workers.device_parts import cpu_devices
from ..runners.workers.parts import Spread
from . import call_times
from .calls_of_size import CallsOfSize, milliseconds
from .cut_axes import CutAxis, axis_of, refused_memory
from .search import ONE_CORE, WHOLE, RunWay, Search
from .trial_costs import (
    CLEARLY,
    LONG,
    OFTEN,
    SLOWER,
    TIMES,
    WORK,
    close_rounds,
    end_cost,
    is_brief,
    rounds,
    trial_cost,
)

if TYPE_CHECKING:
    from .auto_calls import AutoCalls

# A slice is this part of the elements, or as many as take long enough in the best way so far; or
# all of a call that is brief.
_SLICE = 16
# A way is timed more often for so many seconds; or until it has run for long, or for so many calls
# of the whole, or is slower than the best by a factor.
_SETTLED, _WHOLES = 0.01, 2
# It runs once more, though slower, as its first run starts threads and takes new memory, unless it
# is so many times slower. With one worker it is timed too, unless it is that in threads.
_MUCH = 4
# Threads that had one core run again for so many seconds.
_WAKING = 0.05
# A way that is not quicker than the whole by this factor is not taken.
_GAIN = 0.95
_FAILED = (FAILURE, RuntimeError, ValueError, AxisError)
"""Exceptions of a trial: a failed check, too little memory, an axis that cannot be cut."""


class Trials:
    """Runs the trials of an entry with `auto`.

    Args:
        calls: Its calls.
    """

    def __init__(self, calls: AutoCalls):
        self._calls = calls

    @property
    def _entry(self) -> CompiledCalls:
        return self._calls.entry

    def _begin(
        self, calls: CallsOfSize, arrays: Sequence[Array]
    ) -> tuple[CutAxis, Search] | Unsplit:
        """Return what is cut, and the search for a way; or why nothing is cut."""
        axis = calls.axis or axis_of(self._entry, arrays)
        if isinstance(axis, Unsplit):
            return axis
        search = calls.search or Search(
            axis.size,
            axis.widths,
            calls.compile_seconds or 0.0,
            threads=allowed_cores().value if axis.threads and self._calls.may_thread() else 0,
            devices=len(cpu_devices()) > 1,
            joined=axis.joined,
            like=axis.like,
        )
        if calls.search is None:
            search.spent = calls.spent_before
        calls.axis, calls.search = axis, search
        return axis, search

    def try_next(self, calls: CallsOfSize, arrays: Sequence[Array]) -> object:
        """Run a call, and before it a slice of it in one more way; or let the choice fall."""
        jax.block_until_ready([*arrays])
        began = call_times.clock()
        begun = self._begin(calls, arrays)
        if isinstance(begun, Unsplit):
            self._calls.fall(calls, WHOLE, begun.what)
            return self._calls.run_way(WHOLE, arrays)
        axis, search = begun
        search.spent += call_times.clock() - began
        whole, taken = calls.times.least or 0.0, calls.times.taken
        usual = calls.times.usual or 0.0
        stays = search.best(_GAIN * usual) == WHOLE

        # One more way, if it can pay; where one cannot, another may, which needs fewer compiles. A
        # second trial needs none.
        given_up, due = "", math.inf
        ways = [search.had_one_core(usual), *search.next_ways(usual), search.again(usual)]
        for way in filter(None, ways):
            spread = self._spread(calls, axis, way, search)
            cost = trial_cost(whole, spread, way, search)
            compiles = 1 if spread.is_whole else 2
            compiles -= search.has_tried(way)
            if search.affords(
                compiles,
                cost,
                whole,
                taken,
            ):
                if self._is_changed(calls, search, arrays):
                    return self._calls.run_way(WHOLE, arrays)
                return self._try(
                    calls,
                    search,
                    way,
                    spread,
                    arrays,
                )
            given_up = given_up or f"as {way} could not be repaid in time"
            due = min(due, search.due(compiles, cost))
        # Nothing is lost by going on later.
        if given_up and stays:
            self._calls.put_off(
                calls,
                search,
                due,
                given_up,
            )
            return calls.times.run(lambda: self._calls.run_way(WHOLE, arrays))

        # No more ways: the best on slices runs this call.
        told = f"given up, {given_up}" if given_up else ""
        told = "; ".join(filter(None, [told, search.tried]))
        if stays:
            self._calls.fall(calls, WHOLE, told or "there is no other way")
        if stays or self._is_changed(calls, search, arrays):
            return self._calls.run_way(WHOLE, arrays)
        ways = self._finalists(calls, search, usual)
        return self._decide(calls, search, ways, told, arrays)

    def _is_changed(
        self,
        calls: CallsOfSize,
        search: Search,
        arrays: Sequence[Array],
    ) -> bool:
        """Return whether the body computes something else by now, and then let the whole stay: a
        way is traced now, and must be the program that the whole was traced to. Where a search is
        put off there is no trace, whose seconds would put it off once more.
        """
        began = call_times.clock()
        is_changed = self._calls.is_changed(calls, arrays)
        search.spent += call_times.clock() - began
        if is_changed:
            self._calls.fall(calls, WHOLE, CHANGED)
        return is_changed

    def _try(
        self,
        calls: CallsOfSize,
        search: Search,
        way: RunWay,
        spread: Spread,
        arrays: Sequence[Array],
    ) -> object:
        """Run a slice of a call in one way, then the call itself."""
        began = call_times.clock()
        out, failure = None, ""
        # Directions are cut in the program, and not in its arrays.
        is_part = way.kind == "directions" and not spread.is_whole
        try:
            out = self._time(
                search,
                way,
                spread,
                arrays,
                calls.times.usual or math.inf,
            )
        except _FAILED as error:
            failure = type(error).__name__
        search.spent += call_times.clock() - began

        result = calls.times.run(lambda: self._calls.run_way(WHOLE, arrays), alone=True)
        if failure:
            # Where the call itself fails, the way is not to blame.
            jax.block_until_ready(result)
            search.drop(way, failure)
        is_exact = self._entry.options.auto == EXACT
        rows = None if spread.is_whole else spread.rows
        if is_exact and out is not None and not (is_part or _are_equal(out, result, rows)):
            search.drop(way, "other bits")
            alone = replace(way, carrier="")
            if search.has_tried(alone):
                search.drop(alone, "other bits")
        return result

    def _spread(
        self,
        calls: CallsOfSize,
        axis: CutAxis,
        way: RunWay,
        search: Search,
    ) -> Spread:
        """Return the elements that a way is tried on: those of its first trial, if it had one."""
        first = search.first_elements(way)
        if first is not None:
            return Spread(axis.size, first, axis.dims)
        size, whole, quickest = axis.size, calls.times.least or WORK, search.quickest
        given = [width for _, width in self._entry.options.chunk if isinstance(width, int)]
        width = way.width or max(given, default=None)
        # What runs at a time must not be less than in the call.
        if width is None or is_brief(calls, width) or way.kind == "memory":
            return Spread(size, size, axis.dims)
        # A slice has the start of threads in it, and must be long beside that in a quick way too.
        count = max(size / _SLICE, size * WORK / (min(whole, quickest * size) or whole))
        # Whole chunks for each thread, two at least: XLA compiles one chunk otherwise than a loop.
        step = 2 * width
        step *= allowed_cores().value if way.carrier else 1
        return Spread(size, min(size, math.ceil(count / step) * step), axis.dims)

    def _time(
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
        if way.kind == "directions" and not spread.is_whole:
            ran = replace(way, tried=spread.count)
        refused = refused_memory(self._entry, self._calls.entry_of(ran), some)
        if refused:
            search.drop(way, refused)
            return None
        if way.carrier:
            # Not even on a slice where the call itself could not be shared: XLA may hang.
            refused = ""
            if not spread.is_whole:
                refused = self._calls.refused_threads(self._calls.entry_of(way), arrays)
            refused = refused or self._calls.refused_program(way, some)
            if refused:
                search.drop(way, refused)
                return None
        compiled = call_times.clock()
        out, first = self._timed(ran, some)
        known = min(search.quickest, whole / spread.size) * spread.count
        limit = min(LONG, _WHOLES * whole) if spread.is_whole else LONG
        # The program of threads is compiled by now, and that of a second trial.
        is_first = not search.has_tried(way)
        times = [first] if way.carrier or not is_first else []
        least = _least(
            lambda: self._timed(ran, some)[1],
            times,
            limit,
            known,
        )
        took = compiled - began if way.carrier else max(0.0, first - least)
        # The same program with one worker is another way; it may be the quicker, where XLA uses
        # all cores for one operation.
        alone = None
        if way.carrier == "threads" and way.width is not None and least <= _MUCH * known:
            alone = _least(partial(self._timed_alone, way, some), [], limit, known)
            if least > ONE_CORE * alone:
                least = _until(lambda: self._timed(ran, some)[1], least, ONE_CORE * alone)
        search.add(
            way,
            spread.count,
            least,
            took if is_first else None,
        )
        if alone is not None:
            search.add(
                replace(way, carrier=""),
                spread.count,
                alone,
                None,
            )
        return out

    def _timed_alone(self, way: RunWay, arrays: Sequence[Array]) -> float:
        began = call_times.clock()
        jax.block_until_ready(self._calls.run_alone(way, arrays))
        return call_times.clock() - began

    def _timed(self, way: RunWay, arrays: Sequence[Array]) -> tuple[object, float]:
        began = call_times.clock()
        out = jax.block_until_ready(self._calls.run_way(way, arrays))
        return out, call_times.clock() - began

    def _decide(
        self,
        calls: CallsOfSize,
        search: Search,
        ways: Sequence[RunWay],
        told: str,
        arrays: Sequence[Array],
    ) -> object:
        """Run a call in the best ways on slices, compare them with the whole, and let the choice
        fall. What the call shows to be no better is dropped, and the next call goes on with what is
        left.
        """
        began = call_times.clock()
        runs, failed = self._compare(calls, ways, arrays)
        # A long call may need no whole beside it.
        least, theirs = calls.times.least or math.inf, None
        theirs, whole = runs.pop(WHOLE, (theirs, least))
        order = sorted(runs, key=lambda way: runs[way][1])
        best = order[0] if order else ways[0]
        ours, chosen = runs.get(best, (None, math.inf))
        if not runs:
            # Where the call itself fails, no way is to blame.
            theirs = jax.block_until_ready(self._calls.run_way(WHOLE, arrays))
        search.spent += call_times.clock() - began - min(chosen, whole)

        others = [f"{way} {milliseconds(runs[way][1])}" for way in order[1:]]
        others = ", ".join([*others, f"whole {milliseconds(whole)}"])
        measured = f"{milliseconds(chosen)}, {others}; {told}" if runs else told
        is_quicker = chosen <= _GAIN * whole
        is_exact = self._entry.options.auto == EXACT
        if is_quicker and is_exact and not _are_equal(ours, theirs):
            search.drop(best, "other bits of the call")
            why = f"{best} has other bits; {measured}"
        elif is_quicker:
            self._calls.fall(
                calls,
                best,
                measured,
                whole,
                chosen,
            )
            return ours
        else:
            for way in order:
                search.lose(way, runs[way][1])
            why = f"{best} {measured}"
        for way, failure in failed.items():
            search.drop(way, failure)
            why = why if runs else f"{way}: {failure}; {told}"
        is_left = search.best(_GAIN * whole) != WHOLE or search.has_second_chance()
        cost = end_cost(whole, search)
        compiles = search.compiles([search.best(_GAIN * whole)])
        goes_on = is_left and search.affords(
            compiles,
            cost,
            whole,
            calls.times.taken,
        )
        if not is_left:
            self._calls.fall(calls, WHOLE, why)
        elif not goes_on:
            due = search.due(compiles, cost)
            told = "as one more call to decide could not be repaid in time"
            self._calls.put_off(
                calls,
                search,
                due,
                told,
            )
        if theirs is not None:
            return theirs
        return self._calls.run_way(WHOLE, arrays)

    def _finalists(
        self,
        calls: CallsOfSize,
        search: Search,
        usual: float,
    ) -> list[RunWay]:
        """Return the ways that run the call that decides, if the whole usually takes so many
        seconds: the best, and as many more as can be repaid.
        """
        whole, taken = calls.times.least or 0.0, calls.times.taken
        ways = search.finalists(usual)
        while len(ways) > 1 and not search.affords(
            search.compiles(ways),
            (len(ways) - 1) * end_cost(whole, search),
            whole,
            taken,
        ):
            ways = ways[:-1]
        return ways

    def _compare(
        self,
        calls: CallsOfSize,
        ways: Sequence[RunWay],
        arrays: Sequence[Array],
    ) -> tuple[dict[RunWay, tuple[object, float]], dict[RunWay, str]]:
        """Return the results and the seconds of a call in some ways and in the whole, of which each
        takes turns; not in the whole if a long call is clearly quicker in one of the ways. And
        which of the ways failed, and how.

        The seconds are medians: the least would be those of the turn that found memory which
        another way had just freed, and a caller's calls do not. A whole that is clearly slower has
        one turn, and the lesser of its seconds and the usual ones.
        """
        least = calls.times.least or 0.0
        is_long = least > LONG
        runs: dict[RunWay, tuple[object, float]] = {}
        failed: dict[RunWay, str] = {}
        turns: dict[RunWay, list[float]] = {}
        for way in ways:
            try:
                self._timed(way, arrays)  # with its compile
                runs[way] = self._timed(way, arrays)
                turns[way] = [runs[way][1]]
            except _FAILED as error:
                failed[way] = type(error).__name__
        quickest = min((seconds for _, seconds in runs.values()), default=math.inf)
        is_clear = is_long and quickest <= CLEARLY * least
        if not runs or (is_clear and self._entry.options.auto != EXACT):
            return runs, failed

        theirs, whole = self._timed(WHOLE, arrays)
        usual = calls.times.usual or math.inf
        turns[WHOLE] = [whole]
        runs[WHOLE] = theirs, whole
        in_turn = [*runs]
        if quickest <= CLEARLY * min(whole, usual):
            # More turns would change nothing, except among several ways.
            runs[WHOLE] = theirs, min(whole, usual)
            in_turn = [*turns][:-1] if len(turns) > 2 else []
        if not is_long:
            self._take_turns(rounds(calls), in_turn, runs, failed, turns, arrays)
            # Turns of some milliseconds differ by a tenth beside other work.
            best = min(runs, key=lambda way: runs[way][1])
            if best != WHOLE and runs[best][1] > CLEARLY * runs[WHOLE][1]:
                more = close_rounds(calls)
                self._take_turns(more, [best, WHOLE], runs, failed, turns, arrays)
        return runs, failed

    def _take_turns(
        self,
        count: int,
        ways: Sequence[RunWay],
        runs: dict[RunWay, tuple[object, float]],
        failed: dict[RunWay, str],
        turns: dict[RunWay, list[float]],
        arrays: Sequence[Array],
    ) -> None:
        """Run a call in some ways, so often each, and let `runs` have the medians of all turns. A
        way that fails leaves `runs`, and `failed` says how.
        """
        for _ in range(count):
            for way in filter(runs.__contains__, ways):
                try:
                    out, again = self._timed(way, arrays)
                except _FAILED as error:
                    if way == WHOLE:
                        raise
                    del runs[way]
                    failed[way] = type(error).__name__
                else:
                    turns[way].append(again)
                    runs[way] = out, statistics.median_low(turns[way])


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


def _are_equal(ours: object, theirs: object, rows: slice | None = None) -> bool:
    """Return whether results are equal to the bit, of all elements or of some of `theirs`."""
    pairs = zip(tree_flatten(ours)[0], tree_flatten(theirs)[0], strict=True)
    return all(_bits(a) == _bits(b if rows is None else b[rows]) for a, b in pairs)


def _bits(array: Array) -> tuple[object, ...]:
    if issubdtype(array.dtype, extended):
        array = jax.random.key_data(array)
    host = np.asarray(array)
    return host.dtype, host.shape, host.tobytes()
