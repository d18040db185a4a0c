"""`jitney.stream`: run a function over data that do not fit into memory, chunk by chunk.

The passes are those of `chunk=`. The loop is on the host (`_StreamRun.__call__`): each chunk goes
through one compiled step, the carry stays on the device, and the next chunk is read meanwhile.
Given

    @jitney.optimize
    def variance(x: Float[Array, "n"]):
        return jnp.mean((x - jnp.mean(x)) ** 2)

and a file of 10 rows, `stream(variance, "x.npy", chunk={"n": 4})` reads rows 0:4, 4:8 and 8:10 for
the sum of `x`, then again for the sum of the squares: 2 passes, 6 chunks.
"""

from __future__ import annotations

import hashlib
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import jax
import numpy as np
from jax.core import Tracer

from .._axes import begin_from, numbers_of_iterations
from .._diagnosis.nonfinite import refuse_nonfinite
from .._errors import (
    AxisError,
    ContractError,
    DataWarning,
    JitneyError,
    OptionError,
    format_error,
    repr_of,
)
from .._interface.derivatives import Derivative
from .._jax.settings import settings
from .._jax.trees import is_key, words_of_keys
from .._jax.typed import Array, NumPyArray
from .._jax.xla.memory import Misfit, text
from .._owners import public, users_level
from .._program.outer_transforms import warn_missing_checks
from .._report.streamed import Streamed, StreamStats
from .._stages import Chunk
from .._view.layout import is_nested_trace, jit_is_off
from .._view.result import unmix
from .._view.view import View
from .arguments import StreamArguments, bind_call
from .chunk_axis import ChunkOf, axis_sizes, choose_axis, read_chunk
from .data.chunk_memory import ChunkMemory
from .data.reading import ChunkReader, Source
from .data.slices import Rows
from .data.sources import is_read, is_reversible, read_whole
from .outputs import ChunkOutputs
from .resume import Checkpoint, remaining_pieces, start_position
from .resume import CheckpointState as Reached
from .row_stream import row_values, stream_rows
from .run_key import platform, value_key
from .serialized_steps import load_or_plan_steps
from .steps import CHUNK_BYTES, CompiledSteps, StreamProgram, suiting_steps
from .stream_layout import StreamLayout
from .verify import verify_stream

if TYPE_CHECKING:
    from .._interface.program import AnyProgram, Program
    from .._program.entry import Specialization

R = TypeVar("R")


