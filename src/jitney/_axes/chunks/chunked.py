"""The chunked evaluator: runs a plan (`Passes`) over the data, one chunk at a time.

`Chunked` holds the steps, which `jitney.stream` drives from outside of a program, chunk by chunk
from disk or host; `run_chunked` drives them inside of a program, as one `lax.scan` for each pass:

    for each pass:  settle -> start -> (step, step, ..., step) -> together -> finish
    at the end:     results

`step` evaluates the nodes of a pass on one chunk with a `PaddedInterpreter` whose arrays are as
long as the chunk, and whose `start` and `whole` give positions and sizes of the whole axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np

from ..._jax.evaluation import Const
from ..._jax.jaxprs import scan_parts
from ..._jax.typed import DType
from ..callbacks import callback_result_is_read, run_with_callbacks
from ..derivative import Derivative, with_derivative
from ..interpreter import Op, PaddedInterpreter
from ..low_bits import as_bits, from_bits
from ..monoids import Monoid
from ..rules import RULES
from ..typed_jax import jnp, lax
from .cut_axis import carry_kind, initial_carry, is_along, monoid_of
from .numbered import Node, has_axis, has_state, is_accumulated, monoids_of
from .over_devices import Devices
from .partial_results import PartialResults
from .passes import Pass, Passes
from .picks import merge_top_k, read_positions, top_begins

State = list[list[Any]]
"""The carried values of each node with a state, in the order of the nodes."""
StoredCarries = dict[int, list[Any]]
"""Number of a node's first result -> its carry into a chunk, in the pass of its own direction."""


@dataclass
class KnownValues:
    """The known values outside of chunks: without the axis, or materialised as a whole."""

    values: dict[int, Any]

    def read(self, refs: Sequence[Any], made: dict[int, Any] | None = None) -> list[Any]:
        """The values with these numbers; `made` holds the values of the current chunk."""
        chunk = made or {}
        return [
            ref.value
            if isinstance(ref, Const)
            else chunk[ref]
            if ref in chunk
            else self.values[ref]
            for ref in refs
        ]


