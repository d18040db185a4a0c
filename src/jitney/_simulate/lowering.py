"""`Case`, one program on one absent mesh: its export, and the figures after its compilation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import replace
from typing import Any

import jax
import jax.export

from .._checks import CheckTable, Unflaggable
from .._diagnosis.needed_values import CAUGHT
from .._diagnosis.tracer_errors import trace_error
from .._errors import OptionError, shortlist
from .._jax.equinox_checks import has_equinox_checks
from .._jax.mesh import current, on_paper
from .._jax.programs.jaxprs import equations, source_of
from .._jax.trees import tree_flatten
from .._jax.typed import AnyJaxpr, Array
from .._jax.xla.hlo_work import ProgramCost
from .._precision import elsewhere
from .._program.entry import Specialization
from .._program.runners.checked_calls import with_number
from .._program.tolerance.decide import decide
from .._program.tracing.traced_calls import Retry, Undecided
from .._stages import Jit, Place
from .device import Device
from .figures import Share, Simulation, Sizes, Traffic
from .other_process import CompiledElsewhere
from .roofline import Transfer, links, products_by_type, seconds_of, sends, transfers_of

_LARGEST = 3


class Case:
    """Program on a mesh, exported for another process."""

    def __init__(
        self,
        entry: Specialization,
        arrays: Sequence[Any],
        mesh: Sizes,
    ):
        self.entry, self.mesh = entry, mesh
        self._has_checks = False
        with self._scope():
            self._planned = entry.plan_call(arrays)

        # Types of products are read in the jaxpr: the compiler for CPUs widens those of 16 bits.
        jaxpr, exported = self._export_program(arrays)
        self._products, self._narrow = products_by_type(jaxpr), _has_narrow(jaxpr)
        self.donated = entry.request.donated
        # The trees contain the user's classes, and the VJP contains functions, neither of which
        # can be sent. The other process needs flat arguments only.
        inside, outside = (
            tree_flatten((_flat(exported.in_avals), {}))[1],
            tree_flatten(_flat(exported.out_avals))[1],
        )
        self.exported = replace(exported, in_tree=inside, out_tree=outside, _get_vjp=None)

    def _scope(self) -> AbstractContextManager[object]:
        # In order: the options that change numbers, kernels as other devices have them, the
        # abstract mesh.
        scope = ExitStack()
        scope.enter_context(self.entry.numbers())
        scope.enter_context(elsewhere())
        scope.enter_context(on_paper(self.mesh))
        return scope

    def _export_program(self, arrays: Sequence[Array]) -> tuple[Any, Any]:
        """Return the jaxpr and the exported program.

        Traces again after each obstacle that can be removed: a trace of another thread, a choice
        that depends on argument values.
        """
        entry = self.entry
        while True:
            try:
                # `Retry` ends the block early, and the loop traces again.
                with suppress(Retry), self._scope(), jax.disable_jit(False):  # noqa: FBT003
                    jitted: Any
                    jitted, shardings = entry.jit_on_mesh(current(), arrays)
                    jaxpr = jitted.trace(*arrays).jaxpr
                    # Checks of Equinox are callbacks, which cannot be exported: they become numbers
                    # of the program.
                    self._has_checks = has_equinox_checks(jaxpr)
                    if self._has_checks:
                        jitted = Jit.of(entry.request).compile(
                            with_number(entry, jitted, CheckTable(), at_once=False),
                            shardings or None,
                        )
                        jaxpr = jitted.trace(*arrays).jaxpr
                    _refuse_callbacks(entry, jaxpr)
                    return jaxpr, jax.export.export(jitted, platforms=["cpu"])(*arrays)
            except Unflaggable as kept:
                raise _refusal(
                    entry,
                    f"a run-time check of Equinox keeps its callback: {kept}",
                    _WITHOUT_CHECKS,
                ) from kept
            except Undecided as undecided:
                decide(entry, undecided.key, arrays)
            except CAUGHT as error:
                explained = trace_error(error, entry.core.where, entry.paths, arrays)
                if explained is None:
                    raise
                raise explained from error
            finally:
                entry.land()

    def simulation(
        self,
        program: CompiledElsewhere,
        device: Device,
        seconds: float,
    ) -> Simulation:
        """Return the figures of the compiled program."""
        work = ProgramCost(program.text)
        traffic = tuple(
            self._traffic(transfers_of(program.text, program.divided, self.mesh), work, device)
        )
        # Text and memory are those of one device's part, so all figures are of one device.
        return Simulation(
            str(self.entry.core.where),
            dict(self.mesh),
            device,
            program.arguments,
            program.results - program.aliased,
            program.temporaries,
            work.products + work.other_flops,
            _split_by_type(work.products, self._products, device),
            work.bytes,
            traffic,
            self._largest(),
            tuple(self._notes(work, traffic, device)),
            seconds,
        )

    def _traffic(
        self,
        operations: Sequence[Transfer],
        work: ProgramCost,
        device: Device,
    ) -> Iterator[Traffic]:
        shard = self.entry.core.options.shard
        rules = shard and shard.over(self.mesh)
        groups: dict[Any, list[tuple[int, int]]] = {}
        for operation in operations:
            # A collective runs as often as its computation. Loops of unknown length count once.
            groups.setdefault((operation.kind, operation.along), []).append(
                (operation.bytes, work.turns.get(operation.computation, 1))
            )

        for (kind, along), same in sorted(
            groups.items(), key=lambda item: -sum(size * turns for size, turns in item[1])
        ):
            between = links(self.mesh, along, device)
            total = sum(size * turns for size, turns in same)
            axes = tuple(name for name, on in (rules.axes if rules else ()) if set(on) & set(along))
            needed = sum(turns * seconds_of(kind, size, between) for size, turns in same)
            count = sum(turns for _, turns in same)
            send = sum(turns * sends(kind, size, between.devices)[0] for size, turns in same)
            yield Traffic(
                kind,
                along,
                axes,
                count,
                total,
                round(send),
                between.devices,
                between.network,
                needed,
            )

    def _largest(self) -> tuple[Share, ...]:
        place = self._planned.plan.of(Place)
        leaves = self._planned.view.leaves
        specs = [()] * len(leaves) if place is None else place.specs
        shares: list[Share] = []
        for leaf, spec in zip(leaves, specs, strict=True):
            along = tuple(axis for on in spec for axis in on)
            # The partition spec of an array has the mesh axes of each dimension; the product of
            # their sizes is the number of parts.
            size = (
                math.prod(leaf.shape)
                * leaf.dtype.itemsize
                // math.prod(self.mesh[axis] for axis in along)
            )
            shares.append(Share(leaf.path, size, along))
        return tuple(sorted(shares, key=lambda share: -share.bytes)[:_LARGEST])

    def _notes(
        self,
        work: ProgramCost,
        traffic: Sequence[Traffic],
        device: Device,
    ) -> Iterator[str]:
        """Yield the assumptions behind the figures, in words."""
        count = math.prod(self.mesh.values())
        yield (
            "Arguments, results, operations and collectives are counted in the program compiled"
            f" for {count} virtual devices; temporaries and bytes accessed too, as XLA's compiler"
            " for CPUs fuses and schedules."
        )
        if self._narrow:
            yield (
                "That compiler keeps copies of 16-bit numbers in 32 bits: temporaries and bytes"
                " accessed are upper bounds."
            )
        yield f"Times are bounds by speed and bandwidth, not measurements. Speeds: {device.source}."
        if self._products.get("tf32") and device.computed_in("tf32") == "tf32":
            yield (
                "Products of float32 are computed at JAX's default precision: in TF32 on GPUs, in"
                " one pass of bfloat16 on TPUs."
            )
        if traffic:
            yield (
                f"Devices are counted row by row over the mesh, {device.group} in a node. Links:"
                f" {device.link / 1e9:.4g} GB/s and {device.link_latency * 1e6:.3g} us within a"
                f" node, {device.network / 1e9:.4g} GB/s for each device and"
                f" {device.network_latency * 1e6:.3g} us between nodes; latencies are assumed."
            )
        if self.entry.core.options.pad:
            yield "`pad` is left out: the sizes are taken as they are, so give those of buckets."
        if self._has_checks:
            yield (
                "Its run-time checks are counted as numbers of the program. With `shard` a call has"
                " them as callbacks."
            )
        if any(collective.kind == "reduce-scatter" for collective in traffic):
            yield (
                "All-reduces of which each device keeps a part are the reduce-scatters that XLA"
                " makes of them for GPUs and TPUs."
            )
        if work.endless:
            yield (
                f"Of {work.endless} of the loops XLA does not know how often they turn: they count"
                " once."
            )
        if work.branches:
            yield "All branches of conditionals are counted."
        if work.opaque:
            yield f"Calls of libraries count as no operations: {shortlist(work.opaque)}."


def _flat(avals: Sequence[object]) -> tuple[int, ...]:
    return tuple(range(len(avals)))


def _has_narrow(jaxpr: AnyJaxpr) -> bool:
    return any(
        str(getattr(var.aval, "dtype", "")) in ("bfloat16", "float16")
        for eqn in equations(jaxpr)
        for var in eqn.outvars
    )


def _split_by_type(
    total: int,
    shares: Mapping[str, int],
    device: Device,
) -> dict[str, int]:
    """Split the operations of one device by type, in the proportions of the whole program."""
    kinds: dict[str, int] = {}
    for kind, count in (shares or {"tf32": 1}).items():
        name = device.computed_in(kind)
        kinds[name] = kinds.get(name, 0) + count
    whole = sum(kinds.values())
    parts = {
        kind: total * count // max(whole, 1)
        for kind, count in sorted(kinds.items(), key=lambda item: -item[1])
    }
    # The remainder of the integer divisions goes to the most frequent type.
    first = next(iter(parts))
    return parts | {first: total - sum(parts.values()) + parts[first]} if total else {}


def _refuse_callbacks(entry: Specialization, jaxpr: AnyJaxpr) -> None:
    """Check that a program does not call back into Python, since callbacks cannot be exported.

    Raises:
        OptionError: It does.
    """
    callbacks = [
        eqn
        for eqn in equations(jaxpr)
        if "callback" in eqn.primitive.name or eqn.primitive.name.startswith("debug")
    ]
    if callbacks:
        what = f"{source_of(callbacks[0]) or callbacks[0].primitive.name} calls back into Python"
        raise _refusal(entry, what, "simulate it without that.")


_WITHOUT_CHECKS = "start Python with EQX_ON_ERROR=nan, which makes NaNs of what fails instead."


def _refusal(entry: Specialization, what: str, fix: str) -> OptionError:
    rule = "The program is compiled in another process, which has nothing of this one's Python."
    return OptionError(entry.core.where, f"{what}.", rule, fix, code="J208")
