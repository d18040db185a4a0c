"""The chunked evaluator: runs a plan (`Passes`) over the data, one chunk at a time.

`Chunked` holds the steps, which `jitney.stream` drives from outside of a program, chunk by chunk
from disk or host; `in_memory.py` drives them inside of a program, as one `lax.scan` for each pass:

    for each pass:  settle -> start -> (step, step, ..., step) -> combine_states -> finish
    at the end:     results

`step` evaluates the nodes of a pass on one chunk (`chunk_evaluator.py`) with a `PaddedInterpreter`
whose arrays are as long as the chunk, and whose `start` and `whole` give positions and sizes of the
whole axis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax

from ..._jax.ticks import Ticks
from ..._jax.typed import DType
from ..callbacks import callback_result_is_read, run_with_callbacks
from ..interpreter import PaddedInterpreter
from ..monoids import to_dtype
from ..rules import RULES
from ..typed_jax import lax
from .chunk_evaluator import ChunkEvaluator, carrier_of_node
from .known_values import (
    FromChunks,
    KnownValues,
    Size,
    States,
    StoredCarries,
    slice_bits,
    slice_chunk,
)
from .loop_passes import run_loop
from .numbered import Node, has_axis, is_accumulated, monoids_of
from .over_devices import Devices
from .passes import Pass, Passes
from .turns import begin_from, numbers_of_iterations, until_known

RunInside = Callable[["Chunked", Passes, Sequence[jax.Array]], list[jax.Array]]
"""Runs a plan on whole arguments, as part of an evaluation."""


class Chunked:
    """Evaluator of the passes of one program.

    Args:
        passes: The plan.
        size: The size of the whole axis, an int or an int32 scalar.
        devices: The devices that the axis is sharded over, if it is; methods are called inside
            their `shard_map` then.
        is_spread: Whether XLA's partitioner shards other axes.
        is_differentiated: Whether JAX differentiates through the evaluation, so that arrays must
            not be moved as bits, which have no derivative.
        run_inside: Runs the plan of an iteration of a loop on whole arguments, beside this
            evaluator; None if the plan has no loop that takes passes in each iteration.
    """

    def __init__(
        self,
        passes: Passes,
        size: Size,
        devices: Devices | None = None,
        *,
        is_spread: bool = False,
        is_differentiated: bool = False,
        run_inside: RunInside | None = None,
    ):
        self.run_inside = run_inside
        self.passes = passes
        self.size = size
        self.devices = devices
        self.is_spread = is_spread or (devices is not None and devices.is_part)
        self.is_differentiated = is_differentiated
        # Shows how many chunks are done.
        self.ticks: Ticks | None = None

    def known_values(self, given: Sequence[object]) -> KnownValues:
        """Take the arguments, in order, as known values; those with the axis as a whole."""
        return KnownValues(dict(zip(self.passes.flat.takes, given, strict=True)))

    def settle(
        self,
        nodes: Sequence[Node],
        known: KnownValues,
    ) -> None:
        """Evaluate nodes once, outside of chunks: those without the axis, and those that run at
        once on materialised values.
        """
        # A node without the axis makes no array along it: any allocated size will do.
        apart = self._walk(1, 1, 0)
        for node in nodes:
            walk = apart
            loop = self.passes.loop(node)
            if loop is None and has_axis(node, self.passes.streamed):
                walk = self._walk(int(self.size), int(self.size))
            values = known.read(node.reads)
            if loop is not None:
                out = run_loop(
                    node.op,
                    loop,
                    values,
                    self._run_inside,
                )
            elif node.token is None or self.devices is None:
                out = walk.make(node.op, values)
            else:
                out = self._evaluate_on_first_device(
                    self.devices,
                    walk,
                    node,
                    values,
                )
            known.values.update(zip(node.makes, out, strict=True))

    def _run_inside(
        self,
        passes: Passes,
        arrays: Sequence[jax.Array],
    ) -> list[jax.Array]:
        """Run a plan on whole arguments, inside of a loop."""
        if self.run_inside is None:
            raise AssertionError("a loop with passes, and no length of a chunk")
        return self.run_inside(self, passes, arrays)

    def _evaluate_on_first_device(
        self,
        devices: Devices,
        walk: PaddedInterpreter,
        node: Node,
        values: list[jax.Array],
    ) -> list[jax.Array]:
        """Evaluate a node that calls back on the first device, and send what the callback returns
        to the others.
        """
        out = run_with_callbacks(
            walk,
            node.op,
            values,
            devices.index() == 0,
        )
        if not callback_result_is_read(node.op, is_used=True):
            return out
        return [lax.all_gather(x, devices.along)[0] for x in out]

    def start(
        self,
        work: Pass,
        known: KnownValues,
    ) -> States:
        """The initial states of a pass."""
        return [self._begin(node, known) for node in work.states(self.passes.streamed)]

    def stored_carries(
        self,
        work: Pass,
        state: States,
    ) -> StoredCarries:
        """The carries into a chunk that a later pass replays from."""
        keys = [node.makes[0] for node in work.states(self.passes.streamed)]
        return {key: state[keys.index(key)] for key in work.keeps}

    def step(
        self,
        work: Pass,
        known: KnownValues,
        chunk: Mapping[int, jax.Array],
        state: States,
        start: Size,
        count: Size,
        allocated: int,
        *,
        kept: StoredCarries | None = None,
        here: bool | jax.Array = True,
    ) -> tuple[States, list[jax.Array]]:
        """Evaluate one chunk.

        Args:
            work: The pass.
            known: The known values.
            chunk: Value -> its part in this chunk, for streamed arguments.
            state: The states before the chunk.
            start: Position of the chunk in the axis.
            count: The number of its valid elements.
            allocated: The length of its arrays.
            kept: The carries into this chunk of the nodes that the pass replays.
            here: Whether callbacks are called here, a bool or one of the program; False if the same
                chunk is evaluated elsewhere too, and they are called there.

        Returns:
            The next states; and the chunk's part of emitted results, then of collected values.
        """
        walk = self._walk(allocated, count, start)
        made = dict(chunk)

        # Materialised values are read as slices, as arguments are.
        part = slice_chunk if self.is_differentiated else slice_bits
        for n in work.slices:
            dims, axis = self.passes.flat.dims[n], self.passes.axis(n)
            at = walk.start_of(dims[axis])
            made[n] = part(known.values[n], at, walk.shape(dims)[axis], axis)

        nodes = ChunkEvaluator(self.passes, work, walk, iter(state), kept or {}, start, here)
        for node in work.nodes:
            out = nodes.outputs(node, known.read(node.reads, made))
            results = zip(node.makes, out, strict=True)
            made.update((n, x) for n, x in results if x is not None)
        return nodes.after, known.read(self.passes.outputs(work), made)

    def combine_states(
        self,
        work: Pass,
        state: States,
    ) -> States:
        """Combine the states of a pass over all devices, and round them to the program's dtypes."""
        if self.devices is not None:
            state = self.devices.combine_states(
                work,
                self.passes.streamed,
                state,
            )
        dtypes = self.passes.flat.dtypes
        out: States = []
        for node, values in zip(work.states(self.passes.streamed), state, strict=True):
            if node.parts is None:
                out.append(carrier_of_node(node).finish(node.op, values))
                continue
            both = zip(self.accumulator_numbers(node), values, strict=True)
            out.append([to_dtype(x, dtypes[n]) for n, x in both])
        return out

    def finish(
        self,
        work: Pass,
        known: KnownValues,
        state: States,
    ) -> None:
        """Add the values that a pass has accumulated, after `combine_states`, to the known ones."""
        with_state = work.states(self.passes.streamed)
        for node, held in zip(with_state, state, strict=True):
            known.values.update(zip(self.accumulator_numbers(node), held, strict=True))

    def results(
        self,
        known: KnownValues,
        emitted: Mapping[int, Any],
    ) -> list[jax.Array]:
        """The results of the program; `emitted` has those with the axis, by position."""
        self.settle(self.passes.after, known)
        results: list[jax.Array] = []
        for i, ref in enumerate(self.passes.flat.gives):
            results.append(emitted[i] if i in emitted else known.read([ref])[0])
        return results

    def _walk(
        self,
        allocated: int,
        count: Size,
        start: Size | None = None,
    ) -> PaddedInterpreter:
        symbol = self.passes.symbol
        starts = {} if start is None else {symbol: start}
        walk = PaddedInterpreter(
            {symbol: allocated},
            {symbol: count},
            RULES,
            {symbol: self.size},
            starts,
            self.passes.numbers,
        )
        walk.is_spread = self.is_spread
        return walk

    @property
    def accumulators(self) -> list[str]:
        """The dtypes of the carried values; a checkpoint with other dtypes cannot be resumed."""
        return [str(dtype) for work in self.passes.passes for dtype in self._accumulators(work)]

    def _accumulators(self, work: Pass) -> Iterator[DType]:
        dtypes = self.passes.flat.dtypes
        for node in work.states(self.passes.streamed):
            if node.parts is None:
                yield from carrier_of_node(node).accumulators(node.op)
                continue
            numbers = self.accumulator_numbers(node)
            for n, monoid in zip(numbers, monoids_of(node), strict=True):
                yield monoid.accumulator(dtypes[n])

    def accumulator_numbers(self, node: Node) -> list[int]:
        return [n for n in node.makes if is_accumulated(node, n, self.passes.streamed)]

    def _begin(
        self,
        node: Node,
        known: KnownValues,
    ) -> list[jax.Array]:
        if node.parts is not None:
            return self._partial_identities(node)
        carrier = carrier_of_node(node)
        # Initial values alone are read; streamed operands are not known yet.
        initial = known.read(carrier.initial(node.op, node.reads))
        is_first = None if self.devices is None else self.devices.index() == 0
        return carrier.begin(node.op, initial, is_first)

    def _partial_identities(self, node: Node) -> list[jax.Array]:
        dtypes, dims = self.passes.flat.dtypes, self.passes.flat.dims
        out: list[jax.Array] = []
        for n, monoid in zip(self.accumulator_numbers(node), monoids_of(node), strict=True):
            out.append(monoid.filled(dims[n], monoid.accumulator(dtypes[n])))
        return out

    def places_of_counts(self, work: Pass) -> list[int]:
        """Where the numbers of iterations stand among the states of a pass."""
        return [i for i, node in enumerate(work.states(self.passes.streamed)) if node.counts]

    def count_iterations(
        self,
        work: Pass,
        known: KnownValues,
        sweep: Callable[[States], tuple[States, FromChunks, FromChunks]],
    ) -> None:
        """Run a pass that counts iterations until the numbers stay as they are, and add them to the
        known values.

        Args:
            work: The pass.
            known: The known values.
            sweep: Runs the pass over all chunks, from its initial states.
        """
        initial = self.start(work, known)
        places = self.places_of_counts(work)

        # Each pass begins from the numbers of the one before, until none grows (see `turns.py`).

        def swept(counts: list[jax.Array]) -> list[jax.Array]:
            state, _, _ = sweep([[*each] for each in begin_from(initial, places, counts)])
            return numbers_of_iterations(self.combine_states(work, state), places)

        counts = until_known(numbers_of_iterations(initial, places), swept)
        numbers = [node.makes[0] for node in work.nodes if node.counts]
        known.values.update(zip(numbers, counts, strict=True))