class Chunked:
    """Evaluator of the passes of one program.

    Args:
        passes: The plan.
        size: The size of the whole axis, an int or an int32 scalar.
        devices: The devices that the axis is sharded over, if it is; methods are called inside
            their `mapped` then.
        is_spread: Whether XLA's partitioner shards other axes.
        is_differentiated: Whether JAX differentiates through the evaluation, so that arrays must
            not be moved as bits, which have no derivative.
    """

    def __init__(
        self,
        passes: Passes,
        size: Any,
        devices: Devices | None = None,
        *,
        is_spread: bool = False,
        is_differentiated: bool = False,
    ):
        self.passes = passes
        self.size = size
        self.devices = devices
        self.is_spread = is_spread or (devices is not None and devices.is_part)
        self.is_differentiated = is_differentiated

    def known(self, given: Sequence[object]) -> KnownValues:
        """Take the arguments, in order, as known values; those with the axis as a whole."""
        return KnownValues(dict(zip(self.passes.flat.takes, given, strict=True)))

    def settle(self, nodes: Sequence[Node], known: KnownValues) -> None:
        """Evaluate nodes once, outside of chunks: those without the axis, and those that run at
        once on materialised values.
        """
        # A node without the axis makes no array along it: any allocated size will do.
        apart = self._walk(1, 1, 0)
        for node in nodes:
            walk = (
                self._walk(int(self.size), int(self.size))
                if has_axis(node, self.passes.streamed)
                else apart
            )
            values = known.read(node.reads)
            out = (
                walk.make(node.op, values)
                if node.token is None or self.devices is None
                else self._once(self.devices, walk, node, values)
            )
            known.values.update(zip(node.makes, out, strict=True))

    def _once(
        self, devices: Devices, walk: PaddedInterpreter, node: Node, values: list[jax.Array]
    ) -> list[Any]:
        """Evaluate a node that calls back on the first device, and send what the callback returns
        to the others.
        """
        out = run_with_callbacks(walk, node.op, values, devices.index() == 0)
        return (
            [lax.all_gather(x, devices.along)[0] for x in out]
            if callback_result_is_read(node.op, is_used=True)
            else out
        )

    def start(self, work: Pass, known: KnownValues) -> State:
        """The initial states of a pass."""
        return [self._begin(node, known) for node in work.states(self.passes.streamed)]

    def kept(self, work: Pass, state: State) -> StoredCarries:
        """The carries into a chunk that a later pass replays from."""
        keys = [node.makes[0] for node in work.states(self.passes.streamed)]
        return {key: state[keys.index(key)] for key in work.keeps}

    def step(
        self,
        work: Pass,
        known: KnownValues,
        chunk: dict[int, Any],
        state: State,
        start: object,
        count: object,
        allocated: int,
        *,
        kept: StoredCarries | None = None,
        here: object = True,
    ) -> tuple[State, list[Any]]:
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
        for n in work.slices:
            dims, axis = self.passes.flat.dims[n], self.passes.axis(n)
            part = _slice if self.is_differentiated else _part
            made[n] = part(known.values[n], walk.start_of(dims[axis]), walk.shape(dims)[axis], axis)
        before = kept or {}
        states = iter(state)
        new: State = []
        for node in work.nodes:
            values = known.read(node.reads, made)

            # Four kinds of nodes: replayed from a stored carry; partial results of a loop over
            # another axis; any other state; no state.
            if node.makes and node.makes[0] in work.replays:
                out, _ = self._carry(
                    walk.muted(), node, values, before[node.makes[0]], back=work.back
                )
            elif node.parts is not None and has_state(node, self.passes.streamed):
                out, after = self._add(
                    walk,
                    node,
                    node.parts,
                    values,
                    next(states),
                    self._is_told(node, start, here=here),
                )
                new.append(after)
            elif has_state(node, self.passes.streamed):
                out, after = self._carry(
                    walk.muted() if node.is_mute else walk,
                    node,
                    values,
                    next(states),
                    back=work.back,
                )
                new.append(after)
            else:
                out = run_with_callbacks(
                    walk, node.op, values, self._is_told(node, start, here=here)
                )
            made.update((n, x) for n, x in zip(node.makes, out, strict=True) if x is not None)
        return new, known.read(
            [*(self.passes.flat.gives[i] for i in work.emits), *work.collects], made
        )

    def together(self, work: Pass, state: State) -> State:
        """Combine the states of a pass over all devices, and round them to the program's dtypes."""
        state = (
            state
            if self.devices is None
            else self.devices.together(work, self.passes.streamed, state)
        )
        with_state = work.states(self.passes.streamed)
        return [
            [
                _as(x, self.passes.flat.dtypes[n])
                for n, x in zip(self.accumulated(node), held, strict=False)
            ]
            for node, held in zip(with_state, state, strict=True)
        ]

    def finish(self, work: Pass, known: KnownValues, state: State) -> None:
        """Add the values that a pass has accumulated, combined by `together`, to the known ones."""
        with_state = work.states(self.passes.streamed)
        for node, held in zip(with_state, state, strict=True):
            known.values.update(zip(self.accumulated(node), held, strict=False))

    def results(self, known: KnownValues, emitted: dict[int, Any]) -> list[Any]:
        """The results of the program; `emitted` has those with the axis, by position."""
        self.settle(self.passes.after, known)
        gives = self.passes.flat.gives
        return [emitted[i] if i in emitted else known.read([ref])[0] for i, ref in enumerate(gives)]

    def _walk(self, allocated: int, count: Any, start: Any = None) -> PaddedInterpreter:
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

    def _is_told(self, node: Node, start: Any, *, here: Any) -> Any:
        """Return whether an operation calls its callbacks in this chunk: a loop along the axis does
        in each chunk, any other operation in the first.
        """
        if node.token is None or node.is_mute:
            return node.token is None
        return here if is_along(node.op) else (start == 0) & here

    @property
    def accumulators(self) -> list[str]:
        """The dtypes of the carried values; a checkpoint with other dtypes cannot be resumed."""
        nodes = [node for work in self.passes.passes for node in work.states(self.passes.streamed)]
        return [
            str(monoid.accumulator(self.passes.flat.dtypes[n]))
            for node in nodes
            if node.parts is not None
            or carry_kind(node.op) not in ("looped", "placed", "picked", "topped")
            for n, monoid in zip(
                self.accumulated(node) or node.makes, monoids_of(node), strict=True
            )
        ]

    def accumulated(self, node: Node) -> list[int]:
        return [n for n in node.makes if is_accumulated(node, n, self.passes.streamed)]

    def _begin(self, node: Node, known: KnownValues) -> list[Any]:
        op, way = node.op, carry_kind(node.op)
        if node.parts is not None:
            dtypes, dims = self.passes.flat.dtypes, self.passes.flat.dims
            made = zip(self.accumulated(node), monoids_of(node), strict=True)
            return [
                _identity_array(monoid, dims[n], monoid.accumulator(dtypes[n]))
                for n, monoid in made
            ]
        # The carry alone is read; streamed operands are not known yet.
        if way == "looped":
            values = [
                None
                if isinstance(ref, int) and ref in self.passes.streamed
                else known.read([ref])[0]
                for ref in node.reads
            ]
            return [jnp.asarray(x) for x in initial_carry(op, values)]
        if way == "topped":
            return top_begins(op)
        if way == "picked":
            aval = op.eqn.outvars[0].aval
            return [lax.full(aval.shape, 0, aval.dtype)]
        monoid = monoid_of(op)
        if way == "written":
            (x,) = known.read(node.reads[:1])
            return [
                self._on_first(
                    _as(jnp.asarray(x), monoid.accumulator(op.eqn.outvars[0].aval.dtype)), monoid
                )
            ]
        aval = op.eqn.outvars[0].aval
        if way == "cumulated":
            shape = [
                1 if axis == op.params["axis"] else size for axis, size in enumerate(aval.shape)
            ]
            return [_identity(op, shape)]
        if way == "placed":
            dtype = op.eqn.invars[0].aval.dtype
            return [
                lax.full(aval.shape, 0, aval.dtype),
                lax.full(aval.shape, monoid.identity(dtype), dtype),
            ]
        return [_identity(op, aval.shape)]

    def _on_first(self, x: jax.Array, monoid: Monoid) -> Any:
        """The initial value of an accumulation on the first device, the identity on the others, so
        that it is counted once.
        """
        if self.devices is None:
            return x
        return jnp.where(
            self.devices.index() == 0, x, lax.full(x.shape, monoid.identity(x.dtype), x.dtype)
        )

    def _add(
        self,
        walk: PaddedInterpreter,
        node: Node,
        parts: PartialResults,
        values: list[jax.Array],
        state: list[Any],
        when: object,
    ) -> tuple[list[Any], list[Any]]:
        """Evaluate a loop, branch or solve over another axis on one chunk: the results that are
        made per chunk (None for partial ones), and the partial results so far.
        """
        # The initial carry goes to the first chunk; the others start from the identity.
        is_first = jnp.equal(walk.start[self.passes.symbol], 0)
        begins = [jnp.asarray(x) if i in parts.begun else x for i, x in enumerate(values)]
        for i, monoid in parts.begun.items():
            begins[i] = lax.select(
                is_first, begins[i], _identity_array(monoid, begins[i].shape, begins[i].dtype)
            )
        out = run_with_callbacks(walk, node.op, begins, when)
        both = list(zip(out, parts.monoids, strict=True))
        added = [(x, monoid) for x, monoid in both if monoid is not None]
        new = [
            monoid.combine(held, _as(x, held.dtype))
            for held, (x, monoid) in zip(state, added, strict=True)
        ]
        return [None if monoid is not None else x for x, monoid in both], new

    def _carry(
        self,
        walk: PaddedInterpreter,
        node: Node,
        values: list[jax.Array],
        state: list[Any],
        *,
        back: bool,
    ) -> tuple[list[Any], list[Any]]:
        """Evaluate an operation with a state on one chunk: its results (None where they are known
        only after the pass), and the next state.
        """
        op, way = node.op, carry_kind(node.op)
        rule = RULES[op.name]
        if way == "looped":
            constants, _, xs = scan_parts(op.eqn, values)
            out = rule.pad(walk, op, [*constants, *state, *xs])
            return [*(None for _ in state), *out[len(state) :]], out[: len(state)]
        if way == "written":
            return [None], rule.pad(walk, op, [state[0], values[1], _as(values[2], state[0].dtype)])
        if way == "topped":
            return [None for _ in node.makes], merge_top_k(walk, op, values[0], state, back=back)
        if way == "picked":
            return [None], [read_positions(walk, op, values, state[0])]
        if way == "placed":
            part = rule.pad(walk, op, values)[0]
            return [None], _merge_argmax(
                op,
                values[0],
                part,
                state,
                walk.start_of(op.ins[0][op.params["axes"][0]]),
                back=back,
            )

        # A fold, or a prefix scan: within the chunk by the rule, then combined with the carry. A
        # scan's next carry is its last result (the first one if it runs from the end).
        part = _wide(walk, op, values)
        combine = monoid_of(op).combine
        if way == "cumulated":
            whole = combine(part, jnp.broadcast_to(state[0], part.shape))
            axis = op.params["axis"]
            end = 0 if op.params["reverse"] else part.shape[axis] - 1
            return [_as(whole, values[0].dtype)], [lax.slice_in_dim(whole, end, end + 1, axis=axis)]
        return [None], [combine(state[0], part)]


