"""Plan how a program is evaluated chunk by chunk along one axis: which values are made anew for each chunk, which are accumulated, and
in how many passes over the data.

A value that has the axis is streamed: it exists for one chunk at a time. A reduction turns it into one that is accumulated over the
chunks and is known when the pass is over. The level of a value is the number of passes that have to be over before it can be made, so the
level of a reduction is one more than that of what it reduces. What is streamed is made again in each pass that needs it.

What goes on from chunk to chunk goes one way, from the front or from the end. A level whose values need both makes two passes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from .._jax.evaluation import Const, Ref, SeenAt, as_const, numbered, numbers_of, without_calls
from .._jax.jaxprs import equations, opened, programs, scan_parts, source_of
from .._jax.primitives import spelled
from .callbacks import answers, check_effects, is_ordered
from .dims import is_ragged
from .monoids import Monoid
from .refusal import Refused
from .rule import Use, Way, ragged_dims
from .rules import RULES
from .rules.control import entered, inner
from .uses import uses_of
from .walk import Op, Ranges, mentions, ragged
from .wide import scope_of


@dataclass(frozen=True)
class Node:
    """One operation, with what it reads and makes by number.

    Args:
        op: The operation.
        reads: Its operands.
        makes: Its results.
        token: Of one that calls back: the number of that having happened, which is wanted as results are.
        waits: The token of what has to have happened before, of one whose callbacks are ordered.
        is_mute: Whether it is evaluated without its callbacks, which another pass calls.
    """

    op: Op
    reads: tuple[Ref, ...]
    makes: tuple[int, ...]
    token: int | None = None
    waits: tuple[int, ...] = ()
    is_mute: bool = False

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
        return None if is_number(eqn) else entered(eqn)

    def results(eqn: Any, reads: list[Ref], within: SeenAt) -> Sequence[Ref]:
        if is_number(eqn):
            return [Const(numbers[eqn.outvars[0]])]
        if eqn.primitive.name == "reshard":  # of values as they are; what lies where is decided outside
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


@dataclass(frozen=True)
class Pass:
    """What one pass over the data does.

    Args:
        before: What is computed once, when the pass before is over.
        nodes: What is made for each chunk, in order; among them those with a state that is carried from chunk to chunk.
        emits: The positions of the results that come out chunk by chunk.
        back: Whether the chunks come from the last to the first.
    """

    before: tuple[Node, ...]
    nodes: tuple[Node, ...]
    emits: tuple[int, ...]
    back: bool = False


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
    """

    flat: NumberedProgram
    symbol: str
    passes: tuple[Pass, ...]
    after: tuple[Node, ...]
    streamed: frozenset[int] = field(repr=False)
    levels: int = 0
    numbers: Mapping[Any, Any] = field(default_factory=dict[Any, Any], repr=False)

    @property
    def width(self) -> AbstractContextManager[Any]:
        """The scope in which the numbers of the program live."""
        return scope_of(*(node.op.eqn for node in self.flat.nodes))

    def axis(self, number: int) -> int:
        """Where a streamed value has the axis."""
        return ragged(self.flat.dims[number])[0]

    def axis_of_result(self, position: int) -> int:
        """Where a result that comes out chunk by chunk has the axis."""
        ref = self.flat.gives[position]
        if isinstance(ref, Const):
            raise AssertionError("a constant has no symbolic axis")
        return self.axis(ref)


def plan_passes(jaxpr: Any, symbol: str, ranges: Ranges, numbers: Mapping[Any, Any] | None = None) -> Passes:
    """Plan the passes of a program over the axis of a symbol.

    Args:
        jaxpr: The program.
        symbol: Its size.
        ranges: Symbol -> the least and the largest size it stands for.
        numbers: What Python makes of the size, by variables of the program.

    Raises:
        Refused: An operation looks along the axis in a way that cannot be cut.
    """
    flat = flatten(jaxpr, ranges, numbers or {})
    wanted = _wanted(flat)
    level: dict[int, int] = dict.fromkeys(flat.takes, 0)
    streamed = {n for n in flat.takes if ragged(flat.dims[n])}
    back: dict[int, bool] = {}
    for n in flat.takes:
        _check_dims(None, flat.dims[n], symbol)
    for node in flat.nodes:
        if not wanted.isdisjoint(node.marks):
            _place(node, flat, symbol, level, streamed)
            _direct(node, streamed, back)
            _check_told(node, streamed, wanted)
    last = max((level[n] for node in flat.nodes for n in node.makes if n in level and is_accumulated(node, n, streamed)), default=0)
    outs = [(i, n) for i, n in enumerate(flat.gives) if isinstance(n, int) and n in streamed]
    for _, n in outs:
        if not ragged(flat.dims[n]):
            place, name = next((node.op.place, node.op.name) for node in flat.nodes if n in node.makes)
            raise Refused(place, f"returns a value without it that is made beside one with it (`{spelled(name)}`)")
    happened = [level[node.token] for node in flat.nodes if node.token is not None and _is_in_chunks(node, streamed)]
    count = max([last, *happened, *(level[n] + 1 for _, n in outs)], default=0)
    passes = tuple(
        planned
        for p in range(count)
        for planned in _passes(p, flat, level, streamed, [(i, n) for i, n in outs if level[n] == p], wanted, back)
    )
    after = tuple(node for node in _fixed(flat, streamed, wanted) if max(level[n] for n in node.marks) == count)
    return Passes(flat, symbol, passes, after, frozenset(streamed), last, numbers or {})


