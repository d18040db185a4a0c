"""Trials of one size: slices of real calls in other ways, and at last the call itself.

Each trial is part of a call of the user's, which gets the result of the whole from it, except from
the last: there the best way on slices and the whole run the same call, and the choice falls.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
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
from ..runners.device_parts import cpu_devices
from ..runners.parts import Spread
from ..runners.worker_calls import Unsplit
from . import call_times
from .calls_of_size import CallsOfSize, milliseconds
from .cut_axes import CutAxis, axis_of, refused_memory
from .search import WHOLE, RunWay, Search

if TYPE_CHECKING:
    from .auto_calls import AutoCalls

# A slice is this part of the elements, or as many as take so long; or all of a call of which so
# many take no longer than a compile, since the end of the search would compile for all once more.
_SLICE, _WORK, _BRIEF = 16, 0.005, 4
# A way is timed so often, or until it has run so long, or so many calls of the whole.
_TIMES, _LONG, _WHOLES = 3, 0.25, 2
# A way that is not quicker than the whole by this factor is not taken; by the second, a long call
# needs no whole beside it.
_GAIN, _CLEARLY = 0.95, 0.8
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

    def _begin(self, calls: CallsOfSize, arrays: Sequence[Array]) -> tuple[CutAxis, Search]:
        """Return what is cut, and the search for a way.

        Raises:
            Unsplit: Nothing is, or the program does something besides computing.
        """
        axis = calls.axis or axis_of(self._entry, arrays)
        search = calls.search or Search(
            axis.size,
            axis.widths,
            calls.compile_seconds or 0.0,
            threads=axis.threads and self._calls.may_thread(),
            devices=len(cpu_devices()) > 1,
            joined=axis.joined,
            like=axis.like,
        )
        calls.axis, calls.search = axis, search
        return axis, search

    def try_next(self, calls: CallsOfSize, arrays: Sequence[Array]) -> object:
        """Run a call, and before it a slice of it in one more way; or let the choice fall."""
        jax.block_until_ready([*arrays])
        began = call_times.clock()
        try:
            axis, search = self._begin(calls, arrays)
        except Unsplit as unsplit:
            self._calls.fall(calls, WHOLE, unsplit.what)
            return self._calls.run_way(WHOLE, arrays)
        # A way is traced now, and must be the program that the whole was traced to.
        if self._calls.is_changed(calls, arrays):
            self._calls.fall(calls, WHOLE, CHANGED)
            return self._calls.run_way(WHOLE, arrays)
        search.spent += call_times.clock() - began

        # One more way, if it can pay.
        whole, taken = calls.times.least or 0.0, calls.times.taken
        way = search.next_way(whole)
        if way is not None:
            spread = self._spread(calls, axis, way)
            cost = _trial_cost(whole, spread.count / spread.size)
            compiles = 1 if _is_brief(calls) else 2
            if search.affords(compiles, cost, whole, taken):
                return self._try(calls, search, way, spread, arrays)

        # No more ways: the best on slices runs this call.
        given_up = [] if way is None else [f"given up, as {way} could not be repaid in time"]
        told = "; ".join([*given_up, *filter(None, [search.tried])])
        best = search.best(whole)
        if best == WHOLE:
            self._calls.fall(calls, WHOLE, told or "there is no other way")
            return self._calls.run_way(WHOLE, arrays)
        return self._decide(calls, best, told, arrays)

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
        limit = _LONG
        if spread.is_whole:
            limit = min(limit, _WHOLES * (calls.times.least or limit))
        out, failure = None, ""
        # Directions are cut in the program, and not in its arrays.
        is_part = way.kind == "directions" and not spread.is_whole
        try:
            out = self._time(search, way, spread, arrays, limit)
        except _FAILED as error:
            failure = type(error).__name__
        search.spent += call_times.clock() - began

        result = calls.times.run(lambda: self._calls.run_way(WHOLE, arrays), timed=True)
        if failure:
            # Where the call itself fails, the way is not to blame.
            jax.block_until_ready(result)
            search.drop(way, failure)
        is_exact = self._entry.options.auto == EXACT
        rows = None if spread.is_whole else spread.rows
        if is_exact and out is not None and not (is_part or _are_equal(out, result, rows)):
            search.drop(way, "other bits")
        return result

    def _spread(
        self,
        calls: CallsOfSize,
        axis: CutAxis,
        way: RunWay,
    ) -> Spread:
        """Return the elements that a way is tried on."""
        size, whole = axis.size, calls.times.least or _WORK
        given = [width for _, width in self._entry.options.chunk if isinstance(width, int)]
        width = way.width or max(given, default=None)
        # What runs at a time must not be less than in the call.
        if width is None or _is_brief(calls) or way.kind == "memory":
            return Spread(size, size, axis.dims)
        count = max(size / _SLICE, size * _WORK / whole)
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
        limit: float,
    ) -> object:
        """Time a way on some elements, for so many seconds, and return their result; None if it
        cannot run.
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
            entry, refused = self._calls.entry_of(way), ""
            if not spread.is_whole:
                refused = self._calls.refused_threads(entry, arrays)
            refused = refused or self._calls.refused_program(entry, some)
            if refused:
                search.drop(way, refused)
                return None
        out = jax.block_until_ready(self._calls.run_way(ran, some))
        first = call_times.clock() - began
        times: list[float] = []
        while len(times) < _TIMES and sum(times) < limit:
            out, seconds = self._timed(ran, some)
            times.append(seconds)
        least = min(times)
        search.add(
            way,
            spread.count,
            least,
            max(0.0, first - least),
        )
        return out

    def _timed(self, way: RunWay, arrays: Sequence[Array]) -> tuple[object, float]:
        began = call_times.clock()
        out = jax.block_until_ready(self._calls.run_way(way, arrays))
        return out, call_times.clock() - began

    def _decide(
        self,
        calls: CallsOfSize,
        best: RunWay,
        told: str,
        arrays: Sequence[Array],
    ) -> object:
        """Run a call in the best way on slices, compare it with the whole, and let the choice
        fall.
        """
        began = call_times.clock()
        ours, chosen, theirs, whole = None, 0.0, None, 0.0
        try:
            ours, chosen, theirs, whole = self._compare(calls, best, arrays)
        except _FAILED as error:
            failure = type(error).__name__
        else:
            failure = ""
        if failure:
            theirs = jax.block_until_ready(self._calls.run_way(WHOLE, arrays))
            self._calls.fall(calls, WHOLE, f"{best}: {failure}; {told}")
            return theirs
        if calls.search is not None:
            calls.search.spent += call_times.clock() - began - min(chosen, whole)

        told = f"{milliseconds(chosen)}, whole {milliseconds(whole)}; {told}"
        is_quicker = chosen <= _GAIN * whole
        is_exact = self._entry.options.auto == EXACT
        if is_quicker and is_exact and not _are_equal(ours, theirs):
            self._calls.fall(calls, WHOLE, f"{best} has other bits; {told}")
            return theirs
        if is_quicker:
            self._calls.fall(
                calls,
                best,
                told,
                whole,
                chosen,
            )
            return ours
        self._calls.fall(calls, WHOLE, f"{best} {told}")
        return self._calls.run_way(WHOLE, arrays) if theirs is None else theirs

    def _compare(
        self,
        calls: CallsOfSize,
        best: RunWay,
        arrays: Sequence[Array],
    ) -> tuple[object, float, object, float]:
        """Return the results and the seconds of a call in one way and of the whole, whose result is
        None if a long call is clearly quicker in that way than the whole ever was.
        """
        whole = calls.times.least or 0.0
        is_long = whole > _LONG
        self._timed(best, arrays)  # with its compile
        ours, chosen = self._timed(best, arrays)
        if is_long and chosen <= _CLEARLY * whole and self._entry.options.auto != EXACT:
            return ours, chosen, None, whole

        theirs, whole = self._timed(WHOLE, arrays)
        for _ in range(0 if is_long else _TIMES):
            ours, again = self._timed(best, arrays)
            chosen = min(chosen, again)
            theirs, again = self._timed(WHOLE, arrays)
            whole = min(whole, again)
        return ours, chosen, theirs, whole


def _is_brief(calls: CallsOfSize) -> bool:
    """Return whether a call takes little time beside a compile, so that ways run all of it."""
    whole = calls.times.least or _WORK
    return _BRIEF * whole <= (calls.compile_seconds or 0.0)


def _trial_cost(whole: float, share: float) -> float:
    """Return the seconds of a trial on a share of the elements and of the comparison at the end,
    without their compiles.
    """
    if whole > _LONG:
        return 2 * whole * share + whole
    return (1 + _TIMES) * whole * share + 2 * _TIMES * whole


def _are_equal(ours: object, theirs: object, rows: slice | None = None) -> bool:
    """Return whether results are equal to the bit, of all elements or of some of `theirs`."""
    pairs = zip(tree_flatten(ours)[0], tree_flatten(theirs)[0], strict=True)
    return all(_bits(a) == _bits(b if rows is None else b[rows]) for a, b in pairs)


def _bits(array: Array) -> tuple[object, ...]:
    if issubdtype(array.dtype, extended):
        array = jax.random.key_data(array)
    host = np.asarray(array)
    return host.dtype, host.shape, host.tobytes()
