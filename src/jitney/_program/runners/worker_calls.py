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

import math
import threading
from collections.abc import Hashable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

import jax
import numpy as np

from ... import _axes
from ..._checks import CheckTable, Unflaggable
from ..._errors import OptionError, plural
from ..._host.limits import allowed_cores
from ..._jax.compile_cache.cache import ensure as ensure_cache
from ..._jax.compile_cache.cache import pause_cache
from ..._jax.equinox_checks import Insides, has_equinox_checks
from ..._jax.mesh import context
from ..._jax.programs.jaxprs import draws_jointly, source_of
from ..._jax.settings import (
    default_platform,
    looks_for_nans,
    settings,
    settings_of_programs,
    x64_is_on,
)
from ..._jax.trees import tree_flatten, tree_unflatten
from ..._jax.typed import Array
from ..._signature.options import AUTO, is_measured
from ..._stages import Vmap
from ..._view.layout import aval_parts
from ..._view.result import Outcome
from ..compiled_calls import CompiledCalls
from .captured_calls import captured_calls, note_captured
from .checked_calls import checked_calls
from .device_parts import DEVICES, DeviceParts, cpu_devices, obstacle_of, obstacle_of_program
from .parts import ArrayType, Division, PartialResult
from .whole_calls import WholeCalls
from .worker_threads import THREADS

_LAPACK = (
    *("cholesky", "cholesky_update", "triangular_solve", "lu", "qr", "geqrf", "geqp3", "ormqr"),
    *("householder_product", "eig", "eigh", "svd", "schur", "hessenberg", "symmetric_product"),
    *("tridiagonal", "tridiagonal_solve", "ffi_call"),
)
# XLA (jax 0.10.2, CPU) divides a LAPACK kernel of many numbers over its own threads, and two Python
# threads that run such kernels at once may wait for each other for ever. `lu`, `qr`, `eigh` and
# `triangular_solve` did so in `jax.jit` alone, from 64,000 numbers on, and none with 13,000.
_MOST_OF_LAPACK = 4096


