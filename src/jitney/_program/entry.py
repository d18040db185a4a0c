"""From a call key to a compiled program: what happens when a call is seen for the first time.

An `Entry` is one tree structure with one set of static values. It holds one `jax.jit`-ed function of flat arrays, and leaves shapes,
dtypes, weak types, shardings, x64, matmul precision, mesh and default device to that function's own key, which JAX looks up faster
than Python could. The plan is made, and the contract checked, while JAX traces, on abstract values: a call whose key has been
seen costs nothing extra.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
from jax.tree_util import tree_map

from .._axes import Refused, at_any_size
from .._body.plain import plain_function, plain_run, without
from .._contract.contract import check_arguments, check_result
from .._contract.sizes import Sizes
from .._diagnosis.nonfinite import nonfinite
from .._diagnosis.retraces import Traced, cause
from .._errors import NonFiniteError, sentence
from .._jax.cache import disabled as cache_disabled
from .._jax.cache import ensure as ensure_cache
from .._jax.mesh import current as current_mesh
from .._precision import Policy
from .._signature.hints import ArrayHint
from .._signature.options import tolerance_of
from .._signature.static_values import snapshot
from .._stages import Jit, Mask
from .._stages.plan import Plan
from .._stages.stage import Request, Skip
from .._switches import VERIFY
from .._verify.verification import Verifying, is_verified
from .._view.layout import Layout, described, jit_is_off, traced
from .._view.module_axes import InModule, axes_in_modules, with_modules
from .._view.named_axes import beside, is_count, named_axes, sizes_of, with_counts
from .._view.result import Outcome, is_computed, unmixed
from .._view.true_sizes import Counts, Known, NeedsNumbers, Proof, knowing, known, parted
from .._view.view import View, is_array, leaf_hints
from .padded_calls import Cut, Filling, cuts_of, padded_key, warn_refused
from .sharded_calls import OtherShapes, Placing, shapes_of
from .wrappers import choosing, runner

if TYPE_CHECKING:
    from .core import Core


class Retry(Exception):
    """Another thread has just traced what this one was about to: call again, and find it done."""


class Undecided(Exception):
    """A call key is new, and what it needs is to be chosen by the values of its arguments, which a trace does not have."""

    def __init__(self, key: Hashable):
        super().__init__(key)
        self.key = key


class Flight:
    """A trace under way in one thread; others that need the same one wait until it has landed."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.landed = threading.Event()
        self.depth = 0  # above 0 while the body runs: a body that calls its own program must not land the outer trace


@dataclass(frozen=True)
class Planned:
    """A plan, with what the contract check found on the way."""

    view: View
    plan: Plan
    named: dict[str, Any] = field(default_factory=dict[str, Any], compare=False)
    sizes: Sizes | None = field(default=None, compare=False)
    notes: tuple[str, ...] = ()


