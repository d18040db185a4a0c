"""Plan the chunked evaluation of a program along one axis: which values are recomputed per chunk,
which are accumulated, and in how many passes over the data.

A value with the axis is streamed: it exists for one chunk at a time. A reduction of it accumulates
over the chunks, and its result is known when the pass is over. The level of a value is the number
of passes that have to be over before it can be computed, so a reduction's level is its operand's
plus one. A streamed value is recomputed in each pass that needs it. `x - sum(x)`, squared and
summed, takes two passes:

    b = reduce_sum a    level 1, accumulated in pass 1
    c = sub a b         level 1, streamed: its operand b is known after pass 1
    e = reduce_sum c*c  level 2, accumulated in pass 2

State that is carried from chunk to chunk (a prefix scan, a loop along the axis) fixes a direction,
from the front or from the end. A level that needs both directions takes two passes. A value that
combines both (backpropagation through a loop along the axis) waits for one of them: that pass keeps
its carry at each chunk boundary, and the pass of the other direction replays each chunk from there.

An operation without a chunked form runs at once, on whole operands, if its rule allows it: see
`materialised.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np

from ..._jax.programs.jaxprs import inside, source_of
from ..._jax.programs.primitives import public_name
from ..._jax.programs.ssa import Const, live_steps, numbers_of
from ..callbacks import callback_result_is_read
from ..dims import Dim, is_multiple, size_per_element, symbols
from ..interpreter import Numbers, Op, Ranges, ragged_axes, shape_of
from ..refusal import Refused
from ..rule import Use, ragged_dims
from ..rules import RULES
from ..rules.partials import AbstractValue, is_zero, transfer_fixed
from ..typed_jax import dtypes
from .cut_axis import (
    accumulates,
    can_be_cut,
    carrier_of,
    checked_uses,
    describe_use,
    direction_of,
    is_along,
    is_made_at_size,
    refusal,
    uses_along,
)
from .loop_passes import is_small, plan_loop
from .materialised import Materialised
from .numbered import (
    Node,
    NumberedProgram,
    begins_with,
    flatten,
    has_axis,
    is_accumulated,
)
from .partial_results import PartialResults, find_partials, find_turns, is_over_another
from .passes import LoopPasses, Pass, Passes


def plan_passes(
    jaxpr: object,
    symbol: str,
    ranges: Ranges,
    numbers: Numbers | None = None,
    *,
    in_memory: bool = True,
    may_iterate: bool = False,
) -> Passes:
    """Plan the passes of a program over the axis of a symbol.

    Args:
        jaxpr: The program.
        symbol: Its size.
        ranges: Symbol -> the least and the largest size it stands for.
        numbers: Values that Python computes from the size, by variables of the program.
        in_memory: Whether the arguments are in memory as a whole.
        may_iterate: Whether loops may take passes of their own in each iteration. What they make is
            no sum of terms, and is not differentiated.

    Raises:
        Refused: An operation looks along the axis in a way that cannot be cut.
    """
    # Dead code goes first, so that no operation is refused whose result nobody reads.
    flat = flatten(jaxpr, ranges, numbers or {})
    wanted = _live_values(flat)
    loops: dict[int, LoopPasses] = {}

    def plan_inside(program: object) -> Passes:
        return plan_passes(
            program,
            symbol,
            ranges,
            numbers,
            may_iterate=True,
        )

    at_once: set[int] = set()
    iterating = _Iterating(plan_inside, loops, at_once) if may_iterate else None
    flat = replace(flat, steps=tuple(_with_uses(flat, wanted, iterating)))

    counts_turns = any(node.counts for node in flat.steps)

    # Forward, in the order of the program: the level and the direction of each value.
    level: dict[int, int] = dict.fromkeys(flat.takes, 0)
    streamed = {n for n in flat.takes if ragged_axes(flat.dims[n])}
    back = _Directions()
    held = Materialised(frozenset(streamed) if in_memory else frozenset())
    for n in flat.takes:
        _check_dims(None, flat.dims[n], symbol)
    for node in flat.steps:
        if not wanted.isdisjoint(node.marks):
            _assign_levels(
                node,
                flat,
                symbol,
                level,
                streamed,
                back,
                held,
                at_once.union(loops),
            )
            _check_callbacks(node, streamed, wanted)

    # The number of passes: one for each level of reductions, and as many as collecting, callbacks
    # and results with the axis need.
    last = 0
    of_callbacks = 0
    for node in flat.steps:
        if node.token is not None and has_axis(node, streamed):
            of_callbacks = max(of_callbacks, level[node.token])
        if held.is_at_once(node):
            continue
        for n in node.makes:
            if n in level and is_accumulated(node, n, streamed):
                last = max(last, level[n])
    outs = [
        (i, n)
        for i, n in enumerate(flat.gives)
        if isinstance(n, int) and n in streamed and n not in held.made
    ]
    for _, n in outs:
        if not ragged_axes(flat.dims[n]):
            op = next(node.op for node in flat.steps if n in node.makes)
            what = "returns a value without it that is made beside one with it"
            raise refusal(op, what)
    of_results = max((level[n] + 1 for _, n in outs), default=0)
    count = max(last, held.last, of_callbacks, of_results)

    # Fixpoint: a pass that replays an operation needs an earlier pass to keep its carries, and what
    # that pass computes in addition may have to be replayed as well.
    turned: set[int] = set()
    while True:
        passes: list[Pass] = []
        for p in range(count):
            emits = [(i, n) for i, n in outs if level[n] == p]
            passes += _passes(p, flat, level, streamed, emits, wanted, back.of, held, turned)
        replayed = set(chain.from_iterable(work.replays for work in passes))
        if replayed <= turned:
            break
        turned |= replayed

    # Values at the last level are computed when all passes are over.
    after = _at_level(
        count,
        _unchunked_nodes(flat, streamed, wanted, held),
        level,
    )
    of_whole = tuple(node for node in flat.steps if held.is_at_once(node))
    whole = frozenset(streamed & (held.made | held.spread | held.collected.keys()))
    return Passes(
        flat,
        symbol,
        tuple(passes),
        after,
        frozenset(streamed),
        _chain_of_sums(flat, streamed, wanted, held) if counts_turns else last,
        numbers or {},
        of_whole,
        whole,
        loops,
    )


def _chain_of_sums(
    flat: NumberedProgram,
    streamed: set[int],
    wanted: set[int],
    held: Materialised,
) -> int:
    """The length of the longest chain of reductions that depend on one another. What waits for a
    number of iterations only is not longer for that.
    """
    depth: dict[int, int] = {}
    longest = 0
    for node in flat.steps:
        if wanted.isdisjoint(node.marks):
            continue
        read = (*node.numbers, *node.waits)
        before = max((depth.get(n, 0) for n in read), default=0)
        is_other = node.counts or held.is_at_once(node)
        for n in node.marks:
            depth[n] = before
            if n == node.token or is_other:
                continue
            if is_accumulated(node, n, streamed):
                depth[n] += 1
                longest = max(longest, depth[n])
    return longest


def _at_level(
    number: int,
    nodes: Sequence[Node],
    level: Mapping[int, int],
) -> tuple[Node, ...]:
    """The nodes that can be computed when that many passes are over, and no earlier."""
    return tuple(node for node in nodes if max(level[n] for n in node.marks) == number)


def _check_callbacks(
    node: Node,
    streamed: set[int],
    wanted: set[int],
) -> None:
    """Refuse a callback that has to run once for the axis, but whose result each chunk needs."""
    if node.token is None or is_along(node.op) or not has_axis(node, streamed):
        return
    if callback_result_is_read(node.op, is_used=not wanted.isdisjoint(node.makes)):
        raise refusal(node.op, "calls back once, and needs the answer in each chunk")


def _live_values(flat: NumberedProgram) -> set[int]:
    """The live values: results, tokens of callbacks, and all that they depend on."""
    tokens = {node.token for node in flat.steps if node.token is not None}
    return live_steps(flat.steps, flat.results | tokens)[1]


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


def _assign_levels(
    node: Node,
    flat: NumberedProgram,
    symbol: str,
    level: dict[int, int],
    streamed: set[int],
    back: _Directions,
    held: Materialised,
    loops: Set[int],
) -> None:
    """Assign levels to a node's results, add those that are streamed to `streamed`, and note the
    direction that they need.
    """
    op = node.op
    for n in node.makes:
        _check_dims(op, flat.dims[n], symbol)
    if not loops.isdisjoint(node.makes[:1]):
        _hold_operands(
            node,
            flat,
            level,
            streamed,
            held,
        )
        return
    along = bool(node.uses) or any(ref in streamed for ref in node.numbers)
    uses = node.uses if node.parts is None else ()

    # No chunked form (or its operand is whole, so that reading a few elements needs no pass).
    odd = _uncuttable_dim(node, flat, symbol, streamed)
    cut = [ref for ref in node.numbers if ref in streamed]
    carrier = carrier_of(op)
    at_hand = carrier is not None and carrier.reads_few and held.is_whole(cut)
    if odd is not None or (uses and (at_hand or not can_be_cut(op, uses))):
        _do_at_once(
            node,
            uses,
            odd,
            flat,
            level,
            streamed,
            held,
        )
        return
    _check_inside(op, symbol)

    # A result can be made once all operands can; an operand of the other direction counts from the
    # pass after the one that keeps its carries.
    way, turned = _node_direction(
        node,
        streamed,
        back,
        level,
    )
    height = 0
    for ref in (*node.numbers, *node.waits):
        height = max(height, level[ref])
        if ref in turned:
            height = max(height, back.both[ref])
    is_reduced = along and accumulates(op)
    if is_reduced and not streamed.isdisjoint(numbers_of(begins_with(node))):
        raise refusal(op, "begins with a value that is made in each chunk")
    is_cut = any(ragged_axes(flat.dims[n]) for n in node.makes)
    if is_reduced and is_cut and uses and not is_along(op):
        raise refusal(op, "makes it of what is put together over all of it")

    # A reduction's result is one level higher. All else with the axis is streamed, and so is a
    # value without it that is computed beside streamed ones, in each chunk alike.
    for i, n in enumerate(node.makes):
        is_cut = bool(ragged_axes(flat.dims[n]))
        is_known_later = is_reduced if node.parts is None else node.parts.monoids[i] is not None
        level[n] = height + (1 if is_known_later and not is_cut else 0)
        if not is_cut and (is_known_later or not along):
            continue
        streamed.add(n)
        is_plain = not uses and node.parts is None and node.token is None
        if is_cut and is_plain and _is_free(node, flat, streamed, held):
            held.free[n] = node
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


def _uncuttable_dim(
    node: Node,
    flat: NumberedProgram,
    symbol: str,
    streamed: set[int],
) -> Dim | None:
    """A dimension that is not a multiple of the cut axis (`n - 1` of `diff`), among the operands
    and results of a node, so that it has no chunks; None if there is none.
    """
    numbers = (*node.makes, *(n for n in node.numbers if n in streamed))
    for n in numbers:
        for dim in ragged_dims(flat.dims[n]):
            if not is_multiple(dim, symbol):
                return dim
    return None


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


def _do_at_once(
    node: Node,
    uses: Sequence[Use],
    odd: object,
    flat: NumberedProgram,
    level: dict[int, int],
    streamed: set[int],
    held: Materialised,
) -> None:
    """Assign levels to the results of a node that runs at once, on whole operands.

    Raises:
        Refused: Its rule does not allow that, or its operands cannot be materialised.
    """
    op = node.op
    rule = RULES.get(op.name)
    refused = next((use for use in uses if not is_made_at_size(use)), None)
    if rule is None or refused is not None or (odd is None and not rule.at_once):
        reason = refused or uses[0]
        raise Refused(reason.place, describe_use(op, reason))
    _hold_operands(
        node,
        flat,
        level,
        streamed,
        held,
    )


def _hold_operands(
    node: Node,
    flat: NumberedProgram,
    level: dict[int, int],
    streamed: set[int],
    held: Materialised,
) -> None:
    """Materialise what a node reads, and assign levels to its results.

    Raises:
        Refused: It calls back, or it reads a value that is made per chunk without having the axis.
    """
    op = node.op
    read = [n for n in node.numbers if n in streamed]
    if node.token is not None:
        raise refusal(op, "calls back beside what is done at once")
    if not all(ragged_axes(flat.dims[n]) for n in read):
        raise refusal(op, "reads what is computed in each chunk, and all of it")
    fixed = max((level[n] for n in node.numbers if n not in streamed), default=0)
    height = max(fixed, held.gather(read, level))
    held.made.update(node.makes)
    level.update(dict.fromkeys(node.makes, height))
    streamed.update(n for n in node.makes if ragged_axes(flat.dims[n]))


def _is_free(
    node: Node,
    flat: NumberedProgram,
    streamed: set[int],
    held: Materialised,
) -> bool:
    """Return whether a node's results can be made as a whole as well as per chunk, to the same bits
    and in no more memory than its operands: it reads nothing that has the axis, or it moves or
    counts (integers, bools) whole values.
    """
    read = [n for n in node.numbers if n in streamed]
    if not read:
        return True
    # Floats that are computed may have other bits in a chunk than in the whole.
    of_results = [flat.dtypes[n] for n in node.makes]
    is_exact = node.op.name in _MOVES or all(map(_is_counted, of_results))
    made = max(size_per_element(flat.dims[n]) for n in node.makes)
    fits = made <= max(size_per_element(flat.dims[n]) for n in read)
    return is_exact and fits and all(n in held.free or held.is_whole([n]) for n in read)


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


@dataclass(frozen=True)
class _Iterating:
    """How loops get passes of their own in each iteration.

    Args:
        plan: Plans the passes of a body.
        loops: Such loops so far, by the number of their first result; filled in while planning.
        at_once: Loops, branches and solves that run at once, by the number of their first result;
            filled in while planning.
    """

    plan: Callable[[object], Passes]
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
        if loop is not None:
            self.loops[first] = loop
        elif all(map(is_made_at_size, uses_along(node.op))) and is_small(node.op):
            self.at_once.add(first)
        else:
            raise refused


def _with_uses(
    flat: NumberedProgram,
    wanted: set[int],
    iterating: _Iterating | None,
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
    iterating: _Iterating | None,
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


@dataclass
class _Directions:
    """The order of chunks that values need.

    Args:
        of: Value -> True if from the end, False if from the front. Most values are missing: either
            order will do.
        both: Value -> the number of passes after which it can be made in either order, since the
            carries at chunk boundaries are known.
    """

    of: dict[int, bool] = field(default_factory=dict[int, bool])
    both: dict[int, int] = field(default_factory=dict[int, int])


def _node_direction(
    node: Node,
    streamed: set[int],
    back: _Directions,
    level: Mapping[int, int],
) -> tuple[bool | None, set[int]]:
    """The direction of a node (True from the end, None if either will do), and its operands of the
    other direction, which get a pass of their own and are replayed from its carries.
    """
    ways = {ref: back.of[ref] for ref in node.numbers if ref in streamed and ref in back.of}
    own = direction_of(node.op)
    if own is None and not ways:
        return None, set()
    # Without a direction of its own a node takes that of its last operand to be ready.
    way = own if own is not None else ways[max(ways, key=lambda ref: level[ref])]
    return way, {ref for ref, other in ways.items() if other != way}


def _unchunked_nodes(
    flat: NumberedProgram,
    streamed: set[int],
    wanted: set[int],
    held: Materialised,
) -> list[Node]:
    """The live nodes that are computed once: without the axis, or on whole operands."""
    nodes: list[Node] = []
    for node in flat.steps:
        if wanted.isdisjoint(node.marks):
            continue
        is_whole = held.is_at_once(node) or held.is_spread(node)
        if is_whole or not has_axis(node, streamed):
            nodes.append(node)
    return nodes


def _passes(
    p: int,
    flat: NumberedProgram,
    level: Mapping[int, int],
    streamed: set[int],
    outs: Sequence[tuple[int, int]],
    wanted: set[int],
    back: Mapping[int, bool],
    held: Materialised,
    turned: set[int],
) -> Iterator[Pass]:
    """The pass of level `p`, or two if its values need both directions. `turned` has the operations
    that a later pass replays, by the number of their first result.
    """
    before = _at_level(
        p,
        _unchunked_nodes(flat, streamed, wanted, held),
        level,
    )

    # The roots of the level: reductions, results, collected values and carries that end in it.
    due: list[int] = []
    keeps: dict[int, int] = {}
    for node in flat.steps:
        if not held.is_at_once(node):
            for n in node.marks:
                if n not in wanted or level[n] != p + 1:
                    continue
                if n == node.token:
                    is_root = has_axis(node, streamed)
                else:
                    is_root = is_accumulated(node, n, streamed)
                if is_root:
                    due.append(n)
        if not turned.isdisjoint(node.makes[:1]):
            for n in node.makes:
                if n in streamed and level[n] == p:
                    keeps[node.makes[0]] = n
    collects = tuple(n for n, at in held.collected.items() if at == p)
    there = held.sliced_values(p, flat.takes)

    # Numbers of iterations are counted in passes of their own, which are repeated.
    counted = {node.makes[0] for node in flat.steps if node.counts}
    turns = [n for n in due if n in counted]
    rest = [n for n in due if n not in counted]
    ends = (*rest, *collects, *keeps.values(), *(n for _, n in outs))
    sets = [*_by_direction(turns, back), *_by_direction(ends, back)]
    for i, (way, mine) in enumerate(sets or [(False, set[int]())]):
        # Liveness within the pass: recompute what the roots need, down to slices of whole values. A
        # callback runs in the one pass that its token is a root of, and is mute in others.
        known = there | (level.keys() - streamed - mine)
        live, needed = live_steps(flat.steps, mine, known)
        nodes: list[Node] = []
        for node in live:
            is_loud = node.token is None or node.token in mine
            nodes.append(node if is_loud else _mute_node(node, wanted))
        opposed = [node for node in nodes if direction_of(node.op) not in (None, way)]
        yield Pass(
            before if i == 0 else (),
            tuple(nodes),
            tuple(i for i, n in outs if n in mine),
            way,
            collects=tuple(n for n in collects if n in mine),
            slices=tuple(sorted(needed & there & streamed)),
            keeps=tuple(key for key, n in keeps.items() if n in mine),
            replays=tuple(node.makes[0] for node in opposed),
        )


def _by_direction(
    ends: Sequence[int],
    back: Mapping[int, bool],
) -> Iterator[tuple[bool, set[int]]]:
    """Yield each direction that some values need, with those that are made in it."""
    if not ends:
        return
    ways = sorted({back[n] for n in ends if n in back}) or [False]
    for way in ways:
        yield way, {n for n in ends if back.get(n, ways[0]) == way}


def _mute_node(node: Node, wanted: set[int]) -> Node:
    """The node with its callbacks muted, since another pass calls them.

    Raises:
        Refused: This pass needs what they return.
    """
    if callback_result_is_read(node.op, is_used=not wanted.isdisjoint(node.makes)):
        raise refusal(node.op, "calls back once, and needs the answer in several passes")
    return replace(node, is_mute=True)
