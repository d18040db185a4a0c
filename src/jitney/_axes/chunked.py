"""The chunked evaluator: the passes of a program, one chunk at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._jax.evaluation import Const
from .callbacks import answers, told
from .monoids import Monoid
from .over_devices import Devices
from .passes import Node, Pass, Passes, carried, has_state, is_accumulated, is_along, monoid_of, way_of
from .rules import RULES
from .typed_jax import jnp, lax
from .walk import Op, Walk

State = list[list[Any]]
"""Of each node with a state, in order, what is carried from chunk to chunk."""


@dataclass
class KnownValues:
    """The values that do not have the axis, as far as they are known."""

    values: dict[int, Any]

    def read(self, refs: Sequence[Any], made: dict[int, Any] | None = None) -> list[Any]:
        """The values with these numbers; `made` holds those of the chunk at hand."""
        chunk = made or {}
        return [ref.value if isinstance(ref, Const) else chunk[ref] if ref in chunk else self.values[ref] for ref in refs]


class Chunked:
    """Evaluates the passes of one program.

    Args:
        passes: What is done when.
        size: The size of the whole axis, an int or an int32 scalar.
        devices: Those that share the axis, if several do; what is called here is called inside their `mapped` then.
        is_spread: Whether XLA lays other axes over devices.
    """

    def __init__(self, passes: Passes, size: Any, devices: Devices | None = None, *, is_spread: bool = False):
        self.passes = passes
        self.size = size
        self.devices = devices
        self.is_spread = is_spread or (devices is not None and devices.is_part)

    def known(self, fixed: Sequence[Any]) -> KnownValues:
        """The arguments that do not have the axis, in order; in place of the others, anything."""
        takes = self.passes.flat.takes
        return KnownValues({n: x for n, x in zip(takes, fixed, strict=True) if n not in self.passes.streamed})

    def settle(self, nodes: Sequence[Node], known: KnownValues) -> None:
        """Compute what can be computed now, once."""
        walk = self._walk(1, 1, 0)
        for node in nodes:
            values = known.read(node.reads)
            out = walk.make(node.op, values) if node.token is None or self.devices is None else self._once(self.devices, walk, node, values)
            known.values.update(zip(node.makes, out, strict=True))

    def _once(self, devices: Devices, walk: Walk, node: Node, values: list[Any]) -> list[Any]:
        """What calls back, on the first of the devices; what it is answered, the others get from there."""
        out = told(walk, node.op, values, devices.index() == 0)
        return [lax.all_gather(x, devices.along)[0] for x in out] if answers(node.op, is_used=True) else out

    def start(self, work: Pass, known: KnownValues) -> State:
        """The states that a pass begins with."""
        return [self._begin(node, known) for node in work.nodes if has_state(node, self.passes.streamed)]

    def step(
        self,
        work: Pass,
        known: KnownValues,
        chunk: dict[int, Any],
        state: State,
        start: Any,
        count: Any,
        allocated: int,
        *,
        here: Any = True,
    ) -> tuple[State, list[Any]]:
        """One chunk: the next states, and the results that come out of it. Where `here` is false it is worked on elsewhere as well, and
        its callbacks are called there."""
        walk = self._walk(allocated, count, start)
        made = dict(chunk)
        states = iter(state)
        new: State = []
        for node in work.nodes:
            values = known.read(node.reads, made)
            if has_state(node, self.passes.streamed):
                out, after = self._carry(walk.muted() if node.is_mute else walk, node, values, next(states), back=work.back)
                new.append(after)
            else:
                out = told(walk, node.op, values, self._is_told(node, start, here=here))
            made.update((n, x) for n, x in zip(node.makes, out, strict=True) if x is not None)
        return new, known.read([self.passes.flat.gives[i] for i in work.emits], made)

    def together(self, work: Pass, state: State) -> State:
        """What a pass has accumulated, of all devices, rounded to the types of the program."""
        state = state if self.devices is None else self.devices.together(work, self.passes.streamed, state)
        with_state = [node for node in work.nodes if has_state(node, self.passes.streamed)]
        return [
            [_as(x, self.passes.flat.dtypes[n]) for n, x in zip(self._accumulated(node), held, strict=False)]
            for node, held in zip(with_state, state, strict=True)
        ]

    def finish(self, work: Pass, known: KnownValues, state: State) -> None:
        """What the pass has accumulated, put `together`, is known from now on."""
        with_state = [node for node in work.nodes if has_state(node, self.passes.streamed)]
        for node, held in zip(with_state, state, strict=True):
            known.values.update(zip(self._accumulated(node), held, strict=False))

    def results(self, known: KnownValues, emitted: dict[int, Any]) -> list[Any]:
        """All results; those with the axis are given."""
        self.settle(self.passes.after, known)
        gives = self.passes.flat.gives
        return [emitted[i] if i in emitted else known.read([ref])[0] for i, ref in enumerate(gives)]

    def _walk(self, allocated: int, count: Any, start: Any) -> Walk:
        symbol = self.passes.symbol
        walk = Walk({symbol: allocated}, {symbol: count}, RULES, {symbol: self.size}, {symbol: start}, self.passes.numbers)
        walk.is_spread = self.is_spread
        return walk

    def _is_told(self, node: Node, start: Any, *, here: Any) -> Any:
        """Whether an operation calls its callbacks in this chunk: one that is the same in all of them does in the first."""
        if node.token is None or node.is_mute:
            return node.token is None
        return here if is_along(node.op) else (start == 0) & here

    @property
    def accumulators(self) -> list[str]:
        """The types of what is carried from chunk to chunk: a file of other ones cannot be gone on from."""
        nodes = [node for work in self.passes.passes for node in work.nodes if has_state(node, self.passes.streamed)]
        return [
            str(monoid_of(node.op).accumulator(node.op.eqn.outvars[0].aval.dtype))
            for node in nodes if way_of(node.op) not in ("looped", "placed")
        ]  # fmt: skip

    def _accumulated(self, node: Node) -> list[int]:
        return [n for n in node.makes if is_accumulated(node, n, self.passes.streamed)]

    def _begin(self, node: Node, known: KnownValues) -> list[Any]:
        op, way = node.op, way_of(node.op)
        if way == "looped":
            values = [None if isinstance(ref, int) and ref in self.passes.streamed else known.read([ref])[0] for ref in node.reads]
            return [jnp.asarray(x) for x in carried(op, values)]
        monoid = monoid_of(op)
        if way == "written":
            (x,) = known.read(node.reads[:1])
            return [self._on_first(_as(jnp.asarray(x), monoid.accumulator(op.eqn.outvars[0].aval.dtype)), monoid)]
        aval = op.eqn.outvars[0].aval
        if way == "cumulated":
            shape = [1 if axis == op.params["axis"] else size for axis, size in enumerate(aval.shape)]
            return [_identity(op, shape)]
        if way == "placed":
            dtype = op.eqn.invars[0].aval.dtype
            return [lax.full(aval.shape, 0, aval.dtype), lax.full(aval.shape, monoid.identity(dtype), dtype)]
        return [_identity(op, aval.shape)]

    def _on_first(self, x: Any, monoid: Monoid) -> Any:
        """What is added to is there once, on the first of the devices."""
        if self.devices is None:
            return x
        return jnp.where(self.devices.index() == 0, x, lax.full(x.shape, monoid.identity(x.dtype), x.dtype))

    def _carry(self, walk: Walk, node: Node, values: list[Any], state: list[Any], *, back: bool) -> tuple[list[Any], list[Any]]:
        """The results for one chunk (None where they are known only later), and the next state."""
        op, way = node.op, way_of(node.op)
        rule = RULES[op.name]
        if way == "looped":
            first = next(i for i, x in enumerate(values) if any(x is y for y in carried(op, values)))
            out = rule.pad(walk, op, [*values[:first], *state, *values[first + len(state) :]])
            return [*(None for _ in state), *out[len(state) :]], out[: len(state)]
        if way == "written":
            return [None], rule.pad(walk, op, [state[0], values[1], _as(values[2], state[0].dtype)])
        if way == "placed":
            part = rule.pad(walk, op, values)[0]
            return [None], _further(op, values[0], part, state, walk.start[self.passes.symbol], back=back)
        part = _wide(walk, op, values)
        combine = monoid_of(op).combine
        if way == "cumulated":
            whole = combine(part, jnp.broadcast_to(state[0], part.shape))
            axis = op.params["axis"]
            end = 0 if op.params["reverse"] else part.shape[axis] - 1
            return [_as(whole, values[0].dtype)], [lax.slice_in_dim(whole, end, end + 1, axis=axis)]
        return [None], [combine(state[0], part)]


def _as(x: Any, dtype: Any) -> Any:
    return x if x.dtype == dtype else lax.convert_element_type(x, dtype)


def _identity(op: Op, shape: Any) -> Any:
    """What an operation starts with, in the type that it accumulates in."""
    monoid = monoid_of(op)
    dtype = monoid.accumulator(op.eqn.outvars[0].aval.dtype)
    return lax.full(shape, monoid.identity(dtype), dtype)


def _wide(walk: Walk, op: Op, values: list[Any]) -> Any:
    """The result for one chunk, in the type that it is accumulated in: it is rounded when all chunks are done."""
    dtype = op.eqn.outvars[0].aval.dtype
    wide = monoid_of(op).accumulator(dtype)
    if wide == dtype:
        return RULES[op.name].pad(walk, op, values)[0]
    if op.name != "dot_general":
        return RULES[op.name].pad(walk, op, [_as(x, wide) for x in values])[0]
    return _as(RULES[op.name].pad(walk, op.changed(preferred_element_type=wide), values)[0], wide)


def _further(op: Op, x: Any, part: Any, state: list[Any], start: Any, *, back: bool) -> list[Any]:
    """Where the extreme element is of all chunks until now, and that element: the first of equal ones, and the first NaN before all."""
    (axis,) = op.params["axes"]
    index, best = state
    extreme = jnp.squeeze(jnp.take_along_axis(x, jnp.expand_dims(part, axis), axis), axis)
    above, below = (lax.ge, lax.le) if back else (lax.gt, lax.lt)  # of equal ones the chunk further in front has the first
    better = above(extreme, best) if op.name == "argmax" else below(extreme, best)
    if jnp.issubdtype(extreme.dtype, jnp.inexact):
        better |= jnp.isnan(extreme) & (back | ~jnp.isnan(best))
    return [lax.select(better, part + lax.convert_element_type(start, part.dtype), index), lax.select(better, extreme, best)]


def run_chunked(passes: Passes, arrays: Sequence[Any], size: int, chunk: int, devices: Devices | None = None) -> list[Any]:
    """Evaluate a program in memory, chunk by chunk.

    Args:
        passes: The plan.
        arrays: The arguments.
        size: The size of the axis.
        chunk: How much of it is worked on at a time, by each device.
        devices: Those that share the axis, if several do.
    """
    with passes.width:
        return _run(Chunked(passes, size, devices), arrays, size, chunk)


def _run(work: Chunked, arrays: Sequence[Any], size: int, chunk: int) -> list[Any]:
    passes, devices = work.passes, work.devices
    if devices is None:
        return _in_turn(work, arrays, size, chunk)
    gives, takes = passes.flat.gives, passes.flat.takes
    made = [i for i, ref in enumerate(gives) if not isinstance(ref, Const)]
    emitted = {i for turn in passes.passes for i in turn.emits}

    def here(*parts: Any) -> list[Any]:
        out = _in_turn(work, parts, size // devices.parts, chunk)
        return [out[i] for i in made]

    ins = tuple(devices.spec(passes.axis(n) if n in passes.streamed else None) for n in takes)
    outs = [devices.spec(passes.axis_of_result(i) if i in emitted else None) for i in made]
    results = dict(zip(made, devices.mapped(here, ins, outs)(*arrays), strict=True))
    return [ref.value if isinstance(ref, Const) else results[i] for i, ref in enumerate(gives)]


def _in_turn(work: Chunked, arrays: Sequence[Any], size: int, chunk: int) -> list[Any]:
    """The chunks that are here one after the other: `size` elements of the axis, which lie where this device's part begins."""
    passes = work.passes
    takes = passes.flat.takes
    streamed = {n: x for n, x in zip(takes, arrays, strict=True) if n in passes.streamed}
    known = work.known(arrays)
    full, rest = divmod(size, chunk)
    offset = np.int32(0) if work.devices is None else lax.convert_element_type(work.devices.index() * size, np.int32)
    emitted: dict[int, Any] = {}

    for turn in passes.passes:
        work.settle(turn.before, known)
        here = known

        def step(state: State, i: Any, turn: Pass = turn, here: KnownValues = here) -> tuple[State, list[Any]]:
            at = i * np.int32(chunk)
            cut = {n: lax.dynamic_slice_in_dim(x, at, chunk, passes.axis(n)) for n, x in streamed.items()}
            return work.step(turn, here, cut, state, offset + at, chunk, chunk)

        def remainder(state: State, turn: Pass = turn, here: KnownValues = here) -> tuple[State, list[Any]]:
            at = full * chunk
            cut = {n: lax.slice_in_dim(x, at, size, axis=passes.axis(n)) for n, x in streamed.items()}
            return work.step(turn, here, cut, state, offset + np.int32(at), rest, rest)

        state, tail = work.start(turn, known), list[Any]()
        if rest and turn.back:
            state, tail = remainder(state)
        state, outs = lax.scan(step, state, jnp.arange(full, dtype=np.int32), reverse=turn.back)
        if rest and not turn.back:
            state, tail = remainder(state)
        axes = [passes.axis_of_result(i) for i in turn.emits]
        joined = [_joined(x, axis) for axis, x in zip(axes, outs, strict=True)]
        if rest:
            joined = [lax.concatenate([a, b], axis) for axis, a, b in zip(axes, joined, tail, strict=True)]
        work.finish(turn, known, work.together(turn, state))
        emitted.update(zip(turn.emits, joined, strict=True))
    return work.results(known, emitted)


def _joined(chunks: Any, axis: int) -> Any:
    """The chunks of a result, which lie along a new leading axis, one behind the other."""
    moved = jnp.moveaxis(chunks, 0, axis)
    return moved.reshape(*moved.shape[:axis], moved.shape[axis] * moved.shape[axis + 1], *moved.shape[axis + 2 :])
