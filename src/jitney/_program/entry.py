"""Specialisations of a function: an `Specialization` compiles and runs all calls of one kind.

The key of an `Specialization` is a tree structure with one set of static values. The entry holds
one `jax.jit`-ed function of flat arrays. Shapes, dtypes, weak types, shardings, x64, matmul
precision, mesh and default device are left to that function's own key, which JAX looks up faster
than Python could. A call is planned, and its contract checked, while JAX traces, on abstract
values: once its key has been seen, it costs nothing extra.

For example, with `@jitney.optimize(pad={"n": "pow2"})` on `def mean(x: Float[Array, "n"]): return
x.mean()`, and 5 elements:

    mean(x)                               CompiledFunction.find: an entry, and [f32[5]]
    entry.run(f32[5])                     PaddedCalls: the bucket is n=8, the true size is 5
    entry.jitted(f32[8], TrueSizes(5))    `Specialization._trace`, the first time; in short,
        { lambda ; a:f32[8] b:i32[]. let
            c:f32[8] = select_n (iota < b) -0.0 a      a mask: the identity of a sum beyond b
            d:f32[] = reduce_sum c
            e:f32[] = div d b                          the mean divides by the true size
          in (e,) }

A later call with 6 elements runs the same program with `b = 6`.
"""

from __future__ import annotations

import copy
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, Literal, cast

import jax
from jax.sharding import NamedSharding

from .. import _serialized, _verify
from .._axes import Refused, at_any_size
from .._body.body import Placement, Planned
from .._body.call_key import padded_key, trace_key
from .._body.explicit import without_explicit
from .._body.function import FunctionInfo
from .._diagnosis.counters import LISTENER, Call, Event
from .._diagnosis.nonfinite import refuse_nonfinite
from .._host.own_time import OWN_TIME
from .._host.switches import SETTINGS
from .._jax.compile_cache.cache import ensure as ensure_cache
from .._jax.compile_cache.cache import pause_cache as cache_disabled
from .._jax.typed import AnyMesh, Array, Jitted
from .._signature.options import Options, falls_back, is_measured, tolerance_of
from .._stages import Jit, Mask, Place
from .._values.attribute_reads import Statics
from .._values.read_hooks import suspend_readers
from .._verify import is_verified
from .._view.layout import Layout, aval_parts, is_nested_trace, jit_is_off, static_text
from .._view.named_axes import is_count
from .._view.result import Mixed, Outcome, unmix
from .._view.true_sizes import (
    KnownSizes,
    NeedsNumbers,
    TrueSizes,
    knowing,
    known_sizes,
    split_counts,
)
from .auto.auto_calls import AutoCalls
from .auto.obstacles import obstacle
from .call_record import record_of, trace_inputs_of
from .compiled_calls import CompiledCalls, PendingTrace, SpecializedFunction
from .held_numbers import Redirected, attempt, numbers_in
from .leaked_tracers import refuse_left_in_result
from .limit import keep_limit
from .outer_transforms import is_cut, looking, warn_missing_checks, warn_uncut
from .runners.fallback_calls import FallbackCalls
from .runners.padded_calls import PaddedCalls
from .runners.padding_recipes import warn_refusal
from .runners.sharded_calls import OtherShapes, ShardedCalls, shapes_of
from .runners.width_calls import WidthCalls
from .runners.worker_calls import WorkerCalls
from .runners.wrappers import Run, lower_as_run, runner

if TYPE_CHECKING:
    from .rows.groups import RowGroups
    from .rows.lengths import RowShape

SCOPE = "jitney.optimize"
"""Name scope of all operations of a Program in profiles, which sets them apart from those of plain
`jax.jit`.
"""


# Limit on the entries of one key, one for each state of its mutable objects.
_MOST_OTHERS = 64
# Limit on the bytes of recorded state in these entries; their programs may take as much on top.
_MOST_BYTES = 1 << 24


class Retry(Exception):
    """Another thread has just traced the program that this thread was about to trace: the call is
    repeated, and finds it.
    """


