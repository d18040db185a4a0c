"""Steps of a stream over data of one length: those of an earlier run, of another process, or new
ones.

With `cache="program"` steps are serialised programs, loaded, or exported for later processes. Each
function that a run calls is one exported program. There is one for the whole chunks and one for a
shorter last chunk. The order of the calls is the `PassSchedule`, which is data. The process that
exports the programs runs them too, as the next process will.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from .._errors import AxisError, DataWarning, format_error
from .._jax.equinox_checks import own_jit
from .._jax.settings import settings
from .._jax.trees import extended, issubdtype, tree_flatten, tree_unflatten
from .._jax.xla.memory import Misfit, text
from .._owners import users_level
from .._record.unsure import NotDeterministic
from .._serialized.in_parts import CachedParts, TracedParts, in_parts
from .._serialized.key import processor
from .._serialized.tracing import ExportableTrace, call_exported
from .._stages import Chunk
from .._view.layout import jit_is_off
from .._view.result import Outcome
from .schedule import Carry, PassSchedule, Values
from .steps import CHUNK_BYTES, CompiledSteps, StreamProgram, suiting_steps
from .stream_layout import Step, StreamLayout

if TYPE_CHECKING:
    from .._program.entry import Specialization

# A chunk of fewer bytes is mostly overhead, which a thousand of them show.
_SMALL_CHUNK, _MANY_CHUNKS = 2**16, 1000
# Lengths and chunk sizes whose steps one function remembers.
_MAX_STEPS = 64


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
        steps = _load_or_plan(entry, arrays, stage, laid, size, plan)
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


class SerializedSteps(StreamProgram):
    """Steps of a stream, loaded from serialised programs.

    Args:
        entry: The program.
        stage: The axis.
        laid: The sharding of chunks and carries.
        kept: The serialised programs and their schedule.
    """

    def __init__(
        self,
        entry: Specialization,
        stage: Chunk,
        laid: StreamLayout,
        kept: CachedParts,
    ):
        outcome = Outcome()
        outcome.restore(kept.treedef, kept.rest)
        super().__init__(
            entry,
            stage,
            laid,
            PassSchedule.read(kept.plan["schedule"]),
            outcome,
        )
        self._program = kept.plan["program"]
        scope = f"{entry.core.name}/stream {stage.axis}"
        parts = [
            _part(scope, content, *how)
            for content, how in zip(kept.programs, kept.plan["parts"], strict=True)
        ]

        # Programs of one pass, in the order in which `_parts` writes them: `begin`, `step`, another
        # `step` if the last chunk is shorter, `join`. The last program of all is `end`.
        each = 4 if self.total % self.size else 3
        passes = [parts[at : at + each] for at in range(0, len(parts) - 1, each)]
        self.begin = [part[0] for part in passes]
        self.join = [part[-1] for part in passes]
        self.step = [_by_length(self, part[1:-1]) for part in passes]
        # `_by_length` also picks the step of the shorter chunk; without a mesh no rest is left
        # over.
        self.rest = self.step
        self.end = parts[-1]

    @property
    def program(self) -> str:
        """Digest of every operation and constant."""
        return self._program


def _load_or_plan(
    entry: Specialization,
    arrays: Sequence[object],
    stage: Chunk,
    laid: StreamLayout,
    size: int | None,
    plan: Callable[[], CompiledSteps],
) -> StreamProgram:
    """Return the steps of a stream: serialised ones, or planned ones if they cannot be serialised.

    Args:
        entry: The program.
        arrays: Its arguments, or their abstract values.
        stage: The axis.
        laid: The sharding of chunks and carries.
        size: Elements in a chunk; None for as many as memory allows.
        plan: Plans and compiles the steps in this process.
    """
    if entry.kept is None or jit_is_off():
        return plan()
    planned: list[CompiledSteps] = []

    def make() -> TracedParts:
        if laid.place is not None:
            raise NotDeterministic("streams over several devices are not cached yet")
        planned.append(plan())
        schedule = planned[0].schedule
        if any(issubdtype(schedule.dtypes[n], extended) for n in schedule.streamed):
            raise NotDeterministic("streams of random keys are not cached yet")
        return _parts(planned[0])

    key = ["stream", stage.axis, str(size)]
    # The compiler's count of bytes picks the chunk size, so the processor is part of the key.
    if size is None:
        try:
            key += processor()
        except NotDeterministic as unsure:
            return _note_reason(plan(), f"not cached: {unsure}")
    kept, why = in_parts(entry, arrays, key, make)
    if kept is None:
        return _note_reason(planned[0] if planned else plan(), why)
    return _note_reason(SerializedSteps(entry, stage, laid, kept), why)


def _note_reason(steps: StreamProgram, why: str) -> StreamProgram:
    """Record on the steps why they were serialised, or why not."""
    steps.kept = why
    return steps


class _FunctionExporter:
    """Exports functions, one after the other."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.programs: list[jax.export.Exported] = []
        self.forms: list[object] = []

    def add(self, fn: Callable[..., object], *given: object) -> Any:
        """Export a function for these arguments; return its abstract results."""
        trace = ExportableTrace(
            lambda given: fn(*given),
            self._name,
            given,
            None,
            {},
        )
        exported = trace.export_program()
        if exported.checks:
            raise NotDeterministic("it has run-time checks, and is read in chunks")
        self.programs.append(exported.program)

        # `jax.export` drops weak types, so they are restored from the positions that were recorded.
        avals = exported.program.out_avals
        out = [
            jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=i in exported.weak)
            for i, x in enumerate(avals)
        ]
        treedef, _ = trace.form()
        numbers = tree_unflatten(treedef, list(range(len(out))))
        self.forms.append([_write(numbers), exported.weak])
        return tree_unflatten(treedef, out)


