"""Compiled steps of a stream: `values, carry, chunk -> carry, results`, for one length and chunk
size.

For `jnp.mean((x - jnp.mean(x)) ** 2)` there are two passes, each with a `begin`, a `step` and a
`join`: the first accumulates the sum of `x`, the second the sum of the squares. `end` divides.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

import jax
import numpy as np

from .._axes import Chunked, KnownValues, Passes, StoredCarries, number_constants
from .._errors import AxisError, ContractError
from .._jax.mesh import is_within_trace
from .._jax.programs.primitives import public_name
from .._jax.programs.ssa import numbers_of
from .._jax.trees import device_put, issubdtype
from .._jax.typed import Array
from .._jax.xla.compiler import options_of
from .._jax.xla.memory import Fit, Misfit, counted_bytes, fit, text
from .._stages import Chunk
from .._stages.plan import Plan
from .._stages.stage import name_scope
from .._view.result import Outcome
from .run_key import host_texts, program_key, value_key
from .schedule import PassSchedule
from .stream_layout import Begin, Join, Step, StreamLayout

if TYPE_CHECKING:
    from .._axes.chunks.known_values import States
    from .._axes.chunks.passes import Pass
    from .._program.entry import Specialization

_READ_BYTES = 6 * 2**20
"""Bytes of data in a chunk: reading them takes longer than a dispatch, and caches hold them."""
_TIMES_FIXED = 4
"""Least number of times that the data of a chunk are as large as what a step takes besides."""
CHUNK_BYTES = 256 * 2**20
"""Default limit in bytes of a step, and of the values that a stream holds whole, without
`memory=`.
"""


class StreamProgram:
    """Functions that a stream runs, for one length of data and one chunk size.

    Args:
        entry: The program.
        stage: The axis.
        laid: The sharding of chunks and carries.
        schedule: The passes as data.
        outcome: Assembles the results.
    """

    begin: Sequence[Begin]
    """Per pass: known values -> values computed from them, and the initial carry."""
    step: Sequence[Step]
    """Per pass: values, carry, chunk, its start, and replayed carries -> carry, and results per
    chunk.
    """
    rest: Sequence[Step]
    """Per pass: the step of a last chunk that the devices do not divide."""
    join: Sequence[Join]
    """Per pass: carry -> carry, reduced over the devices and rounded to the program's dtypes."""
    end: Callable[..., Sequence[Array]]
    """Values -> results."""

    def __init__(
        self,
        entry: Specialization,
        stage: Chunk,
        laid: StreamLayout,
        schedule: PassSchedule,
        outcome: Outcome,
    ):
        self.entry = entry
        self.stage = stage
        self.laid = laid
        self.schedule = schedule
        self.size = schedule.size
        self.total = stage.size
        self.outcome = outcome
        self.captured: Mapping[int, jax.Array] = {}
        """Copies of the large arrays that the function has captured, by their number."""
        self.kept: str | None = None
        """Outcome of `cache="program"`, for the statistics; None if it is not requested."""

    @property
    def program(self) -> str:
        """Digest of the computation, compared when a run resumes from a checkpoint."""
        raise NotImplementedError

    @cached_property
    def pieces(self) -> list[tuple[int, int]]:
        """Start and length of each chunk."""
        starts = range(0, self.total, self.size)
        pieces = [(start, min(self.size, self.total - start)) for start in starts]

        # Split the last chunk: the part that the devices divide, then the remainder for one device.
        start, count = pieces.pop()
        rest = count % self.laid.parts
        divided = count - rest
        if divided:
            pieces.append((start, divided))
        if rest:
            pieces.append((start + divided, rest))
        return pieces

    def unstreamed(self) -> dict[int, jax.ShapeDtypeStruct]:
        """Return the abstract values of the arguments that do not have the axis, by number."""
        arguments = zip(self.schedule.takes, self.stage.view.leaves, strict=True)
        streamed = self.schedule.streamed
        return {n: leaf.abstract() for n, leaf in arguments if n not in streamed}

    def place_value(
        self,
        n: int,
        x: Array,
        count: int | None = None,
    ) -> Array:
        """Put a value on its devices: an argument, or a chunk with `count` elements of the axis."""
        if self.laid.place is None:
            return x
        divides = count is not None and count % self.laid.parts == 0
        argument = self.schedule.takes.index(n)
        axis = self.schedule.axes[n] if divides else None
        return device_put(x, self.laid.sharding(argument, axis))


