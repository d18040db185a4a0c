"""`jitney.stream`: run a function over data that do not fit into memory, chunk by chunk.

The passes are those of `chunk=`. The loop is on the host (`_PassLoop` in `stream_run.py`): each
chunk goes through one compiled step, the carry stays on the device, and the next chunk is read
meanwhile. Given

    @jitney.optimize
    def variance(x: Float[Array, "n"]):
        return jnp.mean((x - jnp.mean(x)) ** 2)

and a file of 10 rows, `stream(variance, "x.npy", chunk={"n": 4})` reads rows 0:4, 4:8 and 8:10 for
the sum of `x`, then again for the sum of the squares: 2 passes, 6 chunks.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import jax

from .._diagnosis.nonfinite.message import refuse_nonfinite
from .._errors import (
    AxisError,
    ContractError,
    OptionError,
    repr_of,
)
from .._interface.derivatives.derivative import Derivative
from .._jax.typed import Array
from .._owners import public
from .._program.outer_transforms import warn_missing_checks
from .._report.streamed import Streamed, StreamStats
from .._stages import Chunk
from .._verify import is_verified
from .._view.layout import is_nested_trace
from .._view.view import View
from .arguments import StreamArguments, bind_call
from .chosen_steps import steps_of
from .chunk_axis import ChunkOf, axis_sizes, choose_axis, read_chunk
from .data.sources import is_read
from .resume import Checkpoint
from .row_stream import row_values, stream_rows
from .steps import StreamProgram
from .stream_layout import StreamLayout
from .stream_run import StreamRun
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
    by_rows = row_values(called.core, values) if called.core.may_have_rows else None
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
        laid = StreamLayout.of(entry, stage)
        # Data of one chunk, and functions under `JITNEY_DISABLE`, are one plain call (below).
        cut = stage.size > (size or 1) or (laid.devices is not None and stage.size > 1)
        if cut and entry.core.options.disabled is None:
            steps = _steps(entry, arrays, stage, laid, view, keywords)
            names = [leaf.path for leaf in view.leaves]
            data = [
                sources[name] if is_read(sources.get(name)) else x
                for name, x in zip(names, arrays, strict=True)
            ]
            run = StreamRun(
                steps,
                names,
                data,
                keywords.retries,
                kept=keywords.checkpoint is not None,
            )
            value, saves = _run_steps(run, keywords)
            if is_nested_trace(jax.tree.leaves(value)):
                warn_missing_checks(entry)
            else:
                _refuse_nonfinite(entry, value)
                if is_verified(entry.core.options):
                    verify_stream(
                        entry,
                        (stage.axis, steps.size),
                        data,
                        value,
                        partial(_unverified_value, program, stage.axis, size),
                    )

            stats = StreamStats(
                run.chunks_done,
                stage.size,
                len(steps.schedule.turns) + run.repeats,
                run.rows,
                time.perf_counter() - began,
                arguments.failures + run.reader.failures,
                saves,
                steps.kept,
            )
            return Streamed(value, stats)

    # Several devices cannot share one element.
    if stage.size == 1:
        program = _on_one_device(program)

    args, kwargs = arguments.whole()
    whole = jax.block_until_ready(program(*args, **kwargs))
    took = time.perf_counter() - began
    stats = StreamStats(1, stage.size, 1, stage.size, took, arguments.failures, 0)
    return Streamed(whole, stats)


def _steps(
    entry: Specialization,
    arrays: Sequence[Array],
    stage: Chunk,
    laid: StreamLayout,
    view: View,
    keywords: _Keywords,
) -> StreamProgram:
    """The compiled steps of a run; an axis that was chosen and cannot be cut has a note."""
    placed = replace(stage, devices=laid.devices)
    try:
        return steps_of(entry, arrays, placed, laid, keywords.size)
    except AxisError as error:
        others = [name for name in axis_sizes(view, entry.request) if name != stage.axis]
        if keywords.axis is None and others:
            error.add_note(
                f"`stream` was given no axis, and took {stage.axis!r};"
                f' chunk={{"{others[0]}": "auto"}} gives it another.'
            )
        raise


def _run_steps(run: StreamRun, keywords: _Keywords) -> tuple[object, int]:
    """The result of a run, and how often its checkpoint was saved."""
    kept = None
    if keywords.checkpoint is not None:
        kept = Checkpoint(
            keywords.checkpoint,
            run.key(),
            keywords.checkpoint_every,
            str(run.steps.entry.core.where),
        )
    with run.steps.schedule.width:
        # Wait: after the return the caller may overwrite the data.
        value = jax.block_until_ready(run(kept, progress=keywords.progress))
    return value, kept.saves if kept is not None else 0


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
    return program.with_body(program.body, options.without("shard", "mesh"))


def _unverified_value(
    program: AnyProgram,
    axis: str,
    size: int | None,
    values: tuple[object, ...],
) -> object:
    """Result of a stream of other data, without verification."""
    unverified = program.with_body(program.body, program.options.without("verify"))
    return _run(unverified, values, _Keywords(axis, size, progress=False)).result
