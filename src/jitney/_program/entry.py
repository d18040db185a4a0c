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
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import partial
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, Literal, cast

import jax

from .. import _verify
from .._axes import Refused
from .._body.function import FunctionInfo
from .._body.placed_calls import is_inner
from .._diagnosis.nonfinite.message import refuse_nonfinite
from .._host.switches import SETTINGS
from .._signature.options import Options, falls_back, is_measured
from .._values.attribute_reads import Statics
from .._verify import is_verified
from .._view.layout import Layout, is_nested_trace, jit_is_off
from .._view.result import Mixed
from .auto.auto_calls import AutoCalls
from .auto.cut_axes import obstacle
from .compiled_calls import CompiledCalls, SpecializedFunction
from .lowering import LoweredCalls
from .outer_transforms import is_cut, warn_missing_checks, warn_uncut
from .runners.fallback_calls import FallbackCalls
from .runners.padded_calls import PaddedCalls
from .runners.width_calls import WidthCalls
from .runners.wrappers import Run, nested_runner, outermost_runner
from .tracing.call_record import describe_mutation

if TYPE_CHECKING:
    from .._jax.typed import Array
    from .rows.groups import RowGroups
    from .rows.lengths import RowShape

# Limit on the entries of one key, one for each state of its mutable objects.
_MOST_OTHERS = 64
# Limit on the bytes of recorded state in these entries; their programs may take as much on top.
_MOST_BYTES = 1 << 24


def ran_eagerly(error: BaseException) -> bool:
    """Return whether an error comes from a call without Jit.

    The traceback decides, not the state of the entry, which another thread may have changed since.
    """
    return any(
        frame.f_code is Specialization.eagerly.__code__ for frame, _ in walk_tb(error.__traceback__)
    )


State = Literal["first", "running", "eager"]
"""Behaviour of the next call of an entry: decide how calls run, run, or run without Jit."""


class Specialization(LoweredCalls):
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
        wider: CompiledCalls | None = None,
        place: tuple[Any, ...] = (),
    ):
        super().__init__(core, layout, statics, key, options, wider)
        self.create_functions()

        # How calls run. `run` is what a warm call reads: it starts as `_first`, which replaces it.
        self.state: State = "first"
        self.run: Callable[..., Any] = self._first
        # Runs the calls, if the function pads.
        self.padded: PaddedCalls | None = None
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
        # The key of this entry in `CompiledFunction.entries`.
        self.place = place
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
            self.changed = tuple(describe_mutation(names, *each) for each in other.reads.changes())

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

    def _first(self, *arrays: object) -> object:
        """Decide how later calls run, and run this one.

        The first call comes here, and so does the next one after `reset_decision`.
        """
        if jit_is_off():
            return self._run_without_jit(arrays)
        settings = SETTINGS.now
        run, is_final = self._decide(arrays)
        if self.core.options.settled() != self.options:
            # A setting changed between the look-up of this entry and now. The call began before,
            # and runs as it was looked up; whatever leads here is forgotten, so that the next call
            # is looked up anew.
            self._owner().reset_decision()
            return run(*arrays)
        if is_final:
            self._become("running", run)

        # Another thread may have changed a setting meanwhile, and its reset came before.
        if SETTINGS.now != settings:
            self.reset_decision()
        return run(*arrays)

    def _decide(self, arrays: Sequence[object]) -> tuple[Run, bool]:
        """Return the function that runs a call, and whether it runs all later ones."""
        options = self.options
        if options.disabled is not None:
            return self.jitted if options.disabled == "jit" else self.run_without_jit, True

        padded = self.padded = PaddedCalls(self) if options.pad and not options.debug_nans else None

        # Under an outer transform the options of outermost programs do not act
        # (`outer_transforms.py`), so the runner stays only if the function pads: `PaddedCalls` asks
        # about tracers at each call.
        if is_inner(self, arrays):
            warn_missing_checks(self)
            is_in_chunks = is_cut(self, cast("Sequence[Array]", arrays))
            if padded is not None:
                return padded, True
            if is_in_chunks:
                return self.run_under_transform, False
            return nested_runner(self, self.jitted), False

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
            run = outermost_runner(self, arrays, self.jitted)
            self._settled = not self.checked
        if is_verified(options):
            pads = padded and padded.pads
            run = _verify.VerifiedRunner(
                self,
                run,
                pads,
                partial(warn_missing_checks, self),
            )
        return run, True

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

    def expect_trace(self) -> None:
        if self.auto is not None and self.auto.is_idle:
            self.auto.is_idle = False
            self.reset_decision()
        if self._settled:
            self.reset_decision()

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
        self.note_checks()
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

    def run_under_transform(self, *arrays: object) -> object:
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
            return nested_runner(self._derived, self._derived.jitted)(*arrays)
        except Refused as refused:
            refusal = refused

        # Outside of `except`, so that an error of the plain call does not carry the refusal as its
        # context.
        warn_uncut(self, refusal)
        return nested_runner(self, self.jitted)(*arrays)

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
