"""The chunked evaluator: runs a plan (`Passes`) over the data, one chunk at a time.

`Chunked` holds the steps, which `jitney.stream` drives from outside of a program, chunk by chunk
from disk or host; `run_chunked` drives them inside of a program, as one `lax.scan` for each pass:

    for each pass:  settle -> start -> (step, step, ..., step) -> together -> finish
    at the end:     results

`step` evaluates the nodes of a pass on one chunk with a `PaddedInterpreter` whose arrays are as
long as the chunk, and whose `start` and `whole` give positions and sizes of the whole axis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import PartitionSpec

from ..._jax.programs.evaluation import Const, Ref
from ..._jax.programs.jaxprs import scan_parts
from ..._jax.ticks import Ticks
from ..._jax.typed import DType
from ..callbacks import callback_result_is_read, run_with_callbacks
from ..derivative import Derivative, with_derivative
from ..interpreter import Op, PaddedInterpreter
from ..low_bits import as_bits, from_bits
from ..monoids import Monoid
from ..rules import RULES
from ..typed_jax import jnp, lax
from .counting import begin_from, iterations_of_chunk, numbers_of_iterations, until_known
from .cut_axis import carry_kind, initial_carry, is_along, monoid_of
from .loop_passes import run_loop
from .numbered import Node, has_axis, has_state, is_accumulated, monoids_of
from .over_devices import Devices
from .partial_results import PartialResults
from .passes import Pass, Passes
from .picks import merge_top_k, read_positions, top_begins

T = TypeVar("T")
State = list[list[jax.Array]]
"""The carried values of each node with a state, in the order of the nodes."""
StoredCarries = dict[int, list[jax.Array]]
"""Number of a node's first result -> its carry into a chunk, in the pass of its own direction."""
Size = int | np.int32 | jax.Array
"""A size or a position: of Python, or a scalar of the program."""
Outputs = Sequence[jax.Array | None]
"""Results of a node for one chunk; None for those that are known only after the pass."""
FromChunks = tuple[list[jax.Array], StoredCarries]
"""Parts of emitted results and collected values of a chunk or more, and the carries into it that
are stored.
"""
Taken = tuple[State, FromChunks]
"""The states after a chunk, and what it gives."""