def _as(x: Any, dtype: DType) -> Any:
    return x if x.dtype == dtype else lax.convert_element_type(x, dtype)


def _identity(op: Op, shape: Any) -> Any:
    """The identity of an operation's monoid, in the dtype that it accumulates in."""
    monoid = monoid_of(op)
    return _identity_array(monoid, shape, monoid.accumulator(op.eqn.outvars[0].aval.dtype))


def _identity_array(monoid: Monoid, shape: Any, dtype: DType) -> Any:
    return lax.full(shape, monoid.identity(dtype), dtype)


def _wide(walk: PaddedInterpreter, op: Op, values: list[jax.Array]) -> Any:
    """The result for one chunk in the accumulator's dtype, not yet rounded to the program's."""
    dtype = op.eqn.outvars[0].aval.dtype
    wide = monoid_of(op).accumulator(dtype)
    if wide == dtype:
        return RULES[op.name].pad(walk, op, values)[0]
    # Operands are converted, except those of products: these take a result dtype of their own.
    if op.name not in ("dot_general", "conv_general_dilated"):
        return RULES[op.name].pad(walk, op, [_as(x, wide) for x in values])[0]
    return _as(RULES[op.name].pad(walk, op.changed(preferred_element_type=wide), values)[0], wide)


def _merge_argmax(
    op: Op, x: jax.Array, part: Any, state: list[Any], start: Any, *, back: bool
) -> list[Any]:
    """The next state of an argmax or argmin: index in the whole axis and value. Ties go to the
    first element, and the first NaN wins over all numbers.
    """
    (axis,) = op.params["axes"]
    index, best = state
    extreme = jnp.squeeze(jnp.take_along_axis(x, jnp.expand_dims(part, axis), axis), axis)
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
    passes: Passes, arrays: Sequence[object], size: int, chunk: int, devices: Devices | None = None
) -> list[Any]:
    """Evaluate a program in memory, chunk by chunk.

    Args:
        passes: The plan.
        arrays: The arguments.
        size: The size of the axis.
        chunk: The number of its elements per chunk, on each device.
        devices: The devices that the axis is sharded over, if it is.
    """
    with passes.width:
        return _run(Chunked(passes, size, devices), arrays, size, chunk)


