"""A chunked program in memory: one `lax.scan` over the chunks for each pass, inside of one program.

`chunked.py` has the steps. Here they are driven over arrays that are in memory as a whole, on one
device or on the shards of several, and differentiably.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import PartitionSpec

from ..._jax.programs.ssa import Const
from ..._jax.ticks import Ticks
from ..derivative import Derivative, with_derivative
from ..typed_jax import jnp, lax
from ..xla_faults.low_bits import as_bits, from_bits
from .chunked import Chunked, RunInside
from .known_values import (
    FromChunks,
    KnownValues,
    Size,
    States,
    StoredCarries,
    Taken,
    slice_bits,
    slice_chunk,
)
from .over_devices import Devices
from .passes import Pass, Passes


def run_chunked(
    passes: Passes,
    arrays: Sequence[Any],
    size: int,
    chunk: int,
    devices: Devices | None = None,
    progress: str | None = None,
) -> list[jax.Array]:
    """Evaluate a program in memory, chunk by chunk.

    Args:
        passes: The plan.
        arrays: The arguments.
        size: The size of the axis.
        chunk: The number of its elements per chunk, on each device.
        devices: The devices that the axis is sharded over, if it is.
        progress: Name of the bar that shows how many chunks are done; None for none.
    """
    work = Chunked(passes, size, devices, run_inside=_inside(chunk))
    if progress is not None:
        # Passes that count iterations are repeated as often as they need.
        counted = sum(not turn.counts for turn in passes.passes)
        work.ticks = Ticks(progress, counted * -(-size // chunk), "chunks")
    with passes.x64:
        return _run(
            work,
            arrays,
            size,
            chunk,
        )


def _inside(chunk: int) -> RunInside:
    """The evaluation of an iteration of a loop, in chunks of its own."""

    def run(
        outer: Chunked,
        passes: Passes,
        arrays: Sequence[jax.Array],
    ) -> list[jax.Array]:
        size = int(outer.size)
        work = Chunked(
            passes,
            size,
            is_spread=outer.is_spread,
            run_inside=run,
        )
        return _scan_chunks(work, arrays, size, min(size, chunk))

    return run


def run_chunked_differentiable(
    passes: Passes,
    derivative: Derivative[Passes],
    arrays: Sequence[object],
    size: int,
    chunk: int,
) -> list[jax.Array]:
    """`run_chunked` on one device, differentiable once; in reverse mode each chunk is
    rematerialised.

    Args:
        passes: The plan.
        derivative: The plan of the derivative, from the positions of the varying arguments.
        arrays: The arguments.
        size: The size of the axis.
        chunk: The number of its elements per chunk.
    """

    def run(arrays: Sequence[jax.Array], _: None) -> list[jax.Array]:
        return run_chunked(passes, arrays, size, chunk)

    def along(
        passes: Passes,
        arrays: Sequence[jax.Array],
        _: None,
        tangents: Sequence[jax.Array],
    ) -> list[jax.Array]:
        with passes.x64:
            work = Chunked(
                passes,
                size,
                is_differentiated=True,
            )
            moving = frozenset(passes.flat.takes[len(arrays) :])
            return _scan_chunks(
                work,
                [*arrays, *tangents],
                size,
                chunk,
                moving,
            )

    return with_derivative(
        run,
        along,
        derivative,
        arrays,
        None,
        len(passes.flat.gives),
    )


def _run(
    work: Chunked,
    arrays: Sequence[jax.Array],
    size: int,
    chunk: int,
) -> list[jax.Array]:
    passes, devices = work.passes, work.devices
    if devices is None:
        return _scan_chunks(work, arrays, size, chunk)

    # Constant results stay outside of `shard_map`.
    gives = passes.flat.gives
    computed = [i for i, ref in enumerate(gives) if not isinstance(ref, Const)]

    def here(*parts: jax.Array) -> list[jax.Array]:
        out = _scan_chunks(
            work,
            parts,
            size // devices.parts,
            chunk,
        )
        return [out[i] for i in computed]

    ins: list[PartitionSpec] = []
    for n in passes.flat.takes:
        axis = passes.axis(n) if n in passes.streamed else None
        ins.append(devices.spec(axis))
    outs: list[PartitionSpec] = []
    emitted = set(chain.from_iterable(pass_.emits for pass_ in passes.passes))
    for i in computed:
        axis = passes.axis_of_result(i) if i in emitted else None
        outs.append(devices.spec(axis))

    values = devices.shard_map(here, tuple(ins), outs)(*arrays)
    results = dict(zip(computed, values, strict=True))
    return [ref.value if isinstance(ref, Const) else results[i] for i, ref in enumerate(gives)]


def _scan_chunks(
    work: Chunked,
    arrays: Sequence[jax.Array],
    size: int,
    chunk: int,
    tangents: frozenset[int] | None = None,
) -> list[jax.Array]:
    """Run all passes over this device's part of the axis, `size` elements, one chunk at a time.

    Each pass is a `lax.scan` over the full chunks, and one more step for the remainder, behind them
    or, from the end, before them.

    If some of the arguments are tangents, JAX transposes the loop. Then a chunk stores no residuals
    (it is rematerialised), and the scan takes the tangents as `xs`, since the cotangent of a slice
    of a whole array would be a whole array in each iteration.
    """
    passes = work.passes
    takes = passes.flat.takes
    streamed = {n: x for n, x in zip(takes, arrays, strict=True) if n in passes.streamed}
    known = work.known_values(arrays)
    full, rest = divmod(size, chunk)

    # Tangents are split into chunks beforehand, all else is sliced in the loop.
    split: dict[int, jax.Array] = {}
    for n in tangents or ():
        if n in streamed:
            split[n] = _split_chunks(streamed[n], passes.axis(n), full, chunk)
    numbered = jnp.arange(full, dtype=np.int32)
    # The position of this device's shard in the axis.
    offset = np.int32(0)
    if work.devices is not None:
        offset = lax.convert_element_type(work.devices.index() * size, np.int32)
    emitted: dict[int, jax.Array] = {}
    stored = _CarriesOfChunks({}, {})
    # Chunks of the passes before.
    done = 0

    for number, turn in enumerate(passes.passes, 1):
        with jax.named_scope(f"pass {number}{' from the end' if turn.back else ''}"):
            work.settle(turn.before, known)
            read = frozenset(streamed)
            # A pass that is repeated by a loop reads no tangents, which JAX does not take out of
            # one.
            if turn.counts:
                read &= set(chain.from_iterable(node.numbers for node in turn.nodes))
            over = _PassOverChunks(
                work,
                turn,
                known,
                {n: x for n, x in streamed.items() if n in read},
                {n: x for n, x in split.items() if n in read},
                numbered,
                offset,
                full,
                rest,
                chunk,
                done,
                rematerialises=tangents is not None and not turn.counts,
            )
            sweep = partial(over.sweep, stored)
            if turn.counts:
                work.count_iterations(turn, known, sweep)
                continue

            state, in_chunks, at_end = sweep(work.start(turn, known))
            done += full + bool(rest)
            stored.full.update(in_chunks[1])
            stored.rest.update(at_end[1])
            joined = over.joined(in_chunks[0], at_end[0])
            work.finish(turn, known, work.combine_states(turn, state))
            emitted.update(zip(turn.emits, joined, strict=False))
            known.values.update(zip(turn.collects, joined[len(turn.emits) :], strict=True))
    return work.results(known, emitted)


class _CarriesOfChunks(NamedTuple):
    """Carries into the full chunks, and into the remainder, that later passes replay from."""

    full: StoredCarries
    rest: StoredCarries


@dataclass(frozen=True, eq=False)
class _PassOverChunks:
    """A pass over the full chunks and the remainder.

    Args:
        work: Evaluator of a chunk.
        turn: The pass.
        known: The known values.
        streamed: The arguments with the axis that the pass reads, as a whole.
        split: Those of them that are tangents, as stacks of full chunks.
        numbered: Numbers of the full chunks.
        offset: Position of this device's part in the axis.
        full: How many full chunks there are.
        rest: Elements of the remainder.
        chunk: Elements of a full chunk.
        done: Chunks of the passes before, for the progress.
        rematerialises: Whether a chunk stores no residuals for reverse mode.
    """

    work: Chunked
    turn: Pass
    known: KnownValues
    streamed: Mapping[int, jax.Array]
    split: Mapping[int, jax.Array]
    numbered: jax.Array
    offset: Size
    full: int
    rest: int
    chunk: int
    done: int
    rematerialises: bool

    def sweep(
        self,
        stored: _CarriesOfChunks,
        state: States,
    ) -> tuple[States, FromChunks, FromChunks]:
        """Run the pass: over the full chunks, and the remainder, which comes first from the end.

        Args:
            stored: Carries that earlier passes have stored.
            state: The initial states.
        """
        step, remainder = self.step, self.remainder
        # In a scan nothing needs to keep XLA from merging the two evaluations of a chunk: they are
        # in different loops.
        if self.rematerialises:
            step, remainder = map(partial(jax.checkpoint, prevent_cse=False), (step, remainder))
        replays, back = self.turn.replays, self.turn.back
        before = {key: stored.full[key] for key in replays if key in stored.full}
        before_rest = {key: stored.rest[key] for key in replays if key in stored.rest}

        at_end: FromChunks = [], {}
        if self.rest and back:
            state, at_end = remainder(state, before_rest)
        xs = (self.numbered, self.split, before)
        state, made = lax.scan(step, state, xs, reverse=back)
        if self.rest and not back:
            state, at_end = remainder(state, before_rest)
        return state, made, at_end

    def step(
        self,
        state: States,
        xs: tuple[jax.Array, dict[int, jax.Array], StoredCarries],
    ) -> Taken:
        """Evaluate a full chunk, with its number, its parts of tangents and the carries into it."""
        i, parts, before = xs
        if self.ticks is not None:
            # From the end the remainder comes first.
            number = self.full - i if self.turn.back else i + np.int32(1)
            number += np.int32(self.done + bool(self.rest and self.turn.back))
            self.ticks.trace(number)
        at = i * np.int32(self.chunk)
        cut = dict(parts)
        for n, x in self.streamed.items():
            if n not in parts:
                cut[n] = slice_bits(x, at, self.chunk, self.work.passes.axis(n))
        return self._evaluate(cut, state, self.offset + at, self.chunk, before)

    def remainder(self, state: States, before: StoredCarries) -> Taken:
        """Evaluate the elements behind the full chunks, with the carries into them."""
        if self.ticks is not None:
            number = self.done + 1 + (0 if self.turn.back else self.full)
            self.ticks.trace(jnp.int32(number))
        at = self.full * self.chunk
        cut: dict[int, jax.Array] = {}
        for n, x in self.streamed.items():
            part = slice_chunk if n in self.split else slice_bits
            cut[n] = part(x, at, self.rest, self.work.passes.axis(n))
        return self._evaluate(cut, state, self.offset + np.int32(at), self.rest, before)

    @property
    def ticks(self) -> Ticks | None:
        """Progress of the chunks; passes that count iterations are no part of it."""
        return None if self.turn.counts else self.work.ticks

    def _evaluate(
        self,
        cut: Mapping[int, jax.Array],
        state: States,
        start: Size,
        count: int,
        before: StoredCarries,
    ) -> Taken:
        work = self.work
        new, outs = work.step(self.turn, self.known, cut, state, start, count, count, kept=before)
        # Results of low types leave the loop as bits: see `xla_faults/low_bits.py`.
        if not work.is_differentiated:
            outs = [as_bits(x) for x in outs]
        return new, (outs, work.stored_carries(self.turn, state))

    def joined(
        self,
        outs: Sequence[jax.Array],
        at_end: Sequence[jax.Array],
    ) -> list[jax.Array]:
        """Return emitted and collected values as a whole: their chunks joined, and the remainder
        behind them.
        """
        passes = self.work.passes
        numbers = passes.outputs(self.turn)
        axes = [passes.axis(n) for n in numbers]
        whole = [_join_chunks(x, axis) for axis, x in zip(axes, outs, strict=True)]
        if self.rest:
            ends = zip(axes, whole, at_end, strict=True)
            whole = [lax.concatenate([x, end], axis) for axis, x, end in ends]
        dtypes = [passes.flat.dtypes[n] for n in numbers]
        return [from_bits(x, dtype) for x, dtype in zip(whole, dtypes, strict=True)]


def _split_chunks(
    x: jax.Array,
    axis: int,
    full: int,
    chunk: int,
) -> jax.Array:
    """The full chunks of an array, stacked along a new leading axis."""
    whole = lax.slice_in_dim(
        x,
        0,
        full * chunk,
        axis=axis,
    )
    before, after = whole.shape[:axis], whole.shape[axis + 1 :]
    chunks = whole.reshape(
        *before,
        full,
        chunk,
        *after,
    )
    return jnp.moveaxis(chunks, axis, 0)


def _join_chunks(chunks: jax.Array, axis: int) -> jax.Array:
    """Join chunks that are stacked along a leading axis along their own axis."""
    moved = jnp.moveaxis(chunks, 0, axis)
    before, after = moved.shape[:axis], moved.shape[axis + 2 :]
    return moved.reshape(
        *before,
        moved.shape[axis] * moved.shape[axis + 1],
        *after,
    )