@dataclass
class KnownValues:
    """The known values outside of chunks: without the axis, or materialised as a whole."""

    values: dict[int, Any]

    def read(
        self,
        refs: Sequence[Ref],
        made: Mapping[int, jax.Array] | None = None,
    ) -> list[jax.Array]:
        """The values with these numbers; `made` holds the values of the current chunk."""
        chunk = made or {}
        values: list[jax.Array] = []
        for ref in refs:
            if isinstance(ref, Const):
                values.append(ref.value)
            elif ref in chunk:
                values.append(chunk[ref])
            else:
                values.append(self.values[ref])
        return values


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
        chunk: The length of the chunks of loops that take passes in each iteration; None if the
            plan has no such loop.
    """

    def __init__(
        self,
        passes: Passes,
        size: Size,
        devices: Devices | None = None,
        *,
        is_spread: bool = False,
        is_differentiated: bool = False,
        chunk: int | None = None,
    ):
        self.chunk = chunk
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
                out = run_loop(node.op, loop, values, self._run_inside)
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

    def _run_inside(self, passes: Passes, arrays: Sequence[jax.Array]) -> list[jax.Array]:
        """Run a plan on whole arguments, inside of a loop."""
        if self.chunk is None:
            raise AssertionError("a loop with passes, and no length of a chunk")
        size = int(self.size)
        work = Chunked(passes, size, is_spread=self.is_spread, chunk=self.chunk)
        return _scan_chunks(work, arrays, size, min(size, self.chunk))

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

    def start(self, work: Pass, known: KnownValues) -> State:
        """The initial states of a pass."""
        return [self._begin(node, known) for node in work.states(self.passes.streamed)]

    def stored_carries(self, work: Pass, state: State) -> StoredCarries:
        """The carries into a chunk that a later pass replays from."""
        keys = [node.makes[0] for node in work.states(self.passes.streamed)]
        return {key: state[keys.index(key)] for key in work.keeps}

    def step(
        self,
        work: Pass,
        known: KnownValues,
        chunk: Mapping[int, jax.Array],
        state: State,
        start: Size,
        count: Size,
        allocated: int,
        *,
        kept: StoredCarries | None = None,
        here: bool | jax.Array = True,
    ) -> tuple[State, list[jax.Array]]:
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
        part = _slice if self.is_differentiated else _part
        for n in work.slices:
            dims, axis = self.passes.flat.dims[n], self.passes.axis(n)
            at = walk.start_of(dims[axis])
            made[n] = part(
                known.values[n],
                at,
                walk.shape(dims)[axis],
                axis,
            )

        before = kept or {}
        states = iter(state)
        new: State = []
        for node in work.nodes:
            values = known.read(node.reads, made)
            out: Outputs

            # Five kinds of nodes: replayed from a stored carry; a number of iterations; partial
            # results of a loop over another axis; any other state; no state.
            if node.makes and node.makes[0] in work.replays:
                carry = before[node.makes[0]]
                out, _ = self._carry(
                    walk.without_callbacks(),
                    node,
                    values,
                    carry,
                    back=work.back,
                )
            elif node.counts and node.parts is not None:
                out = [None]
                (least,) = next(states)
                begins = self._begin_partials(walk, node.parts, values)
                new.append([iterations_of_chunk(walk, node.op, begins, least)])
            elif node.parts is not None and has_state(node, self.passes.streamed):
                carry = next(states)
                calls_back = self._calls_back(node, start, here=here)
                out, after = self._add(
                    walk,
                    node,
                    node.parts,
                    values,
                    carry,
                    calls_back,
                )
                new.append(after)
            elif has_state(node, self.passes.streamed):
                mine = walk.without_callbacks() if node.is_mute else walk
                out, after = self._carry(
                    mine,
                    node,
                    values,
                    next(states),
                    back=work.back,
                )
                new.append(after)
            else:
                calls_back = self._calls_back(node, start, here=here)
                out = run_with_callbacks(
                    walk,
                    node.op,
                    values,
                    calls_back,
                )
            made.update((n, x) for n, x in zip(node.makes, out, strict=True) if x is not None)
        return new, known.read(self.passes.outputs(work), made)

    def combine_states(self, work: Pass, state: State) -> State:
        """Combine the states of a pass over all devices, and round them to the program's dtypes."""
        if self.devices is not None:
            state = self.devices.combine_states(
                work,
                self.passes.streamed,
                state,
            )
        dtypes = self.passes.flat.dtypes
        out: State = []
        for node, values in zip(work.states(self.passes.streamed), state, strict=True):
            # The number of elements that a `top_k` has seen is no result.
            both = zip(self.accumulator_numbers(node), values, strict=False)
            out.append([_as(x, dtypes[n]) for n, x in both])
        return out

    def finish(
        self,
        work: Pass,
        known: KnownValues,
        state: State,
    ) -> None:
        """Add the values that a pass has accumulated, after `combine_states`, to the known ones."""
        with_state = work.states(self.passes.streamed)
        for node, held in zip(with_state, state, strict=True):
            known.values.update(zip(self.accumulator_numbers(node), held, strict=False))

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

    def _calls_back(
        self,
        node: Node,
        start: Size,
        *,
        here: bool | jax.Array,
    ) -> bool | jax.Array:
        """Return whether an operation calls its callbacks in this chunk: a loop along the axis does
        in each chunk, any other operation in the first.
        """
        if node.token is None or node.is_mute:
            return node.token is None
        return here if is_along(node.op) else (start == 0) & here

    @property
    def accumulators(self) -> list[str]:
        """The dtypes of the carried values; a checkpoint with other dtypes cannot be resumed."""
        return [str(dtype) for work in self.passes.passes for dtype in self._accumulators(work)]

    def _accumulators(self, work: Pass) -> Iterator[DType]:
        dtypes = self.passes.flat.dtypes
        for node in work.states(self.passes.streamed):
            is_fold = carry_kind(node.op) not in ("looped", "placed", "picked", "topped")
            if node.parts is None and not is_fold:
                continue
            numbers = self.accumulator_numbers(node) or node.makes
            for n, monoid in zip(numbers, monoids_of(node), strict=True):
                yield monoid.accumulator(dtypes[n])

    def accumulator_numbers(self, node: Node) -> list[int]:
        return [n for n in node.makes if is_accumulated(node, n, self.passes.streamed)]

    def _begin(
        self,
        node: Node,
        known: KnownValues,
    ) -> list[jax.Array]:
        op = node.op
        if node.parts is not None:
            return self._partial_identities(node)
        aval = op.eqn.outvars[0].aval
        match carry_kind(op):
            case "looped":
                return self._loop_start(node, known)
            case "topped":
                return top_begins(op)
            case "picked":
                return [lax.full(aval.shape, 0, aval.dtype)]
            case "written":
                monoid = monoid_of(op)
                (x,) = known.read(node.reads[:1])
                x = _as(jnp.asarray(x), monoid.accumulator(aval.dtype))
                return [self._on_first(x, monoid)]
            case "cumulated":
                shape = list(aval.shape)
                shape[op.params["axis"]] = 1
                return [_identity(op, shape)]
            case "placed":
                dtype = op.eqn.invars[0].aval.dtype
                index = lax.full(aval.shape, 0, aval.dtype)
                return [index, _identity_array(monoid_of(op), aval.shape, dtype)]
            case _:
                return [_identity(op, aval.shape)]

    def _partial_identities(self, node: Node) -> list[jax.Array]:
        dtypes, dims = self.passes.flat.dtypes, self.passes.flat.dims
        out: list[jax.Array] = []
        for n, monoid in zip(self.accumulator_numbers(node), monoids_of(node), strict=True):
            out.append(_identity_array(monoid, dims[n], monoid.accumulator(dtypes[n])))
        return out

    def _loop_start(
        self,
        node: Node,
        known: KnownValues,
    ) -> list[jax.Array]:
        # The carry alone is read; streamed operands are not known yet.
        refs = initial_carry(node.op, list(node.reads))
        return [jnp.asarray(x) for x in known.read(refs)]

    def _on_first(
        self,
        x: jax.Array,
        monoid: Monoid,
    ) -> jax.Array:
        """The initial value of an accumulation on the first device, the identity on the others, so
        that it is counted once.
        """
        if self.devices is None:
            return x
        is_first = self.devices.index() == 0
        return jnp.where(
            is_first,
            x,
            _identity_array(monoid, x.shape, x.dtype),
        )

    def _add(
        self,
        walk: PaddedInterpreter,
        node: Node,
        parts: PartialResults,
        values: list[jax.Array],
        state: list[jax.Array],
        when: object,
    ) -> tuple[Outputs, list[jax.Array]]:
        """Evaluate a loop, branch or solve over another axis on one chunk: the results that are
        made per chunk (None for partial ones), and the partial results so far.
        """
        begins = self._begin_partials(walk, parts, values)
        results = run_with_callbacks(walk, node.op, begins, when)

        out: list[jax.Array | None] = []
        added: list[tuple[Monoid, jax.Array]] = []
        for x, monoid in zip(results, parts.monoids, strict=True):
            out.append(x if monoid is None else None)
            if monoid is not None:
                added.append((monoid, x))

        new: list[jax.Array] = []
        for total, (monoid, x) in zip(state, added, strict=True):
            new.append(monoid.combine(total, _as(x, total.dtype)))
        return out, new

    def _begin_partials(
        self,
        walk: PaddedInterpreter,
        parts: PartialResults,
        values: list[jax.Array],
    ) -> list[jax.Array]:
        """The operands of an operation with partial results, for one chunk."""
        # The initial carry goes to the first chunk; the others start from the identity.
        is_first = jnp.equal(walk.start[self.passes.symbol], 0)
        begins = [jnp.asarray(x) if i in parts.begun else x for i, x in enumerate(values)]
        for i, monoid in parts.begun.items():
            x = begins[i]
            identity = _identity_array(monoid, x.shape, x.dtype)
            begins[i] = lax.select(is_first, x, identity)
        return begins

    def places_of_counts(self, work: Pass) -> list[int]:
        """Where the numbers of iterations stand among the states of a pass."""
        return [i for i, node in enumerate(work.states(self.passes.streamed)) if node.counts]

    def count_iterations(
        self,
        work: Pass,
        known: KnownValues,
        sweep: Callable[[State], tuple[State, FromChunks, FromChunks]],
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

        def swept(counts: list[jax.Array]) -> list[jax.Array]:
            state, _, _ = sweep([[*each] for each in begin_from(initial, places, counts)])
            return numbers_of_iterations(self.combine_states(work, state), places)

        counts = until_known(numbers_of_iterations(initial, places), swept)
        numbers = [node.makes[0] for node in work.nodes if node.counts]
        known.values.update(zip(numbers, counts, strict=True))

    def _carry(
        self,
        walk: PaddedInterpreter,
        node: Node,
        values: list[jax.Array],
        state: list[jax.Array],
        *,
        back: bool,
    ) -> tuple[Outputs, list[jax.Array]]:
        """Evaluate an operation with a state on one chunk: its results (None where they are known
        only after the pass), and the next state.
        """
        op, way = node.op, carry_kind(node.op)
        rule = RULES[op.name]
        if way == "looped":
            constants, _, xs = scan_parts(op.eqn, values)
            out = rule.pad(
                walk,
                op,
                [*constants, *state, *xs],
            )
            carry, stacked = out[: len(state)], out[len(state) :]
            return [*(None for _ in state), *stacked], carry
        if way == "written":
            (x,), indices, updates = state, values[1], values[2]
            return [None], rule.pad(walk, op, [x, indices, _as(updates, x.dtype)])
        if way == "topped":
            return [None for _ in node.makes], merge_top_k(walk, op, values[0], state, back=back)
        if way == "picked":
            return [None], [read_positions(walk, op, values, state[0])]
        if way == "placed":
            part = rule.pad(walk, op, values)[0]
            start = walk.start_of(op.ins[0][op.params["axes"][0]])
            return [None], _merge_argmax(op, values[0], part, state, start, back=back)

        # A fold, or a prefix scan: within the chunk by the rule, then combined with the carry. A
        # scan's next carry is its last result (the first one if it runs from the end).
        part = _wide(walk, op, values)
        combine = monoid_of(op).combine
        if way == "cumulated":
            whole = combine(part, jnp.broadcast_to(state[0], part.shape))
            axis = op.params["axis"]
            end = 0 if op.params["reverse"] else part.shape[axis] - 1
            result = _as(whole, values[0].dtype)
            return [result], [lax.slice_in_dim(whole, end, end + 1, axis=axis)]
        return [None], [combine(state[0], part)]


def _as(x: jax.Array, dtype: DType) -> jax.Array:
    return x if x.dtype == dtype else lax.convert_element_type(x, dtype)


def _identity(op: Op, shape: Sequence[int]) -> jax.Array:
    """The identity of an operation's monoid, in the dtype that it accumulates in."""
    monoid = monoid_of(op)
    return _identity_array(
        monoid,
        shape,
        monoid.accumulator(op.eqn.outvars[0].aval.dtype),
    )


def _identity_array(
    monoid: Monoid,
    shape: Sequence[int],
    dtype: DType,
) -> jax.Array:
    return lax.full(shape, monoid.identity(dtype), dtype)


def _wide(
    walk: PaddedInterpreter,
    op: Op,
    values: list[jax.Array],
) -> jax.Array:
    """The result for one chunk in the accumulator's dtype, not yet rounded to the program's."""
    pad = RULES[op.name].pad
    dtype = op.eqn.outvars[0].aval.dtype
    wide = monoid_of(op).accumulator(dtype)
    if wide == dtype:
        return pad(walk, op, values)[0]

    # Operands are converted, except those of products: these take a result dtype of their own.
    if op.name not in ("dot_general", "conv_general_dilated"):
        return pad(walk, op, [_as(x, wide) for x in values])[0]
    product = op.replace_params(preferred_element_type=wide)
    return _as(pad(walk, product, values)[0], wide)


def _merge_argmax(
    op: Op,
    x: jax.Array,
    part: jax.Array,
    state: list[jax.Array],
    start: jax.Array,
    *,
    back: bool,
) -> list[jax.Array]:
    """The next state of an argmax or argmin: index in the whole axis and value. Ties go to the
    first element, and the first NaN wins over all numbers.
    """
    (axis,) = op.params["axes"]
    index, best = state
    extreme = jnp.take_along_axis(
        x,
        jnp.expand_dims(part, axis),
        axis,
    )
    extreme = jnp.squeeze(extreme, axis)
    # From the end, a later chunk lies in front of those before it, so it wins ties (and NaNs).
    above, below = (lax.ge, lax.le) if back else (lax.gt, lax.lt)
    better = above(extreme, best) if op.name == "argmax" else below(extreme, best)
    if jnp.issubdtype(extreme.dtype, jnp.inexact):
        better |= jnp.isnan(extreme) & (back | ~jnp.isnan(best))
    return [
        lax.select(better, part + lax.convert_element_type(start, part.dtype), index),
        lax.select(better, extreme, best),
    ]


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
    work = Chunked(
        passes,
        size,
        devices,
        chunk=chunk,
    )
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
            work = Chunked(passes, size, is_differentiated=True)
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
    # Results of low types leave the loop as bits: see `low_bits.py`.
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
                state: State,
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
                        cut[n] = _part(
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
                state: State,
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
                    part = _slice if n in parted else _part
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
    state: State,
    *,
    back: bool,
) -> tuple[State, FromChunks, FromChunks]:
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


def _slice(
    x: jax.Array,
    start: Size,
    size: int,
    axis: int,
) -> jax.Array:
    return lax.dynamic_slice_in_dim(x, start, size, axis)


def _part(
    x: jax.Array,
    start: Size,
    size: int,
    axis: int,
) -> jax.Array:
    """A chunk of an array that is not differentiated, sliced as bits."""
    return from_bits(_slice(as_bits(x), start, size, axis), x.dtype)


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
