"""A program without calls, as operations whose operands and results have numbers, and what an
operation makes of the axis that is cut.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..._jax.evaluation import Const, Ref, SeenAt, as_const, numbered, numbers_of, without_calls
from ..._jax.jaxprs import called, equations, opened, programs
from ..callbacks import check_effects, is_ordered
from ..dims import evaluate, symbols
from ..monoids import Monoid
from ..refusal import Refused
from ..rule import Use
from ..rules.control import entered
from ..walk import Op, Ranges, mentions
from .along import accumulates, carried, checked_uses, is_cumulated, monoid_of, uses_along, way_of
from .branches import without_looks
from .parts import Parts, parts_of


@dataclass(frozen=True)
class Node:
    """One operation, with what it reads and makes by number.

    Args:
        op: The operation.
        reads: Its operands.
        makes: Its results.
        token: Of one that calls back: the number of that having happened, which is wanted as
            results are.
        waits: The token of what has to have happened before, of one whose callbacks are ordered.
        is_mute: Whether it is evaluated without its callbacks, which another pass calls.
        uses: Where it looks along the axis, itself or in a program that it holds.
        parts: Of a loop, a branch or a solve over another axis that looks along this one: what of
            its results is put together.
    """

    op: Op
    reads: tuple[Ref, ...]
    makes: tuple[int, ...]
    token: int | None = None
    waits: tuple[int, ...] = ()
    is_mute: bool = False
    uses: tuple[Use, ...] = ()
    parts: Parts | None = None

    @property
    def numbers(self) -> list[int]:
        """What it reads, besides constants."""
        return numbers_of(self.reads)

    @property
    def marks(self) -> tuple[int, ...]:
        """The numbers of all that is there when it is done."""
        return self.makes if self.token is None else (*self.makes, self.token)


@dataclass(frozen=True)
class NumberedProgram:
    """A program without calls: every value has a number.

    Args:
        nodes: Its operations.
        takes: Its arguments.
        gives: Its results.
        avals: Shape and dtype of each value; None of a token.
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
        """The dtype of each value; None of what has none."""
        return {n: getattr(aval, "dtype", None) for n, aval in self.avals.items()}


def flatten(jaxpr: Any, ranges: Ranges, numbers: Mapping[Any, Any]) -> NumberedProgram:
    """Take the calls of a program apart."""
    nodes: list[Node] = []
    avals: dict[int, Any] = {}
    last: tuple[int, ...] = ()  # the token of what is ordered

    def is_number(eqn: Any) -> bool:
        return bool(eqn.outvars) and eqn.outvars[0] in numbers

    def inside(eqn: Any) -> Any | None:
        if is_number(eqn):
            return None
        return (
            without_looks(eqn, looks)
            if eqn.primitive.name == "cond" and is_torn(eqn)
            else entered(eqn)
        )

    def is_torn(eqn: Any) -> bool:
        """Whether a branch looks along the axis, and what it makes is not put together as it is."""
        if not mentions(Op(eqn, ranges)) or any(
            is_number(held) for program in programs(eqn.params) for held in equations(program)
        ):
            return False
        try:
            if checked_uses(Op(eqn, ranges)):
                parts_of(Op(eqn, ranges), [False for _ in eqn.invars])
        except Refused:
            return True
        return False

    def looks(eqn: Any) -> bool:
        op = Op(eqn, ranges)
        return (
            called(eqn) is None
            and eqn.primitive.name != "cond"
            and any(True for _ in uses_along(op))
        )

    def results(eqn: Any, reads: list[Ref], within: SeenAt) -> Sequence[Ref]:
        if is_number(eqn):
            return [Const(numbers[eqn.outvars[0]])]
        # of values as they are; what lies where is decided outside
        if eqn.primitive.name == "reshard":
            return reads
        makes = numbered(eqn.outvars, avals)
        nodes.append(node(Op(eqn, ranges, within.line), tuple(reads), makes))
        return makes

    def node(op: Op, reads: tuple[Ref, ...], makes: tuple[int, ...]) -> Node:
        nonlocal last
        if not op.eqn.effects:
            return Node(op, reads, makes)
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
    """Whether an operation is of the axis: it reads or makes what has it, or looks along what it
    makes inside, such as draws.
    """
    return bool(node.uses) or not streamed.isdisjoint((*node.numbers, *node.makes))


def is_accumulated(node: Node, number: int, streamed: set[int] | frozenset[int]) -> bool:
    """Whether a value is known when a pass over the data is over."""
    if node.parts is not None:
        return number not in streamed and node.parts.monoids[node.makes.index(number)] is not None
    return number not in streamed and accumulates(node.op)


def has_state(node: Node, streamed: set[int] | frozenset[int]) -> bool:
    """Whether an operation has something that goes on from chunk to chunk."""
    return is_cumulated(node.op) or any(is_accumulated(node, n, streamed) for n in node.makes)


def monoids_of(node: Node) -> list[Monoid]:
    """What puts the parts of each value that an operation accumulates together."""
    return (
        [monoid_of(node.op)]
        if node.parts is None
        else [monoid for monoid in node.parts.monoids if monoid is not None]
    )


def begins_with(node: Node) -> list[Any]:
    """The values that what is accumulated starts from."""
    way = way_of(node.op)
    return (
        carried(node.op, list(node.reads))
        if way == "looped"
        else list(node.reads[:1])
        if way == "written"
        else []
    )


def size_per_element(dims: Sequence[Any]) -> int:
    """How many elements there are for each of the axis."""
    return math.prod(evaluate(dim, dict.fromkeys(symbols(dim), 1)) for dim in dims)
