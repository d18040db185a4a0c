"""Calls of an entry with `auto`: as they are until it pays to know better, then as was chosen.

A call of a new size runs whole, and so do those after it until they have taken as long as the first
compile did (`call_times.py`). Then each call first runs a slice of its elements in one more way
(`search.py`), and still returns the result of the whole. The quickest way on slices and the whole
then run one call, one after the other: the quicker of these two serves all calls of that size from
then on. So a value changes from one call to the next at most once.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Hashable, Sequence

import jax

from ..._host.limits import allowed_cores
from ..._host.switches import EXACT
from ..._jax.typed import Array
from ..._view.layout import aval_parts
from ..compiled_calls import CompiledCalls
from ..program_digest import CHANGED, digest_now, traced_digest
from ..runners.unsplit import Unsplit
from ..runners.whole_calls import WholeCalls
from ..runners.workers.worker_calls import (
    PartProgram,
    call_key,
    mapped_axis,
    part_obstacle,
    split_of,
)
from . import call_times
from .calls_of_size import AutoChoice, CallsOfSize, milliseconds
from .choice_record import ChoiceRecord, RecordFile
from .cut_axes import cuts_mapped, function_of, options_of, refused_memory
from .search import WHOLE, RunWay, Search, due_after
from .trials import Trials

# Calls that are shorter gain less than what choosing adds to each.
_SHORT = 1e-3
_FORKED_DEVICES = "whole, since this process was forked, and has no threads for several devices"
# Sizes that one entry learns about.
_MOST_SIZES = 256


class AutoCalls(WholeCalls):
    """Runs the calls of an entry with `auto`."""

    def __init__(self, entry: CompiledCalls):
        super().__init__(entry)
        self._sizes: dict[Hashable, CallsOfSize] = {}
        # Calls whose size is another of the same bucket -> the choice of that size.
        self._buckets: dict[Hashable, AutoChoice] = {}
        self._trials = Trials(self)
        # One thread tries ways, and others do not wait for it.
        self._trying = threading.RLock()
        self._process = os.getpid()
        self.is_idle = False
        """True once all sizes so far run whole: calls need not come here until there is a new
        one.
        """

    def run_within(self, arrays: Sequence[Array]) -> object:
        sharded = self.entry.sharded
        return super().run_within(arrays) if sharded is None else sharded(*arrays)

    def run_without_jit(self, arrays: Sequence[Array]) -> object:
        sharded = self.entry.sharded
        return super().run_without_jit(arrays) if sharded is None else sharded(*arrays)

    def run_outermost(self, arrays: Sequence[Array]) -> object:
        if self._has_mesh():
            return self.run_way(WHOLE, arrays)
        key = self._key(arrays)
        calls = self._sizes.get(key)
        if calls is None:
            if len(self._sizes) >= _MOST_SIZES:
                return self.run_way(WHOLE, arrays)
            calls = self._sizes.setdefault(key, self._new_size(arrays))
        choice = calls.choice
        if choice is None:
            return self._learn(calls, arrays)
        if choice.entry is None:
            self._rest()
            return self.run_way(WHOLE, arrays)
        if choice.way.carrier == "devices" and self._process != os.getpid():
            calls.choice = AutoChoice(WHOLE, None, _FORKED_DEVICES)
            return self.run_outermost(arrays)
        self.entry.core.counters.saved_seconds += choice.gain
        return self.run_entry(choice.entry, arrays)

    def _key(self, arrays: Sequence[Array]) -> Hashable:
        if self.entry.options.auto == EXACT:
            return call_key(arrays)
        return tuple(map(_quick_key, arrays))

    def _has_mesh(self) -> bool:
        """Return whether calls of now are divided over a mesh, all at once."""
        sharded = self.entry.sharded
        return sharded is not None and sharded.has_mesh()

    def run_way(self, way: RunWay, arrays: Sequence[Array]) -> object:
        if way != WHOLE:
            return self.run_entry(self.entry_of(way), arrays)
        sharded, workers = self.entry.sharded, self.entry.workers
        if sharded is not None:
            return sharded(*arrays)
        return self.run_whole(arrays) if workers is None else workers.run_outermost(arrays)

    def run_alone(self, way: RunWay, arrays: Sequence[Array]) -> list[object]:
        """Run a call in a way of threads, whose program is compiled, with one worker, and return
        the results of its parts.
        """
        workers = self.entry_of(way).workers
        program = None if workers is None else workers.program(arrays)
        if not isinstance(program, PartProgram):
            raise AssertionError(f"{way} has no program of its parts")
        return program.run_in_turn(arrays)

    def entry_of(self, way: RunWay) -> CompiledCalls:
        """Return the entry that runs calls in a way, where there is no mesh."""
        core = self.entry.core
        fn = core.fn()
        changed = function_of(way, fn)
        return self.entry_with(options_of(way, core.options), None if changed is fn else changed)

    def _rest(self) -> None:
        """Let calls run without this, if all sizes so far run whole."""
        choices = [calls.choice for calls in [*self._sizes.values()]]
        if all(choice is not None and choice.entry is None for choice in choices):
            self.is_idle = True
            self.entry.reset_decision()

    # A new size.

    def _new_size(self, arrays: Sequence[Array]) -> CallsOfSize:
        """Return the calls of a size, with their choice where it is known."""
        entry, why = self.entry, ""
        size, dims = 0, (None,) * len(arrays)
        mapped = mapped_axis(entry, arrays) if cuts_mapped(entry) else None
        if isinstance(mapped, Unsplit):
            why = mapped.what
        elif mapped is not None:
            axis, size, dims = mapped
            why = f"{axis}={size}" if size < 2 else ""
        why = why or _place_obstacle(arrays)
        calls = CallsOfSize(arrays, dims, RecordFile(entry, arrays, dims, size))
        if why:
            calls.choice = AutoChoice(WHOLE, None, f"whole, since {why}")
            return calls
        calls.choice = self._buckets.get(calls.bucket) or self._recall(calls, arrays)
        return calls

    def _recall(self, calls: CallsOfSize, arrays: Sequence[Array]) -> AutoChoice | None:
        """Return the choice of an earlier process, if it can be carried out here."""
        record = calls.file.read()
        if record is None:
            return None
        way = record.way
        told = f"{milliseconds(record.chosen)}, whole {milliseconds(record.whole)}"
        why = f"{way}, as an earlier process has measured: {told}"
        if way == WHOLE and record.spent:
            calls.earlier, calls.charged = record, record.spent
            told = f"as an earlier process did after {milliseconds(record.spent)}"
            calls.wait_for(due_after(record.next_cost), told)
            return None
        if way == WHOLE:
            return AutoChoice(WHOLE, None, why)
        entry = self.entry_of(way)
        refused = self.refused_record(way, entry, arrays)
        if refused:
            calls.unused = f"; an earlier process has chosen {way}, and {refused}"
            return None
        return AutoChoice(way, entry, why, record.whole - record.chosen)

    def refused_record(
        self,
        way: RunWay,
        entry: CompiledCalls,
        arrays: Sequence[Array],
    ) -> str:
        """Return why the way of an earlier process is not taken here; "" if it is."""
        is_cut_by_hand = bool(self.entry.options.chunk) and way.width is not None
        if (way.kind == "mapped") != cuts_mapped(self.entry) or is_cut_by_hand:
            return "it is not one of this function's"
        if way.carrier and not self.may_thread():
            return "one worker runs these calls"
        refused = self.refused_threads(entry, arrays) if way.carrier else ""
        return refused or refused_memory(self.entry, entry, arrays)

    def may_thread(self) -> bool:
        return self.entry.options.workers is None and allowed_cores().value > 1

    @staticmethod
    def refused_threads(entry: CompiledCalls, arrays: Sequence[Array]) -> str:
        """Return why threads do not share a call of an entry with `workers`; "" if they do. Nothing
        is compiled.
        """
        split = split_of(entry, arrays)
        why = split if isinstance(split, Unsplit) else part_obstacle(entry, split, arrays)
        return "" if why is None else why.what

    def refused_program(self, way: RunWay, arrays: Sequence[Array]) -> str:
        """Return why threads do not share such a call; "" if they do, and then it is compiled."""
        entry = self.entry_of(way)
        program = "no `workers` given" if entry.workers is None else entry.workers.program(arrays)
        return program if isinstance(program, str) else ""

    # Until the choice falls.

    def _learn(self, calls: CallsOfSize, arrays: Sequence[Array]) -> object:
        # A fork has none of XLA's threads, so a compile there may never end, and a trial has one.
        if self._process != os.getpid():
            why = "whole, since this process was forked from one that had not chosen"
            calls.choice = AutoChoice(WHOLE, None, why)
            return self.run_outermost(arrays)
        if calls.compile_seconds is None:
            return self._first_call(calls, arrays)
        times = calls.times
        if times.timed > 1 and (times.least or 0.0) < _SHORT:
            self.fall(calls, WHOLE, f"calls take less than {milliseconds(_SHORT)}")
        elif calls.is_due and self._trying.acquire(blocking=False):
            try:
                # Another thread may have let the choice fall meanwhile.
                if calls.choice is None:
                    return self._trials.try_next(calls, arrays)
            finally:
                self._trying.release()
        if calls.choice is not None:
            return self.run_outermost(arrays)
        return times.run(lambda: self.run_way(WHOLE, arrays))

    def _first_call(self, calls: CallsOfSize, arrays: Sequence[Array]) -> object:
        counters = self.entry.core.counters
        before, events = counters.total(), counters.compile_events
        began = call_times.clock()
        out = self.run_way(WHOLE, arrays)
        took = call_times.clock() - began
        if counters.compile_events > events:
            took = counters.total() - before
        elif events:  # it was compiled ahead
            took = counters.total() / events
        calls.program = traced_digest(self.entry, self._traced(arrays))
        calls.compile_seconds = self.compile_seconds(took)
        return out

    def _traced(self, arrays: Sequence[Array]) -> Sequence[Array]:
        """Return arrays or abstract values that the program of whole calls takes."""
        workers = self.entry.workers
        return (() if workers is None else workers.first_part(arrays)) or arrays

    def is_changed(self, calls: CallsOfSize, arrays: Sequence[Array]) -> bool:
        """Return whether a trace of now is of another program than that of the first call, as where
        the body reads what has been changed since.
        """
        core, options, fn = self.entry.core, None, None
        if calls.axis is not None and calls.axis.same != WHOLE:
            options = options_of(calls.axis.same, core.options)
            fn = function_of(calls.axis.same, core.fn())
        now = digest_now(
            self.entry,
            self._traced(arrays),
            options,
            fn,
        )
        return now != calls.program

    def compile_seconds(self, measured: float) -> float:
        """Return the seconds of the first compile; tests have their own."""
        return measured

    def put_off(
        self,
        calls: CallsOfSize,
        search: Search,
        cost: float,
        why: str,
    ) -> None:
        """Let the search rest until its next step, which costs so many seconds, is little beside
        the calls since now, and write down what it has found so far.
        """
        search.write_off(calls.times.taken)
        calls.wait_for(search.due(cost), why)
        self._charge(calls)
        least, usual = calls.times.least or 0.0, calls.times.usual
        record = ChoiceRecord(
            WHOLE,
            least,
            least,
            search.spent,
            cost,
            search.records(usual) if usual else (),
        )
        calls.file.write(record)

    def _charge(self, calls: CallsOfSize) -> None:
        """Count what the search has spent since the last time."""
        spent = 0.0 if calls.search is None else calls.search.spent
        self.entry.core.counters.saved_seconds -= max(0.0, spent - calls.charged)
        calls.charged = max(calls.charged, spent)

    def fall(
        self,
        calls: CallsOfSize,
        way: RunWay,
        told: str,
        whole: float = 0.0,
        chosen: float = 0.0,
    ) -> None:
        """Let the choice for calls of a size fall, and write it down if it was measured."""
        search = calls.search
        spent = 0.0 if search is None else search.spent
        took = "" if search is None else f"; finding took {milliseconds(spent)}"
        entry = None if way == WHOLE else self.entry_of(way)
        choice = AutoChoice(way, entry, f"{way}: {told}{took}", whole - chosen)
        self._charge(calls)
        calls.choice = choice
        if search is None or told == CHANGED:
            return
        self._buckets[calls.bucket] = choice
        least = calls.times.least or 0.0
        calls.file.write(ChoiceRecord(way, whole or least, chosen or least))

    # For the plan.

    def describe(self, arrays: Sequence[Array]) -> tuple[bool, str]:
        """Return whether calls with these arrays or abstract values run in a way that was chosen,
        and why.
        """
        if self._has_mesh():
            return False, "the mesh divides the calls, all at once"
        calls = self._sizes.get(self._key(arrays))
        if calls is None:
            shapes = [aval_parts(array) for array in arrays]
            calls = next((each for each in [*self._sizes.values()] if each.avals == shapes), None)
        if calls is None:
            return (
                False,
                "nothing is tried before calls of this size have taken as long as a compile",
            )
        if calls.choice is not None:
            return calls.choice.entry is not None, calls.choice.why
        taken, due = calls.times.taken, calls.compile_seconds or 0.0
        told = f"calls have taken {milliseconds(taken)}, their compile {milliseconds(due)}"
        tried = "" if calls.search is None else calls.search.tried
        put_off = "" if calls.is_due else calls.put_off
        more = [f"; {each}" for each in (tried, put_off) if each]
        told = f"{told}{''.join(more)}{calls.unused}"
        return False, f"whole, while it learns: {told}"


def _quick_key(array: Array) -> Hashable:
    if isinstance(array, jax.Array):
        return array.shape, array.dtype, array.sharding if array.committed else None
    return aval_parts(array)[:2]


def _place_obstacle(arrays: Sequence[Array]) -> str:
    """Return why a call does not run on one device of the only process; "" if it does."""
    if jax.process_count() > 1:
        return "each of several processes would choose for itself"
    devices = [array.sharding.device_set for array in arrays if isinstance(array, jax.Array)]
    if any(len(each) > 1 for each in devices):
        return "its arrays lie on several devices"
    return ""
