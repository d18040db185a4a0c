"""The loop of a stream over its chunks, on the host.

Each chunk goes through one compiled step, the carry stays on the device, and the next chunk is read
meanwhile. `stream.py` makes a run, with the steps that `chosen_steps.py` has found.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from .._axes import begin_from, numbers_of_iterations
from .._errors import (
    AxisError,
    ContractError,
    JitneyError,
)
from .._jax.settings import settings
from .._jax.trees import is_key, words_of_keys
from .._jax.typed import Array, NumPyArray
from .._view.layout import is_nested_trace, jit_is_off
from .._view.result import unmix
from .data.chunk_memory import ChunkMemory
from .data.reading import ChunkReader, Source
from .data.slices import Rows
from .data.sources import is_reversible, read_whole
from .outputs import ChunkOutputs
from .resume import Checkpoint, CheckpointState, Position, remaining_pieces, start_position
from .run_key import platform, value_key
from .schedule import Carry, ScheduledPass
from .steps import StreamProgram


def _on_host(value: Rows) -> Rows:
    """Move an array that is sharded over several devices to the host, since a slice of it would be
    gathered on each of these devices first; and random keys as their words.
    """
    if is_key(value):
        return words_of_keys(value)
    if isinstance(value, jax.Array) and len(value.sharding.device_set) > 1:
        return np.asarray(value)
    return value


class StreamRun:
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
        self.chunks_done = self.rows = self.repeats = 0
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
        self._check_checkpoint(kept, outputs)
        begins = start_position(kept, self.reader, steps.laid)
        # A program may have no pass at all: nothing depends on the data. The slice is then empty.
        back = any(turn.back for turn in turns[begins.index : begins.index + 1])
        sweeps = sum(turn.sweeps for turn in turns[: begins.index])
        passed = (sweeps + 1) * len(steps.pieces)
        done = passed - len(remaining_pieces(steps.pieces, begins.at, back=back))

        passes = _Passes(self, outputs, kept, begins)
        with _bar(steps, done, show=progress) as advance:
            try:
                passes(advance)
            except KeyboardInterrupt as stop:
                if kept is not None and passes.reached is not None:
                    stop.add_note(
                        kept.write(passes.reached)
                        or f"The checkpoint {kept.path} was written;"
                        " the same call goes on from there."
                    )
                raise

        ends = enumerate(steps.end(passes.values))
        flat = [outputs.results.get(i, x) for i, x in ends]
        if kept is not None:
            kept.remove()
        return unmix(steps.outcome.output(flat))

    def initial_values(self, begins: Position) -> dict[int, Any]:
        """Values before the first pass that runs: what is not read in chunks, on its devices, and
        results of the passes that are done.
        """
        given = {n: self.steps.place_value(n, x) for n, x in self.given.items()}
        return {**given, **self.steps.captured, **begins.values}

    def pass_results(self, values: Mapping[int, Any]) -> dict[int, Any]:
        """Values without those that a run has before its first pass."""
        return {n: x for n, x in values.items() if n not in self._known}

    def on_devices(self, cut: dict[int, NumPyArray], count: int) -> Mapping[int, Any]:
        """A chunk as its step takes it: keys made of their words, and arrays on their devices."""
        if not self._keys and self.steps.laid.place is None:
            return cut
        return {n: self._placed(n, x, count) for n, x in cut.items()}

    def _placed(self, n: int, rows: NumPyArray, count: int) -> Array:
        """One array of a chunk, on its devices."""
        to_keys = self._keys.get(n)
        return self.steps.place_value(n, rows if to_keys is None else to_keys(rows), count)

    def checksums_until(self, index: int, at: int) -> Mapping[str, NumPyArray]:
        """Checksums of the chunks that are done; after the first pass, of all chunks."""
        pieces = self.steps.pieces
        missing: set[tuple[int, int]] = set()
        if index == 0:
            missing.update(remaining_pieces(pieces, at, back=self.schedule.turns[0].back))
        return self.reader.checkpoint_data([piece not in missing for piece in pieces])

    def chunks(
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

    def _check_checkpoint(self, kept: Checkpoint | None, outputs: ChunkOutputs) -> None:
        """Refuse a checkpoint of a run whose memory holds more than the carry."""
        if kept is None:
            return
        where, axis = self.steps.entry.core.where, self.steps.stage.axis
        turns = self.schedule.turns
        if not any(turn.collects or turn.keeps for turn in turns):
            if not outputs.results:
                return
            raise JitneyError(
                where,
                f"a result has the axis {axis!r}, and a checkpoint keeps what is accumulated only.",
                "A run that goes on later has to find its results again.",
                "drop checkpoint=..., or return sums and the like.",
                code="J284",
            )
        how = "goes through all of it in both directions"
        if any(turn.collects for turn in turns):
            how = "collects all of it"
        raise JitneyError(
            where,
            f"it {how} along {axis!r}; a checkpoint keeps what is accumulated.",
            "Collected results, and what is carried into each chunk, stay in memory until the"
            " run is over.",
            "drop checkpoint=....",
            code="J284",
        )


class _Passes:
    """The passes over the data: what one of them has reached, and what those before it gave.

    Args:
        run: The run.
        outputs: Takes the results that have the axis.
        kept: The file to resume from, if there is one.
        begins: Position after the chunks that the file has.
    """

    def __init__(
        self,
        run: StreamRun,
        outputs: ChunkOutputs,
        kept: Checkpoint | None,
        begins: Position,
    ):
        self._run = run
        self._outputs = outputs
        self._kept = kept
        self._index = begins.index
        self._begins = begins
        # Carries of each chunk, for a pass in the other direction.
        self._carried: dict[int, dict[int, Sequence[Array]]] = {}
        self.values = run.initial_values(begins)
        self.reached = begins.progress
        """Position that Ctrl-C writes, even if no save is due."""

    def __call__(self, advance: Callable[[], None]) -> None:
        """For each pass: compute the initial carry, unless a checkpoint gave one; step through the
        chunks; reduce the carries over the devices; publish the values that they give.
        """
        run, steps, outputs = self._run, self._run.steps, self._outputs
        at, state, sweep = self._begins.at, self._begins.state, 0
        counts: list[Array] | None = None
        while self._index < len(run.schedule.turns):
            turn, sweep = run.schedule.turns[self._index], sweep + 1
            if state is None:
                state = self._initial_carry(turn, counts)
            outputs.begin(turn)
            for start, count, cut in run.chunks(at, back=turn.back):
                state = self._step(turn, state, start, count, cut)
                if sweep <= turn.sweeps:
                    advance()
                if self._kept is not None:
                    over = steps.total - start if turn.back else start + count
                    self._save(self._kept, over, state)
            outputs.fetch()
            state = steps.join[self._index](state)
            reached_counts = numbers_of_iterations(state, turn.counts)
            if not _are_known(reached_counts, counts):
                # A chunk has gone on beyond what was known before: once more, from there.
                counts, at, state = reached_counts, 0, None
                run.repeats += 1
                continue
            self.values.update(turn.final_values(state))
            whole = outputs.collected.items()
            self.values.update({n: jax.numpy.asarray(x) for n, x in whole})
            # Only the first pass of a resumed run starts in the middle.
            at, state, counts = 0, None, None
            self._index, sweep = self._index + 1, 0

    def _initial_carry(self, turn: ScheduledPass, counts: Sequence[Array] | None) -> Carry:
        """The carry that a pass begins with, and the values that are computed once before it."""
        steps = self._run.steps
        new, state = steps.begin[self._index](self.values)
        self.values.update(new)
        if counts is None:
            return state
        spread = map(steps.laid.spread_count, counts)
        return begin_from(state, turn.counts, list(spread))

    def _step(
        self,
        turn: ScheduledPass,
        before: Carry,
        start: int,
        count: int,
        cut: dict[int, NumPyArray],
    ) -> Carry:
        """Put one chunk through the step of the pass; return the carry behind it."""
        run, steps = self._run, self._run.steps
        # A pass in the other direction starts this chunk with these carries.
        if turn.keeps or turn.replays:
            self._carried.setdefault(start, {}).update(turn.stored_carries(before))
        by_count = steps.rest if count % steps.laid.parts else steps.step
        state, outs = by_count[self._index](
            self.values,
            before,
            run.on_devices(cut, count),
            np.int32(start),
            *([self._carried[start]] if turn.replays else []),
        )
        if is_nested_trace(jax.tree.leaves((state, outs))):
            # The derivative of an outer transform holds the chunk.
            run.reader.memory.keep_chunks()
        # Dispatch is asynchronous: wait for the step before, so that at most two chunks are on the
        # device, and its memory may be written again.
        jax.block_until_ready(before)
        self._outputs.add(turn, outs, start, count)
        run.chunks_done += 1
        run.rows += count
        return state

    def _save(self, kept: Checkpoint, over: int, state: Carry) -> None:
        """Save what a pass has reached, if a save is due."""
        index = self._index
        self.reached = CheckpointState(
            index,
            over,
            self._run.pass_results(self.values),
            state,
            partial(self._run.checksums_until, index, over),
        )
        kept.save_if_due(self.reached)


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
