"""Evaluator of the nodes of a pass on one chunk.

A node is of one of five kinds:

    replayed    its carry into the chunk was stored by an earlier pass
    counted     numbers of iterations of a loop over another axis (`turns.py`)
    partial     a loop, branch or solve over another axis with partial results, which are added up
    carried     any other state: its carrier takes a step (`carriers/`)
    plain       no state; its callbacks are called in the first chunk, or in each
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import jax

from ..callbacks import run_with_callbacks
from ..interpreter import PaddedInterpreter
from ..monoids import Monoid, to_dtype
from ..rule import (
    Carrier,
    ChunkStep,
    Outputs,
    State,
)
from ..typed_jax import jnp, lax
from .cut_axis import carrier_of, is_along
from .known_values import Size, States, StoredCarries
from .numbered import Node, has_state
from .partial_results import PartialResults
from .passes import Pass, Passes
from .turns import iterations_of_chunk


def carrier_of_node(node: Node) -> Carrier:
    """Return the carrier of a node that has a state of its own."""
    carrier = carrier_of(node.op)
    if carrier is None:
        raise AssertionError(f"`{node.op.name}` carries no state")
    return carrier


@dataclass
class ChunkEvaluator:
    """Evaluator of one chunk, whose nodes are evaluated in their order.

    Args:
        passes: The plan.
        work: The pass.
        walk: Interpreter whose arrays are as long as the chunk.
        before: The states before the chunk.
        stored: The carries into the chunk of the nodes that the pass replays.
        start: Position of the chunk in the axis.
        here: Whether callbacks are called here, a bool or one of the program.
        after: The states after the chunk, of the nodes so far.
    """

    passes: Passes
    work: Pass
    walk: PaddedInterpreter
    before: Iterator[State]
    stored: StoredCarries
    start: Size
    here: bool | jax.Array
    after: States = field(default_factory=list[State])

    def outputs(self, node: Node, values: list[jax.Array]) -> Outputs:
        """Evaluate a node; None stands for results that are not known in the chunk."""
        if node.makes and node.makes[0] in self.work.replays:
            # Its callbacks have been called in the pass that stored the carry.
            quiet = self.walk.without_callbacks()
            out, _ = self._step(quiet, node, values, self.stored[node.makes[0]])
            return out
        if node.counts and node.parts is not None:
            (least,) = next(self.before)
            begins = self._begin_partials(node.parts, values)
            self.after.append([iterations_of_chunk(self.walk, node.op, begins, least)])
            return [None]
        if not has_state(node, self.passes.streamed):
            return run_with_callbacks(self.walk, node.op, values, self._calls_back(node))

        state = next(self.before)
        if node.parts is not None:
            out, after = self._add(node, node.parts, values, state)
        else:
            walk = self.walk.without_callbacks() if node.is_mute else self.walk
            out, after = self._step(walk, node, values, state)
        self.after.append(after)
        return out

    def _step(
        self,
        walk: PaddedInterpreter,
        node: Node,
        values: list[jax.Array],
        state: State,
    ) -> tuple[Outputs, State]:
        chunk = ChunkStep(walk, node.op, values, self.work.back)
        return carrier_of_node(node).step(chunk, state)

    def _calls_back(self, node: Node) -> bool | jax.Array:
        """Return whether an operation calls its callbacks in this chunk: a loop along the axis does
        in each chunk, any other operation in the first.
        """
        if node.token is None or node.is_mute:
            return node.token is None
        return self.here if is_along(node.op) else (self.start == 0) & self.here

    def _add(
        self,
        node: Node,
        parts: PartialResults,
        values: list[jax.Array],
        state: State,
    ) -> tuple[Outputs, State]:
        """Evaluate a loop, branch or solve over another axis: the results that are made per chunk
        (None for partial ones), and the partial results so far.
        """
        begins = self._begin_partials(parts, values)
        results = run_with_callbacks(self.walk, node.op, begins, self._calls_back(node))

        out: list[jax.Array | None] = []
        added: list[tuple[Monoid, jax.Array]] = []
        for x, monoid in zip(results, parts.monoids, strict=True):
            out.append(x if monoid is None else None)
            if monoid is not None:
                added.append((monoid, x))

        new: list[jax.Array] = []
        for total, (monoid, x) in zip(state, added, strict=True):
            new.append(monoid.combine(total, to_dtype(x, total.dtype)))
        return out, new

    def _begin_partials(
        self,
        parts: PartialResults,
        values: list[jax.Array],
    ) -> list[jax.Array]:
        """Return the operands of an operation with partial results: the initial carry goes to the
        first chunk, and the others start from the identity.
        """
        is_first = jnp.equal(self.walk.start[self.passes.symbol], 0)
        begins = [jnp.asarray(x) if i in parts.begun else x for i, x in enumerate(values)]
        for i, monoid in parts.begun.items():
            x = begins[i]
            begins[i] = lax.select(is_first, x, monoid.filled(x.shape, x.dtype))
        return begins
