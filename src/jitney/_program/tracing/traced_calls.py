"""Traces of a function's body for JAX: one thread at a time for each key of a call.

Here a call is planned, its contract checked, and the body traced; then the trace is recorded.
Shapes are abstract, and nothing runs. `_program/lowering.py` has JAX call this.
"""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import replace

import jax

from ..._axes import Refused, at_any_size
from ..._body.body import Planned
from ..._body.call_key import padded_key, trace_key
from ..._body.explicit import without_explicit
from ..._diagnosis.counters.counters import Call, Event
from ..._diagnosis.counters.listener import LISTENER
from ..._host.own_time import OWN_TIME
from ..._jax.typed import AnyMesh, Array
from ..._signature.options import tolerance_of
from ..._stages import Jit, Mask
from ..._view.layout import aval_parts, jit_is_off
from ..._view.named_axes import is_count
from ..._view.result import Outcome, unmix
from ..._view.true_sizes import (
    NeedsNumbers,
    TrueSizes,
    known_sizes,
    split_counts,
)
from ..compiled_calls import CompiledCalls, PendingTrace
from ..outer_transforms import looking, warn_uncut
from .call_record import record_of, trace_inputs_of
from .held_numbers import Redirected, attempt, numbers_in
from .leaked_tracers import refuse_left_in_result
from .limit import keep_limit


class Retry(Exception):
    """The call is repeated, and finds another program: another thread has just traced the one that
    this thread was about to trace, or the one being traced is for arrays of other shapes.
    """


class Undecided(Exception):
    """A call key is new, and a policy has to be chosen from the values of its arguments, which a
    trace does not have.
    """

    def __init__(self, key: Hashable):
        super().__init__(key)
        self.key = key