def is_accumulated(node: Node, number: int, streamed: set[int] | frozenset[int]) -> bool:
    """Whether a value is known when a pass over the data is over."""
    return number not in streamed and _accumulates(node.op) and not streamed.isdisjoint(node.numbers)


def has_state(node: Node, streamed: set[int] | frozenset[int]) -> bool:
    """Whether an operation has something that goes on from chunk to chunk."""
    return _is_cumulated(node.op) or any(is_accumulated(node, n, streamed) for n in node.makes)


def way_of(op: Op) -> Way | None:
    """What of an operation goes on from chunk to chunk; None where nothing does."""
    rule = RULES.get(op.name)
    return None if rule is None or rule.across is None else rule.across.way


def monoid_of(op: Op) -> Monoid:
    """What puts the parts of an operation that accumulates together."""
    across = RULES[op.name].across
    if across is None or across.monoid is None:
        raise AssertionError(f"`{op.name}` accumulates by no monoid")
    return across.monoid


def is_along(op: Op) -> bool:
    """Whether an operation is a loop over the axis."""
    return way_of(op) == "looped" and is_ragged(op.params["length"])


def _is_cumulated(op: Op) -> bool:
    """Whether each result of an operation along the axis is of all elements before it."""
    return way_of(op) == "cumulated" and is_ragged(op.ins[0][op.params["axis"]])


def _is_in_chunks(node: Node, streamed: set[int]) -> bool:
    """Whether an operation is evaluated in each chunk."""
    return not streamed.isdisjoint(node.numbers) or not streamed.isdisjoint(node.makes)


def _check_told(node: Node, streamed: set[int], wanted: set[int]) -> None:
    """Refuse what calls back in each chunk, where it has to happen once."""
    if node.token is None or is_along(node.op) or not _is_in_chunks(node, streamed):
        return
    if answers(node.op, is_used=not wanted.isdisjoint(node.makes)):
        raise Refused(node.op.place, f"calls back once, and needs the answer in each chunk (`{spelled(node.op.name)}`)")


def _accumulates(op: Op) -> bool:
    """Whether an operation that reads streamed values makes one of all of them together.

    Others make values without the axis beside those with it, such as the counter of a loop over another axis. Since nothing looks along
    the axis to make them, they are the same in each chunk, and are made anew there.
    """
    way = way_of(op)
    if way == "looped":
        return is_along(op)
    if way == "written" and ragged(op.ins[0]):  # its rows are each written alone, else it cannot be cut
        return False
    return way in ("folded", "placed", "written") and any(map(ragged, op.ins))


def _wanted(flat: NumberedProgram) -> set[int]:
    """The values that results depend on, and callbacks."""
    wanted = set(numbers_of(flat.gives)) | {node.token for node in flat.nodes if node.token is not None}
    for node in reversed(flat.nodes):
        if not wanted.isdisjoint(node.marks):
            wanted.update(node.numbers)
    return wanted


def _check_dims(op: Op | None, dims: Sequence[Any], symbol: str) -> None:
    symbolic = ragged_dims(dims)
    if len(symbolic) > 1 or any(str(dim) != symbol for dim in symbolic):
        sizes = " and ".join(map(str, symbolic))
        if op is None:
            raise Refused("", f"has an argument of {sizes} elements, which no chunk cuts")
        raise Refused(op.place, f"makes an array with {sizes} elements along it (`{spelled(op.name)}`)")


def _place(node: Node, flat: NumberedProgram, symbol: str, level: dict[int, int], streamed: set[int]) -> None:
    """Give the values that a node makes their levels."""
    op = node.op
    reads = node.numbers
    height = max((level[ref] for ref in (*reads, *node.waits)), default=0)
    for n in node.makes:
        _check_dims(op, flat.dims[n], symbol)
    along = any(ref in streamed for ref in reads)
    uses = list(_uses(op)) if mentions(op) else []
    if uses and not _can_be_cut(op, uses):
        raise Refused(uses[0].place, _looks(op, uses[0]))
    accumulates = along and _accumulates(op)
    if accumulates and not streamed.isdisjoint(numbers_of(_begins_with(node))):
        raise Refused(op.place, f"begins with a value that is made in each chunk (`{spelled(op.name)}`)")
    for n in node.makes:
        has_axis = bool(ragged(flat.dims[n]))
        level[n] = height + (1 if accumulates and not has_axis else 0)
        if has_axis or (along and not accumulates):
            streamed.add(n)
    if node.token is not None:
        level[node.token] = height + _is_in_chunks(node, streamed)


def _looks(op: Op, use: Use) -> str:
    """What an operation, or one inside of it, does along the axis, as a part of a sentence."""
    what = use.refused or use.how
    return f"looks along it: {what} (`{spelled(op.name)}`)" if use.op == op.name else f"looks along it inside `{spelled(op.name)}`: {what}"


