"""From a call key to a compiled program: what happens when a call is seen for the first time.

An `Entry` is one tree structure with one set of static values. It holds one `jax.jit`-ed function
of flat arrays, and leaves shapes, dtypes, weak types, shardings, x64, matmul precision, mesh and
default device to that function's own key, which JAX looks up faster than Python could. The plan is
made, and the contract checked, while JAX traces, on abstract values: a call whose key has been seen
costs nothing extra.
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
from typing import Any, Literal

import jax

from .. import _kept, _verify
from .._axes import Refused, at_any_size
from .._body.body import Body, Planned
from .._body.call_key import padded_key, trace_key
from .._body.explicit import without_explicit
from .._body.function import Function
from .._diagnosis.counters import LISTENER, Call, Event
from .._diagnosis.nonfinite import refuse_nonfinite
from .._jax.compile_cache.cache import disabled as cache_disabled
from .._jax.compile_cache.cache import ensure as ensure_cache
from .._jax.trees import is_a, type_of
from .._own_time import OWN_TIME
from .._signature.options import tolerance_of
from .._signature.reads import Statics
from .._signature.watching import unwatched
from .._stages import Jit, Place
from .._switches import VERIFY
from .._verify import is_verified
from .._view.cuts import Cut
from .._view.layout import Layout, jit_is_off, static_text, traced
from .._view.named_axes import is_count
from .._view.result import Outcome, unmixed
from .._view.true_sizes import Counts, KnownSizes, NeedsNumbers, Proof, knowing, known, parted
from .call_record import made_for, record_of
from .left_behind import refuse_left_in_result
from .limit import keep_limit
from .outer_transforms import is_cut, looking, warn_uncut, warn_unlooked
from .padded_calls import PaddedCalls, warn_refused
from .sharded_calls import OtherShapes, ShardedCalls, shapes_of
from .wrappers import lowered, runner

SCOPE = "jitney.optimize"
"""What all operations of a Program are under in profiles, which tells them from those of plain
`jax.jit`.
"""


_MOST_OTHERS = 64  # programs kept of one object, by what it held
_MOST_BYTES = 1 << 24  # of what it held then; its programs may take as much again


class Retry(Exception):
    """Another thread has just traced what this one was about to: call again, and find it done."""


class Undecided(Exception):
    """A call key is new, and what it needs is to be chosen by the values of its arguments, which a
    trace does not have.
    """

    def __init__(self, key: Hashable):
        super().__init__(key)
        self.key = key


class Flight:
    """A trace under way in one thread; others that need the same one wait until it has landed."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.landed = threading.Event()
        # above 0 while the body runs: a body that calls its own program must not land the outer
        # trace
        self.depth = 0


def _told(
    names: Mapping[int, str], value: Any, attribute: str, before: Any, now: Any
) -> tuple[str, str, str]:
    """The path of something that has changed in a static value, what it was and is."""
    path = names.get(id(value)) or (value if is_a(value, type) else type_of(value)).__name__
    if not attribute or static_text(before) == static_text(now):
        return f"{path}.{attribute}" if attribute else path, "as it was", "changed in place"
    return f"{path}.{attribute}", static_text(before), static_text(now)


def ran_eagerly(error: BaseException) -> bool:
    """Whether an error comes from a call without Jit. The state of its entry does not tell: another
    thread may have changed it since.
    """
    return any(frame.f_code is Entry.eagerly.__code__ for frame, _ in walk_tb(error.__traceback__))


State = Literal["first", "running", "eager"]
"""What the next call of an entry does: decide how calls run, run, or run without Jit."""


