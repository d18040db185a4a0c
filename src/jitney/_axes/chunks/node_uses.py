"""Uses of the axis by the nodes of a program, and the partial results of loops over another axis.

    reduce_sum a                            reduces the axis
    scan over k: y = y + sum(a) * x[k]      a loop over another axis: what one chunk makes of `y` is
                                            a part, and the parts are summed
    while with a condition over the axis    its iterations are counted (`turns.py`)

A loop that cannot be cut so takes passes of its own in each iteration, where that is allowed
(`loop_passes.py`), or runs at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from ..._jax.programs.ssa import Const
from ..callbacks import callback_result_is_read
from ..refusal import Refused
from ..rules.partials import AbstractValue, is_zero, transfer_fixed
from .cut_axis import checked_uses, is_made_at_size, refusal, uses_along
from .loop_passes import is_small, plan_loop
from .numbered import Node, NumberedProgram
from .partial_results import PartialResults, find_partials, find_turns, is_over_another
from .passes import LoopPasses, Passes


@dataclass(frozen=True)
class IteratedLoops:
    """How loops that cannot be cut run on whole operands.

    Args:
        plan: Plans the passes of a body.
        in_memory: Whether the data are in memory, so that each iteration may pass over them; a
            stream would read them again each time.
        loops: Such loops so far, by the number of their first result; filled in while planning.
        at_once: Loops, branches and solves that run at once, by the number of their first result;
            filled in while planning.
    """

    plan: Callable[[object], Passes]
    in_memory: bool
    loops: dict[int, LoopPasses]
    at_once: set[int]

    def take(self, node: Node, refused: Refused) -> None:
        """Take a loop that cannot be cut: by passes in each iteration, or at once.

        Raises:
            Refused: Its body cannot be cut either, and makes more of the axis than is there.
        """
        first = node.makes[0]
        try:
            loop = plan_loop(node.op, self.plan)
        except Refused as inside:
            loop, refused = None, inside
        if loop is not None and self.in_memory:
            self.loops[first] = loop
        elif loop is not None and any(plan.passes for plan in loop.plans):
            raise refused
        elif all(map(is_made_at_size, uses_along(node.op))) and is_small(node.op):
            self.at_once.add(first)
        else:
            raise refused


def with_uses(
    flat: NumberedProgram,
    wanted: set[int],
    iterating: IteratedLoops | None,
) -> Iterator[Node]:
    """Yield the nodes with their uses of the axis, and with the partial results of a loop, branch
    or solve over another axis.
    """
    # Values known to be zero: a loop that accumulates from zero can do so in each chunk.
    zeros: set[int] = set()
    for node in flat.steps:
        given = [
            is_zero(ref.value) if isinstance(ref, Const) else ref in zeros for ref in node.reads
        ]
        operands: list[AbstractValue] = ["zero" if each else "fixed" for each in given]
        if transfer_fixed(node.op, operands) == "zero":
            zeros.update(node.makes)
        if wanted.isdisjoint(node.marks):
            yield node
        elif node.counts:
            yield _counting(node, given)
        elif is_over_another(node.op):
            yield _over_another(node, given, iterating)
        else:
            yield replace(node, uses=tuple(uses_along(node.op)))


def _over_another(
    node: Node,
    zeros: Sequence[bool],
    iterating: IteratedLoops | None,
) -> Node:
    """A loop, branch or solve over another axis, with its uses of the axis and partial results."""
    parts: PartialResults | None = None
    try:
        if checked_uses(node.op):
            parts = find_partials(node.op, zeros)
    except Refused as refused:
        if iterating is None:
            raise
        iterating.take(node, refused)
    return replace(node, uses=tuple(uses_along(node.op)), parts=parts)


def _counting(node: Node, zeros: Sequence[bool]) -> Node:
    """The node that counts the iterations of a loop, with its uses of the axis.

    Raises:
        Refused: The iterations of each chunk do not give those of the whole, or the condition needs
            what a callback returns, which is called once.
    """
    if callback_result_is_read(node.op, is_used=True):
        raise refusal(node.op, "calls back once, and needs the answer in several passes")
    return replace(node, uses=checked_uses(node.op), parts=find_turns(node.op, zeros))