class Unsplit(Exception):
    """A call runs whole.

    Args:
        what: Why.
        is_refused: Whether `workers=2` asks for what cannot be done.
        fix: What to do then, besides leaving out `workers`.
    """

    def __init__(
        self,
        what: str,
        *,
        is_refused: bool = False,
        fix: str = "",
    ):
        super().__init__(what)
        self.what, self.is_refused, self.fix = what, is_refused, fix


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

    def run(self, arrays: Sequence[Array], workers: int | None = None) -> object:
        """Run a call, with so many workers in place of those of the split.

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
                out = self.compiled(*parts[number], *self.captured)
                if self.table is not None:
                    out, flag = out
                    failed[number] = int(np.asarray(flag))
                leaves, trees[number] = tree_flatten(out)
                for result, leaf in zip(results, leaves, strict=True):
                    result.add(number, leaf)

        tasks = [partial(work_on, number) for number in range(len(parts))]
        THREADS.run(tasks, workers or self.split.workers)
        # The check that comes first in the program, as where all elements are one call.
        first = min((number for number in failed if number), default=0)
        if first and self.table is not None:
            self.table.fail(first)
        return tree_unflatten(trees[0], [result.whole() for result in results])


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
        try:
            split = split_of(entry, arrays)
            # A kept program is one call, which shows none of its operations.
            if entry.kept is not None:
                refuse_part(entry, split, arrays)
            return self._compiled(split, split.division.first(arrays))
        except Unsplit as unsplit:
            return reason_of(entry, unsplit)

    def _compiled(self, split: Split, given: Sequence[object]) -> PartProgram:
        """Compile for the arrays of a part.

        Raises:
            Unsplit: The program has effects.
        """
        entry = self.entry
        ensure_cache()
        with (
            entry.numbers(),
            nullcontext() if entry.core.options.cache else pause_cache(),
        ):
            traced: jax.stages.Traced = entry.lower(given, "trace")
            refuse_joint_rules(entry.joint_rules)
            refuse_effects(traced.jaxpr)
            refuse_lapack(traced.jaxpr)
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
                    raise Unsplit(
                        "its run-time checks are callbacks of Equinox's, which call Python",
                        is_refused=True,
                    ) from None
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
) -> PartProgram:
    _refuse(obstacle_of_program(entry, traced))
    over = DeviceParts.of(traced, split.division)
    results = tuple(map(aval_parts, traced.jaxpr.out_avals))
    return PartProgram(split, over.compiled, results, None, (), over)


def _refuse(why: str) -> None:
    if why:
        raise Unsplit(why)


def split_of(entry: CompiledCalls, arrays: Sequence[Array]) -> Split:
    """Divide a call with these arrays or abstract values.

    Raises:
        ContractError: The arrays differ in the size of the axis, or do not fit the contract.
        Unsplit: It runs whole.
    """
    options = entry.options
    if options.workers is None:
        raise Unsplit("no `workers` given")
    if entry.request.nested:
        raise Unsplit("under an outer trace the outermost program says how it runs")
    _refuse_devices(arrays)
    if options.workers == DEVICES:
        _refuse(obstacle_of(arrays))
    if looks_for_nans():
        raise Unsplit("JAX's own `debug_nans` looks at each result in the thread that sets it")

    count, why = _count(options.workers)
    if count == 1:
        raise Unsplit(f"one worker{f', {why}' if why else ''}")
    axis, size, dims = mapped_axis(entry, arrays)

    # Whole chunks, so that each is as wide as without workers.
    chunk = dict(options.chunk).get(axis)
    step = chunk if isinstance(chunk, int) else 1
    width = -(-size // (count * step)) * step
    if width >= size:
        chunks = f" of chunks of {step}" if step > 1 else ""
        raise Unsplit(f"{axis}={size} is one part{chunks}")
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
) -> tuple[str, int, tuple[int | None, ...]]:
    """Return the outermost mapped axis of a call, its size, and its position in each array.

    Raises:
        ContractError: The arrays differ in its size, or do not fit the contract.
        Unsplit: No array has it.
    """
    vmap = entry.plan_call(arrays, jit=False).plan.stage("vmap")
    if not isinstance(vmap, Vmap):
        raise Unsplit(vmap.why)
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
        ) from None
    return unsplit.what


def refuse_effects(jaxpr: object) -> None:
    """Check that a program does nothing besides computing its result, each element alone.

    Raises:
        Unsplit: It calls Python, has another effect, or draws for all elements from one key.
    """
    for eqn in Insides().equations(jaxpr):
        if draws_jointly(eqn):
            raise Unsplit(
                f"{source_of(eqn) or 'it'} draws for all elements at once (`{eqn.primitive.name}`)",
                is_refused=True,
                fix='draw with keys of `jax.random.key(seed, impl="threefry2x32")`, ',
            )
    effect = _axes.find_effect(jaxpr)
    if effect is not None:
        place, what = effect
        raise Unsplit(
            f"{place or 'it'} {what}",
            is_refused=True,
            fix="move that line out of the function, ",
        )


def element_of(entry: CompiledCalls, arrays: Sequence[Array]) -> object:
    """Trace the program of one element of the mapped axes."""
    with entry.numbers():
        planned = entry.plan_call(arrays, jit=False)
        one = planned.plan.seen_inside(Vmap, planned.view)
        avals = [leaf.abstract() for leaf in one.leaves]
        return jax.make_jaxpr(entry.body_inside(planned.plan, Vmap))(*avals)


def refuse_joint_rules(places: Sequence[str]) -> None:
    """Check that no operation of an element has a rule of its own for `jax.vmap`, which sees all
    elements together, and may make something else of a part of them.

    Args:
        places: The user's lines of those that have one.

    Raises:
        Unsplit: One has.
    """
    for place in places:
        raise Unsplit(
            f"{place or 'it'} has its own rule for `jax.vmap` (`custom_vmap`), which sees all"
            " elements",
            is_refused=True,
        )


def refuse_lapack(jaxpr: object) -> None:
    """Check that threads which run a program cannot wait for each other in LAPACK.

    Raises:
        Unsplit: They could.
    """
    for eqn in Insides().equations(jaxpr):
        atoms = (*eqn.invars, *eqn.outvars)
        most = max((math.prod(aval_parts(atom.aval)[0]) for atom in atoms), default=0)
        if eqn.primitive.name in _LAPACK and most > _MOST_OF_LAPACK:
            raise Unsplit(
                f"{source_of(eqn) or 'it'} runs `{eqn.primitive.name}` on {most:,} numbers at once,"
                f" and above {_MOST_OF_LAPACK:,} XLA may hang where two threads do so",
                is_refused=True,
                fix="cut the axis into narrower chunks, ",
            )


def refuse_part(
    entry: CompiledCalls,
    split: Split,
    arrays: Sequence[Array],
) -> None:
    """Check the program of a part before there is one, by an abstract trace that nobody counts.

    Raises:
        Unsplit: Threads cannot run it.
    """

    outcome = Outcome()

    def inside(*part: object) -> object:
        return entry.apply_plan(entry.plan_call(part), part, outcome)

    with entry.numbers():
        jaxpr = jax.make_jaxpr(inside)(*split.division.first(arrays))
    refuse_joint_rules(outcome.joint_rules)
    refuse_effects(jaxpr)
    refuse_lapack(jaxpr)


def _count(workers: int | str) -> tuple[int, str]:
    """Return the number of workers, and where it comes from if it was not given."""
    if isinstance(workers, int):
        return workers, ""
    if workers == DEVICES:
        return len(cpu_devices()), ""
    cores = allowed_cores()
    return cores.value, f"{plural(cores.value, 'core')}, by {cores.by}"


def _refuse_devices(arrays: Sequence[Array]) -> None:
    """Check that a call runs on one CPU device of the only process.

    Raises:
        Unsplit: It does not.
    """
    if jax.process_count() > 1:
        raise Unsplit("there are several processes", is_refused=True)
    devices = [array.sharding.device_set for array in arrays if isinstance(array, jax.Array)]
    if any(len(each) > 1 for each in devices):
        raise Unsplit("its arrays lie on several devices", is_refused=True)
    platforms = {device.platform for each in devices for device in each}
    others = (platforms or {default_platform()}) - {"cpu"}
    if others:
        raise Unsplit(f"it runs on a device of kind {min(others)!r}", is_refused=True)


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