@public
def stream(
    program: Program[..., R] | Derivative[..., R],
    /,
    *args: object,
    chunk: ChunkOf | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: int | str | None = None,
    retries: int | None = None,
    progress: bool | None = None,
    **kwargs: object,
) -> Streamed[R]:
    """Run a decorated function over data of any length, a chunk at a time.

    The arguments are those of a call: `stream(f, x, t)` gives what `f(x, t)` gives, up to the order
    in which sums are added. In place of an array there may be a file or anything else that is read
    by slices. As many passes are made over the data as the function needs: one for a mean, two for
    a variance, and two more where a loop goes on until all elements are done. Memory holds two
    chunks, and results that have the axis.

    The keywords below belong to the stream, all others to the function. A parameter of the function
    that is named like one of them is passed by position.

    Args:
        program: A function under `@optimize`; or a derivative of one, such as `f.grad`. With `vmap`
            and `pad` it takes rows of unlike lengths, as a call does: a list, `jitney.ragged` of an
            array or a file, or an iterable of lists. `chunk={"row": 4096}` is how many rows are
            read and run at a time; then `checkpoint` is not there.
        args: Arguments of the function. Where its annotation is an array, anything that has `shape`
            and `dtype` and can be sliced: a NumPy array or memory map, a Zarr or HDF5 array; the
            path of an `.npy` file, or of an `.npz` file that holds an array of the parameter's
            name; a sequence of these, concatenated; or an object whose `__iter__` starts anew each
            time and gives chunks of any length, which is read once more, for its length. An array
            without the axis, and everything else, is passed whole.
        chunk: Number of elements that are read at a time, and their axis: `{"n": 4096}`. A size
            alone, or nothing, is for the axis that the program's own `chunk=` names, else for the
            longest named axis that all sources have, or without a source for that of any array.
            The size `"auto"`, which is the default, reads about 6 MiB at a time, or more where a
            step takes large other arguments or carries much; and fewer, if a step of the run would
            exceed the program's `memory=` (256 MiB if it has none), by the compiler's count on one
            device. If the axis is sharded over a mesh, each device takes its part of a chunk, and
            the chunk size is rounded up to a multiple of the devices. The rest at the end is one
            chunk of the largest multiple of the devices, and another of the fewer elements that
            remain, which one device accumulates.
        checkpoint: Path of a file that stores the accumulated values. If it exists, the run resumes
            from it, to the same bits as an unbroken run; when the run is over, the file is removed.
            It belongs to one computation (comments and line numbers do not count), chunk size and
            arguments, to data of one shape and dtype, and to JAX's settings and version. If it
            cannot be written, as on a full disk, that is a warning: the previous file stays, and
            the run goes on. The rows that were done are read again first and have to be unchanged;
            those of an `.npy` or `.npz` file that was given by its path are not read again if the
            file has not been touched.
        checkpoint_every: Interval between saves: a number of chunks, or seconds as in `"30s"`. By
            default at most once a second, and at most a hundredth of the run's time. Ctrl-C writes
            the file too.
        retries: Number of times that a chunk is read again after its reading failed (`OSError`),
            after 0.1 s, 0.2 s, 0.4 s, ...; the same holds for opening the data. By default 2. An
            object that is iterated, and a compressed `.npz`, are read again from their first row,
            up to the row that was reached.
        progress: Whether a bar shows the progress of the run, its rate, and the time left.
            By default it does.
        kwargs: Arguments of the function by name; for a derivative also its own, such as `wrt`.

    Returns:
        The function's result, in which arrays that have the axis are NumPy arrays, as `.result`,
        and statistics of the run as `.stats`.

    Raises:
        AxisError: An operation combines elements along the axis in a way that cannot be carried
            from chunk to chunk.
        ContractError: The arguments do not fit the parameters or their annotations, no array has
            the axis, or without `chunk` it is not clear which axis is meant.
        OptionError: A keyword of the stream is malformed, or is a parameter of the function too.
        MeshError: The program has `shard`, and there is no mesh, or another axis than the one that
            is cut does not divide.
        JitneyError: The checkpoint is damaged or of another run; or it is requested for a run whose
            results have the axis, which it cannot store.
        DataError: A slice came with other rows than asked for, a file is damaged, was cut or
            changed while it was read, or rows have changed since the pass before or since the
            checkpoint was written.
        OSError: A chunk could not be read; notes on it name the argument and the rows.
    """
    own = {
        "chunk": chunk,
        "checkpoint": checkpoint,
        "checkpoint_every": checkpoint_every,
        "retries": retries,
        "progress": progress,
    }
    called, values = bind_call(program, args, kwargs, own)
    axis, size = read_chunk(called.core.where, chunk, called.core.axes)
    retries = 2 if retries is None else retries
    progress = True if progress is None else progress
    _check_keywords(called, retries, progress)
    by_rows = row_values(called.core, values)
    if by_rows is not None:
        given = [
            name for name in ("checkpoint", "checkpoint_every", "retries") if own[name] is not None
        ]
        streamed = stream_rows(
            called,
            *by_rows,
            axis=axis,
            size=size,
            progress=progress,
            others=given,
        )
        return cast("Streamed[R]", streamed)
    return _run(
        called,
        values,
        _Keywords(axis, size, checkpoint, checkpoint_every, retries, progress),
    )


