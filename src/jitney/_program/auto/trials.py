"""Trials of one size: slices of real calls in other ways, and at last the call itself.

Each trial is part of a call of the user's, which gets the result of the whole from it, except from
the last: there the best way on slices and the whole run the same call, and the choice falls.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import jax

from ..._host.limits import allowed_cores
from ..._host.switches import EXACT
from ..._jax.typed import Array
from ..compiled_calls import CompiledCalls
from ..program_digest import CHANGED
from ..runners.unsplit import Unsplit
from ..runners.workers.device_parts import cpu_devices
from ..runners.workers.parts import Spread
from . import call_times
from .calls_of_size import CallsOfSize, milliseconds
from .choice_record import ChoiceRecord
from .cut_axes import CutAxis, axis_of
from .result_bits import are_equal
from .search import WHOLE, RunWay, Search
from .trial_costs import WORK, end_cost, is_brief, trial_cost
from .way_runs import FAILURES, WayRuns

if TYPE_CHECKING:
    from .auto_calls import AutoCalls

# A slice is this part of the elements, or as many as take long enough in the best way so far; or
# all of a call that is brief.
_SLICE = 16
# A way that is not quicker than the whole by this factor is not taken.
_GAIN = 0.95


@dataclass(frozen=True)
class Trial:
    """A way that is tried next, and on which elements."""

    way: RunWay
    spread: Spread


@dataclass(frozen=True)
class Unaffordable:
    """The first of the ways that are left, none of which can be repaid in time.

    Args:
        way: The way.
        cost: Seconds that the cheapest of them takes, compiles included.
    """

    way: RunWay
    cost: float


class Trials:
    """Runs the trials of an entry with `auto`.

    Args:
        calls: Its calls.
    """

    def __init__(self, calls: AutoCalls):
        self._calls = calls
        self._runs = WayRuns(calls)

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
        if calls.search is None and calls.earlier is not None:
            self._take_over(calls.earlier, search, calls.times.usual or 0.0, arrays)
        calls.axis, calls.search = axis, search
        return axis, search

    def _take_over(
        self,
        earlier: ChoiceRecord,
        search: Search,
        whole: float,
        arrays: Sequence[Array],
    ) -> None:
        """Go on where an earlier process has ended its search, but for what is refused here."""
        # Each way would have to be compiled to know whether it fits.
        trials = () if self._entry.options.memory is not None else earlier.trials
        for way in search.take_over(trials, whole, earlier.spent):
            refused = self._calls.refused_record(way, self._calls.entry_of(way), arrays)
            if refused:
                search.drop(way, refused)

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

        trial = self._next_trial(calls, axis, search)
        if isinstance(trial, Trial):
            if self._is_changed(calls, search, arrays):
                return self._calls.run_way(WHOLE, arrays)
            return self._try(calls, search, trial, arrays)

        usual = calls.times.usual or 0.0
        stays = search.best(_GAIN * usual) == WHOLE
        given_up = "" if trial is None else f"as {trial.way} could not be repaid in time"
        # Nothing is lost by going on later.
        if trial is not None and stays:
            self._calls.put_off(
                calls,
                search,
                trial.cost,
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
        return self._decide(calls, search, told, arrays)

    def _next_trial(
        self,
        calls: CallsOfSize,
        axis: CutAxis,
        search: Search,
    ) -> Trial | Unaffordable | None:
        """Return the next trial that can pay, or what cannot; None if no way is left.

        Where one cannot pay, another may, which needs fewer compiles. A second trial needs none.
        """
        whole, taken = calls.times.least or 0.0, calls.times.taken
        usual = calls.times.usual or 0.0
        first, cheapest = None, math.inf
        left = search.next_ways(usual, calls.times.busy)
        ways = [search.had_one_core(usual), *left, search.again(usual)]
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
                return Trial(way, spread)
            first = first or way
            cheapest = min(cheapest, search.cost_of(compiles) + cost)
        return None if first is None else Unaffordable(first, cheapest)

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
        trial: Trial,
        arrays: Sequence[Array],
    ) -> object:
        """Run a slice of a call in one way, then the call itself."""
        way, spread = trial.way, trial.spread
        began = call_times.clock()
        out, failure = None, ""
        try:
            out = self._runs.trial(
                search,
                way,
                spread,
                arrays,
                calls.times.usual or math.inf,
            )
        except FAILURES as error:
            failure = type(error).__name__
        search.spent += call_times.clock() - began

        result = calls.times.run(lambda: self._calls.run_way(WHOLE, arrays), alone=True)
        if failure:
            # Where the call itself fails, the way is not to blame.
            jax.block_until_ready(result)
            search.drop(way, failure)
        # Some directions of a Jacobian are not rows of the whole.
        is_part = way.kind == "directions" and not spread.is_whole
        rows = None if spread.is_whole else spread.rows
        is_exact = self._entry.options.auto == EXACT
        if is_exact and out is not None and not (is_part or are_equal(out, result, rows)):
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

    def _decide(
        self,
        calls: CallsOfSize,
        search: Search,
        told: str,
        arrays: Sequence[Array],
    ) -> object:
        """Run a call in the best ways on slices, compare them with the whole, and let the choice
        fall. What the call shows to be no better is dropped, and the next call goes on with what is
        left.
        """
        began = call_times.clock()
        turns = self._runs.in_turns(calls, self._finalists(calls, search), arrays)
        # A long call may need no whole beside it.
        theirs = turns.results.get(WHOLE)
        least = calls.times.least or math.inf
        whole = least if WHOLE not in turns.results else turns.seconds(WHOLE)
        order, chosen = turns.order, turns.quickest
        if not order:
            # Where the call itself fails, no way is to blame.
            theirs = jax.block_until_ready(self._calls.run_way(WHOLE, arrays))
        search.spent += call_times.clock() - began - min(chosen, whole)

        others = [f"{way} {milliseconds(turns.seconds(way))}" for way in order[1:]]
        others = ", ".join([*others, f"whole {milliseconds(whole)}"])
        measured = f"{milliseconds(chosen)}, {others}; {told}"
        is_quicker = chosen <= _GAIN * whole
        is_exact = self._entry.options.auto == EXACT
        ours = turns.results[order[0]] if order else None
        if is_quicker and is_exact and not are_equal(ours, theirs):
            search.drop(order[0], "other bits of the call")
            why = f"{order[0]} has other bits; {measured}"
        elif is_quicker:
            self._calls.fall(
                calls,
                order[0],
                measured,
                whole,
                chosen,
            )
            return ours
        else:
            for way in order:
                search.lose(way, turns.seconds(way))
            why = f"{order[0]} {measured}" if order else ""
        for way, failure in turns.failed.items():
            search.drop(way, failure)
            why = why or f"{way}: {failure}; {told}"
        self._go_on(
            calls,
            search,
            whole,
            why,
        )
        return self._calls.run_way(WHOLE, arrays) if theirs is None else theirs

    def _go_on(
        self,
        calls: CallsOfSize,
        search: Search,
        whole: float,
        why: str,
    ) -> None:
        """Let the whole stay if no way is left that may be quicker, or the search rest until one
        more call to decide can be repaid.
        """
        is_left = search.best(_GAIN * whole) != WHOLE or search.has_second_chance()
        if not is_left:
            self._calls.fall(calls, WHOLE, why)
            return
        cost = end_cost(whole, search)
        compiles = search.compiles([search.best(_GAIN * whole)])
        if not search.affords(
            compiles,
            cost,
            whole,
            calls.times.taken,
        ):
            self._calls.put_off(
                calls,
                search,
                search.cost_of(compiles) + cost,
                "as one more call to decide could not be repaid in time",
            )

    def _finalists(self, calls: CallsOfSize, search: Search) -> list[RunWay]:
        """Return the ways that run the call that decides: the best, and as many more as can be
        repaid.
        """
        whole, taken = calls.times.least or 0.0, calls.times.taken
        ways = search.finalists(calls.times.usual or 0.0)
        while len(ways) > 1 and not search.affords(
            search.compiles(ways),
            (len(ways) - 1) * end_cost(whole, search),
            whole,
            taken,
        ):
            ways = ways[:-1]
        return ways