def run_chunked_differentiable(
    passes: Passes, derivative: Derivative[Passes], arrays: Sequence[object], size: int, chunk: int
) -> list[Any]:
    """`run_chunked` on one device, differentiable once; in reverse mode each chunk is
    rematerialised.

    Args:
        passes: The plan.
        derivative: The plan of the derivative, from the positions of the varying arguments.
        arrays: The arguments.
        size: The size of the axis.
        chunk: The number of its elements per chunk.
    """

    def run(arrays: Sequence[jax.Array], _: None) -> list[Any]:
        return run_chunked(passes, arrays, size, chunk)

    def along(
        passes: Passes, arrays: Sequence[object], _: None, tangents: Sequence[object]
    ) -> list[Any]:
        with passes.width:
            work = Chunked(passes, size, is_differentiated=True)
            return _scan_chunks(
                work, [*arrays, *tangents], size, chunk, frozenset(passes.flat.takes[len(arrays) :])
            )

    return with_derivative(run, along, derivative, arrays, None, len(passes.flat.gives))


def _run(work: Chunked, arrays: Sequence[object], size: int, chunk: int) -> list[Any]:
    passes, devices = work.passes, work.devices
    if devices is None:
        return _scan_chunks(work, arrays, size, chunk)

    # Constant results stay outside of `shard_map`.
    gives, takes = passes.flat.gives, passes.flat.takes
    made = [i for i, ref in enumerate(gives) if not isinstance(ref, Const)]
    emitted = {i for turn in passes.passes for i in turn.emits}

    def here(*parts: object) -> list[Any]:
        out = _scan_chunks(work, parts, size // devices.parts, chunk)
        return [out[i] for i in made]

    ins = tuple(devices.spec(passes.axis(n) if n in passes.streamed else None) for n in takes)
    outs = [devices.spec(passes.axis_of_result(i) if i in emitted else None) for i in made]
    results = dict(zip(made, devices.mapped(here, ins, outs)(*arrays), strict=True))
    return [ref.value if isinstance(ref, Const) else results[i] for i, ref in enumerate(gives)]


def _scan_chunks(
    work: Chunked,
    arrays: Sequence[object],
    size: int,
    chunk: int,
    tangents: frozenset[int] | None = None,
) -> list[Any]:
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
    known = work.known(arrays)

    # Full chunks and a remainder. Tangents are split beforehand, all else is sliced in the loop.
    full, rest = divmod(size, chunk)
    parted = {
        n: _parted(streamed[n], passes.axis(n), full, chunk)
        for n in tangents or ()
        if n in streamed
    }
    # Results of low types leave the loop as bits: see `low_bits.py`.
    moved = _as_is if work.is_differentiated else _all_bits
    numbered = jnp.arange(full, dtype=np.int32)
    # The position of this device's shard in the axis.
    offset = (
        np.int32(0)
        if work.devices is None
        else lax.convert_element_type(work.devices.index() * size, np.int32)
    )
    emitted: dict[int, Any] = {}
    kept: StoredCarries = {}
    kept_rest: StoredCarries = {}

    for number, turn in enumerate(passes.passes, 1):
        with jax.named_scope(f"pass {number}{' from the end' if turn.back else ''}"):
            work.settle(turn.before, known)
            here = known

            # `turn` and `here` are bound as defaults: a closure reads them when it is called, and
            # they change with each pass.
            def step(
                state: State, given: Any, turn: Pass = turn, here: KnownValues = here
            ) -> tuple[State, Any]:
                i, parts, before = given
                at = i * np.int32(chunk)
                cut = {
                    n: parts[n] if n in parts else _part(x, at, chunk, passes.axis(n))
                    for n, x in streamed.items()
                }
                new, outs = work.step(
                    turn, here, cut, state, offset + at, chunk, chunk, kept=before
                )
                return new, (moved(outs), work.kept(turn, state))

            def remainder(
                state: State, before: StoredCarries, turn: Pass = turn, here: KnownValues = here
            ) -> tuple[State, Any]:
                at = full * chunk
                cut = {
                    n: (_slice if n in parted else _part)(x, at, rest, passes.axis(n))
                    for n, x in streamed.items()
                }
                new, outs = work.step(
                    turn, here, cut, state, offset + np.int32(at), rest, rest, kept=before
                )
                return new, (moved(outs), work.kept(turn, state))

            # In a scan nothing needs to keep XLA from merging the two evaluations of a chunk: they
            # are in different loops.
            again = partial(jax.checkpoint, prevent_cse=False) if tangents is not None else _as_is
            state, tail = work.start(turn, known), list[Any]()
            before, before_rest = (
                {key: each[key] for key in turn.replays if key in each}
                for each in (kept, kept_rest)
            )

            # From the end the remainder comes first.
            if rest and turn.back:
                state, (tail, carried_in) = again(remainder)(state, before_rest)
                kept_rest.update(carried_in)
            state, (outs, carried_in) = lax.scan(
                again(step), state, (numbered, parted, before), reverse=turn.back
            )
            kept.update(carried_in)
            if rest and not turn.back:
                state, (tail, carried_in) = again(remainder)(state, before_rest)
                kept_rest.update(carried_in)

            # Join the chunks of emitted and collected values, the remainder behind them.
            axes = [
                *(passes.axis_of_result(i) for i in turn.emits),
                *map(passes.axis, turn.collects),
            ]
            joined = [_joined(x, axis) for axis, x in zip(axes, outs, strict=True)]
            if rest:
                joined = [
                    lax.concatenate([a, b], axis)
                    for axis, a, b in zip(axes, joined, tail, strict=True)
                ]
            refs = [*(passes.flat.gives[i] for i in turn.emits), *turn.collects]
            # No constant has the axis, so each of `refs` is a number.
            dtypes = [passes.flat.dtypes[n] for n in refs if isinstance(n, int)]
            joined = [from_bits(x, dtype) for x, dtype in zip(joined, dtypes, strict=True)]
            work.finish(turn, known, work.together(turn, state))
            emitted.update(zip(turn.emits, joined, strict=False))
            known.values.update(zip(turn.collects, joined[len(turn.emits) :], strict=True))
    return work.results(known, emitted)


def _as_is(given: object) -> Any:
    return given


def _all_bits(arrays: list[jax.Array]) -> list[Any]:
    return [as_bits(x) for x in arrays]


def _slice(x: Any, start: object, size: int, axis: int) -> Any:
    return lax.dynamic_slice_in_dim(x, start, size, axis)


def _part(x: Any, start: Any, size: int, axis: int) -> Any:
    """A chunk of an array that is not differentiated, sliced as bits."""
    return from_bits(_slice(as_bits(x), start, size, axis), x.dtype)


def _parted(x: Any, axis: int, full: int, chunk: int) -> Any:
    """The full chunks of an array, stacked along a new leading axis."""
    whole = lax.slice_in_dim(x, 0, full * chunk, axis=axis)
    return jnp.moveaxis(
        whole.reshape(*whole.shape[:axis], full, chunk, *whole.shape[axis + 1 :]), axis, 0
    )


def _joined(chunks: object, axis: int) -> Any:
    """Join chunks that are stacked along a leading axis along their own axis."""
    moved = jnp.moveaxis(chunks, 0, axis)
    return moved.reshape(
        *moved.shape[:axis], moved.shape[axis] * moved.shape[axis + 1], *moved.shape[axis + 2 :]
    )
