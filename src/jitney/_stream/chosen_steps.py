"""Steps of a stream over data of one length: those of an earlier run, or new ones."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from .._errors import AxisError, DataWarning, format_error
from .._jax.settings import settings
from .._jax.xla.memory import Misfit, text
from .._owners import users_level
from .._stages import Chunk
from .serialized_steps import load_or_plan_steps
from .steps import CHUNK_BYTES, CompiledSteps, StreamProgram, suiting_steps
from .stream_layout import StreamLayout

if TYPE_CHECKING:
    from .._program.entry import Specialization


def steps_of(
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
# Lengths and chunk sizes whose steps one function remembers.
_MAX_STEPS = 64