class CompiledSteps(StreamProgram):
    """Steps that are planned and compiled in this process.

    Args:
        entry: The program.
        stage: The axis.
        laid: The sharding of chunks and carries.
        size: Number of elements in a chunk.
        like: Steps of another chunk size, whose plan is reused.
    """

    def __init__(
        self,
        entry: Specialization,
        stage: Chunk,
        laid: StreamLayout,
        size: int,
        like: CompiledSteps | None = None,
    ):
        # The plan does not depend on the chunk size, so a search over sizes plans once.
        if like is None:
            outcome, passes = self._plan(entry, stage)
            self.passes, captured = _capture(entry, laid, passes)
        else:
            outcome, self.passes, captured = like.outcome, like.passes, like.captured
        self.work = Chunked(
            self.passes,
            np.int32(stage.size),
            laid.devices,
            is_spread=laid.place is not None,
        )
        schedule = PassSchedule.of(
            self.passes,
            self.work,
            laid.round_up(size),
            stage.size,
        )
        super().__init__(entry, stage, laid, schedule, outcome)
        self.captured = captured

        compiled = partial(
            jax.jit,
            compiler_options=dict(options_of(entry.options.compiler)) or None,
        )
        begin: list[Begin] = []
        step: list[jax.stages.Wrapped] = []
        rest: list[Step] = []
        join: list[Join] = []
        for number, pass_ in enumerate(self.passes.passes, 1):
            # Name of the pass in profiles.
            scope = f"{entry.core.name}/stream {stage.axis}/pass {number}"
            begin.append(compiled(name_scope(scope, laid.begin(self._begin(pass_)))))
            step.append(compiled(name_scope(scope, self._shard_step(pass_))))
            rest.append(compiled(name_scope(scope, self._shard_step(pass_, whole=True))))
            join.append(compiled(laid.join(partial(self.work.combine_states, pass_))))
        self.begin, self.step, self.rest, self.join = begin, step, rest, join
        self.end = compiled(self._end)
        # The same functions, as what can be lowered.
        self._jitted_steps = step

    @property
    def program(self) -> str:
        """Digest of every operation and constant, and of what callbacks read now."""
        read = host_texts(self.passes)
        if not read:
            return self._digest
        text = repr([self._digest, *read])
        return hashlib.sha256(text.encode()).hexdigest()

    # Once: nothing of it changes, and printing the operations takes a fifth of a millisecond.
    @cached_property
    def _digest(self) -> str:
        facts: list[object] = [
            self.entry.core.name,
            program_key(self.passes),
            self.work.accumulators,
        ]
        facts += map(value_key, self.captured.values())
        text = repr(facts)
        return hashlib.sha256(text.encode()).hexdigest()

    @staticmethod
    def _plan(entry: Specialization, stage: Chunk) -> tuple[Outcome, Passes]:
        outcome = Outcome()
        request = replace(
            entry.request,
            options=replace(
                entry.core.options,
                pad=(),
                chunk=(),
                memory=None,
            ),
            single="read in chunks",
        )

        # The body without the options that the stream replaces.
        body = entry.body_inside(Plan.make(stage.view, request), Chunk, outcome)
        passes = stage.passes(body, in_memory=False)
        _check_whole_values(entry, stage, passes)
        _check_keys(entry, stage, passes)
        return outcome, passes

    def _shard_step(self, pass_: Pass, *, whole: bool = False) -> Step:
        passes = self.passes
        chunked = [n for n in passes.flat.takes if n in passes.streamed]
        ins = {n: passes.axis(n) for n in chunked}

        emitted = map(passes.axis_of_result, pass_.emits)
        collected = map(passes.axis, pass_.collects)
        outs = [*emitted, *collected]
        return self.laid.step(
            self._step(pass_),
            ins,
            outs,
            whole=whole,
        )

    def bytes(self) -> int:
        """Peak bytes of a step on one device by the compiler's count, plus the chunk that is read
        meanwhile.
        """
        with self.passes.x64:
            return self._bytes()

    def _bytes(self) -> int:
        values = {n: self._lying(n, x) for n, x in self.unstreamed().items()}
        values.update({n: _abstract(x) for n, x in self.captured.items()})
        chunk = {n: self._chunk_aval(n) for n in self.schedule.streamed}
        number = jax.ShapeDtypeStruct((), np.int32)
        most = 0
        kept: StoredCarries = {}

        # Interpret the run over abstract values, in the order of `stream_run.py`, and compile
        # each step.
        for p, pass_ in enumerate(self.passes.passes):
            new, state = jax.eval_shape(self.begin[p], values)
            values.update(new)
            state = self.laid.shard_carry(state)
            carried = (kept,) if pass_.replays else ()
            lowered = self._jitted_steps[p].lower(
                values,
                state,
                chunk,
                number,
                *carried,
            )
            # What is captured is there once, and belongs to no chunk.
            read = {n for node in pass_.nodes for n in node.numbers}
            held = sum(x.nbytes for n, x in self.captured.items() if n in read)
            most = max(most, counted_bytes(lowered.compile()) - held)

            kept.update(self.work.stored_carries(pass_, state))
            for n in pass_.collects:
                values[n] = self.schedule.whole(n)
            known = KnownValues(dict(values))
            self.work.finish(pass_, known, jax.eval_shape(self.join[p], state))
            values.update(known.values)

        # Carries that are saved for a pass in the other direction: one set for each chunk of the
        # data.
        boundaries = self.passes.kept_bytes(-(-self.total // self.size))
        following = sum(x.size * x.dtype.itemsize for x in chunk.values()) // self.laid.parts
        return most + boundaries + following

    def _chunk_aval(self, n: int) -> jax.ShapeDtypeStruct:
        chunk = self.schedule.chunk(n, self.size)
        return self._lying(n, chunk, self.schedule.axes[n])

    def _lying(
        self,
        n: int,
        aval: jax.ShapeDtypeStruct,
        axis: int | None = None,
    ) -> jax.ShapeDtypeStruct:
        if self.laid.place is None:
            return aval
        return aval.update(sharding=self.laid.sharding(self.passes.flat.takes.index(n), axis))

    def _begin(self, pass_: Pass) -> Begin:
        """Values computed once before a pass, and its initial carry."""

        def begin(values: Mapping[int, jax.Array]) -> tuple[dict[int, jax.Array], States]:
            known = KnownValues(dict(values))
            self.work.settle(pass_.before, known)
            return _new(known, values), self.work.start(pass_, known)

        return begin

    def _step(self, pass_: Pass) -> Step:
        """Step of one chunk."""

        def step(
            values: Mapping[int, jax.Array],
            state: States,
            chunk: dict[int, jax.Array],
            start: jax.Array,
            kept: StoredCarries | None = None,
            *,
            here: bool | jax.Array = True,
        ) -> tuple[States, list[jax.Array]]:
            n = next(iter(chunk))
            # Every element counts: a shorter last chunk is a program of its own, as a shared one
            # would have to mask the padding in each chunk.
            count = chunk[n].shape[self.passes.axis(n)]
            return self.work.step(
                pass_,
                KnownValues(dict(values)),
                chunk,
                state,
                start,
                count,
                count,
                kept=kept,
                here=here,
            )

        return step

    def _end(self, values: Mapping[int, jax.Array]) -> list[jax.Array]:
        """Results that do not have the axis, from the values that all passes have accumulated."""
        # Placeholders: results that have the axis are assembled on the host.
        emitted = {i: None for pass_ in self.passes.passes for i in pass_.emits}
        # No `devices`: the carries were reduced by `join`, so every device computes the same.
        on_all = Chunked(self.passes, np.int32(self.total), is_spread=self.work.is_spread)
        return self.passes.weakly_typed(on_all.results(KnownValues(dict(values)), emitted))


def suiting_steps(
    entry: Specialization,
    stage: Chunk,
    laid: StreamLayout,
    budget: int,
) -> tuple[CompiledSteps, Fit] | Misfit:
    """Steps with chunks that are quick to read, or as long as the budget allows if these are
    shorter; and the fit on one device.

    Raises:
        AxisError: The axis cannot be cut.
    """
    # Planned once; each measured width reuses the plan and compiles its own steps.
    first = CompiledSteps(entry, stage, laid, 1)
    by_width: dict[int, CompiledSteps] = {}

    def measure(width: int) -> int:
        steps = CompiledSteps(entry, stage, laid, width * laid.parts, first)
        by_width[width] = steps
        return steps.bytes()

    most = _quick_width(first)
    measured = measure(most)
    fitting = Fit(
        most,
        None,
        measured,
        budget,
    )
    if measured > budget:
        fitting = fit(measure, most, budget)
    if isinstance(fitting, Misfit):
        return fitting
    return by_width[fitting.width], fitting


def _quick_width(steps: CompiledSteps) -> int:
    """Elements of a chunk that is long enough for what each step costs, and not longer."""
    schedule, stage, passes = steps.schedule, steps.stage, steps.passes
    # Each step reads its chunk and the other arguments, and reads and writes the carry.
    data, fixed = 0, passes.carried_bytes()
    for n, leaf in zip(schedule.takes, stage.view.leaves, strict=True):
        size = math.prod(leaf.shape) * leaf.dtype.itemsize
        if n in schedule.streamed:
            data += size
        else:
            fixed += size
    row = max(1, data // stage.size)
    width = max(1, max(_READ_BYTES, _TIMES_FIXED * fixed) // row)
    return _dividing(stage.part, min(width, stage.suiting(passes)))


def _dividing(total: int, width: int) -> int:
    """A width that divides the total, if a somewhat shorter one does: a shorter last chunk is
    another program.
    """
    least = -(-total // width)
    counts = range(least, least + least // 4 + 1)
    return next((total // count for count in counts if total % count == 0), width)


def _capture(
    entry: Specialization,
    laid: StreamLayout,
    passes: Passes,
) -> tuple[Passes, Mapping[int, jax.Array]]:
    """Return a plan whose programs take the large arrays that the function has captured, and copies
    of these.
    """
    # A cached program has them as constants, so that a later process needs nothing else.
    if entry.kept is not None or is_within_trace():
        return passes, {}
    numbered, constants = number_constants(passes)
    sharding = laid.replicated()
    copies = {n: entry.captured_copies.copy(x, sharding) for n, x in constants.items()}
    return numbered, copies


def _abstract(array: jax.Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=array.sharding)


def _new(known: KnownValues, values: Mapping[int, object]) -> dict[int, jax.Array]:
    return {n: x for n, x in known.values.items() if n not in values}


def _check_whole_values(entry: Specialization, stage: Chunk, passes: Passes) -> None:
    """Refuse values that operations need whole, if they exceed the budget."""
    # Data of a stream have any length, so a sort or the like is done on the whole only if that is
    # small.
    held = passes.held_bytes(stage.size)
    budget = stage.budget or CHUNK_BYTES
    if held > budget:
        op = passes.at_once[0].op
        raise AxisError(
            entry.core.where,
            f"axis {stage.axis!r} cannot be read in chunks: {op.place or 'it'} needs all of it at"
            f" once (`{public_name(op.name)}`), {text(held)} of {text(budget)}.",
            "A sort and the like are done on the whole, which a stream holds if it is as small as"
            " what `memory` allows.",
            f"give the function memory={held} or more, or call it with `chunk`, on data that are in"
            " memory.",
            code="J230",
        )


def _check_keys(entry: Specialization, stage: Chunk, passes: Passes) -> None:
    """Refuse random keys that a stream puts together from chunks, as it does on the host."""
    flat = passes.flat
    together: set[int] = set()
    for pass_ in passes.passes:
        together.update(numbers_of(flat.gives[i] for i in pass_.emits))
        together.update(pass_.collects)
    for n in together:
        if issubdtype(flat.dtypes[n], jax.dtypes.prng_key):
            raise ContractError(
                entry.core.where,
                f"its chunks make an array of random keys along {stage.axis!r}.",
                "Chunks of results are put together on the host, which has no keys.",
                "return `jax.random.key_data` of them, or nothing; or call the function with"
                " `chunk`.",
                code="J218",
            )
