"""Calls of one kind as functions of flat arrays: planned, built, and run without `jit`. Nothing
here is compiled.

A `CallPlanner` is one tree structure with one set of static values. The plan is made, and the
contract checked, on abstract values. `_program/lowering.py` adds what compiles it. One call goes
through

    Layout.view     arrays -> View: path, shape, dtype and annotation of each array
    Plan.make       View -> Plan: every stage decided on shapes, then the contract checked
    Plan.build      Plan -> a function of flat arrays: the stages around the user's function
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Self

import jax
from jax.sharding import NamedSharding

from .._axes import Refused
from .._contract.contract import check_arguments, check_result
from .._contract.sizes import AxisBindings
from .._diagnosis.checker_errors import checker_error
from .._diagnosis.tracer_errors import unbound_axis_error
from .._errors import AnnotationWarning, UpdateWarning
from .._host.own_time import OWN_TIME
from .._jax.mesh import current as current_mesh
from .._jax.mesh import is_manual
from .._jax.programs.large_constants import CopyPool
from .._jax.typed import AnyMesh
from .._owners import users_level
from .._precision import Policy
from .._signature.hints import ArrayHint
from .._signature.options import OPTIONAL, Options
from .._stages import Fill, Mask, Vmap
from .._stages.derivatives.arguments import with_numbers
from .._stages.derivatives.derive import Derived
from .._stages.plan import Plan
from .._stages.stage import Fn, Request, Stage
from .._values.attribute_reads import Statics
from .._values.copies import Copies, snapshot
from .._values.static_values import Unkeyed
from .._view.field_axes import InField, axes_in_fields, with_fields
from .._view.layout import Layout
from .._view.named_axes import with_counts
from .._view.result import Outcome, refuse_used_up, unmix
from .._view.true_sizes import KnownSizes, TrueSizes, knowing, known_sizes
from .._view.view import Leaf, View
from .call_key import trace_key
from .decoration import demand_axes_of_call
from .function import FunctionInfo
from .plain import plain_function, plain_run
from .updates import ArgumentSnapshot, in_words, lost_updates_message

Placement = tuple[AnyMesh, Sequence[NamedSharding | None]]
"""Devices of a program, and the sharding of each argument."""


@dataclass(frozen=True)
class Planned:
    """A plan, with the results of the contract check."""

    view: View
    plan: Plan
    named: dict[str, object] = field(default_factory=dict[str, object], compare=False)
    sizes: AxisBindings | None = field(default=None, compare=False)
    notes: tuple[str, ...] = ()


class CallPlanner:
    """A function of flat arrays.

    Args:
        core: The function, with its options.
        layout: How its arguments split into arrays and static values.
        statics: The static values.
        key: Key of this body among those of the function.
        options: Options with the settings of the process; by default those of now.
    """

    run: Callable[..., object]
    """Runs a call; set by whoever compiles the body."""

    def __init__(
        self,
        core: FunctionInfo,
        layout: Layout,
        statics: Statics,
        key: Hashable,
        options: Options | None = None,
    ):
        self.core = core
        self.options = options or core.options.settled()
        self.layout = layout
        self.weak_statics = statics
        self.reads = statics.reads

        # How often the objects among the static values have changed.
        self.generation = 0
        # Mutations that its traces made in their arguments, in words.
        self.updates: tuple[str, ...] = ()
        # The latest change of the objects: path, text before, text now.
        self.changed: tuple[tuple[str, str, str], ...] = ()

        self.key = key
        # `debug_nans` may run a call a second time, which needs its buffers.
        donated = () if self.options.debug_nans else layout.donated
        self.request = Request(
            core.where,
            self.options,
            donated,
            nested=layout.nested and self.options.depends_on_nesting,
            recomputes=core.recomputes,
        )
        # Call key -> policy and reason, by `precision="auto:..."`.
        self.chosen: dict[Hashable, tuple[Policy, str]] = {}
        # True if one of its programs holds run-time checks of Equinox; then `checked_calls` runs
        # them.
        self.checked = False
        self.checked_calls: object = None
        # True if one of its programs captures large arrays; then `captured_calls` runs them.
        self.captures = False
        self.captured_calls: dict[object, object] = {}
        self.captured_copies = CopyPool()
        # Arguments, and which are mapped -> whether a branch chooses by mapped values.
        self.branching: dict[Hashable, bool] = {}
        # Call key -> outcome of its verification, for keys that have been run plainly too.
        self.verified: dict[Hashable, str] = {}

    def of(self, core: FunctionInfo) -> Self:
        """Return the body of another function for the same calls."""
        return type(self)(core, self.layout, self.weak_statics, self.key)

    @property
    def statics(self) -> tuple[object, ...]:
        """The static values. The caller of a body holds them, so those that are referenced weakly
        are alive.
        """
        return self.weak_statics.values()

    def note_checks(self) -> None:
        """Have later calls run the run-time checks of Equinox, which a program holds."""
        self.checked = True

    def note_captures(self) -> None:
        """Have later calls pass the large arrays that a program captures."""
        self.captures = True

    def share_copies(self, other: CallPlanner) -> None:
        """Use the copies of captured arrays that the programs of another body use."""
        self.captured_copies = other.captured_copies

    def mesh_key(self) -> tuple[Hashable, ...]:
        """Return the part of a call key beyond arrays and settings: the mesh."""
        return ()

    def scope(self) -> AbstractContextManager[object]:
        """Return the context of the mesh in which the program is traced."""
        return nullcontext()

    @property
    def paths(self) -> list[str]:
        return [self.layout.names[i][1] for i in self.layout.dynamic]

    def placement(self, jitted: object) -> Placement | None:
        """Return where a function of JAX has its arguments; None on the default device."""
        del jitted
        return None

    def numbers(self) -> AbstractContextManager[object]:
        """Return the scope of the number types of this program: x64 with `precision="f64"`."""
        if self.core.options.precision == "f64":
            return jax.enable_x64(True)  # noqa: FBT003
        return nullcontext()

    def is_plain(self) -> bool:
        """Return whether this trace is of the function as it was written: in a plain run, or with
        `JITNEY_DISABLE`.
        """
        options, run = self.options, plain_run()
        if run is None or options.verify is False:
            return options.disabled is not None
        run.add(options, self.core.fn())
        return True

    def plainly(self, *arrays: object) -> object:
        """Run the function as it was written, inside the options that belong to its meaning: `vmap`
        and float64.
        """
        core = self.core
        precision = "f64" if core.options.precision == "f64" else None
        options = replace(core.options.plain, precision=precision)
        view = self.layout.view(core.contract, arrays, self.statics)
        plan = Plan.make(view, replace(self.request, options=options))

        outcome = Outcome()
        body = self.flat(outcome, plain_function(core.fn()))
        results = plan.build(body, outcome)(*arrays)
        return outcome.output(results)

    def run_without_jit(self, *arrays: object) -> object:
        """Run the function without any `jit` of jitney's. Its arrays are JAX's, as they are inside
        `jit`.
        """
        numpy = jax.numpy
        return unmix(self.plainly(*map(numpy.asarray, arrays)))

    def plan_call(
        self,
        arrays: Sequence[object],
        counts: TrueSizes | None = None,
        *,
        jit: bool = True,
        mesh: AnyMesh | None = None,
    ) -> Planned:
        """Return the view and the plan of a call, padded if it has counts.

        The contract is checked on the shapes that the body will see. Without `jit` nothing is cut
        into chunks or placed on devices.

        Raises:
            ContractError: An argument does not fit its annotation, or cannot be mapped as the
                options say.
        """
        contract = self.core.contract
        view = self.fill_in_sizes(self.layout.view(contract, arrays, self.statics))
        request = self.request
        demand_axes_of_call(self.core, lambda: self.layout.values(arrays, self.statics))

        # Resolve what depends on the context: the mesh, the policy by values, the padding.
        if request.options.shard is not None:
            # Inside an abstract evaluation JAX does not say which mesh there is.
            request = self.on_mesh(mesh) if jit else request
            view = with_fields(view, self._in_fields(view))
        if self.chosen:
            request = replace(request, chosen=self.chosen.get(trace_key(arrays, counts)))
        if counts is not None:
            view = with_counts(view, counts.weak, counts.names)
        elif request.options.pad:
            request = replace(request, exact="at exact size")
        if not jit:
            request = replace(request, whole="un-jitted: all at once", single="un-jitted")

        plan = Plan.make(view, request)
        if not self.core.options.contracts:
            return Planned(view, plan)

        # Check the contract inside of Mask and `vmap`, on the shapes of the body.
        inside = plan.seen_inside(Mask, view)
        values = self.layout.values([leaf.abstract() for leaf in inside.leaves], self.statics)
        named = self.core.binder.values_by_name(values)
        sizes, notes = check_arguments(contract, named)
        return Planned(
            view,
            plan,
            named,
            sizes,
            notes,
        )

    def fill_in_sizes(self, view: View) -> View:
        """Return the view with the sizes in braces, such as `{model.width}*n`, replaced by their
        values in this call.
        """
        hints = [leaf.hint for leaf in view.leaves]
        if not any(isinstance(hint, ArrayHint) and hint.has_braces for hint in hints):
            return view

        abstract = [leaf.abstract() for leaf in view.leaves]
        values = self.core.binder.values_by_name(self.layout.values(abstract, self.statics))
        leaves: list[Leaf] = []
        for leaf in view.leaves:
            if isinstance(leaf.hint, ArrayHint):
                leaf = replace(leaf, hint=leaf.hint.fill_in_sizes(values))
            leaves.append(leaf)
        return View(tuple(leaves))

    @property
    def is_sharded(self) -> bool:
        """True if its arrays are sharded over devices in this context: `shard` is given, and a mesh
        exists or is required.
        """
        options = self.core.options
        return options.shard is not None and (
            options.mesh != OPTIONAL or self.on_mesh().mesh is not None
        )

    def on_mesh(self, mesh: AnyMesh | None = None) -> Request:
        """Return the request, with the mesh that the call runs on."""
        mesh = mesh or current_mesh(self.core.options.mesh, nested=self.request.nested)
        options, single = self.request.options, self.request.single
        shard = options.shard
        if mesh is not None:
            shard = shard and shard.over(mesh.axis_names)
        # Inside `shard_map` or `pmap` an axis is manual, and nothing is sharded over it once more.
        if mesh is not None:
            manual = {axis for axis in mesh.shape if is_manual(mesh, axis)}
            if manual:
                shard = shard and shard.drop_axes(manual)
                if len(manual) == len(mesh.shape):
                    single = "inside `shard_map` or `pmap`: each device works on its part"

        return replace(
            self.request,
            options=replace(options, shard=shard),
            mesh=mesh,
            single=single,
            axes=tuple(self.core.axes),
            result=self.core.contract.result,
        )

    def _in_fields(self, view: View) -> list[InField | None]:
        values = self.layout.trees([leaf.abstract() for leaf in view.leaves], self.statics)
        fields = axes_in_fields(values)
        return [fields[i] for i in self.layout.dynamic]

    def run_inner_stages(self, *arrays: object) -> object:
        """Run the body with every stage inside Jit around it, on tracers or on arrays."""
        return self.apply_plan(self.plan_call(arrays, jit=False), arrays, Outcome())

    def apply_plan(
        self,
        planned: Planned,
        arrays: Sequence[object],
        outcome: Outcome,
        counts: TrueSizes | None = None,
    ) -> object:
        """Return the results of a call run by its plan, checked and rebuilt to the user's
        structure.

        Raises:
            AxisError: A number among them is made of the size of an axis that is cut.
            ContractError: A result does not fit its annotation.
            Refused: The call is padded, and something besides the arrays of its result depends on
                the size.
        """
        self._warn_guess(planned.plan)
        body = planned.plan.build(self.flat(outcome), outcome)
        if counts is None:
            flat = body(*arrays)
        else:
            with knowing(replace(known_sizes(), numbers=counts.numbers)):
                flat = body(*arrays, *counts.values)
        if planned.sizes is not None:
            check_result(
                self.core.contract,
                outcome.inner(flat),
                planned.sizes,
                planned.named,
            )
        return outcome.output(flat)

    def flat(
        self,
        outcome: Outcome,
        fn: Callable[..., object] | None = None,
    ) -> Callable[..., list[Any]]:
        """Return the user's function, or `fn`, on flat arrays; everything else that it returns goes
        into the outcome.
        """
        core, layout = self.core, self.layout
        fn = fn or core.fn()

        def body(*flat: object) -> list[Any]:
            # Copies of the static values: a body that mutates one changes it for this trace only.
            copies = Copies()
            statics = tuple(snapshot(value, copies) for value in self.statics)
            try:
                values = layout.values(flat, statics, for_body=True)
            except Exception as error:
                self._explain(error, fn, {})
                raise
            originals = dict(zip(map(id, statics), self.statics, strict=True))
            given = ArgumentSnapshot(core.binder, values, originals)

            # The time of the body, less what jitney spends in programs that the body calls.
            began, own = time.perf_counter(), OWN_TIME.seconds
            numbers = [
                value
                for i, value in zip(layout.dynamic, flat, strict=True)
                if i in layout.unannotated
            ]
            with (
                nullcontext() if self.reads is None else self.reads.tracing() as trace,
                with_numbers(numbers),
            ):
                result = self._result(fn, values)
            elapsed = time.perf_counter() - began
            outcome.body_seconds.append(elapsed - (OWN_TIME.seconds - own))

            # Mutations of arguments are lost, and are reported once.
            updates = [*given.updates()]
            if trace is not None:
                updates += trace.updates(self.names_of_statics())
            self.warn_lost_updates([*map(in_words, updates)])
            refuse_used_up(core.where, result)
            try:
                return outcome.take_apart(result, self.weak_statics.identities)
            except Unkeyed as problem:
                raise problem.of(core.where, "the result") from None

        return core.with_user_names(body, self.paths)

    def _result(
        self,
        fn: Callable[..., object],
        values: tuple[object, ...],
    ) -> object:
        try:
            return self.core.binder.call(fn, values)
        except NameError as error:
            options = self.core.options
            axes = {
                *self.core.axes,
                *(name for name, _ in options.pad),
                *(name for name, _ in options.chunk),
            }
            explained = unbound_axis_error(
                error,
                self.core.where,
                {axis.name for axis in options.vmap},
                axes,
            )
            if explained is None:
                raise
            raise explained from error
        except Exception as error:
            self._explain(error, fn, self.core.binder.values_by_name(values))
            raise

    def _explain(
        self,
        error: Exception,
        fn: Callable[..., object],
        arguments: Mapping[str, object],
    ) -> None:
        """Raise jitney's own error in place of that of a type checker that refuses what is traced.

        Raises:
            TraceError: It is one.
        """
        function = fn.fn if isinstance(fn, Derived) else fn
        refused = checker_error(error, function, self.core.contract, arguments)
        if refused is not None:
            raise refused from error

    def _warn_guess(self, plan: Plan) -> None:
        """Warn once that an argument is shared that looks like a stack."""
        vmap = plan.of(Vmap)
        if vmap is not None and vmap.guess and self.core.counters.warn_once("stacks"):
            warnings.warn(vmap.guess, AnnotationWarning, stacklevel=users_level())

    def warn_lost_updates(self, updates: Sequence[str]) -> None:
        """Warn once that updates in place are lost."""
        if updates:
            self.updates = tuple(dict.fromkeys((*self.updates, *updates)))
            if self.core.counters.warn_once("updates in place"):
                warnings.warn(
                    lost_updates_message(self.core.where, self.updates),
                    UpdateWarning,
                    stacklevel=users_level(),
                )

    def names_of_statics(self) -> dict[int, str]:
        """Return the names of the static values by `id`."""
        return {
            id(value): name
            for name, value in zip(self.layout.static_names(), self.statics, strict=True)
        }

    def padded_plan(self, view: View) -> Plan:
        """Return the plan of a call that is padded if it can be; else the plan at exact size, with
        the reason.
        """
        request = self.on_mesh()
        if request.options.debug_nans:
            exact = (
                "at exact size: with `debug_nans` a call may be run again, operation by operation"
            )
            return Plan.make(view, replace(request, exact=exact))
        return self._padded_plan(view, request)

    def _padded_plan(self, view: View, request: Request) -> Plan:
        # Plan with padding, and prove it at these sizes. A refusal becomes the reason of the plan
        # at exact size.
        fill: Fill | None = None
        try:
            plan = Plan.make(view, request)
            mask, fill = plan.of(Mask), plan.of(Fill)
            if mask is None or fill is None:
                return plan
            outcome = Outcome()
            with knowing(KnownSizes({axis.name: axis.size for axis in fill.axes})):
                program = mask.prove(self.body_inside(plan, Mask, outcome)).program
            outcome.refuse_differences()
        except Refused as refusal:
            # In a shorter bucket it may be one program.
            tops = {} if fill is None else fill.narrower(refusal, request)
            if tops:
                tops = {**dict(request.tops), **tops}
                return self._padded_plan(view, replace(request, tops=tuple(tops.items())))
            explained = refusal if fill is None else fill.explained(view, refusal)
            single = " (no other size has this bucket)" if fill and fill.is_single else ""
            exact = f"at exact size{single}: {explained}"
            return Plan.make(view, replace(request, exact=exact))

        # Padded, but Python computes numbers from the size, so each new size is traced.
        if program.each is None:
            return plan
        took = f"{len(program.spent)} traces took {1e3 * sum(program.spent):,.1f} ms"
        reason = f"{program.each}; {took}"
        # A program from traces at known sizes may begin later than its bucket.
        line = mask.line(program.ranges)
        why = f"{line}; each new size is traced once, not compiled: {reason}"
        traced = replace(mask, why=why)
        return Plan(tuple(traced if stage is mask else stage for stage in plan.stages))

    def body_inside(
        self,
        plan: Plan,
        stage: type[Stage],
        outcome: Outcome | None = None,
    ) -> Fn:
        """Return the body as a stage wraps it: with every stage inside of that one."""
        outcome = outcome or Outcome()
        return plan.inside(stage, self.flat(outcome), outcome)
