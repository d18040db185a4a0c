"""Calls whose mapped axis is split over threads: each runs one compiled program on its part.

XLA runs a program of small operations on one core, and gives Python's lock free meanwhile. So two
threads that run the program of half the elements use two cores. With `vmap="fit", workers=2`, for
`ys: f32[9,400]` and a result `f32[9,3]`:

    divided         two parts of 5: [0:5] and [4:9], of which the second gives up its first element
    one program     vmap(body): f32[5,400] -> f32[5,3], compiled before any thread runs
    two threads     each runs the program on its part of `ys`, and writes its own rows of the
                    result, which lies on the host and becomes an array of the device as it is
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

import jax
import numpy as np

from ...._checks import CheckTable, Unflaggable
from ...._errors import OptionError, plural
from ...._host.limits import allowed_cores
from ...._jax.compile_cache.cache import ensure as ensure_cache
from ...._jax.compile_cache.cache import pause_cache
from ...._jax.equinox_checks import has_equinox_checks
from ...._jax.mesh import context
from ...._jax.settings import (
    default_platform,
    looks_for_nans,
    settings,
    settings_of_programs,
    x64_is_on,
)
from ...._jax.trees import tree_flatten, tree_unflatten
from ...._jax.typed import Array
from ...._signature.options import AUTO, is_measured
from ...._stages import Vmap
from ...._view.layout import aval_parts
from ...._view.result import Outcome
from ...compiled_calls import CompiledCalls
from ..captured_calls import captured_calls, note_captured
from ..checked_calls import checked_calls
from ..unsplit import Unsplit, effects_obstacle, joint_rules_obstacle, lapack_obstacle
from ..whole_calls import WholeCalls
from .device_parts import DEVICES, DeviceParts, cpu_devices, obstacle_of, obstacle_of_program
from .parts import ArrayType, Division, PartialResult
from .worker_threads import THREADS


@dataclass(frozen=True)
class Split:
    """Division of a call, and the threads that work on its parts.

    Args:
        division: The parts.
        workers: How many threads work on them.
        why: Where this number comes from; "" if the user has given it.
    """

    division: Division
    workers: int
    why: str = ""

    def __str__(self) -> str:
        parts = self.division
        count = len(parts.parts)
        twice = count * parts.width - parts.size
        again = f"; {twice} of {parts.size} are computed twice, so that one program serves all"
        return (
            f"{parts.axis}={parts.size} in {count} parts of {parts.width}, in {self.workers}"
            f" threads{f' ({self.why})' if self.why else ''}{again if twice else ''}"
        )


@dataclass(frozen=True)
class PartProgram:
    """Compiled program of all parts of calls of one key.

    Args:
        split: How these calls are divided.
        compiled: The program, which returns the number of a failed check too, if it has a table.
        results: The types of the arrays of its result.
        table: Its run-time checks.
        captured: What it takes after the arrays of a part.
        over: The devices that run all parts at once, in place of threads.
    """

    split: Split
    compiled: jax.stages.Compiled
    results: tuple[ArrayType, ...]
    table: CheckTable | None
    captured: tuple[jax.Array, ...]
    over: DeviceParts | None = None

    def run(self, arrays: Sequence[Array]) -> object:
        """Run a call.

        Raises:
            EquinoxRuntimeError: A run-time check fails.
        """
        division = self.split.division
        parts = division.cut(arrays)
        results = [PartialResult(division, each) for each in self.results]
        if self.over is not None:
            return self.over.run(parts, results)
        failed = [0] * len(parts)
        trees: list[object] = [None] * len(parts)
        # Threads have settings of their own, and the types of arguments depend on this one.
        x64 = x64_is_on()

        def work_on(number: int) -> None:
            with jax.enable_x64(x64):
                out, failed[number] = self._run_part(parts[number])
                leaves, trees[number] = tree_flatten(out)
                for result, leaf in zip(results, leaves, strict=True):
                    result.add(number, leaf)

        tasks = [partial(work_on, number) for number in range(len(parts))]
        THREADS.run(tasks, self.split.workers)
        # The check that comes first in the program, as where all elements are one call.
        first = min((number for number in failed if number), default=0)
        if first and self.table is not None:
            self.table.fail(first)
        return tree_unflatten(trees[0], [result.whole() for result in results])

    def run_in_turn(self, arrays: Sequence[Array]) -> list[object]:
        """Run the parts one after another in this thread, and return their results apart: nothing
        is copied into one array, as nothing is where one program computes all elements.

        Raises:
            EquinoxRuntimeError: A run-time check fails.
        """
        results: list[object] = []
        for part in self.split.division.cut(arrays):
            out, failed = self._run_part(part)
            if failed and self.table is not None:
                self.table.fail(failed)
            results.append(jax.block_until_ready(out))
        return results

    def _run_part(self, part: Sequence[Array]) -> tuple[object, int]:
        """Run a part, and return its result and the number of the check that fails, or 0."""
        out = self.compiled(*part, *self.captured)
        if self.table is None:
            return out, 0
        out, flag = out
        return out, int(np.asarray(flag))


class WorkerCalls(WholeCalls):
    """Runs the calls of an entry whose mapped axis is split over threads."""

    def __init__(self, entry: CompiledCalls):
        super().__init__(entry)
        # Programs of the parts, and why other calls run whole.
        self._programs: dict[Hashable, PartProgram | str] = {}
        # A number of workers is a demand, unless a width is measured too.
        options = entry.core.options
        # Whether a call that cannot be divided is an error.
        self.is_demanded = options.workers != AUTO and not is_measured(options.chunk)
        # One thread makes a program, and others wait for it.
        self._making = threading.RLock()

    def allow_whole_calls(self) -> None:
        """Run a call whole that cannot be divided: threads are not asked for here."""
        self.is_demanded = False

    def run_outermost(self, arrays: Sequence[Array]) -> object:
        program = self.program(arrays)
        return self.run_whole(arrays) if isinstance(program, str) else program.run(arrays)

    def program(self, arrays: Sequence[Array]) -> PartProgram | str:
        """Return the program of the parts of a call with these arrays or abstract values, compiled
        if there is none yet; or why it runs whole.

        Raises:
            OptionError: The call cannot be split, and a number of workers was given.
        """
        key = call_key(arrays)
        program = self._programs.get(key)
        if program is None:
            with self._making:
                program = self._programs.get(key) or self._made(arrays)
                self._programs[key] = program
        return program

    def first_part(self, arrays: Sequence[Array]) -> Sequence[Array]:
        """Return the arrays of the first part of a call; none if there is no program of it."""
        program = self._programs.get(call_key(arrays))
        return program.split.division.first(arrays) if isinstance(program, PartProgram) else ()

    def ahead(self, arrays: Sequence[Array]) -> jax.stages.Compiled | None:
        """Compile the program of the parts of a call, and return it; None if the call runs
        whole.
        """
        program = self.program(arrays)
        return None if isinstance(program, str) else program.compiled

    def _made(self, arrays: Sequence[Array]) -> PartProgram | str:
        entry = self.entry
        split = split_of(entry, arrays)
        if isinstance(split, Unsplit):
            return reason_of(entry, split)
        why = None
        # A kept program is one call, which shows none of its operations.
        if entry.kept is not None:
            why = part_obstacle(entry, split, arrays)
        made = why or self._compiled(split, split.division.first(arrays))
        return reason_of(entry, made) if isinstance(made, Unsplit) else made

    def _compiled(self, split: Split, given: Sequence[object]) -> PartProgram | Unsplit:
        """Compile for the arrays of a part; or return what its operations forbid."""
        entry = self.entry
        ensure_cache()
        with (
            entry.numbers(),
            nullcontext() if entry.core.options.cache else pause_cache(),
        ):
            traced: jax.stages.Traced = entry.lower(given, "trace")
            why = (
                joint_rules_obstacle(entry.joint_rules)
                or effects_obstacle(traced.jaxpr)
                or lapack_obstacle(traced.jaxpr)
            )
            if why is not None:
                return why
            note_captured(entry, traced.jaxpr)
            if entry.options.workers == DEVICES:
                return _over_devices(entry, split, traced)
            table, lowered, captured = None, None, ()
            if has_equinox_checks(traced.jaxpr):
                entry.note_checks()
                calls = checked_calls(entry, entry.jitted)
                try:
                    table = calls.table
                    lowered, captured = calls.lower_with_copies(*given)
                except Unflaggable:
                    return Unsplit(
                        "its run-time checks are callbacks of Equinox's, which call Python",
                        is_refused=True,
                    )
            elif entry.captures:
                calls = captured_calls(entry, entry.jitted)
                lowered, captured = calls.lower_with_copies(*given)
            return PartProgram(
                split,
                (lowered or traced.lower()).compile(),
                tuple(map(aval_parts, traced.jaxpr.out_avals)),
                table,
                captured,
            )


def _over_devices(
    entry: CompiledCalls,
    split: Split,
    traced: jax.stages.Traced,
) -> PartProgram | Unsplit:
    why = obstacle_of_program(entry, traced)
    if why:
        return Unsplit(why)
    over = DeviceParts.of(traced, split.division)
    results = tuple(map(aval_parts, traced.jaxpr.out_avals))
    return PartProgram(split, over.compiled, results, None, (), over)


def split_of(entry: CompiledCalls, arrays: Sequence[Array]) -> Split | Unsplit:
    """Divide a call with these arrays or abstract values, or return why it runs whole.

    Raises:
        ContractError: The arrays differ in the size of the axis, or do not fit the contract.
    """
    options = entry.options
    if options.workers is None:
        return Unsplit("no `workers` given")
    if entry.request.nested:
        return Unsplit("under an outer trace the outermost program says how it runs")
    why_whole = _device_obstacle(arrays)
    if why_whole is not None:
        return why_whole
    why = obstacle_of(arrays) if options.workers == DEVICES else ""
    if why:
        return Unsplit(why)
    if looks_for_nans():
        return Unsplit("JAX's own `debug_nans` looks at each result in the thread that sets it")

    count, why = _count(options.workers)
    if count == 1:
        return Unsplit(f"one worker{f', {why}' if why else ''}")
    mapped = mapped_axis(entry, arrays)
    if isinstance(mapped, Unsplit):
        return mapped
    axis, size, dims = mapped

    # Whole chunks, so that each is as wide as without workers.
    chunk = dict(options.chunk).get(axis)
    step = chunk if isinstance(chunk, int) else 1
    width = -(-size // (count * step)) * step
    if width >= size:
        chunks = f" of chunks of {step}" if step > 1 else ""
        return Unsplit(f"{axis}={size} is one part{chunks}")
    division = Division(
        axis,
        size,
        dims,
        width,
    )
    return Split(
        division,
        min(count, len(division.parts)),
        why,
    )


def mapped_axis(
    entry: CompiledCalls,
    arrays: Sequence[Array],
) -> tuple[str, int, tuple[int | None, ...]] | Unsplit:
    """Return the outermost mapped axis of a call, its size, and its position in each array; or why
    no array has one.

    Raises:
        ContractError: The arrays differ in its size, or do not fit the contract.
    """
    vmap = entry.plan_call(arrays, jit=False).plan.stage("vmap")
    if not isinstance(vmap, Vmap):
        return Unsplit(vmap.why)
    axis, dims = vmap.axes[0], vmap.levels[0]
    mapped = zip(arrays, dims, strict=True)
    size = next(aval_parts(array)[0][dim] for array, dim in mapped if dim is not None)
    return axis, size, dims


def reason_of(entry: CompiledCalls, unsplit: Unsplit) -> str:
    """Return why a call runs whole.

    Raises:
        OptionError: A number of workers was given, which is a demand, and they cannot split it.
    """
    if unsplit.is_refused and entry.workers is not None and entry.workers.is_demanded:
        raise OptionError(
            entry.core.where,
            f"workers={entry.options.workers} cannot split this call: {unsplit.what}.",
            "Each part runs in a thread of its own, at the same time as the others, on the CPU of"
            " this process.",
            f"{unsplit.fix}leave out `workers`, or write"
            ' workers="auto", which runs such a call whole.',
            code="J201",
        )
    return unsplit.what


def element_of(entry: CompiledCalls, arrays: Sequence[Array]) -> object:
    """Trace the program of one element of the mapped axes."""
    with entry.numbers():
        planned = entry.plan_call(arrays, jit=False)
        one = planned.plan.seen_inside(Vmap, planned.view)
        avals = [leaf.abstract() for leaf in one.leaves]
        return jax.make_jaxpr(entry.body_inside(planned.plan, Vmap))(*avals)


def part_obstacle(
    entry: CompiledCalls,
    split: Split,
    arrays: Sequence[Array],
) -> Unsplit | None:
    """Return why threads cannot run the program of a part, before there is one, by an abstract
    trace that nobody counts; None if they can.
    """

    outcome = Outcome()

    def inside(*part: object) -> object:
        return entry.apply_plan(entry.plan_call(part), part, outcome)

    with entry.numbers():
        jaxpr = jax.make_jaxpr(inside)(*split.division.first(arrays))
    return (
        joint_rules_obstacle(outcome.joint_rules)
        or effects_obstacle(jaxpr)
        or lapack_obstacle(jaxpr)
    )


def _count(workers: int | str) -> tuple[int, str]:
    """Return the number of workers, and where it comes from if it was not given."""
    if isinstance(workers, int):
        return workers, ""
    if workers == DEVICES:
        return len(cpu_devices()), ""
    cores = allowed_cores()
    return cores.value, f"{plural(cores.value, 'core')}, by {cores.by}"


def _device_obstacle(arrays: Sequence[Array]) -> Unsplit | None:
    """Return why a call does not run on one CPU device of the only process; None if it does."""
    if jax.process_count() > 1:
        return Unsplit("there are several processes", is_refused=True)
    devices = [array.sharding.device_set for array in arrays if isinstance(array, jax.Array)]
    if any(len(each) > 1 for each in devices):
        return Unsplit("its arrays lie on several devices", is_refused=True)
    platforms = {device.platform for each in devices for device in each}
    others = (platforms or {default_platform()}) - {"cpu"}
    if others:
        return Unsplit(f"it runs on a device of kind {min(others)!r}", is_refused=True)
    return None


def call_key(arrays: Sequence[Array]) -> Hashable:
    """Return the key of calls that one program serves: all that JAX would compile another one
    for.
    """
    return (
        settings(),
        settings_of_programs(),
        context(),
        *((aval_parts(array), _put_on(array)) for array in arrays),
    )


def _put_on(array: Array) -> Hashable:
    """Return where an array was put on purpose; None for others."""
    return array.sharding if isinstance(array, jax.Array) and array.committed else None
