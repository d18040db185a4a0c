"""Levels of values: how many passes have to be over before a value can be computed, and in which
order of the chunks.

    b = reduce_sum a    level of a, plus one: its result is known when a pass is over
    c = sub a b         the higher of its operands' levels
    d = cumsum c        the same, and from the front

What has no chunks runs at once, on whole operands (`materialised.py`), or is refused.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from ..._jax.programs.jaxprs import inside, source_of
from ..._jax.programs.primitives import public_name
from ..._jax.programs.ssa import numbers_of
from ..dims import Dim, is_multiple, size_per_element, symbols
from ..interpreter import Op, ragged_axes, shape_of
from ..refusal import Refused
from ..rule import Use, ragged_dims
from ..rules import RULES
from ..typed_jax import dtypes
from .cut_axis import (
    accumulates,
    can_be_cut,
    carrier_of,
    describe_use,
    direction_of,
    is_along,
    is_made_at_size,
    refusal,
)
from .loop_passes import is_small
from .materialised import Materialised
from .numbered import Node, NumberedProgram, begins_with, has_axis


@dataclass
class Directions:
    """The order of chunks that values need.

    Args:
        of: Value -> True if from the end, False if from the front. Most values are missing: either
            order will do.
        both: Value -> the number of passes after which it can be made in either order, since the
            carries at chunk boundaries are known.
    """

    of: dict[int, bool] = field(default_factory=dict[int, bool])
    both: dict[int, int] = field(default_factory=dict[int, int])


class Levels:
    """Levels of the values of a program, and what else is known of them before its passes are made.
    Filled in node by node, in the order of the program.

    Args:
        flat: The program.
        symbol: Size of the axis.
        in_memory: Whether the arguments are in memory as a whole.

    Attributes:
        of: Value -> its level.
        streamed: Values that are made in each chunk.
        back: Directions of values.
        held: Values that are materialised as a whole.

    Raises:
        Refused: An argument has an axis that no chunk cuts.
    """

    def __init__(
        self,
        flat: NumberedProgram,
        symbol: str,
        *,
        in_memory: bool,
    ):
        self.flat = flat
        self.symbol = symbol
        self.of: dict[int, int] = dict.fromkeys(flat.takes, 0)
        self.streamed = {n for n in flat.takes if self.has_axis(n)}
        self.back = Directions()
        self.held = Materialised(frozenset(self.streamed) if in_memory else frozenset())
        for n in flat.takes:
            _check_dims(None, flat.dims[n], symbol)

    def has_axis(self, n: int) -> bool:
        """Return whether a value has the axis."""
        return bool(ragged_axes(self.flat.dims[n]))

    def assign(self, node: Node, loops: Set[int]) -> None:
        """Assign levels to a node's results, add those that are streamed to `streamed`, and note
        the direction that they need.

        Args:
            node: The node.
            loops: Loops, branches and solves that are not cut, by the number of their first result.

        Raises:
            Refused: The node cannot be cut, nor run at once.
        """
        op, level, streamed, back = node.op, self.of, self.streamed, self.back
        for n in node.makes:
            _check_dims(op, self.flat.dims[n], self.symbol)
        if not loops.isdisjoint(node.makes[:1]):
            self._hold_operands(node)
            return
        along = bool(node.uses) or any(ref in streamed for ref in node.numbers)
        uses = node.uses if node.parts is None else ()

        # No chunked form (or its operand is whole, so that reading a few elements needs no pass).
        odd = self._uncuttable_dim(node)
        cut = [ref for ref in node.numbers if ref in streamed]
        carrier = carrier_of(op)
        at_hand = carrier is not None and carrier.reads_few and self.held.is_whole(cut)
        if odd is not None or (uses and (at_hand or not can_be_cut(op, uses))):
            self._do_at_once(node, uses, odd)
            return
        try:
            _check_inside(op, self.symbol)
            height, way = self._height(node, uses)
        except Refused:
            if not _runs_whole(op, node.uses):
                raise
            self._hold_operands(node)
            return
        is_reduced = along and accumulates(op)

        # A reduction's result is one level higher. All else with the axis is streamed, and so is a
        # value without it that is computed beside streamed ones, in each chunk alike.
        for i, n in enumerate(node.makes):
            is_cut = self.has_axis(n)
            is_known_later = is_reduced if node.parts is None else node.parts.monoids[i] is not None
            level[n] = height + (1 if is_known_later and not is_cut else 0)
            if not is_cut and (is_known_later or not along):
                continue
            streamed.add(n)
            is_plain = not uses and node.parts is None and node.token is None
            if is_cut and is_plain and self._is_free(node):
                self.held.free[n] = node
        if node.token is not None:
            level[node.token] = height + has_axis(node, streamed)

        # Directions spread to all that is computed from a directed value in the same pass.
        if way is not None:
            both = height + 1 if direction_of(op) is not None else 0
            for ref in node.numbers:
                if ref in streamed:
                    both = max(both, back.both.get(ref, 0))
            back.of.update(dict.fromkeys(node.marks, way))
            back.both.update(dict.fromkeys(node.marks, both))

    def _height(self, node: Node, uses: Sequence[Use]) -> tuple[int, bool | None]:
        """The number of passes after which a node's operands are there, and its direction.

        Raises:
            Refused: What it begins with, or makes, is known in each chunk only when all are done.
        """
        op, level = node.op, self.of
        # A result can be made once all operands can; an operand of the other direction counts from
        # the pass after the one that keeps its carries.
        way, turned = self._direction(node)
        height = 0
        for ref in (*node.numbers, *node.waits):
            height = max(height, level[ref])
            if ref in turned:
                height = max(height, self.back.both[ref])
        along = bool(node.uses) or any(ref in self.streamed for ref in node.numbers)
        if not (along and accumulates(op)):
            return height, way
        if not self.streamed.isdisjoint(numbers_of(begins_with(node))):
            raise refusal(op, "begins with a value that is made in each chunk")
        if any(map(self.has_axis, node.makes)) and uses and not is_along(op):
            raise refusal(op, "makes it of what is put together over all of it")
        return height, way

    def _direction(self, node: Node) -> tuple[bool | None, set[int]]:
        """The direction of a node (True from the end, None if either will do), and its operands of
        the other direction, which get a pass of their own and are replayed from its carries.
        """
        directed = [ref for ref in node.numbers if ref in self.streamed and ref in self.back.of]
        ways = {ref: self.back.of[ref] for ref in directed}
        own = direction_of(node.op)
        if own is None and not ways:
            return None, set()
        # Without a direction of its own a node takes that of its last operand to be ready.
        way = own if own is not None else ways[max(ways, key=lambda ref: self.of[ref])]
        return way, {ref for ref, other in ways.items() if other != way}

    def _uncuttable_dim(self, node: Node) -> Dim | None:
        """A dimension that is not a multiple of the cut axis (`n - 1` of `diff`), among the
        operands and results of a node, so that it has no chunks; None if there is none.
        """
        numbers = (*node.makes, *(n for n in node.numbers if n in self.streamed))
        for n in numbers:
            for dim in ragged_dims(self.flat.dims[n]):
                if not is_multiple(dim, self.symbol):
                    return dim
        return None

    def _do_at_once(
        self,
        node: Node,
        uses: Sequence[Use],
        odd: object,
    ) -> None:
        """Assign levels to the results of a node that runs at once, on whole operands.

        Raises:
            Refused: Its rule does not allow that, or its operands cannot be materialised.
        """
        op = node.op
        rule = RULES.get(op.name)
        refused = next((use for use in uses if not is_made_at_size(use)), None)
        may_run = odd is not None or (rule is not None and rule.at_once) or _runs_whole(op, uses)
        if rule is None or refused is not None or not may_run:
            reason = refused or uses[0]
            raise Refused(reason.place, describe_use(op, reason))
        self._hold_operands(node)

    def _hold_operands(self, node: Node) -> None:
        """Materialise what a node reads, and assign levels to its results.

        Raises:
            Refused: It calls back, or it reads a value that is made per chunk without having the
                axis.
        """
        op, level = node.op, self.of
        read = [n for n in node.numbers if n in self.streamed]
        if node.token is not None:
            raise refusal(op, "calls back beside what is done at once")
        if not all(map(self.has_axis, read)):
            raise refusal(op, "reads what is computed in each chunk, and all of it")
        fixed = max((level[n] for n in node.numbers if n not in self.streamed), default=0)
        height = max(fixed, self.held.gather(read, level))
        self.held.made.update(node.makes)
        level.update(dict.fromkeys(node.makes, height))
        self.streamed.update(filter(self.has_axis, node.makes))

    def _is_free(self, node: Node) -> bool:
        """Return whether a node's results can be made as a whole as well as per chunk, to the same
        bits and in no more memory than its operands: it reads nothing that has the axis, or it
        moves or counts (integers, bools) whole values.
        """
        flat, held = self.flat, self.held
        read = [n for n in node.numbers if n in self.streamed]
        if not read:
            return True
        # Floats that are computed may have other bits in a chunk than in the whole.
        of_results = [flat.dtypes[n] for n in node.makes]
        is_exact = node.op.name in _MOVES or all(map(_is_counted, of_results))
        made = max(size_per_element(flat.dims[n]) for n in node.makes)
        fits = made <= max(size_per_element(flat.dims[n]) for n in read)
        return is_exact and fits and all(n in held.free or held.is_whole([n]) for n in read)

    def nodes_at(
        self,
        number: int,
        nodes: Sequence[Node],
    ) -> tuple[Node, ...]:
        """The nodes that can be computed when that many passes are over, and no earlier."""
        return tuple(node for node in nodes if max(self.of[n] for n in node.marks) == number)

    def unchunked_nodes(self, wanted: Set[int]) -> list[Node]:
        """The live nodes that are computed once: without the axis, or on whole operands."""
        nodes: list[Node] = []
        for node in self.flat.steps:
            if wanted.isdisjoint(node.marks):
                continue
            is_whole = self.held.is_at_once(node) or self.held.is_spread(node)
            if is_whole or not has_axis(node, self.streamed):
                nodes.append(node)
        return nodes


def _runs_whole(op: Op, uses: Sequence[Use]) -> bool:
    """Return whether a loop along the axis, whose turns read or make more than their own element of
    it, may run on whole operands: it makes nothing larger than these.
    """
    return is_along(op) and all(map(is_made_at_size, uses)) and is_small(op)


def _check_dims(
    op: Op | None,
    dims: Sequence[object],
    symbol: str,
) -> None:
    symbolic = ragged_dims(dims)
    is_cut = len(symbolic) <= 1 and all(set(symbols(dim)) == {symbol} for dim in symbolic)
    if op is None:
        is_cut = is_cut and all(str(dim) == symbol for dim in symbolic)
    if is_cut:
        return
    sizes = " and ".join(map(str, symbolic))
    if op is None:
        raise Refused("", f"has an argument of {sizes} elements, which no chunk cuts")
    raise refusal(op, f"makes an array with {sizes} elements along it")


def _check_inside(op: Op, symbol: str) -> None:
    """Check that the sub-jaxprs of an operation that is evaluated in chunks make arrays of
    multiples of the axis only.

    Raises:
        Refused: One of them has a dimension without chunks, such as `n - 1`.
    """
    for eqn in inside(op.eqn):
        for dim in ragged_dims(chain.from_iterable(map(shape_of, eqn.outvars))):
            if is_multiple(dim, symbol):
                continue
            raise Refused(
                source_of(eqn, op.place),
                f"makes an array with {dim} elements along it inside `{public_name(op.name)}`"
                f" (`{public_name(eqn.primitive.name)}`)",
            )


def _is_counted(dtype: object) -> bool:
    return dtypes.issubdtype(dtype, np.integer) or dtype == np.bool_


_MOVES = (
    "broadcast_in_dim",
    "reshape",
    "squeeze",
    "expand_dims",
    "transpose",
    "convert_element_type",
    "copy",
    "select_n",
    "neg",
)