class Entry:
    """One function of flat arrays, compiled once for each set of shapes and types that it meets."""

    def __init__(self, core: Core, layout: Layout, statics: tuple[Any, ...], key: Hashable):
        self.core = core
        self.layout = layout
        self.statics = statics
        self.flights: dict[Hashable, Flight] = {}
        self.cuts: dict[Hashable, list[Cut]] = {}  # of each padded program, which axes of its results are padded
        self.proofs: dict[Hashable, Proof] = {}  # of each padded program, where each new size is traced
        self._key = key
        self._lock = threading.Lock()
        donated = () if core.options.debug_nans else layout.donated
        self.request = Request(core.where, core.options, donated, nested=layout.nested and core.differs_nested)
        self.jitted: Any = self._jit()
        self.run: Callable[..., Any] = self._first
        self.placing = Placing(self) if core.options.shard is not None and not self.request.nested else None
        self.streams: dict[Hashable, Any] = {}  # what `jitney.stream` has planned and compiled
        self.chosen: dict[Hashable, tuple[Policy, str]] = {}  # by `precision="auto:..."`, for each call key
        self.verified: dict[Hashable, str] = {}  # call keys that have been run plainly too, and what came of it
        self.checked = False  # whether one of its programs holds run-time checks of Equinox
        self._settled = False  # whether `run` was chosen for programs without such checks: a new trace may bring one
        VERIFY.turns(self)

    def of(self, core: Core) -> Entry:
        """The entry of another function for the same calls."""
        return Entry(core, self.layout, self.statics, self._key)

    @property
    def paths(self) -> list[str]:
        return [self.layout.names[i][1] for i in self.layout.dynamic]

    def _jit(self, mesh: Any = None, shardings: Sequence[Any] | None = None, shapes: Sequence[Any] | None = None) -> Any:
        def body(*arrays: Any) -> Any:
            if shapes is not None and shapes_of(arrays) != shapes:
                raise OtherShapes
            return self._trace(arrays, mesh)

        body.__name__ = body.__qualname__ = self.core.name  # what profilers and JAX's own messages show
        jit: Any = Jit.plan(View(()), self.request)
        return jit.wrap(body, shardings)

    def made(self, mesh: Any, arrays: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
        """JAX's function of arrays placed on a mesh, and where they lie; nowhere in particular if the function does not shard."""
        if self.placing is None:
            return self._jit(), ()
        shapes = shapes_of(arrays)
        arrays, counts = parted(arrays)
        shardings = self.planned(arrays, counts, mesh=mesh).plan.stage("place").shardings[: len(arrays)]
        if counts is not None:
            shardings += (None,)  # the true sizes, which every device gets
        return self._jit(mesh, shardings, shapes), shardings

    def runner(self, arrays: Sequence[Any]) -> Callable[..., Any]:
        """How calls of these shapes run."""
        return runner(self, arrays) if self.placing is None else self.placing.runner(arrays)

    def jit_for(self, arrays: Sequence[Any]) -> Any:
        """JAX's function of these arrays."""
        return self.jitted if self.placing is None else self.placing.jit(arrays)[0]

    def _first(self, *arrays: Any) -> Any:
        """The first call decides how the later ones run; the one after another trace decides anew."""
        if jit_is_off():
            return self._un_jitted(arrays)
        options = self.core.options
        if options.disabled is not None:
            self.run = self.jitted if options.disabled == "jit" else self._as_written
            return self.run(*arrays)
        if tolerance_of(options.precision) is not None:
            self.choose(_key_of(arrays, None), arrays)
        if traced(arrays):
            return runner(self, arrays)(*arrays)
        if options.pad and not options.debug_nans:
            self.run = Filling(self)
        elif self.placing is not None:
            self.run = self.placing
        else:
            self.run = runner(self, arrays)
            self._settled = not self.checked
        filling = self.run if isinstance(self.run, Filling) else None
        if tolerance_of(options.precision) is not None:
            self.run = choosing(self, self.run)
        if is_verified(options):
            self.run = Verifying(self, self.run, filling)
        return self.run(*arrays)

    def choose(self, key: Hashable, arrays: Sequence[Any]) -> None:
        """Choose what is to be chosen by the values of a call; see `precision="auto:..."`.

        Raises:
            OptionError: They have none.
            PrecisionError: Nothing holds the tolerance.
        """
        from .._analysis.precision_report import decide  # it stands on programs

        tolerance = tolerance_of(self.core.options.precision)
        if tolerance is not None and key not in self.chosen:
            self.chosen[key] = decide(self, arrays, tolerance)

    def decide_again(self) -> None:
        """Have the next call decide how the later ones run."""
        self._settled = False
        if self.run != self.eagerly:
            self.run = self._first

    def overlooked(self, error: Exception) -> bool:
        """Whether a run-time check of Equinox failed in the first call of a new program, before anyone looked whether it holds one.

        The call can be made again then, and Equinox runs it. Not if its buffers were given up.
        """
        if self.checked or self._settled or self.layout.donated or "_EquinoxRuntimeError: " not in str(error):
            return False
        self.checked = True
        return True

    def numbers(self) -> AbstractContextManager[Any]:
        """The scope in which the numbers of this program live."""
        x64: Any = jax.enable_x64
        return x64(True) if self.core.options.precision == "f64" else nullcontext()  # noqa: FBT003

    def scope(self) -> AbstractContextManager[Any]:
        """The context of the mesh in which the program is traced."""
        return nullcontext() if self.placing is None else self.placing.scope()

    def lowered(self, arrays: Sequence[Any]) -> Any:
        """JAX's lowered program for these arrays or abstract values."""
        ensure_cache()
        while True:
            plain, counts = parted(arrays)
            at_hand = Known(counts and counts.sizes)
            try:
                with suppress(Retry), knowing(at_hand), self.numbers(), self.scope(), jax.disable_jit(False):  # noqa: FBT003
                    return self.jit_for(arrays).lower(*(arrays if self.placing is None else self.placing.arrived(arrays, abstract=True)))
            except Undecided as undecided:
                self.choose(undecided.key, plain)
            except NeedsNumbers as needs:
                if counts is None or counts.sizes is None:
                    raise
                numbers = needs.proof.numbers_at(counts.sizes)
                arrays = (*plain, Counts(counts.values, counts.names, counts.weak, numbers, counts.sizes).abstract())

    def ahead(self, arrays: Sequence[Any]) -> None:
        """Compile for these arrays or abstract values; a later call of that key finds the program."""
        with nullcontext() if self.core.options.cache else cache_disabled():
            try:
                self.lowered(Filling(self).ahead(arrays) if self.core.options.pad else arrays).compile()
            except Refused as refusal:
                warn_refused(self.core, refusal)
                self.lowered(arrays).compile()

    def _trace(self, arrays: Sequence[Any], mesh: Any = None) -> Any:
        """What JAX traces. One thread at a time for one key: whoever comes second waits, and calls again."""
        arrays, counts = parted(arrays)
        if counts is None and self._is_plain():
            return self.plainly(*arrays)
        if jit_is_off():
            return self._un_jitted(arrays)
        if self._settled:
            self.decide_again()
        key = _key_of(arrays, counts)
        if tolerance_of(self.core.options.precision) is not None and key not in self.chosen:
            raise Undecided(key)
        with self._lock:
            flight = self.flights.setdefault(key, Flight())
        if flight.thread != threading.get_ident():
            flight.landed.wait()
            raise Retry
        flight.depth += 1
        self.core.counters.traces += 1
        try:
            planned = self.planned(arrays, counts, mesh=mesh)
            self._remember(planned)
            return self._applied(planned, arrays, counts)
        finally:
            flight.depth -= 1

    def land(self) -> bool:
        """The call that traced is over: let those through that waited for it. Whether this thread had traced."""
        me = threading.get_ident()
        with self._lock:
            mine = [key for key, flight in self.flights.items() if flight.thread == me and not flight.depth]
            landed = [self.flights.pop(key) for key in mine]
        for flight in landed:
            flight.landed.set()
        return bool(landed)

    def eagerly(self, *arrays: Any) -> Any:
        """The same function without Jit: every other stage stays."""
        self.core.counters.eager += 1
        out = self._un_jitted(arrays)
        if self.core.options.debug_nans and not traced(arrays) and nonfinite(jax.tree.leaves(out)):
            raise NonFiniteError(
                sentence(self.core.where, "a result has a NaN or an infinity.",
                         "With debug_nans=True every result must be finite. Which operation made it is known of traced bodies only.",
                         "look for it with `jax.debug_nans(True)`, which stops un-jitted code at the line; or drop debug_nans=True.")
            )  # fmt: skip
        return out

    def _is_plain(self) -> bool:
        """Whether this trace is of the function as it was written."""
        options, run = self.core.options, plain_run()
        if run is None or options.verify is False:
            return options.disabled is not None
        run.add(options, self.core.fn())
        return True

    def plainly(self, *arrays: Any) -> Any:
        """The function as it was written, with what belongs to its meaning around it: `vmap` and float64."""
        core, outcome = self.core, Outcome()
        precision = "f64" if core.options.precision == "f64" else None
        request = replace(self.request, options=replace(without(core.options), precision=precision))
        plan = Plan.make(self.layout.view(core.contract, arrays, self.statics), request)
        return outcome.output(plan.build(self._body(outcome, plain_function(core.fn())))(*arrays))

    def _as_written(self, *arrays: Any) -> Any:
        """The function without any `jit` of ours. Its arrays are JAX's, as inside one."""
        numpy: Any = jax.numpy
        return unmixed(self.plainly(*map(numpy.asarray, arrays)))

    def _un_jitted(self, arrays: Sequence[Any]) -> Any:
        if self._is_plain():
            return unmixed(self.plainly(*arrays))
        if tolerance_of(self.core.options.precision) is not None:
            self.choose(_key_of(arrays, None), arrays)
        with self.numbers():
            return unmixed(self.called(*arrays))

    def planned(self, arrays: Sequence[Any], counts: Counts | None = None, *, jit: bool = True, mesh: Any = None) -> Planned:
        """The view and the plan of a call, padded if it has counts; the contract is checked on what the body will see. Without `jit`
        nothing is cut into chunks or placed on devices.

        Raises:
            ContractError: An argument does not fit its annotation, or cannot be mapped as asked.
        """
        contract = self.core.contract
        view = self.written_out(self.layout.view(contract, arrays, self.statics))
        request = self.request
        if request.options.shard is not None:
            request = self.on_mesh(mesh) if jit else request  # within an abstract evaluation JAX does not say which mesh there is
            view = with_modules(view, self._in_modules(view))
        if self.chosen:
            request = replace(request, chosen=self.chosen.get(_key_of(arrays, counts)))
        if counts is not None:
            view = with_counts(view, counts.weak, counts.names)
        elif request.options.pad:
            request = replace(request, exact="at exact size")
        if not jit:
            request = replace(request, whole="un-jitted: all at once", single="un-jitted")
        plan = Plan.make(view, request)
        if not self.core.options.check:
            return Planned(view, plan)
        inside = plan.stage("mask").inner(plan.stage("vmap").inner(view))
        values = self.layout.values([leaf.abstract() for leaf in inside.leaves], self.statics)
        named = self.core.binder.named(values)
        sizes, notes = check_arguments(contract, named)
        return Planned(view, plan, named, sizes, notes)

    def written_out(self, view: View) -> View:
        """A view whose sizes in braces, such as `{model.width}*n`, are what they are in this call."""
        if not any(isinstance(leaf.hint, ArrayHint) and leaf.hint.has_braces for leaf in view.leaves):
            return view
        values = self.core.binder.named(self.layout.values([leaf.abstract() for leaf in view.leaves], self.statics))
        return View(tuple(replace(x, hint=x.hint.written_out(values)) if isinstance(x.hint, ArrayHint) else x for x in view.leaves))

    def on_mesh(self, mesh: Any = None) -> Request:
        """The request, with the mesh that the call runs on."""
        mesh = mesh or current_mesh(self.core.options.mesh, nested=self.request.nested)
        return replace(self.request, mesh=mesh, axes=tuple(self.core.contract.axes))

    def _in_modules(self, view: View) -> list[InModule | None]:
        values = self.layout.values([leaf.abstract() for leaf in view.leaves], self.statics)
        found = axes_in_modules(values)
        return [found[i] for i in self.layout.dynamic]

    def called(self, *arrays: Any) -> Any:
        """The body with every stage inside Jit around it, on tracers or on arrays."""
        return self._applied(self.planned(arrays, jit=False), arrays)

    def _applied(self, planned: Planned, arrays: Sequence[Any], counts: Counts | None = None) -> Any:
        core, outcome = self.core, Outcome()
        body = self._body(outcome)
        if counts is None:
            flat = planned.plan.build(body)(*arrays)
        else:
            with knowing(replace(known(), numbers=counts.numbers)):
                flat = planned.plan.build(body)(*arrays, *counts.values)
        if counts is not None:
            self._padded(planned, outcome, flat)
        flat = self._placed(planned, outcome, flat)
        chunk = planned.plan.stage("chunk")
        if not isinstance(chunk, Skip):
            chunk.check(outcome)
        if planned.sizes is not None:
            levels = len(getattr(planned.plan.stage("vmap"), "levels", ()))
            inner = tree_map(partial(_without_leading, count=levels), outcome.whole(flat))
            check_result(core.contract, inner, planned.sizes, planned.named)
        return outcome.output(flat)

    def _placed(self, planned: Planned, outcome: Outcome, flat: Sequence[Any]) -> Sequence[Any]:
        """The results where their annotations say, if the program is sharded."""
        shard = planned.plan.stage("shard")
        if isinstance(shard, Skip):
            return flat
        levels = getattr(planned.plan.stage("vmap"), "axes", ())
        whole = outcome.whole(flat)
        inner = tree_map(partial(_without_leading, count=len(levels)), whole)
        hints = zip(leaf_hints(self.core.contract.result, inner), axes_in_modules(whole), jax.tree.leaves(whole), strict=True)
        kept = [(hint or (inside and inside.hint) or None, inside is not None) for hint, inside, leaf in hints if is_computed(leaf)]
        return shard.results(flat, kept, levels)

    def _body(self, outcome: Outcome, fn: Callable[..., Any] | None = None) -> Callable[..., list[Any]]:
        """The user's function, or this one, on flat arrays; what else it returns stays in the outcome."""
        core = self.core
        fn = fn or core.fn()

        def body(*flat: Any) -> list[Any]:
            statics = snapshot(self.statics)  # a body that changes one in place changes it for this trace only
            return outcome.take_apart(core.binder.call(fn, self.layout.values(flat, statics)))

        return body

    def padded_plan(self, view: View) -> Plan:
        """The plan of a call that is padded if it can be; else the plan at exact size, with the reason."""
        request = self.on_mesh()
        try:
            plan = Plan.make(view, request)
            mask = plan.stage("mask")
            if isinstance(mask, Skip):
                return plan
            with knowing(Known({axis.name: axis.size for axis in plan.stage("fill").axes})):
                each = mask.prove(self.body_inside(plan, "mask")).program.each
        except Refused as refusal:
            found = beside(view, named_axes(view), sizes_of(view, named_axes(view)), refusal)
            return Plan.make(view, replace(request, exact=f"at exact size: {found}"))
        if each is None:
            return plan
        told = replace(mask, why=f"{mask.why}; each new size is traced once, not compiled: {each}")
        return Plan(tuple(told if stage is mask else stage for stage in plan.stages))

    def body_inside(self, plan: Plan, stage: str, outcome: Outcome | None = None) -> Callable[..., Any]:
        """The body as a stage wraps it."""
        return plan.build(self._body(outcome or Outcome()), stage)

    def _padded(self, planned: Planned, outcome: Outcome, flat: Sequence[Any]) -> None:
        """Remember which axes of the results are padded.

        Raises:
            Refused: The result holds a size, or something else that differs from one size to the next, outside its arrays.
        """
        outcome.refuse_differences()
        plan = planned.plan
        axes = [axis.name for axis in plan.stage("fill").axes]
        key = padded_key([(leaf.shape, leaf.dtype, leaf.weak_type) for leaf in planned.view.leaves if not is_count(leaf)])
        levels, mask = getattr(plan.stage("vmap"), "axes", ()), plan.stage("mask")
        self.cuts[key] = cuts_of([x.shape for x in flat], levels, mask, axes)
        if isinstance(mask, Mask) and mask.found and mask.found[-1].program.each is not None:
            self.proofs[key] = replace(mask.found[-1], check=outcome.refuse_differences)

    def _remember(self, planned: Planned) -> None:
        if at_any_size():  # it is no program: an outer one asks what it would be
            return
        static = tuple(zip(self.layout.static_names(), self.statics, strict=True))
        new = Traced(planned.view, static, self._key, planned.plan)
        self.core.counters.cause(cause(self.core.last, new))
        self.core.last = new


def _key_of(arrays: Sequence[Any], counts: Counts | None) -> Hashable:
    """What tells one trace of an entry from another."""
    return (*(described(array) for array in arrays), counts and counts.key)


def _without_leading(leaf: Any, count: int) -> Any:
    """What the body returned for one element, as a shape and a dtype."""
    if not is_array(leaf):
        return leaf
    shape, dtype, weak = described(leaf)
    return jax.ShapeDtypeStruct(shape[count:], dtype, weak_type=weak)