def _direct(node: Node, streamed: set[int], back: dict[int, bool]) -> None:
    """Note of the values that a node makes whether the chunks must come from the end for them; of most of them either way is right."""
    ways = {back[ref] for ref in node.numbers if ref in streamed and ref in back}
    ways |= _way(node)
    if len(ways) > 1:
        raise Refused(node.op.place, f"needs at once what comes from its front and what comes from its end (`{spelled(node.op.name)}`)")
    for way in ways:
        back.update(dict.fromkeys(node.marks, way))


def _way(node: Node) -> set[bool]:
    """Whether an operation goes from the end, if it goes one way along the axis."""
    op = node.op
    if _is_cumulated(op):
        return {op.params["reverse"]}
    if is_along(op) and (carried(op, list(node.reads)) or is_ordered(op)):
        return {op.params["reverse"]}
    return set()


def _begins_with(node: Node) -> list[Any]:
    """The values that what is accumulated starts from."""
    way = way_of(node.op)
    return carried(node.op, list(node.reads)) if way == "looped" else list(node.reads[:1]) if way == "written" else []


def _uses(op: Op) -> Iterator[Use]:
    rule = RULES.get(op.name)
    if rule is None:
        yield Use(frozenset(), "mixed", f"`{spelled(op.name)}`, which has no rule,", op.name, op.place)
        return
    for eqn in (op.eqn, *(held for program in programs(op.params) for held in equations(program))):
        whole = RULES[eqn.primitive.name].whole if eqn.primitive.name in RULES else None
        if whole is not None and Op(eqn).is_ragged:
            yield Use(frozenset(), "mixed", "", eqn.primitive.name, source_of(eqn) or op.place, refused=whole)
    yield from rule.uses(op)
    for program in inner(op):
        yield from uses_of(program, op.ranges, op.place)


def _can_be_cut(op: Op, uses: Sequence[Use]) -> bool:
    """Whether what an operation does along the axis can be accumulated, or carried from chunk to chunk."""
    if any(use.refused for use in uses):
        return False
    way = way_of(op)
    if way == "written":
        return not ragged(op.ins[0])
    if way == "looped":
        return is_along(op) and len(uses) == 1  # none inside its body
    return way is not None


def _fixed(flat: NumberedProgram, streamed: set[int], wanted: set[int]) -> list[Node]:
    """What is computed once, from what does not have the axis."""
    return [node for node in flat.nodes if not wanted.isdisjoint(node.marks) and not _is_in_chunks(node, streamed)]


def _passes(
    p: int,
    flat: NumberedProgram,
    level: Mapping[int, int],
    streamed: set[int],
    outs: Sequence[tuple[int, int]],
    wanted: set[int],
    back: Mapping[int, bool],
) -> Iterator[Pass]:
    """The pass of a level, or two if some of its values need the chunks from the front and some from the end."""
    before = tuple(node for node in _fixed(flat, streamed, wanted) if max(level[n] for n in node.marks) == p)
    due = [
        n
        for node in flat.nodes
        for n in node.marks
        if n in wanted and level[n] == p + 1 and (_is_in_chunks(node, streamed) if n == node.token else is_accumulated(node, n, streamed))
    ]
    ways = sorted({back[n] for n in (*due, *(n for _, n in outs)) if n in back}) or [False]
    for way in ways:
        mine = {n for n in (*due, *(n for _, n in outs)) if back.get(n, ways[0]) == way}
        needed = set(mine)
        nodes: list[Node] = []
        for node in reversed(flat.nodes):
            if not needed.isdisjoint(node.marks):
                nodes.append(node if node.token is None or node.token in mine else _muted(node, wanted))
                needed.update(ref for ref in node.numbers if ref in streamed)
        yield Pass(before if way == ways[0] else (), tuple(reversed(nodes)), tuple(i for i, n in outs if n in mine), way)


def _muted(node: Node, wanted: set[int]) -> Node:
    """An operation whose callbacks are called in another pass."""
    if answers(node.op, is_used=not wanted.isdisjoint(node.makes)):
        raise Refused(node.op.place, f"calls back once, and needs the answer in several passes (`{spelled(node.op.name)}`)")
    return replace(node, is_mute=True)


def carried(op: Op, values: list[Any]) -> list[Any]:
    """The state that a loop over the axis starts with."""
    return scan_parts(op.eqn, values)[1]


def bytes_per_element(passes: Passes) -> int:
    """An upper bound of what one element of the axis takes in the pass that takes most, if no value shared its memory with another."""
    return max((sum(map(_bytes, turn.nodes)) for turn in passes.passes), default=0) + sum(
        _size(passes.flat.dims[n]) * 8 for n in passes.flat.takes if n in passes.streamed
    )


def _bytes(node: Node) -> int:
    avals = [atom.aval for atom in node.op.eqn.outvars]
    return sum(_size(aval.shape) * aval.dtype.itemsize for aval in avals if ragged(aval.shape))


def _size(dims: Sequence[Any]) -> int:
    return math.prod(dim for dim in dims if not is_ragged(dim))
