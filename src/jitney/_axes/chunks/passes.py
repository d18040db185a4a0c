"""A program as passes over the data, and what they take.

They are planned in `planning.py`, and run in `chunked.py`, by `jitney.stream` and in
`over_devices.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from ..._jax.evaluation import Const
from ..._jax.primitives import spelled
from ..dims import evaluate
from ..refusal import Refused
from ..walk import ragged
from ..wide import scope_of
from .along import carried, monoid_of, way_of
from .numbered import Node, NumberedProgram, has_state, size_per_element


@dataclass(frozen=True)
class Pass:
    """What one pass over the data does.

    Args:
        before: What is computed once, when the pass before is over.
        nodes: What is made for each chunk, in order; among them those with a state that is carried
            from chunk to chunk.
        emits: The positions of the results that come out chunk by chunk.
        back: Whether the chunks come from the last to the first.
        collects: The values whose chunks are put together for what is done at once, when the pass
            is over.
        slices: The values that are there as a whole, and cut for it.
        keeps: The operations of which it keeps what they carry into each chunk; each by the number
            of its first result.
        replays: The operations that go the other way along the axis, and begin each chunk with what
            was kept.
    """

    before: tuple[Node, ...]
    nodes: tuple[Node, ...]
    emits: tuple[int, ...]
    back: bool = False
    collects: tuple[int, ...] = ()
    slices: tuple[int, ...] = ()
    keeps: tuple[int, ...] = ()
    replays: tuple[int, ...] = ()

    def states(self, streamed: frozenset[int]) -> list[Node]:
        """The operations whose state is carried through it, in order."""
        return [
            node
            for node in self.nodes
            if node.makes and node.makes[0] not in self.replays and has_state(node, streamed)
        ]


@dataclass(frozen=True)
class Passes:
    """How a program runs chunk by chunk.

    Args:
        flat: The program.
        symbol: The size of the axis.
        passes: What each pass does.
        after: What is computed once they are over.
        streamed: The values that have the axis, by number.
        levels: How many reductions along the axis wait for one another.
        numbers: What Python makes of the size, by variables of the program.
        at_once: What is done on the whole.
        held: The values that are there as a whole for that, arguments aside.
    """

    flat: NumberedProgram
    symbol: str
    passes: tuple[Pass, ...]
    after: tuple[Node, ...]
    streamed: frozenset[int] = field(repr=False)
    levels: int = 0
    numbers: Mapping[Any, Any] = field(default_factory=dict[Any, Any], repr=False)
    at_once: tuple[Node, ...] = ()
    held: frozenset[int] = frozenset()

    def held_bytes(self, size: int) -> int:
        """What the values take that are there as a whole, for an axis of a size."""
        at = {self.symbol: size}
        dtypes = self.flat.dtypes
        return sum(
            math.prod(evaluate(dim, at) for dim in self.flat.dims[n]) * dtypes[n].itemsize
            for n in self.held
        )

    def kept_bytes(self, chunks: int) -> int:
        """What is kept at the boundaries of chunks takes."""
        kept = {key for work in self.passes for key in work.keeps}
        return chunks * sum(
            _carried_bytes(node) for node in self.flat.nodes if node.makes and node.makes[0] in kept
        )

    @property
    def width(self) -> AbstractContextManager[Any]:
        """The scope in which the numbers of the program live."""
        return scope_of(*(node.op.eqn for node in self.flat.nodes))

    def demand_no_callbacks(self) -> None:
        """Check that a chunk may be worked on twice.

        Raises:
            Refused: An operation calls back.
        """
        for node in self.flat.nodes:
            if node.token is not None:
                raise Refused(
                    node.op.place,
                    "calls back, and a chunk is worked on again on the way back"
                    f" (`{spelled(node.op.name)}`)",
                )

    def axis(self, number: int) -> int:
        """Where a streamed value has the axis."""
        return ragged(self.flat.dims[number])[0]

    def axis_of_result(self, position: int) -> int:
        """Where a result that comes out chunk by chunk has the axis."""
        ref = self.flat.gives[position]
        if isinstance(ref, Const):
            raise AssertionError("a constant has no symbolic axis")
        return self.axis(ref)


def bytes_per_element(passes: Passes) -> int:
    """An upper bound of what one element of the axis takes in the pass that takes most, if no value
    shared its memory with another.
    """
    return max((sum(map(_bytes, turn.nodes)) for turn in passes.passes), default=0) + sum(
        size_per_element(passes.flat.dims[n]) * 8 for n in passes.flat.takes if n in passes.streamed
    )


def _carried_bytes(node: Node) -> int:
    """What an operation carries from chunk to chunk takes."""
    op = node.op
    if way_of(op) == "looped":
        avals = [atom.aval for atom in carried(op, list(op.eqn.invars))]
        return sum(size_per_element(aval.shape) * aval.dtype.itemsize for aval in avals)
    aval = op.eqn.outvars[0].aval
    return size_per_element(aval.shape) * monoid_of(op).accumulator(aval.dtype).itemsize


def _bytes(node: Node) -> int:
    avals = [atom.aval for atom in node.op.eqn.outvars]
    return sum(
        size_per_element(aval.shape) * aval.dtype.itemsize for aval in avals if ragged(aval.shape)
    )