def _parts(steps: CompiledSteps) -> TracedParts:
    """Export all functions of a run.

    Raises:
        NotDeterministic: One of them cannot be exported.
    """
    plan = steps.schedule
    write = _FunctionExporter(steps.entry.core.name)

    # Abstract values go through the passes as arrays do in `stream_run.py`; nothing is
    # computed.
    values = steps.unstreamed()
    rest = steps.total % steps.size
    start = jax.ShapeDtypeStruct((), np.int32)
    kept: dict[int, object] = {}
    with plan.width:
        for p, turn in enumerate(plan.turns):
            new, state = write.add(steps.begin[p], values)
            values = {**values, **new}
            kept = {**kept, **turn.stored_carries(state)}
            replayed = [kept] if turn.replays else []
            for length in filter(None, (steps.size, rest)):
                chunk = {n: plan.chunk(n, length) for n in plan.streamed}
                state_after, _ = write.add(
                    steps.step[p],
                    values,
                    state,
                    chunk,
                    start,
                    *replayed,
                )
                # The next chunk takes this carry: its type has to be a fixpoint of the step.
                if not _has_same_types(state, state_after):
                    raise NotDeterministic("what it carries from chunk to chunk changes its type")
            values = {**values, **turn.final_values(write.add(steps.join[p], state))}
            for n in turn.collects:
                values[n] = plan.whole(n)
        write.add(steps.end, values)

    data = {"schedule": plan.to_data(), "program": steps.program, "parts": write.forms}
    return TracedParts(
        write.programs,
        data,
        steps.outcome.treedef,
        steps.outcome.rest,
    )


def _has_same_types(first: object, second: object) -> bool:
    """Return whether two carries have the same shapes, dtypes and weak types."""
    return _types(first) == _types(second)


def _types(state: object) -> list[tuple[object, ...]]:
    return [(x.shape, x.dtype, x.weak_type) for x in tree_flatten(state)[0]]


def _part(
    name: str,
    content: bytes,
    structure: object,
    weak: Sequence[int],
) -> Callable[..., Any]:
    """An exported program, with the signature of the function that it was exported from."""

    def flat(*arrays: object) -> list[jax.Array]:
        return call_exported(content, arrays, (), weak)

    flat.__name__ = flat.__qualname__ = name
    jitted = own_jit()(flat)

    def part(*given: object) -> object:
        leaves, _ = tree_flatten(given)
        return _read(structure, jitted(*leaves))

    return part


def _by_length(steps: StreamProgram, parts: Sequence[Step]) -> Step:
    """Choose between the step of whole chunks and that of a shorter last chunk, by the chunk's
    length.
    """
    plan = steps.schedule

    def step(
        values: object,
        state: object,
        chunk: Values,
        *more: object,
    ) -> tuple[Carry, Sequence[jax.Array]]:
        n = plan.streamed[0]
        is_whole = chunk[n].shape[plan.axes[n]] == plan.size
        part = parts[0 if is_whole else -1]
        return part(values, state, chunk, *more)

    return step


def _write(tree: object) -> object:
    """Lists, tuples and dicts of leaf numbers, as JSON data; `_read` is the inverse."""
    if isinstance(tree, dict):
        return ["dict", [[key, _write(part)] for key, part in tree.items()]]
    if isinstance(tree, (list, tuple)):
        return [type(tree).__name__, list(map(_write, tree))]
    return tree


def _read(data: Any, leaves: Sequence[object]) -> object:
    """Rebuild a tree from `_write`, with leaves in place of their numbers."""
    if data is None:
        return None
    if isinstance(data, int):
        return leaves[data]

    kind, parts = data
    if kind == "dict":
        return {key: _read(part, leaves) for key, part in parts}
    make = list if kind == "list" else tuple
    return make(_read(part, leaves) for part in parts)
