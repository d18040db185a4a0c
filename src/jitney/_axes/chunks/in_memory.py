"""A chunked program in memory: one `lax.scan` over the chunks for each pass, inside of one program.

`chunked.py` has the steps. Here they are driven over arrays that are in memory as a whole, on one
device or on the shards of several, and differentiably.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any, TypeVar

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
    States,
    StoredCarries,
    Taken,
    slice_bits,
    slice_chunk,
)
from .over_devices import Devices
from .passes import Pass, Passes

T = TypeVar("T")


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
    with passes.width:
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
        with passes.width:
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

    # Full chunks and a remainder. Tangents are split beforehand, all else is sliced in the loop.
    full, rest = divmod(size, chunk)
    parted: dict[int, jax.Array] = {}
    for n in tangents or ():
        if n in streamed:
            parted[n] = _split_chunks(
                streamed[n],
                passes.axis(n),
                full,
                chunk,
            )
    # Results of low types leave the loop as bits: see `xla_faults/low_bits.py`.
    moved = _as_is if work.is_differentiated else _all_bits
    numbered = jnp.arange(full, dtype=np.int32)
    # The position of this device's shard in the axis.
    offset = np.int32(0)
    if work.devices is not None:
        offset = lax.convert_element_type(work.devices.index() * size, np.int32)
    emitted: dict[int, jax.Array] = {}
    kept: StoredCarries = {}
    kept_rest: StoredCarries = {}
    # Chunks of the passes before.
    done = 0

    for number, turn in enumerate(passes.passes, 1):
        with jax.named_scope(f"pass {number}{' from the end' if turn.back else ''}"):
            work.settle(turn.before, known)
            here = known
            # A pass that is repeated by a loop reads no tangents, which JAX does not take out of
            # one.
            read = frozenset(streamed)
            if turn.counts:
                read &= set(chain.from_iterable(node.numbers for node in turn.nodes))
            of_turn = {n: x for n, x in parted.items() if n in read}

            # `turn` and `here` are bound as defaults: a closure reads them when it is called, and
            # they change with each pass.
            def step(
                state: States,
                xs: tuple[jax.Array, dict[int, jax.Array], StoredCarries],
                turn: Pass = turn,
                here: KnownValues = here,
                read: frozenset[int] = read,
                done: int = done,
            ) -> Taken:
                i, parts, before = xs
                if work.ticks is not None and not turn.counts:
                    # From the end the remainder comes first.
                    before_i = full - i if turn.back else i + np.int32(1)
                    before_i += np.int32(done + bool(rest and turn.back))
                    work.ticks.trace(before_i)
                at = i * np.int32(chunk)
                cut = dict(parts)
                for n, x in streamed.items():
                    if n in read and n not in parts:
                        cut[n] = slice_bits(
                            x,
                            at,
                            chunk,
                            passes.axis(n),
                        )
                start = offset + at
                new, outs = work.step(
                    turn,
                    here,
                    cut,
                    state,
                    start,
                    chunk,
                    chunk,
                    kept=before,
                )
                return new, (moved(outs), work.stored_carries(turn, state))

            def remainder(
                state: States,
                before: StoredCarries,
                turn: Pass = turn,
                here: KnownValues = here,
                read: frozenset[int] = read,
                done: int = done,
            ) -> Taken:
                if work.ticks is not None and not turn.counts:
                    work.ticks.trace(jnp.int32(done + 1 + (0 if turn.back else full)))
                at = full * chunk
                cut: dict[int, jax.Array] = {}
                for n, x in streamed.items():
                    if n not in read:
                        continue
                    part = slice_chunk if n in parted else slice_bits
                    cut[n] = part(
                        x,
                        at,
                        rest,
                        passes.axis(n),
                    )
                start = offset + np.int32(at)
                new, outs = work.step(
                    turn,
                    here,
                    cut,
                    state,
                    start,
                    rest,
                    rest,
                    kept=before,
                )
                return new, (moved(outs), work.stored_carries(turn, state))

            # In a scan nothing needs to keep XLA from merging the two evaluations of a chunk: they
            # are in different loops.
            if tangents is not None and not turn.counts:
                step, remainder = map(partial(jax.checkpoint, prevent_cse=False), (step, remainder))
            before = {key: kept[key] for key in turn.replays if key in kept}
            before_rest = {key: kept_rest[key] for key in turn.replays if key in kept_rest}

            sweep = partial(
                _over_chunks,
                step,
                remainder if rest else None,
                (numbered, of_turn, before),
                before_rest,
                back=turn.back,
            )
            if turn.counts:
                work.count_iterations(turn, known, sweep)
                continue

            state, (outs, carried_in), (tail, carried_in_rest) = sweep(work.start(turn, known))
            done += full + bool(rest)
            kept.update(carried_in)
            kept_rest.update(carried_in_rest)

            # Join the chunks of emitted and collected values, the remainder behind them.
            numbers = passes.outputs(turn)
            axes = [passes.axis(n) for n in numbers]
            joined = [_join_chunks(x, axis) for axis, x in zip(axes, outs, strict=True)]
            if rest:
                ends = zip(axes, joined, tail, strict=True)
                joined = [lax.concatenate([x, end], axis) for axis, x, end in ends]
            dtypes = [passes.flat.dtypes[n] for n in numbers]
            joined = [from_bits(x, dtype) for x, dtype in zip(joined, dtypes, strict=True)]
            work.finish(turn, known, work.combine_states(turn, state))
            emitted.update(zip(turn.emits, joined, strict=False))
            known.values.update(zip(turn.collects, joined[len(turn.emits) :], strict=True))
    return work.results(known, emitted)


def _over_chunks(
    step: Callable[..., Taken],
    remainder: Callable[..., Taken] | None,
    xs: object,
    before_rest: StoredCarries,
    state: States,
    *,
    back: bool,
) -> tuple[States, FromChunks, FromChunks]:
    """Run a pass: over the full chunks, and the remainder, which comes first from the end."""
    at_end: FromChunks = [], {}
    if remainder and back:
        state, at_end = remainder(state, before_rest)
    state, made = lax.scan(step, state, xs, reverse=back)
    if remainder and not back:
        state, at_end = remainder(state, before_rest)
    return state, made, at_end


def _as_is(value: T) -> T:
    return value


def _all_bits(arrays: list[jax.Array]) -> list[jax.Array]:
    return [as_bits(x) for x in arrays]


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