def _check_keywords(
    program: AnyProgram,
    retries: object,
    progress: object,
) -> None:
    if program.options.roll is not None:
        raise OptionError(
            str(program),
            "`roll` and `jitney.stream` together are not supported yet.",
            "Layers are rolled in a program as a whole, and a stream compiles its steps.",
            "stream a program without `roll`.",
            code="J201",
        )
    if program.options.workers is not None:
        raise OptionError(
            str(program),
            "`workers` and `jitney.stream` together are not supported yet.",
            "Threads share the arrays of one call, and a stream reads its data bit by bit.",
            "stream a program without `workers`.",
            code="J201",
        )
    if not isinstance(retries, int) or isinstance(retries, bool) or retries < 0:
        raise OptionError(
            str(program),
            f"retries={retries!r} is not a number of times.",
            "A reading that failed is made again so often.",
            "write retries=2, or retries=0 for none.",
            code="J220",
        )
    if not isinstance(progress, bool):
        raise OptionError(
            str(program),
            f"progress={repr_of(progress)} is neither.",
            "It is True or False.",
            "write progress=False, or leave it out.",
            code="J220",
        )


@dataclass(frozen=True)
class _Keywords:
    """Keywords of a stream. Without an axis, one is chosen; without a size, it is "auto"."""

    axis: str | None
    size: int | None
    checkpoint: str | Path | None = None
    checkpoint_every: int | str | None = None
    retries: int = 2
    progress: bool = True


def _run(
    program: AnyProgram,
    values: tuple[object, ...],
    keywords: _Keywords,
) -> Streamed[Any]:
    """Stream a program that is not bound to anything, given one value for each parameter."""
    began = time.perf_counter()
    size = keywords.size
    arguments = StreamArguments.opened(program.core, values, keywords.retries)
    sources = arguments.sources
    entry, arrays = program.found(*arguments.abstract())
    with entry.numbers(), entry.scope():
        view = entry.plan_call(arrays, jit=False).view
        stage = _stage(entry, view, keywords, sources)
        axis = stage.axis
        laid = StreamLayout.of(entry, stage)
        # Data of one chunk, and functions under `JITNEY_DISABLE`, are one plain call (below).
        cut = stage.size > (size or 1) or (laid.devices is not None and stage.size > 1)
        if cut and entry.core.options.disabled is None:
            try:
                steps = _steps(
                    entry,
                    arrays,
                    replace(stage, devices=laid.devices),
                    laid,
                    size,
                )
            except AxisError as error:
                others = [name for name in axis_sizes(view, entry.request) if name != axis]
                if keywords.axis is None and others:
                    error.add_note(
                        f"`stream` was given no axis, and took {axis!r};"
                        f' chunk={{"{others[0]}": "auto"}} gives it another.'
                    )
                raise
            names = [leaf.path for leaf in view.leaves]
            data = [
                sources[name] if is_read(sources.get(name)) else x
                for name, x in zip(names, arrays, strict=True)
            ]

            run = _StreamRun(
                steps,
                names,
                data,
                keywords.retries,
                kept=keywords.checkpoint is not None,
            )
            kept = None
            if keywords.checkpoint is not None:
                kept = Checkpoint(
                    keywords.checkpoint,
                    run.key(),
                    keywords.checkpoint_every,
                    str(entry.core.where),
                )
            with steps.schedule.width:
                # Wait: after the return the caller may overwrite the data.
                value = jax.block_until_ready(run(kept, progress=keywords.progress))

            if is_nested_trace(jax.tree.leaves(value)):
                warn_missing_checks(entry)
            else:
                _refuse_nonfinite(entry, value)
                verify_stream(
                    entry,
                    (axis, steps.size),
                    data,
                    value,
                    partial(_unverified_value, program, axis, size),
                )

            stats = StreamStats(
                run.chunks,
                stage.size,
                len(steps.schedule.turns) + run.repeats,
                run.rows,
                time.perf_counter() - began,
                arguments.failures + run.reader.failures,
                kept.saves if kept is not None else 0,
                steps.kept,
            )
            return Streamed(value, stats)

    # Several devices cannot share one element.
    if stage.size == 1:
        program = _on_one_device(program)

    args, kwargs = arguments.whole()
    whole = jax.block_until_ready(program(*args, **kwargs))
    took = time.perf_counter() - began
    return Streamed(
        whole,
        StreamStats(
            1,
            stage.size,
            1,
            stage.size,
            took,
            arguments.failures,
            0,
        ),
    )