class TracedCalls(CompiledCalls):
    """A function of flat arrays whose traces are shared by threads, and recorded."""

    @abstractmethod
    def expect_trace(self) -> None:
        """Have the next call decide again how calls run, where a new program may change that."""

    def share_traces(self, other: TracedCalls) -> None:
        """Wait for the traces of another entry, and take its choices."""
        self.flights, self.chosen, self._lock = other.flights, other.chosen, other._lock

    def _trace(
        self,
        given: Sequence[object],
        mesh: AnyMesh | None = None,
    ) -> object:
        """Trace the body for JAX, one thread at a time for each key; a second thread waits, and
        raises Retry to be called once more.
        """
        arrays, counts = split_counts(given)
        if counts is None and self.is_plain():
            return self.plainly(*arrays)
        if jit_is_off():
            return self._run_without_jit(arrays)

        self.expect_trace()

        # One trace for each key: only the thread that has set up the flight goes on. `land` lets
        # the others through when its call is over.
        key = trace_key(arrays, counts)
        self._demand_choice(key)
        self._demand_held(arrays)
        with self._lock:
            flight = self.flights.setdefault(key, PendingTrace())
        if flight.thread != threading.get_ident():
            flight.landed.wait()
            raise Retry
        flight.depth += 1

        # Trace. The seconds of the body are subtracted from those of jitney.
        self.core.counters.traces += 1
        began, spent = time.perf_counter(), OWN_TIME.seconds
        try:
            with without_explicit(self, given) as explicit, looking(self):
                arrays, counts = split_counts(explicit.arrays)
                planned = self.plan_call(arrays, counts, mesh=mesh)
                # A trace that fails on a number is no program, and is not remembered.
                may_fail = bool(self.layout.numbers)
                if not may_fail:
                    self._remember(planned, counts)
                # With the proof of the trace before, the body is not run again.
                mask = planned.plan.of(Mask)
                proof = mask and mask.proof_before
                outcome = (proof and proof.outcome) or Outcome()
                outcome.begin_again()
                out = self.apply_plan(planned, arrays, outcome, counts)
                self.joint_rules += outcome.joint_rules
                if planned.plan.of(Jit) is not None:
                    refuse_left_in_result(self.core.where, outcome)
                if may_fail:
                    self._remember(planned, counts)
                    self.choices.traced_at.add(trace_key(arrays))

            if outcome.uncut is not None:
                warn_uncut(self, outcome.uncut)
            if counts is not None:
                self._remember_cuts(planned, outcome, counts.turn)
            self._book(time.perf_counter() - began - min(outcome.body_seconds, default=0.0), spent)
            return explicit.shard_result(out, self, planned, outcome)
        except (Refused, NeedsNumbers):
            # The trace was all proof, and no body time is subtracted: the function will be traced
            # once more.
            self._book(time.perf_counter() - began, spent)
            raise
        except Exception:
            if self.layout.numbers:
                self.core.counters.traces -= 1
            raise
        finally:
            flight.depth -= 1

    def _book(
        self,
        seconds: float,
        spent: float,
    ) -> None:
        """Count the seconds that jitney itself spent in a trace, and exclude them from the body
        time of a trace around it.
        """
        self.core.counters.own_seconds += seconds
        OWN_TIME.add(spent + seconds - OWN_TIME.seconds)

    def _demand_choice(self, key: Hashable) -> None:
        if key not in self.chosen and tolerance_of(self.core.options.precision) is not None:
            raise Undecided(key)

    def _demand_held(self, arrays: Sequence[object]) -> None:
        """Check that the numbers which this entry holds are needed for arrays of these shapes.

        Raises:
            Redirected: The body can be traced with all of them, or needs others.
        """
        wider = self.wider
        if wider is None or not self.redirects or wider.choices.depends_on_shapes:
            return
        layout = self.layout
        known: dict[int, object] = dict(zip(layout.static, self.statics, strict=True))
        for i, array in zip(layout.dynamic, arrays, strict=True):
            shape, dtype, weak = aval_parts(array)
            known[i] = jax.ShapeDtypeStruct(shape, dtype, weak_type=weak)
        given = [known[i] for i in wider.layout.dynamic]
        key, choices = trace_key(given), wider.choices
        if key in choices.held_at:
            return
        error = attempt(wider, given)
        if error is None:
            choices.traced_at.add(key)
            raise Redirected
        held = {i: layout.held[i] for i in layout.held.keys() - wider.layout.held}
        named, why = numbers_in(error, wider.layout, wider)
        if named != held.keys() and (named or why not in held.values()):
            # The numbers have values in the repeated call, and not here.
            choices.note_difference()
            raise Redirected
        choices.held_at[key] = held

    def is_tracing(self) -> bool:
        me = threading.get_ident()
        with self._lock:
            return any(flight.thread == me for flight in self.flights.values())

    def land(self) -> bool:
        """Release the threads that waited for traces of this call, and return whether this thread
        had traced.
        """
        me = threading.get_ident()
        with self._lock:
            # A flight with depth is still in its body, which has called its own program: the outer
            # call lands it.
            mine = [
                key
                for key, flight in self.flights.items()
                if flight.thread == me and not flight.depth
            ]
            landed = [self.flights.pop(key) for key in mine]
        for flight in landed:
            flight.landed.set()
        return bool(landed)

    def _run_without_jit(self, arrays: Sequence[object]) -> object:
        if self.is_plain():
            return unmix(self.plainly(*arrays))
        self._demand_choice(trace_key(arrays))
        with self.numbers():
            return unmix(self.run_inner_stages(*arrays))

    def _remember_cuts(
        self,
        planned: Planned,
        outcome: Outcome,
        turn: int,
    ) -> None:
        """Record the padded axes of the results, and the proof if each new size has to be
        traced.
        """
        leaves = [leaf for leaf in planned.view.leaves if not is_count(leaf)]
        parts = [(leaf.shape, leaf.dtype, leaf.weak_type) for leaf in leaves]
        key = padded_key(parts, turn)
        self.cuts[key] = outcome.cuts
        if outcome.proof is not None and outcome.proof.program.each is not None:
            self.proofs[key] = outcome.proof

    def _remember(
        self,
        planned: Planned,
        counts: TrueSizes | None,
    ) -> None:
        # A symbolic size: an outer program evaluates this one abstractly, and no program comes of
        # it.
        if at_any_size():
            return
        core = self.core
        call, arrays = LISTENER.call(core.counters)
        record = replace(
            record_of(self, planned.view, arrays),
            plan=planned.plan,
            sizes=tuple((known_sizes().sizes or {}).items()),
            numbers=0 if counts is None else len(counts.numbers),
        )
        core.history.record_trace(record, call)
        core.log.add(trace_inputs_of(record, arrays))
        keep_limit(core)

    def compile_event(
        self,
        arrays: Sequence[Array],
        call: Call,
    ) -> Event | None:
        """Return the event that a compile without a trace of this call belongs to."""
        view = self.fill_in_sizes(self.layout.view(self.core.contract, arrays, self.statics))
        return self.core.history.compile_event(record_of(self, view, arrays), call)
