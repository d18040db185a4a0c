"""A program in SSA form with its calls inlined: nodes that read and define values by number; and
queries about a node along the cut axis.

    jit(f)(a) with f(a) = sum(sin(a))   ->   takes (0,)
                                             1 = sin 0
                                             2 = reduce_sum 1
                                             gives (2,)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import cast

import jax

from ..._jax.programs.duplicates import merge_duplicates
from ..._jax.programs.evaluation import CallStack, without_calls
from ..._jax.programs.jaxprs import called_jaxpr, open_jaxpr, solve_operands
from ..._jax.programs.jaxprs import inside as equations_inside
from ..._jax.programs.ssa import Const, Ref, SSAProgram, Step, as_const, number_results
from ..._jax.typed import Aval, ClosedJaxpr, DType, JaxprEqn, NumPyArray
from ..callbacks import check_effects, is_ordered
from ..dims import Dim, is_ragged
from ..interpreter import Numbers, Op, Ranges, mentions
from ..monoids import Monoid
from ..refusal import Refused
from ..rule import Use
from ..rules.control import inlined_program
from ..typed_jax import lax, make_jaxpr
from .branches import hoist_uses
from .cut_axis import accumulates, carrier_of, checked_uses, emits, uses_along
from .partial_results import PartialResults, find_partials
from .turns import CountedLoop, counted_loop

# The abstract value of a token: an array without bytes, as JAX's tangents of integers are.
_TOKEN = Aval((), jax.dtypes.float0)


@dataclass(frozen=True)
class Node(Step):
    """A step of a program whose axis is cut.

    Args:
        op: Its operation.
        token: Number of the effect of an operation that calls back. It is live, as results are.
        waits: Token of the ordered callback before, of a node whose callbacks are ordered.
        is_mute: Whether it is evaluated without its callbacks, since another pass calls them.
        uses: Its uses of the axis, also inside the sub-jaxprs that it holds.
        parts: Partial results of a loop, branch or solve over another axis that uses this one.
        counts: Whether its one result is the number of iterations of the loop, in place of the
            loop's results.
    """

    op: Op = field(kw_only=True)
    token: int | None = None
    waits: tuple[int, ...] = ()
    is_mute: bool = False
    uses: tuple[Use, ...] = ()
    parts: PartialResults | None = None
    counts: bool = False

    @property
    def marks(self) -> tuple[int, ...]:
        """The numbers of the results, and of the token."""
        return self.makes if self.token is None else (*self.makes, self.token)


@dataclass(frozen=True)
class NumberedProgram(SSAProgram[Node]):
    """A program whose axis is cut. A token of JAX itself has no shape and no dtype."""

    @cached_property
    def dims(self) -> Mapping[int, tuple[Dim, ...]]:
        """The shape of each value."""
        return {n: tuple(getattr(aval, "shape", ())) for n, aval in self.avals.items()}

    @cached_property
    def dtypes(self) -> Mapping[int, DType]:
        """The dtype of each value."""
        return {n: cast("DType", getattr(aval, "dtype", None)) for n, aval in self.avals.items()}


def flatten(
    jaxpr: object,
    ranges: Ranges,
    numbers: Numbers,
) -> NumberedProgram:
    """Number the values of a program, and inline its calls.

    Args:
        jaxpr: The program.
        ranges: Symbol -> the least and the largest size it stands for.
        numbers: Values that Python computes from the size, by variables of the program; they become
            constants.
    """
    numbering = _Numbering(ranges, numbers)
    takes = number_results(open_jaxpr(jaxpr)[0].invars, numbering.avals)
    gives = without_calls(
        jaxpr,
        takes,
        numbering.results,
        numbering.inside,
        constant=as_const,
    )
    # What is computed once for all chunks reaches their program as parameters: each only once.
    steps, merged = merge_duplicates(numbering.nodes, gives)
    return NumberedProgram(steps, takes, merged, numbering.avals)


class _Numbering:
    """Nodes and types of the values of one program, while it is walked.

    Args:
        ranges: Symbol -> the least and the largest size it stands for.
        numbers: Values that Python computes from the size.
    """

    def __init__(self, ranges: Ranges, numbers: Numbers):
        self.ranges = ranges
        self.numbers = numbers
        self.nodes: list[Node] = []
        self.avals: dict[int, Aval] = {}
        # Token of the latest ordered callback: chained through `waits`, so that the order stays.
        self.last: tuple[int, ...] = ()

    def results(
        self,
        eqn: JaxprEqn,
        reads: list[Ref],
        within: CallStack,
    ) -> Sequence[Ref]:
        """Number the results of an equation."""
        if self.is_number(eqn):
            return self.constant(eqn, within)
        # An identity on values; shardings are decided outside of this program.
        if eqn.primitive.name == "reshard":
            return reads
        if eqn.primitive.name == "custom_linear_solve" and self.is_torn(eqn):
            return without_calls(
                eqn.params["jaxprs"].solve,
                solve_operands(eqn, reads),
                self.results,
                self.inside,
                constant=as_const,
                seen_at=CallStack((*within.calls, eqn), within.start),
            )
        loop = self.counted(eqn, within)
        if loop is not None:
            turns = self.count(loop, reads, within)
            return without_calls(
                loop.counted,
                [turns, *reads],
                self.results,
                self.inside,
                constant=as_const,
                seen_at=within,
            )
        makes = number_results(eqn.outvars, self.avals)
        op = Op(eqn, self.ranges, within.line)
        self.nodes.append(self.node(op, tuple(reads), makes))
        return makes

    def inside(self, eqn: JaxprEqn) -> object | None:
        """Return the program to inline in place of an equation: a call's own, or that of a `cond`
        with its uses of the axis hoisted out of the branches.
        """
        if self.is_number(eqn):
            return None
        if eqn.primitive.name == "cond" and self.is_torn(eqn):
            return hoist_uses(eqn, self.uses_axis)
        return inlined_program(eqn)

    def is_number(self, eqn: JaxprEqn) -> bool:
        """Return whether Python computes the result of an equation from the size."""
        return bool(eqn.outvars) and eqn.outvars[0] in self.numbers

    def holds_numbers(self, eqn: JaxprEqn) -> bool:
        return any(map(self.is_number, equations_inside(eqn)))

    def constant(self, eqn: JaxprEqn, within: CallStack) -> Sequence[Ref]:
        """Number a result that Python computes."""
        (var,) = eqn.outvars[:1]
        whole = Const(self.numbers[var])
        if not any(map(is_ragged, var.aval.shape)):
            return [whole]
        # An array that Python computed as a whole: a chunk reads its own part of it.
        return without_calls(
            _leading_part(self.numbers[var], var.aval.shape),
            [whole],
            self.results,
            constant=as_const,
            seen_at=CallStack((*within.calls, eqn), within.start),
        )

    def is_torn(self, eqn: JaxprEqn) -> bool:
        """Return whether a branch or a solve uses the axis in a way that has no partial results, so
        that the use has to be taken out of it.
        """
        op = Op(eqn, self.ranges)
        if not mentions(op) or self.holds_numbers(eqn):
            return False
        try:
            if checked_uses(op):
                find_partials(op, [False for _ in eqn.invars])
        except Refused:
            return True
        return False

    def uses_axis(self, eqn: JaxprEqn) -> bool:
        """Return whether an equation itself uses the axis."""
        if called_jaxpr(eqn) is not None or eqn.primitive.name == "cond":
            return False
        return any(True for _ in uses_along(Op(eqn, self.ranges)))

    def counted(self, eqn: JaxprEqn, within: CallStack) -> CountedLoop | None:
        """Return a loop whose iterations are counted in a pass of their own, if it is one."""
        if eqn.primitive.name != "while" or self.holds_numbers(eqn):
            return None
        return counted_loop(Op(eqn, self.ranges, within.line))

    def count(
        self,
        loop: CountedLoop,
        reads: list[Ref],
        within: CallStack,
    ) -> int:
        """Append the node that counts the iterations of a loop, and return its result's number."""
        turns = len(self.avals)
        self.avals[turns] = loop.number

        # The program is that one loop, and conversions of what it takes.
        def of_counting(
            eqn: JaxprEqn,
            reads: list[Ref],
            within: CallStack,
        ) -> Sequence[Ref]:
            if eqn.primitive.name != "while":
                return self.results(eqn, reads, within)
            op = Op(eqn, self.ranges, within.line)
            counting = Node(eqn, tuple(reads), (turns,), op=op, is_mute=True, counts=True)
            self.nodes.append(counting)
            return [Const(None) for _ in eqn.outvars]

        without_calls(
            loop.counting,
            reads,
            of_counting,
            self.inside,
            constant=as_const,
            seen_at=within,
        )
        return turns

    def node(
        self,
        op: Op,
        reads: tuple[Ref, ...],
        makes: tuple[int, ...],
    ) -> Node:
        """Return the node of an operation. A token is numbered like a value."""
        if not op.eqn.effects:
            return Node(op.eqn, reads, makes, op=op)
        check_effects(op)
        token = len(self.avals)
        self.avals[token] = _TOKEN
        if not is_ordered(op):
            return Node(op.eqn, reads, makes, token, op=op)
        waits, self.last = self.last, (token,)
        return Node(op.eqn, reads, makes, token, waits, op=op)