def _refuse_nonfinite(entry: Specialization, value: object) -> None:
    if not entry.options.debug_nans:
        return
    unknown = "Which operation made it is known of calls only, not of the steps of a stream."
    refuse_nonfinite(
        entry.core.where,
        value,
        unknown,
        "call the function itself on a part of the data",
    )


def _stage(
    entry: Specialization,
    view: View,
    keywords: _Keywords,
    sources: Mapping[str, object],
) -> Chunk:
    """The stage that cuts the axis of the stream.

    Raises:
        ContractError: No array has the axis, or it is not clear which axis is meant.
    """
    request = replace(entry.request, nested=False, single="read in chunks")
    axis = keywords.axis
    if axis is None:
        read = {name: source for name, source in sources.items() if is_read(source)}
        axis = choose_axis(view, request, read)
    stage = Chunk.of(view, request, axis, keywords.size, "stream")
    if stage is None:
        raise ContractError(
            entry.core.where,
            f"no array has an axis {axis!r}.",
            "Data are cut along an axis that annotations name.",
            "pass an array with it, or correct the name.",
            code="J218",
        )
    return stage


def _on_one_device(program: Program[..., R]) -> Program[..., R]:
    """The program without `shard`."""
    options = program.options
    if options.shard is None:
        return program
    return program.with_body(program.body, replace(options, shard=None, mesh=None))


def _unverified_value(
    program: AnyProgram,
    axis: str,
    size: int | None,
    values: tuple[object, ...],
) -> object:
    """Result of a stream of other data, without verification."""
    unverified = program.with_body(program.body, replace(program.options, verify=False))
    return _run(unverified, values, _Keywords(axis, size, progress=False)).result


def _steps(
    entry: Specialization,
    arrays: Sequence[object],
    stage: Chunk,
    laid: StreamLayout,
    size: int | None,
) -> StreamProgram:
    """Steps of an earlier run over data of this length, or new ones."""
    key = (
        laid,
        stage.axis,
        size,
        settings(),
        *((leaf.path, leaf.shape, leaf.dtype, leaf.weak_type) for leaf in stage.view.leaves),
    )
    steps = entry.streams.get(key)
    if steps is None:
        if len(entry.streams) >= _MAX_STEPS:
            entry.streams.clear()
        plan = partial(_plan_steps, entry, stage, laid, size)
        steps = load_or_plan_steps(entry, arrays, stage, laid, size, plan)
        entry.streams[key] = steps
    return steps


def _plan_steps(
    entry: Specialization,
    stage: Chunk,
    laid: StreamLayout,
    size: int | None,
) -> CompiledSteps:
    if size:
        return CompiledSteps(entry, stage, laid, size)
    return _suiting(entry, stage, laid, stage.budget or CHUNK_BYTES)


def _suiting(
    entry: Specialization,
    stage: Chunk,
    laid: StreamLayout,
    budget: int,
) -> CompiledSteps:
    suiting = suiting_steps(entry, stage, laid, budget)
    if isinstance(suiting, Misfit):
        raise AxisError(
            entry.core.where,
            f"no chunk along {stage.axis!r} brings a step of the stream to {text(budget)}: the"
            f" least is {text(suiting.least)}.",
            "`memory` bounds temporaries and arguments of a step, and the chunk that is read"
            " meanwhile.",
            f"give it memory={suiting.least}.",
            code="J230",
        )
    steps, fitting = suiting
    if stage.budget and fitting.measured < _SMALL_CHUNK:
        _warn_of_small_chunks(entry, stage, fitting.width * laid.parts)
    return steps


