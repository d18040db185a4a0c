"""A program in SSA form with its calls inlined: nodes that read and define values by number; and
queries about a node along the cut axis.

    jit(f)(a) with f(a) = sum(sin(a))   ->   takes (0,)
                                             1 = sin 0
                                             2 = reduce_sum 1
                                             gives (2,)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..._jax.evaluation import CallStack, Const, Ref, as_const, numbered, numbers_of, without_calls
from ..._jax.jaxprs import called, equations, opened, programs
from ..._jax.typed import JaxprEqn
from ..callbacks import check_effects, is_ordered
from ..dims import evaluate, symbols
from ..interpreter import Op, Ranges, mentions
from ..monoids import Monoid
from ..refusal import Refused
from ..rule import Use
from ..rules.control import inlined_program
from .branches import hoist_uses
from .cut_axis import (
    accumulates,
    carry_kind,
    checked_uses,
    initial_carry,
    is_cumulated,
    monoid_of,
    uses_along,
)
from .partial_results import PartialResults, find_partials


@dataclass(frozen=True)
class Node:
    """An operation whose operands and results are numbered values.

    Args:
        op: The operation.
        reads: Its operands.
        makes: Its results.
        token: Number of the effect of an operation that calls back. It is live, as results are.
        waits: Token of the ordered callback before, of a node whose callbacks are ordered.
        is_mute: Whether it is evaluated without its callbacks, since another pass calls them.
        uses: Its uses of the axis, also inside the sub-jaxprs that it holds.
        parts: Partial results of a loop, branch or solve over another axis that uses this one.
    """

    op: Op
    reads: tuple[Ref, ...]
    makes: tuple[int, ...]
    token: int | None = None
    waits: tuple[int, ...] = ()
    is_mute: bool = False
    uses: tuple[Use, ...] = ()
    parts: PartialResults | None = None

    @property
    def numbers(self) -> list[int]:
        """The numbers of the operands, constants aside."""
        return numbers_of(self.reads)

    @property
    def marks(self) -> tuple[int, ...]:
        """The numbers of the results, and of the token."""
        return self.makes if self.token is None else (*self.makes, self.token)


@dataclass(frozen=True)
class NumberedProgram:
    """A program with its calls inlined, in which every value has a number.

    Args:
        nodes: The operations, in order.
        takes: The arguments.
        gives: The results.
        avals: Shape and dtype of each value; None for a token.
    """

    nodes: tuple[Node, ...]
    takes: tuple[int, ...]
    gives: tuple[Ref, ...]
    avals: Mapping[int, Any]

    @cached_property
    def dims(self) -> Mapping[int, tuple[Any, ...]]:
        """The shape of each value."""
        return {n: tuple(getattr(aval, "shape", ())) for n, aval in self.avals.items()}

    @cached_property
    def dtypes(self) -> Mapping[int, Any]:
        """The dtype of each value; None for a value without one."""
        return {n: getattr(aval, "dtype", None) for n, aval in self.avals.items()}


def flatten(jaxpr: Any, ranges: Ranges, numbers: Mapping[Any, Any]) -> NumberedProgram:
    """Number the values of a program, and inline its calls.

    Args:
        jaxpr: The program.
        ranges: Symbol -> the least and the largest size it stands for.
        numbers: Values that Python computes from the size, by variables of the program; they become
            constants.
    """
    nodes: list[Node] = []
    avals: dict[int, Any] = {}
    # Token of the latest ordered callback: chained through `waits`, so that the order stays.
    last: tuple[int, ...] = ()

    def is_number(eqn: JaxprEqn) -> bool:
        return bool(eqn.outvars) and eqn.outvars[0] in numbers

    # The program to inline in place of an equation: a call's own, or that of a `cond` with its uses
    # of the axis hoisted out of the branches.
    def inside(eqn: JaxprEqn) -> Any | None:
        if is_number(eqn):
            return None
        return (
            hoist_uses(eqn, looks)
            if eqn.primitive.name == "cond" and is_torn(eqn)
            else inlined_program(eqn)
        )

    def is_torn(eqn: JaxprEqn) -> bool:
        """Return whether a branch uses the axis in a way that has no partial results, so that the
        use has to be hoisted out of the `cond`.
        """
        if not mentions(Op(eqn, ranges)) or any(
            is_number(held) for program in programs(eqn.params) for held in equations(program)
        ):
            return False
        try:
            if checked_uses(Op(eqn, ranges)):
                find_partials(Op(eqn, ranges), [False for _ in eqn.invars])
        except Refused:
            return True
        return False

    def looks(eqn: JaxprEqn) -> bool:
        op = Op(eqn, ranges)
        return (
            called(eqn) is None
            and eqn.primitive.name != "cond"
            and any(True for _ in uses_along(op))
        )

    def results(eqn: JaxprEqn, reads: list[Ref], within: CallStack) -> Sequence[Ref]:
        if is_number(eqn):
            return [Const(numbers[eqn.outvars[0]])]
        # An identity on values; shardings are decided outside of this program.
        if eqn.primitive.name == "reshard":
            return reads
        makes = numbered(eqn.outvars, avals)
        nodes.append(node(Op(eqn, ranges, within.line), tuple(reads), makes))
        return makes

    def node(op: Op, reads: tuple[Ref, ...], makes: tuple[int, ...]) -> Node:
        nonlocal last
        if not op.eqn.effects:
            return Node(op, reads, makes)
        # A token is numbered like a value, without an aval.
        check_effects(op)
        token = len(avals)
        avals[token] = None
        waits = last if is_ordered(op) else ()
        last = (token,) if is_ordered(op) else last
        return Node(op, reads, makes, token, waits)

    takes = numbered(opened(jaxpr)[0].invars, avals)
    gives = without_calls(jaxpr, takes, results, inside, constant=as_const)
    return NumberedProgram(tuple(nodes), takes, tuple(gives), avals)


def has_axis(node: Node, streamed: set[int] | frozenset[int]) -> bool:
    """Return whether an operation is evaluated per chunk: it reads or makes streamed values, or
    uses the axis inside only (a sum of random draws).
    """
    return bool(node.uses) or not streamed.isdisjoint((*node.numbers, *node.makes))


def is_accumulated(node: Node, number: int, streamed: set[int] | frozenset[int]) -> bool:
    """Return whether a value accumulates over the chunks, and so is known when the pass is over."""
    if node.parts is not None:
        return number not in streamed and node.parts.monoids[node.makes.index(number)] is not None
    return number not in streamed and accumulates(node.op)


def has_state(node: Node, streamed: set[int] | frozenset[int]) -> bool:
    """Return whether an operation carries a state from chunk to chunk."""
    return is_cumulated(node.op) or any(is_accumulated(node, n, streamed) for n in node.makes)


def monoids_of(node: Node) -> list[Monoid]:
    """The monoids that combine partial results, one for each value that a node accumulates."""
    return (
        [monoid_of(node.op)]
        if node.parts is None
        else [monoid for monoid in node.parts.monoids if monoid is not None]
    )


def begins_with(node: Node) -> list[Any]:
    """The operands that an accumulation starts from: the initial carry of a loop, the operand of a
    scatter.
    """
    way = carry_kind(node.op)
    return (
        initial_carry(node.op, list(node.reads))
        if way == "looped"
        else list(node.reads[:1])
        if way == "written"
        else []
    )


def size_per_element(dims: Sequence[object]) -> int:
    """The number of elements per element of the axis."""
    return math.prod(evaluate(dim, dict.fromkeys(symbols(dim), 1)) for dim in dims)