class Entry(Body):
    """One function of flat arrays, compiled once for each set of shapes and types that it meets."""

    def __init__(self, core: Function, layout: Layout, statics: Statics, key: Hashable):
        super().__init__(core, layout, statics, key)
        self.flights: dict[Hashable, Flight] = {}
        # of each padded program, which axes of its results are padded
        self.cuts: dict[Hashable, list[Cut]] = {}
        # of each padded program, where each new size is traced
        self.proofs: dict[Hashable, Proof] = {}
        self._lock = threading.Lock()
        is_kept = core.options.cache == "program" and not self.request.nested
        self.kept = _kept.Kept(self, self._trace, self.cuts, self.proofs) if is_kept else None
        self.jitted: Any = self._jit()
        self.state: State = "first"
        self.run: Callable[..., Any] = self._first
        self.padded: PaddedCalls | None = None  # what runs its calls, if its function pads
        self.sharded = (
            ShardedCalls(self)
            if core.options.shard is not None and not self.request.nested
            else None
        )
        self.streams: dict[Hashable, Any] = {}  # what `jitney.stream` has planned and compiled
        # whether `run` was chosen for programs without such checks: a new trace may bring one
        self._settled = False
        self._within: Entry | None = None
        self._derived: Entry | None = None
        # of the same key, from when its plain objects held something else
        self.other: Entry | None = None
        self.place: Any = None  # where its core keeps it
        VERIFY.turns(self)

    def holds(self) -> bool:
        """Whether what its traces read of plain objects, and of static fields, is what it was."""
        reads = self.reads
        return reads is None or reads.hold()

    def follows(self, other: Entry | None) -> None:
        """Stand before the entries of the same key, whose objects held something else; the oldest
        go.
        """
        if other is None:
            return
        self.other, self.generation = other, other.generation + 1
        if other.reads is not None:
            names = {
                id(value): name
                for name, value in zip(self.layout.static_names(), self.statics, strict=True)
            }
            self.changed = tuple(_told(names, *each) for each in other.reads.changed())
        last: Entry = self
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
        """Whether no call can have it any more: what its traces read is gone for good."""
        return self.reads is not None and self.reads.is_over()

    def object_is_gone(self) -> None:
        """Called when one of the objects among its static values is gone."""
        core: Any = self.core
        core.drop(self)

    def _jit(
        self,
        mesh: Any = None,
        shardings: Sequence[Any] | None = None,
        shapes: Sequence[Any] | None = None,
    ) -> Any:
        # which holds JAX's function: it goes when it is dropped, not when garbage is collected
        entry_of = weakref.ref(self)

        def body(*arrays: Any) -> Any:
            if shapes is not None and shapes_of(arrays) != shapes:
                raise OtherShapes
            entry = entry_of()
            if entry is None:
                raise ReferenceError("the program of this function has been dropped")
            with unwatched(), jax.named_scope(SCOPE):
                if entry.kept is None:
                    return entry._trace(arrays, mesh)
                return entry.kept(
                    arrays, None if mesh is None else _kept.Laid(mesh, shardings or ())
                )

        # what profilers and JAX's own messages show
        body.__name__ = body.__qualname__ = self.core.name
        self.core.called_as_written(body, self.paths)
        return Jit.of(self.request).compiled(body, shardings)

    def made(self, mesh: Any, arrays: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
        """JAX's function of arrays placed on a mesh, and where they lie; nowhere in particular if
        the function does not shard.
        """
        if self.sharded is None:
            return self._jit(), ()
        shapes = shapes_of(arrays)
        arrays, counts = parted(arrays)
        place = self.planned(arrays, counts, mesh=mesh).plan.of(Place)
        shardings = () if place is None else place.shardings[: len(arrays)]
        if counts is not None:
            shardings += (None,)  # the true sizes, which every device gets
        return self._jit(mesh, shardings, shapes), shardings

    def runner(self, arrays: Sequence[Any]) -> Callable[..., Any]:
        """How calls of these shapes run."""
        return (
            runner(self, arrays, self.jitted)
            if self.sharded is None
            else self.sharded.runner(arrays)
        )

    def jit_for(self, arrays: Sequence[Any]) -> Any:
        """JAX's function of these arrays."""
        return self.jitted if self.sharded is None else self.sharded.jit(arrays)[0]

    def _first(self, *arrays: Any) -> Any:
        """The first call decides how the later ones run; the one after another trace decides
        anew.
        """
        if jit_is_off():
            return self._un_jitted(arrays)
        options = self.core.options
        if options.disabled is not None:
            self._become("running", self.jitted if options.disabled == "jit" else self.as_written)
            return self.run(*arrays)
        padded = self.padded = PaddedCalls(self) if options.pad and not options.debug_nans else None
        if self.request.nested or traced(arrays):
            warn_unlooked(self)
            is_in_chunks = is_cut(self, arrays)
            if padded is None:
                return (
                    self.derived(arrays)
                    if is_in_chunks
                    else runner(self, arrays, self.jitted)(*arrays)
                )
            self._become("running", padded)
            return self.run(*arrays)
        run: Callable[..., Any]
        if padded is not None:
            run = padded
        elif self.sharded is not None:
            run = self.sharded
        else:
            run = runner(self, arrays, self.jitted)
            self._settled = not self.checked
        if is_verified(options):
            run = _verify.Verifying(self, run, padded and padded.pads, partial(warn_unlooked, self))
        self._become("running", run)
        return self.run(*arrays)

    def _become(self, state: State, run: Callable[..., Any]) -> None:
        self.state, self.run = state, run

    def decide_again(self) -> None:
        """Have the next call decide how the later ones run, unless they run eagerly."""
        self._settled = False
        if self.state != "eager":
            self._become("first", self._first)

    def turn_eager(self) -> None:
        """Have all calls run without Jit from now on: the body cannot be traced."""
        self._become("eager", self.eagerly)

    def overlooked(self, error: Exception) -> bool:
        """Whether a run-time check of Equinox failed in the first call of a new program, before
        anyone looked whether it holds one.

        The call can be made again then, and Equinox runs it. Not if its buffers were given up.
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
    def within(self) -> Entry:
        """The same calls where a trace is around, though their arrays are of none: nested, as those
        of arrays that are.
        """
        if self._within is None:
            layout = copy.copy(self.layout)
            layout.nested = True
            found = Entry(self.core, layout, self.weak_statics, self.key)
            found.flights, found.chosen, found._lock = self.flights, self.chosen, self._lock
            self._within = found
        return self._within

    def derived(self, arrays: Sequence[Any]) -> Any:
        """A call that an outer transform traces, cut into chunks; all at once, with a warning, if
        its derivative cannot be.
        """
        if self._derived is None:
            self._derived = Entry(self.core, self.layout, self.weak_statics, self.key)
            self._derived.request = replace(self._derived.request, derived=True)
        try:
            return runner(self._derived, arrays, self._derived.jitted)(*arrays)
        except Refused as refused:
            refusal = refused
        warn_uncut(self, refusal)
        return runner(self, arrays, self.jitted)(*arrays)

    def where(self) -> tuple[Any, ...]:
        return () if self.sharded is None else self.sharded.where()

    def scope(self) -> AbstractContextManager[Any]:
        """The context of the mesh in which the program is traced."""
        return nullcontext() if self.sharded is None else self.sharded.scope()

    def lowered(
        self, arrays: Sequence[Any], step: Literal["lower", "trace", "run"] = "lower"
    ) -> Any:
        """JAX's lowered (or traced) program for these arrays or abstract values; of "run", as calls
        run it, with their checks as data.
        """
        ensure_cache()
        while True:
            plain, counts = parted(arrays)
            at_hand = KnownSizes(counts and counts.sizes)
            try:
                with (
                    suppress(Retry),
                    knowing(at_hand),
                    self.numbers(),
                    self.scope(),
                    jax.disable_jit(False),  # noqa: FBT003
                ):
                    given = (
                        arrays
                        if self.sharded is None
                        else self.sharded.arrived(arrays, abstract=True)
                    )
                    jitted = self.jit_for(arrays)
                    return (
                        lowered(self, given, jitted)
                        if step == "run"
                        else getattr(jitted, step)(*given)
                    )
            except NeedsNumbers as needs:
                if counts is None or counts.sizes is None:
                    raise
                numbers = needs.proof.numbers_at(counts.sizes)
                arrays = (
                    *plain,
                    Counts(
                        counts.values, counts.names, counts.weak, numbers, counts.sizes
                    ).abstract(),
                )

    def ahead(self, arrays: Sequence[Any]) -> Any:
        """Compile for these arrays or abstract values; a later call of that key finds the program,
        which is JAX's.
        """
        with nullcontext() if self.core.options.cache else cache_disabled():
            try:
                return self.lowered(
                    PaddedCalls(self).ahead(arrays) if self.core.options.pad else arrays, "run"
                ).compile()
            except Refused as refused:
                refusal = refused
            warn_refused(self.core, refusal)
            return self.lowered(arrays, "run").compile()

    def _trace(self, given: Sequence[Any], mesh: Any = None) -> Any:
        """What JAX traces. One thread at a time for one key: whoever comes second waits, and calls
        again.
        """
        arrays, counts = parted(given)
        if counts is None and self.is_plain():
            return self.plainly(*arrays)
        if jit_is_off():
            return self._un_jitted(arrays)
        if self._settled:
            self.decide_again()
        key = trace_key(arrays, counts)
        self._demand_choice(key)
        with self._lock:
            flight = self.flights.setdefault(key, Flight())
        if flight.thread != threading.get_ident():
            flight.landed.wait()
            raise Retry
        flight.depth += 1
        self.core.counters.traces += 1
        began, spent = time.perf_counter(), OWN_TIME.seconds
        try:
            with without_explicit(self, given) as explicit, looking(self):
                arrays, counts = parted(explicit.arrays)
                planned = self.planned(arrays, counts, mesh=mesh)
                self._remember(planned, counts)
                outcome = Outcome()
                out = self.applied(planned, arrays, outcome, counts)
            if outcome.uncut is not None:
                warn_uncut(self, outcome.uncut)
            if planned.plan.of(Jit) is not None:
                refuse_left_in_result(self.core.where, outcome)
            if counts is not None:
                self._remember_cuts(planned, outcome)
            self._book(time.perf_counter() - began - min(outcome.body_seconds, default=0.0), spent)
            return explicit.left(out, self, planned, outcome)
        except (Refused, NeedsNumbers):  # all of it was a proof: the function is traced once more
            self._book(time.perf_counter() - began, spent)
            raise
        finally:
            flight.depth -= 1

    def _book(self, seconds: float, spent: float) -> None:
        """Count what jitney did in a trace; of a trace around it, that is no part of the body
        either.
        """
        self.core.counters.own_seconds += seconds
        OWN_TIME.add(spent + seconds - OWN_TIME.seconds)

    def _demand_choice(self, key: Hashable) -> None:
        if key not in self.chosen and tolerance_of(self.core.options.precision) is not None:
            raise Undecided(key)

    def land(self) -> bool:
        """The call that traced is over: let those through that waited for it. Whether this thread
        had traced.
        """
        me = threading.get_ident()
        with self._lock:
            mine = [
                key
                for key, flight in self.flights.items()
                if flight.thread == me and not flight.depth
            ]
            landed = [self.flights.pop(key) for key in mine]
        for flight in landed:
            flight.landed.set()
        return bool(landed)

    def eagerly(self, *arrays: Any) -> Any:
        """The same function without Jit: every other stage stays."""
        self.core.counters.eager += 1
        out = self._un_jitted(arrays)
        if self.core.options.debug_nans and (traced(arrays) or traced(jax.tree.leaves(out))):
            warn_unlooked(self)
        elif self.core.options.debug_nans:
            unknown = "Which operation made it is known of traced bodies only."
            refuse_nonfinite(
                self.core.where,
                out,
                unknown,
                "look for it with `jax.debug_nans(True)`, which stops un-jitted code at the line",
            )
        return out

    def _un_jitted(self, arrays: Sequence[Any]) -> Any:
        if self.is_plain():
            return unmixed(self.plainly(*arrays))
        self._demand_choice(trace_key(arrays))
        with self.numbers():
            return unmixed(self.called(*arrays))

    def _remember_cuts(self, planned: Planned, outcome: Outcome) -> None:
        """Which axes of the results are padded, and how each new size is traced if it is."""
        key = padded_key(
            [
                (leaf.shape, leaf.dtype, leaf.weak_type)
                for leaf in planned.view.leaves
                if not is_count(leaf)
            ]
        )
        self.cuts[key] = outcome.cuts
        if outcome.proof is not None and outcome.proof.program.each is not None:
            self.proofs[key] = replace(outcome.proof, check=outcome.refuse_differences)

    def _remember(self, planned: Planned, counts: Counts | None) -> None:
        if at_any_size():  # it is no program: an outer one asks what it would be
            return
        core = self.core
        call, arrays = LISTENER.call(core.counters)
        record = replace(
            record_of(self, planned.view, arrays),
            plan=planned.plan,
            sizes=tuple((known().sizes or {}).items()),
            numbers=0 if counts is None else len(counts.numbers),
        )
        core.history.traced(record, call)
        core.log.add(made_for(record, arrays))
        keep_limit(core)

    def compiled(self, arrays: Sequence[Any], call: Call) -> Event | None:
        """What a compile that came without a trace of this call belongs to."""
        view = self.written_out(self.layout.view(self.core.contract, arrays, self.statics))
        return self.core.history.compiled(record_of(self, view, arrays), call)