def _warn_of_small_chunks(entry: Specialization, stage: Chunk, rows: int) -> None:
    """Warn that the chunks of a budget are so small that the run takes very many of them."""
    chunks = -(-stage.size // rows)
    if chunks <= _MANY_CHUNKS:
        return
    message = format_error(
        entry.core.where,
        f"memory={text(stage.budget or 0)} leaves a stream {chunks:,} chunks of {rows} of"
        f" {stage.axis!r} for each pass.",
        "Each chunk costs a reading and a call, whatever its size.",
        'give it more, such as memory="64MiB".',
    )
    warnings.warn(message, DataWarning, stacklevel=users_level())


# A chunk of fewer bytes is mostly overhead, which a thousand of them show.
_SMALL_CHUNK, _MANY_CHUNKS = 2**16, 1000


def _on_host(value: Rows) -> Rows:
    """Move an array that is sharded over several devices to the host, since a slice of it would be
    gathered on each of these devices first; and random keys as their words.
    """
    if is_key(value):
        return words_of_keys(value)
    if isinstance(value, jax.Array) and len(value.sharding.device_set) > 1:
        return np.asarray(value)
    return value


class _StreamRun:
    """A single run over one set of data."""

    def __init__(
        self,
        steps: StreamProgram,
        names: Sequence[str],
        values: Sequence[Any],
        retries: int,
        *,
        kept: bool,
    ):
        self.steps = steps
        self.schedule = plan = steps.schedule
        self.chunks = self.rows = self.repeats = 0
        where = str(steps.entry.core.where)
        writes = kept or any(turn.emits or turn.counts for turn in plan.turns)
        taken = list(zip(plan.takes, names, values, strict=True))
        for n, name, x in taken:
            if isinstance(x, Tracer) and (writes or n in plan.streamed):
                raise ContractError(
                    where,
                    f"{name!r} is traced by an outer transform, and this stream is cut.",
                    "Chunks, results with the axis, numbers of iterations and checkpoints are"
                    " numbers on the host, which do not exist yet in a trace.",
                    "call the function itself there, or give `chunk` the whole length.",
                    code="J218",
                )

        sources: dict[int, Source] = {}
        # Of keys, which are read as words: how to make keys of a chunk again.
        self._keys: dict[int, Callable[..., jax.Array]] = {}
        self.fixed: dict[int, object] = {}
        for n, name, x in taken:
            if n in plan.streamed:
                rows = _on_host(x)
                if is_key(x):
                    cipher = jax.random.key_impl(x)
                    self._keys[n] = partial(jax.random.wrap_key_data, impl=cipher)
                sources[n] = Source(
                    name,
                    rows,
                    plan.axes[n],
                    rows.dtype if is_key(x) else plan.dtypes[n],
                )
            else:
                self.fixed[n] = read_whole(x, name)
        # Converted here, outside of the schedule's 64-bit context, so that they keep the caller's
        # dtypes.
        # What a run has before its first pass, and a checkpoint holds as digests only.
        self._known = {*self.fixed, *steps.captured}
        self.given = {n: jax.numpy.asarray(x) for n, x in self.fixed.items()}
        self._refuse_sequential(sources, where)
        self.reader = ChunkReader(
            sources,
            steps.pieces,
            retries,
            where,
            passes=sum(turn.sweeps for turn in plan.turns),
            kept=kept,
            memory=ChunkMemory(is_used_again=not jit_is_off()),
        )

    def _refuse_sequential(
        self,
        sources: Mapping[int, Source],
        where: str,
    ) -> None:
        axis = self.steps.stage.axis
        back = any(turn.back for turn in self.schedule.turns)
        for source in sources.values():
            if is_reversible(source.data) or not (back or source.axis):
                continue
            what = f"{axis!r} is not its first axis"
            if back:
                what = f"a pass over {axis!r} runs from the end"
            raise AxisError(
                where,
                f"{source.name!r} can only be read from its first row on, and {what}.",
                "What accumulates from the end of an axis takes its last chunk first; of another"
                " axis, each chunk has all rows.",
                "pass an array, or the path of an `.npy` file.",
                code="J231",
            )

    def key(self) -> dict[str, str]:
        """Digests of all that a checkpoint must agree on, by the words of messages; `ChunkReader`
        checks the rows.
        """
        steps = self.steps
        arrays = [source.data for source in self.reader.sources.values()]
        parts: dict[str, object] = {
            "the size of a chunk": [steps.size, steps.laid.key],
            "the arguments": [value_key(x) for x in self.fixed.values()],
            "the shapes and dtypes of the data": [(x.shape, str(x.dtype)) for x in arrays],
            "the settings and the version of JAX": [settings(), platform()],
        }
        digests = {"the function": steps.program}
        for name, part in parts.items():
            digests[name] = hashlib.sha256(repr(part).encode()).hexdigest()
        return digests

    def __call__(self, kept: Checkpoint | None, *, progress: bool) -> object:
        steps, turns = self.steps, self.schedule.turns
        outputs = ChunkOutputs(self.schedule, steps.total)
        carried: dict[int, dict[int, Sequence[Array]]] = {}
        self._check_checkpoint(kept)
        if kept is not None and outputs.results:
            where = steps.entry.core.where
            raise JitneyError(
                where,
                f"a result has the axis {steps.stage.axis!r}, and a checkpoint keeps what is"
                " accumulated only.",
                "A run that goes on later has to find its results again.",
                "drop checkpoint=..., or return sums and the like.",
                code="J284",
            )

        begins = start_position(kept, self.reader, steps.laid)
        first, at, state = begins.index, begins.at, begins.state
        reached = begins.progress
        values = {n: steps.place_value(n, x) for n, x in self.given.items()}
        values.update(steps.captured)
        values.update(begins.values)
        # A program may have no pass at all: nothing depends on the data. The slice is then empty.
        back = any(turn.back for turn in turns[first : first + 1])
        passed = (sum(turn.sweeps for turn in turns[:first]) + 1) * len(steps.pieces)
        done = passed - len(remaining_pieces(steps.pieces, at, back=back))

        is_placed = bool(self._keys) or steps.laid.place is not None
        with _bar(steps, done, show=progress) as advance:
            try:
                # For each pass: compute the initial carry, unless a checkpoint gave one; step
                # through the chunks; reduce the carries over the devices; publish the values that
                # they give.
                p, sweep = first, 0
                counts: list[Array] | None = None
                while p < len(turns):
                    turn, sweep = turns[p], sweep + 1
                    if state is None:
                        new, state = steps.begin[p](values)
                        values.update(new)
                        if counts is not None:
                            spread = map(steps.laid.spread_count, counts)
                            state = begin_from(state, turn.counts, list(spread))
                    outputs.begin(turn)
                    for start, count, cut in self._chunks(at, back=turn.back):
                        before = state
                        # A pass in the other direction starts this chunk with these carries.
                        if turn.keeps or turn.replays:
                            carried.setdefault(start, {}).update(turn.stored_carries(state))
                        chunk = cut
                        if is_placed:
                            chunk = {n: self._placed(n, x, count) for n, x in cut.items()}
                        step = steps.rest[p] if count % steps.laid.parts else steps.step[p]
                        replayed = [carried[start]] if turn.replays else []
                        state, outs = step(
                            values,
                            state,
                            chunk,
                            np.int32(start),
                            *replayed,
                        )
                        if is_nested_trace(jax.tree.leaves((state, outs))):
                            # The derivative of an outer transform holds the chunk.
                            self.reader.memory.is_used_again = False
                        # Dispatch is asynchronous: wait for the step before, so that at most two
                        # chunks are on the device, and its memory may be written again.
                        jax.block_until_ready(before)
                        outputs.add(turn, outs, start, count)
                        self.chunks += 1
                        self.rows += count
                        if sweep <= turn.sweeps:
                            advance()
                        if kept is not None:
                            over = steps.total - start if turn.back else start + count
                            results = {n: x for n, x in values.items() if n not in self._known}
                            # Ctrl-C writes this position, even if no save is due.
                            reached = Reached(
                                p,
                                over,
                                results,
                                state,
                                partial(self._chunk_checksums, p, over),
                            )
                            kept.save_if_due(reached)
                    outputs.fetch()
                    state = steps.join[p](state)
                    reached_counts = numbers_of_iterations(state, turn.counts)
                    if not _are_known(reached_counts, counts):
                        # A chunk has gone on beyond what was known before: once more, from there.
                        counts, at, state = reached_counts, 0, None
                        self.repeats += 1
                        continue
                    values.update(turn.final_values(state))
                    whole = outputs.collected.items()
                    values.update({n: jax.numpy.asarray(x) for n, x in whole})
                    # Only the first pass of a resumed run starts in the middle.
                    at, state, counts = 0, None, None
                    p, sweep = p + 1, 0
            except KeyboardInterrupt as stop:
                if kept is not None and reached is not None:
                    stop.add_note(
                        kept.write(reached)
                        or f"The checkpoint {kept.path} was written;"
                        " the same call goes on from there."
                    )
                raise

        flat = [outputs.results.get(i, x) for i, x in enumerate(steps.end(values))]
        if kept is not None:
            kept.remove()
        return unmix(steps.outcome.output(flat))

    def _placed(self, n: int, rows: NumPyArray, count: int) -> Array:
        """One array of a chunk, on its devices."""
        to_keys = self._keys.get(n)
        return self.steps.place_value(n, rows if to_keys is None else to_keys(rows), count)

    def _chunk_checksums(self, index: int, at: int) -> Mapping[str, NumPyArray]:
        """Checksums of the chunks that are done; after the first pass, of all chunks."""
        pieces = self.steps.pieces
        missing: set[tuple[int, int]] = set()
        if index == 0:
            missing.update(remaining_pieces(pieces, at, back=self.schedule.turns[0].back))
        return self.reader.checkpoint_data([piece not in missing for piece in pieces])

    def _chunks(
        self,
        done: int,
        *,
        back: bool,
    ) -> Iterator[tuple[int, int, dict[int, NumPyArray]]]:
        """Read the chunks that are still to do; give start, length and rows of each.

        A chunk is read while the device runs the step of the one before, which JAX dispatches
        asynchronously.
        """
        for start, count in remaining_pieces(self.steps.pieces, done, back=back):
            yield start, count, self.reader(start, count)

    def _check_checkpoint(self, kept: Checkpoint | None) -> None:
        """Refuse a checkpoint of a run whose memory holds more than the carry."""
        turns = self.schedule.turns
        if kept is None or not any(turn.collects or turn.keeps for turn in turns):
            return
        how = "goes through all of it in both directions"
        if any(turn.collects for turn in turns):
            how = "collects all of it"
        raise JitneyError(
            self.steps.entry.core.where,
            f"it {how} along {self.steps.stage.axis!r}; a checkpoint keeps what is accumulated.",
            "Collected results, and what is carried into each chunk, stay in memory until the"
            " run is over.",
            "drop checkpoint=....",
            code="J284",
        )


def _bar(
    steps: StreamProgram,
    done: int,
    *,
    show: bool,
) -> AbstractContextManager[Callable[[], None]]:
    """Progress bar, or nothing; its value is called after each chunk."""
    if not show:
        return nullcontext(lambda: None)
    from .._text.console import bar

    total = sum(turn.sweeps for turn in steps.schedule.turns) * len(steps.pieces)
    return bar(
        steps.entry.core.name,
        total,
        done,
        steps.size,
    )


def _are_known(reached: Sequence[Array], before: Sequence[Array] | None) -> bool:
    """Return whether a pass has found the numbers of iterations that it began with. What a resumed
    run began with is not known.
    """
    if not reached:
        return True
    if before is None:
        return False
    pairs = zip(reached, before, strict=True)
    return all(int(a) == int(b) for a, b in pairs)


# Lengths and chunk sizes whose steps one function remembers.
_MAX_STEPS = 64