class Undecided(Exception):
    """A call key is new, and a policy has to be chosen from the values of its arguments, which a
    trace does not have.
    """

    def __init__(self, key: Hashable):
        super().__init__(key)
        self.key = key


def _describe_mutation(
    names: Mapping[int, str],
    value: object,
    attribute: str,
    before: object,
    now: object,
) -> tuple[str, str, str]:
    """Return the path of a mutated static value, with its text before and now."""
    cls = value if isinstance(value, type) else type(value)
    path = names.get(id(value)) or cls.__name__
    if not attribute:
        return path, "as it was", "changed in place"

    path = f"{path}.{attribute}"
    old, new = static_text(before), static_text(now)
    if old == new:
        return path, "as it was", "changed in place"
    return path, old, new


def ran_eagerly(error: BaseException) -> bool:
    """Return whether an error comes from a call without Jit.

    The traceback decides, not the state of the entry, which another thread may have changed since.
    """
    return any(
        frame.f_code is Specialization.eagerly.__code__ for frame, _ in walk_tb(error.__traceback__)
    )


State = Literal["first", "running", "eager"]
"""Behaviour of the next call of an entry: decide how calls run, run, or run without Jit."""


class Specialization(CompiledCalls):
    """A specialisation: a function of flat arrays, compiled once for each set of shapes and types
    that it meets.
    """

    def __init__(
        self,
        core: FunctionInfo,
        layout: Layout,
        statics: Statics,
        key: Hashable,
        options: Options | None = None,
    ):
        super().__init__(core, layout, statics, key, options)
        self._lock = threading.Lock()

        is_kept = core.options.cache == "program" and not self.request.nested
        if is_kept:
            trace = self._trace
            self.kept = _serialized.SerializedPrograms(
                self,
                trace,
                self.cuts,
                self.proofs,
            )

        # How calls run. `run` is what a warm call reads: it starts as `_first`, which replaces it.
        self.jitted = self._jit()
        self.state: State = "first"
        self.run: Callable[..., Any] = self._first
        # Runs the calls, if the function pads.
        self.padded: PaddedCalls | None = None
        if core.options.shard is not None and not self.request.nested:
            self.sharded = ShardedCalls(self)
        if core.options.workers is not None and not self.request.nested:
            self.workers = WorkerCalls(self)
        self.widths: WidthCalls | None = None
        if is_measured(core.options.chunk) and not self.request.nested:
            self.widths = WidthCalls(self)
        self.fallback: FallbackCalls | None = None
        if falls_back(core.options) and not self.request.nested:
            self.fallback = FallbackCalls(self)
        self.auto: AutoCalls | None = None
        if self.options.auto and not self.request.nested and not obstacle(self.options, core.fn()):
            self.auto = AutoCalls(self)

        # Plans and compiled programs of `jitney.stream`.
        self.streams: dict[Hashable, Any] = {}
        # Groups of rows of unlike lengths, each of which has one call of this entry.
        self.row_groups: dict[Hashable, RowGroups] = {}
        # Shapes of a row in a padded array -> how its sizes follow from those of its axes.
        self.row_shapes: dict[Hashable, list[RowShape]] = {}
        # True once `run` was chosen for programs without run-time checks of Equinox: a later trace
        # may bring one, so `_trace` then has `_first` choose once more.
        self._settled = False
        self._within: Specialization | None = None
        self._derived: Specialization | None = None
        # The next older entry of the same key, for which the plain objects had other contents.
        self.other: Specialization | None = None
        # The entry of the same calls with fewer of their numbers held.
        self.wider: Specialization | None = None
        # The key of this entry in `CompiledFunction.entries`.
        self.place: tuple[Any, ...] = ()
        SETTINGS.add_listener(self)

    def holds(self) -> bool:
        """Return whether the plain objects and static fields that its traces read are unchanged."""
        reads = self.reads
        return reads is None or reads.are_unchanged()

    def follows(self, other: Specialization | None) -> None:
        """Put this entry before the older ones of the same key, for which the objects had other
        contents, and drop the oldest of those.
        """
        if other is None:
            return

        # The head of a linked list: `CompiledFunction.entry` walks it from the newest state to the
        # oldest.
        self.other, self.generation = other, other.generation + 1
        if other.reads is not None:
            names = self.names_of_statics()
            self.changed = tuple(_describe_mutation(names, *each) for each in other.reads.changes())

        # Unlink entries that no call can reach any more. Cut the list at the first entry past
        # either limit.
        last: Specialization = self
        room = _MOST_BYTES
        for _ in range(_MOST_OTHERS):
            while last.other is not None and last.other.is_over():
                last.other = last.other.other
            if last.other is None:
                return
            room -= 0 if last.other.reads is None else last.other.reads.size
            if room < 0:
                break
            last = last.other
        last.other = None

    def is_over(self) -> bool:
        """Return whether no call can reach this entry any more: an object that its traces read is
        gone for good.
        """
        return self.reads is not None and self.reads.is_over()

    def on_object_death(self) -> None:
        """Drop this entry, as one of the objects among its static values is gone."""
        self._owner().drop(self)

    def _owner(self) -> SpecializedFunction[Specialization]:
        return cast("SpecializedFunction[Specialization]", self.core)

    def _jit(
        self,
        mesh: AnyMesh | None = None,
        shardings: Sequence[NamedSharding | None] | None = None,
        shapes: Sequence[object] | None = None,
    ) -> Jitted:
        # A weak reference: the entry holds JAX's function, and a strong one would close a cycle.
        # Without a cycle the function goes when the entry is dropped, not at a later garbage
        # collection.
        entry_of = weakref.ref(self)

        def body(*arrays: object) -> Any:
            if shapes is not None and shapes_of(arrays) != shapes:
                raise OtherShapes

            entry = entry_of()
            if entry is None:
                raise ReferenceError("the program of this function has been dropped")

            # Reads of jitney's own are not reads of the body.
            with suspend_readers(), jax.named_scope(SCOPE):
                if entry.kept is None:
                    return entry._trace(arrays, mesh)
                laid = None if mesh is None else _serialized.MeshLayout(mesh, shardings or ())
                return entry.kept(arrays, laid)

        # The name that profilers and JAX's own messages show.
        body.__name__ = body.__qualname__ = self.core.name
        self.core.with_user_names(body, self.paths)
        jitted: Any = Jit.of(self.request).compile(body, shardings)
        return jitted

    def jit_on_mesh(
        self,
        mesh: AnyMesh,
        arrays: Sequence[object],
    ) -> tuple[Jitted, Sequence[NamedSharding | None]]:
        """Return JAX's function of arrays on a mesh, and the shardings of its arguments; no
        shardings if the function does not shard.
        """
        if self.sharded is None:
            return self._jit(), ()

        shapes = shapes_of(arrays)
        arrays, counts = split_counts(arrays)
        place = self.plan_call(arrays, counts, mesh=mesh).plan.of(Place)
        shardings: tuple[NamedSharding | None, ...]
        shardings = () if place is None else place.shardings[: len(arrays)]
        if counts is not None:
            # The true sizes, which every device gets.
            shardings += (None,)
        return self._jit(mesh, shardings, shapes), shardings

    def runner(self, arrays: Sequence[object]) -> Run:
        """Return the function that runs calls of these shapes."""
        if self.sharded is not None:
            return self.sharded.runner(arrays)
        return runner(self, arrays, self.jitted)

    def jit_for(self, arrays: Sequence[object]) -> Jitted:
        """Return JAX's function of these arrays."""
        return self.jitted if self.sharded is None else self.sharded.jit(arrays)[0]

    def _first(self, *arrays: object) -> object:
        """Decide how later calls run, and run this one.

        The first call comes here, and so does the next one after `reset_decision`.
        """
        if jit_is_off():
            return self._run_without_jit(arrays)
        options, settings = self.options, SETTINGS.now
        if self.core.options.settled() != options:
            # A setting changed between the look-up of this entry and now.
            self._owner().reset_decision()
            raise Retry
        if options.disabled is not None:
            self._become(
                "running", self.jitted if options.disabled == "jit" else self.run_without_jit
            )
            return self.run(*arrays)

        padded = self.padded = PaddedCalls(self) if options.pad and not options.debug_nans else None

        # Under an outer transform the options of outermost programs do not act
        # (`outer_transforms.py`), so `run` is replaced only if the function pads: `PaddedCalls`
        # asks about tracers at each call.
        if self.request.nested or is_nested_trace(arrays):
            warn_missing_checks(self)
            is_in_chunks = is_cut(self, arrays)
            if padded is None and is_in_chunks:
                return self.run_under_transform(arrays)
            if padded is None:
                return runner(self, arrays, self.jitted)(*arrays)
            self._become("running", padded)
            return self.run(*arrays)

        # The outermost program. Verification stands around whichever runner was chosen.
        run: Run
        if padded is not None:
            run = padded
        elif self.auto is not None and not (self.auto.is_idle or is_verified(options)):
            run = self.auto.runner()
        elif self.sharded is not None:
            run = self.sharded
        elif self.widths is not None:
            run = self.widths.runner()
        elif self.workers is not None:
            run = self.workers.runner()
        elif self.fallback is not None:
            run = self.fallback.runner()
        else:
            run = runner(self, arrays, self.jitted)
            self._settled = not self.checked
        if is_verified(options):
            pads = padded and padded.pads
            run = _verify.VerifiedRunner(
                self,
                run,
                pads,
                partial(warn_missing_checks, self),
            )
        self._become("running", run)

        # Another thread may have changed a setting meanwhile, and its reset came before.
        if SETTINGS.now != settings:
            self.reset_decision()
        return self.run(*arrays)

    def _become(
        self,
        state: State,
        run: Callable[..., object],
    ) -> None:
        self.state, self.run = state, run

    def reset_decision(self) -> None:
        """Make the next call decide how later calls run, unless they run eagerly."""
        self._settled = False
        if self.state != "eager":
            self._become("first", self._first)

    def turn_eager(self) -> None:
        """Run all calls without Jit from now on: the body cannot be traced."""
        self._become("eager", self.eagerly)

    def await_missed_checks(self, out: object) -> None:
        """Wait for the result of a call that traced where nobody has looked for run-time checks of
        Equinox: a GPU raises their error only then, and `note_missed_check` repeats the call.
        """
        if not (self.checked or self._settled or self.request.nested):
            jax.block_until_ready(out.arrays if isinstance(out, Mixed) else out)

    def note_missed_check(self, error: Exception) -> bool:
        """Return whether the first call of a new program failed in a run-time check of Equinox that
        nobody had looked for.

        If so, the call can be repeated, and Equinox runs it. It cannot be repeated if its buffers
        were donated.
        """
        if (
            self.checked
            or self._settled
            or self.layout.donated
            or "_EquinoxRuntimeError: " not in str(error)
        ):
            return False
        self.checked = True
        return True

    @property
    def nested_entry(self) -> Specialization:
        """Entry for the same calls inside a trace, even where none of their arrays is a tracer: its
        layout is nested, as that of calls with tracers is.
        """
        if self._within is None:
            layout = copy.copy(self.layout)
            layout.nested = True
            self._within = Specialization(
                self.core,
                layout,
                self.weak_statics,
                self.key,
                self.options,
            )
            self._within.share_traces(self)
        return self._within

    def share_traces(self, other: Specialization) -> None:
        """Wait for the traces of another entry, and take its choices."""
        self.flights, self.chosen, self._lock = other.flights, other.chosen, other._lock

    def run_under_transform(self, arrays: Sequence[object]) -> object:
        """Run a call that an outer transform traces, cut into chunks; run it whole, with a warning,
        if its derivative cannot be cut.
        """
        if self._derived is None:
            self._derived = Specialization(
                self.core,
                self.layout,
                self.weak_statics,
                self.key,
                self.options,
            )
            self._derived.request = replace(self._derived.request, derived=True)
        try:
            return runner(self._derived, arrays, self._derived.jitted)(*arrays)
        except Refused as refused:
            refusal = refused

        # Outside of `except`, so that an error of the plain call does not carry the refusal as its
        # context.
        warn_uncut(self, refusal)
        return runner(self, arrays, self.jitted)(*arrays)

    def mesh_key(self) -> tuple[Hashable, ...]:
        return () if self.sharded is None else self.sharded.mesh_key()

    def placement(self, jitted: object) -> Placement | None:
        """Return where a function of JAX has its arguments; None on the default device."""
        return None if self.sharded is None else self.sharded.placement(jitted)

    def scope(self) -> AbstractContextManager[object]:
        return nullcontext() if self.sharded is None else self.sharded.scope()

    def lower(
        self,
        arrays: Sequence[object],
        step: Literal["lower", "trace", "run"] = "lower",
    ) -> Any:
        """Return JAX's lowered (or traced) program for these arrays or abstract values; for the
        step "run", the program that calls run, with its checks as data.
        """
        ensure_cache()

        # Two reasons to lower once more: another thread has traced the program meanwhile (`Retry`),
        # or the trace has found that the program takes numbers computed from the sizes
        # (`NeedsNumbers`), which then join the arguments.
        counts = split_counts(arrays)[1]
        at_hand = KnownSizes(counts and counts.sizes)
        while True:
            plain, counts = split_counts(arrays)
            try:
                with (
                    suppress(Retry),
                    knowing(at_hand),
                    self.numbers(),
                    self.scope(),
                    jax.disable_jit(False),  # noqa: FBT003
                ):
                    given = arrays
                    if self.sharded is not None:
                        given = self.sharded.shard_donations(arrays, abstract=True)
                    jitted = self.jit_for(arrays)
                    if step == "run":
                        return lower_as_run(self, given, jitted)
                    return getattr(jitted, step)(*given)
            except Redirected:
                # These arrays are asked about in this entry, which serves them too.
                self.redirects = False
            except NeedsNumbers as needs:
                if counts is None or counts.sizes is None:
                    raise
                at_hand = self.known_again(at_hand, needs.proof)
                numbers = needs.proof.numbers_at(counts.sizes)
                counts = TrueSizes(
                    counts.values,
                    counts.names,
                    counts.weak,
                    numbers,
                    counts.sizes,
                )
                arrays = (*plain, counts.abstract())

    def ahead(self, arrays: Sequence[Array]) -> jax.stages.Compiled:
        """Compile for these arrays or abstract values; a later call of that key finds the program
        in JAX's cache.
        """
        with nullcontext() if self.core.options.cache else cache_disabled():
            pads = self.options.pad and not self.options.debug_nans
            calls = PaddedCalls(self) if pads else None
            while True:
                try:
                    part = None if self.workers is None else self.workers.ahead(arrays)
                    if part is not None:
                        return part
                    given = arrays if calls is None else calls.ahead(arrays)
                    return self.lower(given, "run").compile()
                except Refused as refused:
                    refusal = refused
                # In a shorter bucket it may be one program.
                if calls is None or not calls.narrow_ahead(arrays, refusal):
                    break
            warn_refusal(self.core, refusal)
            return self.lower(arrays, "run").compile()

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

        if self.auto is not None and self.auto.is_idle:
            self.auto.is_idle = False
            self.reset_decision()
        if self._settled:
            self.reset_decision()

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
                self._remember_cuts(planned, outcome)
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
            choices.differ = True
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

    def eagerly(self, *arrays: object) -> Any:
        """Run the same function without Jit; every other stage stays."""
        self.core.counters.eager += 1
        out = self._run_without_jit(arrays)
        if not self.options.debug_nans:
            return out

        if is_nested_trace(arrays) or is_nested_trace(jax.tree.leaves(out)):
            warn_missing_checks(self)
        else:
            unknown = "Which operation made it is known of traced bodies only."
            refuse_nonfinite(
                self.core.where,
                out,
                unknown,
                "look for it with `jax.debug_nans(True)`, which stops un-jitted code at the line",
            )
        return out

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
    ) -> None:
        """Record the padded axes of the results, and the proof if each new size has to be
        traced.
        """
        leaves = [leaf for leaf in planned.view.leaves if not is_count(leaf)]
        key = padded_key([(leaf.shape, leaf.dtype, leaf.weak_type) for leaf in leaves])
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