def _leading_part(whole: NumPyArray, shape: Sequence[Dim]) -> ClosedJaxpr:
    """The program `whole[:n]`, of a result with this symbolic shape."""

    def part(x: object) -> object:
        origin = (0,) * whole.ndim
        return lax.slice_p.bind(
            x,
            start_indices=origin,
            limit_indices=tuple(shape),
            strides=None,
        )

    return make_jaxpr(part)(whole)


def has_axis(node: Node, streamed: Set[int]) -> bool:
    """Return whether an operation is evaluated per chunk: it reads or makes streamed values, or
    uses the axis inside only (a sum of random draws).
    """
    if node.uses:
        return True
    return any(n in streamed for n in (*node.numbers, *node.makes))


def is_accumulated(
    node: Node,
    number: int,
    streamed: Set[int],
) -> bool:
    """Return whether a value accumulates over the chunks, and so is known when the pass is over."""
    if number in streamed:
        return False
    if node.parts is None:
        return accumulates(node.op)
    return node.parts.monoids[node.makes.index(number)] is not None


def has_state(node: Node, streamed: Set[int]) -> bool:
    """Return whether an operation carries a state from chunk to chunk."""
    if emits(node.op):
        return True
    return any(is_accumulated(node, n, streamed) for n in node.makes)


def monoids_of(node: Node) -> list[Monoid]:
    """The monoids that combine the states of two parts of the axis, one for each value; none if
    the values are not combined one by one.
    """
    if node.parts is not None:
        return [monoid for monoid in node.parts.monoids if monoid is not None]
    carrier = carrier_of(node.op)
    if carrier is None or carrier.monoid is None or not carrier.is_combined:
        return []
    return [carrier.monoid]


def begins_with(node: Node) -> list[Ref]:
    """The operands that an accumulation starts from: the initial carry of a loop, the operand of a
    scatter.
    """
    carrier = carrier_of(node.op)
    return [] if carrier is None else carrier.initial(node.op, node.reads)
