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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from ..._jax.programs.ssa import live_steps
from ..callbacks import callback_result_is_read
from ..interpreter import Numbers, Ranges
from .cut_axis import direction_of, is_along, refusal
from .levels import Levels
from .node_uses import IteratedLoops, with_uses
from .numbered import Node, NumberedProgram, flatten, has_axis, is_accumulated
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
        may_iterate: Whether loops that cannot be cut may run on whole operands, and take passes of
            their own in each iteration if the arguments are in memory. What they make is no sum of
            terms, and is not differentiated.

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
    iterating = IteratedLoops(plan_inside, in_memory, loops, at_once) if may_iterate else None
    flat = replace(flat, steps=tuple(with_uses(flat, wanted, iterating)))

    counts_turns = any(node.counts for node in flat.steps)

    # Forward, in the order of the program: the level and the direction of each value.
    levels = Levels(flat, symbol, in_memory=in_memory)
    level, streamed, held = levels.of, levels.streamed, levels.held
    for node in flat.steps:
        if not wanted.isdisjoint(node.marks):
            levels.assign(node, at_once.union(loops))
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
        if not levels.has_axis(n):
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
            passes += _passes(p, levels, emits, wanted, turned)
        replayed = set(chain.from_iterable(work.replays for work in passes))
        if replayed <= turned:
            break
        turned |= replayed

    # Values at the last level are computed when all passes are over.
    after = levels.nodes_at(count, levels.unchunked_nodes(wanted))
    of_whole = tuple(node for node in flat.steps if held.is_at_once(node))
    whole = frozenset(streamed & (held.made | held.spread | held.collected.keys()))
    return Passes(
        flat,
        symbol,
        tuple(passes),
        after,
        frozenset(streamed),
        _chain_of_sums(levels, wanted) if counts_turns else last,
        numbers or {},
        of_whole,
        whole,
        loops,
    )


def _chain_of_sums(levels: Levels, wanted: set[int]) -> int:
    """The length of the longest chain of reductions that depend on one another. What waits for a
    number of iterations only is not longer for that.
    """
    depth: dict[int, int] = {}
    longest = 0
    for node in levels.flat.steps:
        if wanted.isdisjoint(node.marks):
            continue
        read = (*node.numbers, *node.waits)
        before = max((depth.get(n, 0) for n in read), default=0)
        is_other = node.counts or levels.held.is_at_once(node)
        for n in node.marks:
            depth[n] = before
            if n == node.token or is_other:
                continue
            if is_accumulated(node, n, levels.streamed):
                depth[n] += 1
                longest = max(longest, depth[n])
    return longest


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


def _passes(
    p: int,
    levels: Levels,
    outs: Sequence[tuple[int, int]],
    wanted: set[int],
    turned: set[int],
) -> Iterator[Pass]:
    """The pass of level `p`, or two if its values need both directions. `turned` has the operations
    that a later pass replays, by the number of their first result.
    """
    flat, level, held = levels.flat, levels.of, levels.held
    streamed, back = levels.streamed, levels.back.of
    before = levels.nodes_at(p, levels.unchunked_nodes(wanted))

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
                    is_root = is_accumulated(
                        node,
                        n,
                        streamed,
                    )
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
