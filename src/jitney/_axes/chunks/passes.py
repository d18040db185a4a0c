"""The plan of a chunked program: its passes over the data, the memory that they take, and the large
constants that they read.

`planning.py` makes a plan. `chunked.py` runs it, and so do `jitney.stream` and, with the axis
sharded over devices, `over_devices.py`.

A stream has large constants as values that its programs take: what a function captures is compiled
into none of its passes then.

    1 = mul Const(weight) 0   ->   1 = mul 2 0, and 2 is the weight
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TypeVar

import jax
import numpy as np
from jax.core import Tracer

from ..._jax.programs.large_constants import LARGE
from ..._jax.programs.primitives import public_name
from ..._jax.programs.ssa import Const, Ref, numbers_of
from ..._jax.trees import canonicalize_dtype, set_weak_type
from ..dims import evaluate, size_per_element
from ..interpreter import Numbers, Op, ragged_axes
from ..refusal import Refused
from ..rule import Use, bytes_of
from ..x64 import x64_scope
from .cut_axis import carrier_of
from .numbered import Node, NumberedProgram, has_state, is_accumulated

T = TypeVar("T")


@dataclass(frozen=True)
class Pass:
    """A pass over the data, from chunk to chunk.

    Args:
        before: Nodes that are computed once, when the pass before is over.
        nodes: Nodes that are computed for each chunk, in order; some carry a state from chunk to
            chunk.
        emits: Positions of the results that come out chunk by chunk.
        back: Whether the chunks come from the last to the first.
        collects: Values whose chunks are joined into a whole when the pass is over, for operations
            that run at once.
        slices: Materialised values that are sliced for each chunk.
        keeps: Operations whose carry into each chunk is stored; each by the number of its first
            result.
        replays: Operations of the other direction, which begin each chunk with the stored carry.
    """

    before: tuple[Node, ...]
    nodes: tuple[Node, ...]
    emits: tuple[int, ...]
    back: bool = False
    collects: tuple[int, ...] = ()
    slices: tuple[int, ...] = ()
    keeps: tuple[int, ...] = ()
    replays: tuple[int, ...] = ()

    @property
    def counts(self) -> bool:
        """True if the pass counts iterations of loops, and so is repeated until the numbers stay as
        they are.
        """
        return any(node.counts for node in self.nodes)

    def states(self, streamed: frozenset[int]) -> list[Node]:
        """The operations whose state is carried through the pass, in order."""
        return [
            node
            for node in self.nodes
            if node.makes and node.makes[0] not in self.replays and has_state(node, streamed)
        ]


@dataclass(frozen=True)
class Passes:
    """The plan of a program that runs chunk by chunk.

    Args:
        flat: The program.
        symbol: The size of the axis.
        passes: The passes, in order.
        after: Nodes that are computed when all passes are over.
        streamed: Values that are made per chunk, by number.
        levels: Length of the longest chain of reductions along the axis that depend on one another.
        numbers: Values that Python computes from the size, by variables of the program.
        at_once: Nodes that run at once, on whole operands.
        held: Values that are materialised for these, arguments aside.
        loops: Those of them that are loops with passes in each iteration, by the number of their
            first result.
    """

    flat: NumberedProgram
    symbol: str
    passes: tuple[Pass, ...]
    after: tuple[Node, ...]
    streamed: frozenset[int] = field(repr=False)
    levels: int = 0
    numbers: Numbers = field(default_factory=dict, repr=False)
    at_once: tuple[Node, ...] = ()
    held: frozenset[int] = frozenset()
    loops: Mapping[int, LoopPasses] = field(default_factory=dict[int, "LoopPasses"])

    def loop(self, node: Node) -> LoopPasses | None:
        """The plan of a loop with passes in each iteration; None for another node."""
        return self.loops.get(node.makes[0]) if node.makes else None

    def weakly_typed(self, results: Sequence[T]) -> list[T]:
        """The results, with the weak types that they have at once; None stands for one that is
        not there yet.
        """
        out: list[T] = []
        for ref, x in zip(self.flat.gives, results, strict=True):
            if x is None or isinstance(ref, Const):
                out.append(x)
            else:
                out.append(set_weak_type(x, is_weak=self.flat.avals[ref].weak_type))
        return out

    def held_bytes(self, size: int) -> int:
        """Bytes of the materialised values, for an axis of the given size."""
        own = self._whole_bytes(self.held, size)
        return own + sum(loop.held_bytes(size) for loop in self.loops.values())

    def emitted_bytes(self, size: int) -> int:
        """Bytes of the results that have the axis, for an axis of the given size."""
        return self._whole_bytes(self.streamed.intersection(numbers_of(self.flat.gives)), size)

    def _whole_bytes(
        self,
        numbers: Iterable[int],
        size: int,
    ) -> int:
        at = {self.symbol: size}
        total = 0
        for n in numbers:
            shape = [evaluate(dim, at) for dim in self.flat.dims[n]]
            total += math.prod(shape) * self.flat.dtypes[n].itemsize
        return total

    def kept_bytes(self, chunks: int) -> int:
        """Bytes of the carries that are stored at the boundaries of that many chunks."""
        keys = {key for work in self.passes for key in work.keeps}
        stored = [node for node in self.flat.steps if not keys.isdisjoint(node.makes[:1])]
        inside = [plan.kept_bytes(chunks) for loop in self.loops.values() for plan in loop.plans]
        return chunks * sum(map(_carried_bytes, stored)) + max(inside, default=0)

    def carried_bytes(self) -> int:
        """Bytes of the state that is carried through the pass that carries most."""
        carried = [map(_carried_bytes, work.states(self.streamed)) for work in self.passes]
        return max(map(sum, carried), default=0)

    @property
    def uses_after_counting(self) -> list[Use]:
        """The uses of the axis, without those that only count iterations of a loop."""
        nodes = [node for work in self.passes for node in work.nodes]
        return [use for node in nodes if not node.counts for use in node.uses]

    @property
    def counted_loops(self) -> list[Op]:
        """The loops whose iterations are counted in passes of their own."""
        nodes = [node for work in self.passes if work.counts for node in work.nodes]
        return [node.op for node in nodes if node.counts]

    @property
    def x64(self) -> AbstractContextManager[object]:
        """Context manager that enables 64-bit types if the program has such values."""
        return x64_scope(*(node.op.eqn for node in self.flat.steps))

    def demand_no_callbacks(self) -> None:
        """Check that a chunk may be evaluated twice.

        Raises:
            Refused: An operation calls back.
        """
        for node in self.flat.steps:
            if node.token is None:
                continue
            raise Refused(
                node.op.place,
                "calls back, and a chunk is worked on again on the way back"
                f" (`{public_name(node.op.name)}`)",
            )

    def axis(self, number: int) -> int:
        """The position of the cut axis in a streamed value."""
        return ragged_axes(self.flat.dims[number])[0]

    def axis_of_result(self, position: int) -> int:
        """The position of the cut axis in a result that comes out chunk by chunk."""
        return self.axis(self._number(position))

    def outputs(self, work: Pass) -> list[int]:
        """The values that come out of a pass chunk by chunk: emitted results, then collected
        values.
        """
        return [*map(self._number, work.emits), *work.collects]

    def _number(self, position: int) -> int:
        """The number of a result."""
        ref = self.flat.gives[position]
        if isinstance(ref, Const):
            raise AssertionError("a constant has no symbolic axis")
        return ref


@dataclass(frozen=True)
class LoopPasses:
    """The plan of a loop whose iterations take passes of their own over the data: see
    `loop_passes.py`.

    Args:
        body: The passes of an iteration.
        condition: Those of the condition of a `while`; None for a `scan`.
    """

    body: Passes
    condition: Passes | None = None

    @property
    def plans(self) -> tuple[Passes, ...]:
        """The plans of its programs."""
        return (self.body,) if self.condition is None else (self.body, self.condition)

    @property
    def turns(self) -> int:
        """The passes over the data in each iteration."""
        return sum(len(plan.passes) for plan in self.plans)

    def held_bytes(self, size: int) -> int:
        """Bytes of what has the axis and is there as a whole in an iteration, its operands aside:
        the next carry, and materialised values.
        """
        held = max(plan.held_bytes(size) for plan in self.plans)
        return held + self.body.emitted_bytes(size)


def bytes_per_element(passes: Passes) -> int:
    """Upper bound of the bytes per element of the axis, in the pass that takes most, if no two
    values shared memory.
    """
    in_passes = [sum(map(_bytes, work.nodes)) for work in passes.passes]
    for loop in passes.loops.values():
        in_passes += map(bytes_per_element, loop.plans)

    # Arguments count 8 bytes an element, whatever their dtype.
    cut = [passes.flat.dims[n] for n in passes.flat.takes if n in passes.streamed]
    of_arguments = 8 * sum(map(size_per_element, cut))
    return max(in_passes, default=0) + of_arguments


# A number of iterations.
_COUNT_BYTES = 4


def _carried_bytes(node: Node) -> int:
    """Bytes of the state that an operation carries from chunk to chunk."""
    op = node.op
    if node.counts:
        return _COUNT_BYTES
    if node.parts is not None:
        parts = zip(
            op.eqn.outvars,
            node.parts.monoids,
            strict=True,
        )
        return bytes_of(atom.aval for atom, monoid in parts if monoid is not None)
    carrier = carrier_of(op)
    return 0 if carrier is None else carrier.state_bytes(op)


def _bytes(node: Node) -> int:
    """Bytes per element of the axis of the results that have it."""
    avals = [atom.aval for atom in node.op.eqn.outvars]
    return bytes_of(aval for aval in avals if ragged_axes(aval.shape))


def number_constants(passes: Passes) -> tuple[Passes, dict[int, object]]:
    """Return the same plan with numbers in place of the large constants that its operations read;
    and these constants.
    """
    numbers: dict[int, int] = {}
    constants: dict[int, object] = {}

    def number(ref: Ref) -> Ref:
        if isinstance(ref, int) or not _is_captured(ref):
            return ref
        n = numbers.setdefault(id(ref.value), len(passes.flat.avals) + len(numbers))
        constants[n] = ref.value
        return n

    # A node stands in the program and in the pass that it belongs to, and is one object in both.
    made: dict[int, Node] = {}

    def reading(nodes: Sequence[Node]) -> tuple[Node, ...]:
        for node in nodes:
            if id(node) not in made and any(map(_is_captured, node.reads)):
                made[id(node)] = replace(node, reads=tuple(map(number, node.reads)))
        return tuple(made.get(id(node), node) for node in nodes)

    nodes = reading(passes.flat.steps)
    turns = tuple(
        replace(work, before=reading(work.before), nodes=reading(work.nodes))
        for work in passes.passes
    )
    after, at_once = reading(passes.after), reading(passes.at_once)
    if not constants:
        return passes, constants
    avals = {n: jax.typeof(value) for n, value in constants.items()}
    flat = replace(
        passes.flat,
        steps=nodes,
        avals={**passes.flat.avals, **avals},
    )
    numbered = replace(
        passes,
        flat=flat,
        passes=turns,
        after=after,
        at_once=at_once,
    )
    return numbered, constants


def _is_captured(ref: Ref) -> bool:
    """Return whether an operand is a large array, of which a copy has the same type."""
    value = ref.value if isinstance(ref, Const) else None
    if isinstance(value, Tracer) or not isinstance(value, (jax.Array, np.ndarray)):
        return False
    if getattr(value, "weak_type", False) or not isinstance(value.dtype, np.dtype):
        return False
    return value.nbytes > LARGE and canonicalize_dtype(value.dtype) == value.dtype


def coupling_statistic(passes: Passes) -> str:
    """The user's line of the first reduction that another reduction depends on; "" if there is
    none.
    """
    # Forward taint analysis: value -> the line of the reduction that it depends on.
    origin: dict[int, str] = {}
    planned = {id(node) for work in passes.passes for node in (*work.before, *work.nodes)}
    for node in passes.flat.steps:
        known = next((origin[n] for n in node.numbers if n in origin), None)
        for n in node.makes if id(node) in planned else ():
            if is_accumulated(node, n, passes.streamed):
                if known is not None:
                    return known
                origin[n] = node.op.place
            elif known is not None:
                origin[n] = known
    return ""
