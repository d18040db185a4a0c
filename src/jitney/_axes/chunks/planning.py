"""Plan how a program is evaluated chunk by chunk along one axis: which values are made anew for
each chunk, which are accumulated, and in how many passes over the data.

A value that has the axis is streamed: it exists for one chunk at a time. A reduction turns it into
one that is accumulated over the chunks and is known when the pass is over. The level of a value is
the number of passes that have to be over before it can be made, so the level of a reduction is one
more than that of what it reduces. What is streamed is made again in each pass that needs it.

What goes on from chunk to chunk goes one way, from the front or from the end. A level whose values
need both makes two passes. What needs at once what comes from the front and what comes from the end
(backpropagation through a loop along the axis) waits for one of them: that one's pass keeps what it
carries at the boundary of each chunk, and the other's pass makes each chunk anew from there.

What cannot be put together of chunks is done at once, on the whole, if its rule says that it may
be: see `held.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..._jax.evaluation import Const, numbers_of
from ..._jax.jaxprs import equations, programs, source_of
from ..._jax.primitives import spelled
from ..callbacks import answers
from ..dims import is_multiple, symbols
from ..refusal import Refused
from ..rule import Use, ragged_dims
from ..rules import RULES
from ..rules.additive import is_zero, of_fixed
from ..typed_jax import dtypes
from ..walk import Op, Ranges, ragged, shape_of
from .along import (
    accumulates,
    can_be_cut,
    checked_uses,
    is_along,
    looks_along,
    uses_along,
    way_along,
    way_of,
)
from .held import Held
from .numbered import (
    Node,
    NumberedProgram,
    begins_with,
    flatten,
    has_axis,
    is_accumulated,
    size_per_element,
)
from .parts import is_over_another, parts_of
from .passes import Pass, Passes


def plan_passes(
    jaxpr: Any,
    symbol: str,
    ranges: Ranges,
    numbers: Mapping[Any, Any] | None = None,
    *,
    in_memory: bool = True,
) -> Passes:
    """Plan the passes of a program over the axis of a symbol.

    Args:
        jaxpr: The program.
        symbol: Its size.
        ranges: Symbol -> the least and the largest size it stands for.
        numbers: What Python makes of the size, by variables of the program.
        in_memory: Whether the arguments are there as a whole.

    Raises:
        Refused: An operation looks along the axis in a way that cannot be cut.
    """
    flat = flatten(jaxpr, ranges, numbers or {})
    wanted = _wanted(flat)
    flat = replace(flat, nodes=tuple(_with_uses(flat, wanted)))
    level: dict[int, int] = dict.fromkeys(flat.takes, 0)
    streamed = {n for n in flat.takes if ragged(flat.dims[n])}
    back = _Directions()
    held = Held(frozenset(streamed) if in_memory else frozenset())
    for n in flat.takes:
        _check_dims(None, flat.dims[n], symbol)
    for node in flat.nodes:
        if not wanted.isdisjoint(node.marks):
            _place(node, flat, symbol, level, streamed, back, held)
            _check_told(node, streamed, wanted)
    accumulated = [
        n
        for node in flat.nodes
        if not held.is_at_once(node)
        for n in node.makes
        if n in level and is_accumulated(node, n, streamed)
    ]
    last = max((level[n] for n in accumulated), default=0)
    outs = [
        (i, n)
        for i, n in enumerate(flat.gives)
        if isinstance(n, int) and n in streamed and n not in held.made
    ]
    for _, n in outs:
        if not ragged(flat.dims[n]):
            place, name = next(
                (node.op.place, node.op.name) for node in flat.nodes if n in node.makes
            )
            raise Refused(
                place,
                f"returns a value without it that is made beside one with it (`{spelled(name)}`)",
            )
    happened = [
        level[node.token]
        for node in flat.nodes
        if node.token is not None and has_axis(node, streamed)
    ]
    count = max([last, held.last, *happened, *(level[n] + 1 for _, n in outs)], default=0)
    turned: set[int] = set()
    while True:
        passes = tuple(
            planned
            for p in range(count)
            for planned in _passes(
                p,
                flat,
                level,
                streamed,
                [(i, n) for i, n in outs if level[n] == p],
                wanted,
                back.of,
                held,
                turned,
            )
        )
        replayed = {key for work in passes for key in work.replays}
        if replayed <= turned:
            break
        turned |= replayed
    after = tuple(
        node
        for node in _fixed(flat, streamed, wanted, held)
        if max(level[n] for n in node.marks) == count
    )
    at_once = tuple(node for node in flat.nodes if held.is_at_once(node))
    whole = frozenset(held.made | held.spread | held.collected.keys())
    return Passes(
        flat, symbol, passes, after, frozenset(streamed), last, numbers or {}, at_once, whole
    )


def _check_told(node: Node, streamed: set[int], wanted: set[int]) -> None:
    """Refuse what calls back in each chunk, where it has to happen once."""
    if node.token is None or is_along(node.op) or not has_axis(node, streamed):
        return
    if answers(node.op, is_used=not wanted.isdisjoint(node.makes)):
        raise Refused(
            node.op.place,
            f"calls back once, and needs the answer in each chunk (`{spelled(node.op.name)}`)",
        )


def _wanted(flat: NumberedProgram) -> set[int]:
    """The values that results depend on, and callbacks."""
    wanted = set(numbers_of(flat.gives)) | {
        node.token for node in flat.nodes if node.token is not None
    }
    for node in reversed(flat.nodes):
        if not wanted.isdisjoint(node.marks):
            wanted.update(node.numbers)
    return wanted


def _check_dims(op: Op | None, dims: Sequence[Any], symbol: str) -> None:
    symbolic = ragged_dims(dims)
    if len(symbolic) > 1 or any(
        set(symbols(dim)) != {symbol} or (op is None and str(dim) != symbol) for dim in symbolic
    ):
        sizes = " and ".join(map(str, symbolic))
        if op is None:
            raise Refused("", f"has an argument of {sizes} elements, which no chunk cuts")
        raise Refused(
            op.place, f"makes an array with {sizes} elements along it (`{spelled(op.name)}`)"
        )


def _place(
    node: Node,
    flat: NumberedProgram,
    symbol: str,
    level: dict[int, int],
    streamed: set[int],
    back: _Directions,
    held: Held,
) -> None:
    """Give the values that a node makes their levels, and note whether the chunks must come from
    the end for them.
    """
    op = node.op
    for n in node.makes:
        _check_dims(op, flat.dims[n], symbol)
    along = bool(node.uses) or any(ref in streamed for ref in node.numbers)
    uses = node.uses if node.parts is None else ()
    odd = _odd(node, flat, symbol, streamed)
    at_hand = way_of(op) == "picked" and held.is_whole(
        ref for ref in node.numbers if ref in streamed
    )
    if odd is not None or (uses and (at_hand or not can_be_cut(op, uses))):
        _do_at_once(node, uses, odd, flat, level, streamed, held)
        return
    _check_inside(op, symbol)
    way, turned = _turned(node, streamed, back, level)
    height = max(
        (
            max(level[ref], back.both[ref] if ref in turned else 0)
            for ref in (*node.numbers, *node.waits)
        ),
        default=0,
    )
    is_reduced = along and accumulates(op)
    if is_reduced and not streamed.isdisjoint(numbers_of(begins_with(node))):
        raise Refused(
            op.place, f"begins with a value that is made in each chunk (`{spelled(op.name)}`)"
        )
    if is_reduced and uses and not is_along(op) and any(ragged(flat.dims[n]) for n in node.makes):
        raise Refused(
            op.place, f"makes it of what is put together over all of it (`{spelled(op.name)}`)"
        )
    for i, n in enumerate(node.makes):
        is_cut = bool(ragged(flat.dims[n]))
        is_known_later = is_reduced if node.parts is None else node.parts.monoids[i] is not None
        level[n] = height + (1 if is_known_later and not is_cut else 0)
        if is_cut or (along and not is_known_later):
            streamed.add(n)
            if (
                is_cut
                and not uses
                and node.parts is None
                and node.token is None
                and _is_free(node, flat, streamed, held)
            ):
                held.free[n] = node
    if node.token is not None:
        level[node.token] = height + has_axis(node, streamed)
    if way is not None:
        both = max((back.both.get(ref, 0) for ref in node.numbers if ref in streamed), default=0)
        back.of.update(dict.fromkeys(node.marks, way))
        back.both.update(
            dict.fromkeys(node.marks, max(both, height + 1 if way_along(op) is not None else 0))
        )


def _odd(node: Node, flat: NumberedProgram, symbol: str, streamed: set[int]) -> Any:
    """The length of an array beside an operation that no chunk of the axis is a part of, such as of
    differences; None if there is none.
    """
    numbers = (*node.makes, *(n for n in node.numbers if n in streamed))
    return next(
        (dim for n in numbers for dim in ragged_dims(flat.dims[n]) if not is_multiple(dim, symbol)),
        None,
    )


def _check_inside(op: Op, symbol: str) -> None:
    """Check that an operation that is evaluated in chunks makes no array inside that no chunk of
    the axis is a part of.
    """
    for eqn in (held for program in programs(op.params) for held in equations(program)):
        for dim in (
            dim
            for atom in eqn.outvars
            for dim in ragged_dims(shape_of(atom))
            if not is_multiple(dim, symbol)
        ):
            place = source_of(eqn, op.place)
            raise Refused(
                place,
                f"makes an array with {dim} elements along it inside `{spelled(op.name)}`"
                f" (`{spelled(eqn.primitive.name)}`)",
            )


def _do_at_once(
    node: Node,
    uses: Sequence[Use],
    odd: Any,
    flat: NumberedProgram,
    level: dict[int, int],
    streamed: set[int],
    held: Held,
) -> None:
    """Give the values that a node makes on the whole their levels. What is of another length than
    the axis is not cut with it.
    """
    op = node.op
    rule = RULES.get(op.name)
    refused = next((use for use in uses if use.refused), None)
    if rule is None or refused is not None or (odd is None and not rule.at_once):
        raise Refused((refused or uses[0]).place, looks_along(op, refused or uses[0]))
    read = [n for n in node.numbers if n in streamed]
    if node.token is not None or not all(ragged(flat.dims[n]) for n in read):
        beside = (
            "calls back beside what is done at once"
            if node.token is not None
            else "reads what is made anew in each chunk, and all of it"
        )
        raise Refused(op.place, f"{beside} (`{spelled(op.name)}`)")
    fixed = max((level[n] for n in node.numbers if n not in streamed), default=0)
    height = max(fixed, held.gather(read, level))
    held.made.update(node.makes)
    level.update(dict.fromkeys(node.makes, height))
    streamed.update(n for n in node.makes if ragged(flat.dims[n]))


def _is_free(node: Node, flat: NumberedProgram, streamed: set[int], held: Held) -> bool:
    """Whether what a node makes can be made as a whole as well as in chunks, to the same bits and
    in no more memory than it takes itself: it is made of nothing that has the axis, or only moved
    or counted, of what is there as a whole.
    """
    read = [n for n in node.numbers if n in streamed]
    if not read:
        return True
    exact = node.op.name in _MOVES or all(
        dtypes.issubdtype(flat.dtypes[n], np.integer) or flat.dtypes[n] == np.bool_
        for n in node.makes
    )
    fits = max(size_per_element(flat.dims[n]) for n in node.makes) <= max(
        size_per_element(flat.dims[n]) for n in read
    )
    return exact and fits and all(n in held.free or held.is_whole([n]) for n in read)


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


def _with_uses(flat: NumberedProgram, wanted: set[int]) -> Iterator[Node]:
    """The operations, with where they look along the axis, and what is put together of those that
    run over another and do so inside.
    """
    zeros: set[int] = set()
    for node in flat.nodes:
        given = [
            is_zero(ref.value) if isinstance(ref, Const) else ref in zeros for ref in node.reads
        ]
        if of_fixed(node.op, ["zero" if each else "fixed" for each in given]) == "zero":
            zeros.update(node.makes)
        if wanted.isdisjoint(node.marks):
            yield node
        elif is_over_another(node.op):
            uses = checked_uses(node.op)
            yield replace(node, uses=uses, parts=parts_of(node.op, given) if uses else None)
        else:
            yield replace(node, uses=tuple(uses_along(node.op)))


@dataclass
class _Directions:
    """Which way the chunks must come.

    Args:
        of: Value -> whether from the end; most values are not here, since either way is right.
        both: Value -> after how many passes it can be made whichever way they come, since what was
            carried to each of them is known.
    """

    of: dict[int, bool] = field(default_factory=dict[int, bool])
    both: dict[int, int] = field(default_factory=dict[int, int])


def _turned(
    node: Node, streamed: set[int], back: _Directions, level: Mapping[int, int]
) -> tuple[bool | None, set[int]]:
    """Whether the chunks must come from the end for what a node makes (None: either way is right),
    and what it reads that comes the other way: that waits for a pass of its own, and is made anew,
    chunk by chunk, from what was carried there.
    """
    ways = {ref: back.of[ref] for ref in node.numbers if ref in streamed and ref in back.of}
    own = way_along(node.op)
    if own is None and not ways:
        return None, set()
    way = own if own is not None else ways[max(ways, key=lambda ref: level[ref])]
    return way, {ref for ref, other in ways.items() if other != way}


def _fixed(flat: NumberedProgram, streamed: set[int], wanted: set[int], held: Held) -> list[Node]:
    """What is computed once: from what does not have the axis, or on the whole."""
    return [
        node
        for node in flat.nodes
        if not wanted.isdisjoint(node.marks)
        and (held.is_at_once(node) or held.is_spread(node) or not has_axis(node, streamed))
    ]


def _passes(
    p: int,
    flat: NumberedProgram,
    level: Mapping[int, int],
    streamed: set[int],
    outs: Sequence[tuple[int, int]],
    wanted: set[int],
    back: Mapping[int, bool],
    held: Held,
    turned: set[int],
) -> Iterator[Pass]:
    """The pass of a level, or two if some of its values need the chunks from the front and some
    from the end; `turned` are the operations that a later pass replays.
    """
    before = tuple(
        node
        for node in _fixed(flat, streamed, wanted, held)
        if max(level[n] for n in node.marks) == p
    )
    due = [
        n
        for node in flat.nodes
        if not held.is_at_once(node)
        for n in node.marks
        if n in wanted
        and level[n] == p + 1
        and (has_axis(node, streamed) if n == node.token else is_accumulated(node, n, streamed))
    ]
    collects = tuple(n for n, at in held.collected.items() if at == p)
    keeps = {
        node.makes[0]: n
        for node in flat.nodes
        if node.makes and node.makes[0] in turned
        for n in node.makes
        if n in streamed and level[n] == p
    }
    ends = (*due, *collects, *keeps.values(), *(n for _, n in outs))
    ways = sorted({back[n] for n in ends if n in back}) or [False]
    there = held.there(p, flat.takes)
    for way in ways:
        mine = {n for n in ends if back.get(n, ways[0]) == way}
        needed = set(mine)
        nodes: list[Node] = []
        for node in reversed(flat.nodes):
            if not (needed - there).isdisjoint(node.marks):
                nodes.append(
                    node if node.token is None or node.token in mine else _muted(node, wanted)
                )
                needed.update(ref for ref in node.numbers if ref in streamed)
        yield Pass(
            before if way == ways[0] else (),
            tuple(reversed(nodes)),
            tuple(i for i, n in outs if n in mine),
            way,
            collects=tuple(n for n in collects if n in mine),
            slices=tuple(sorted(needed & there)),
            keeps=tuple(key for key, n in keeps.items() if n in mine),
            replays=tuple(
                node.makes[0] for node in reversed(nodes) if way_along(node.op) not in (None, way)
            ),
        )


def _muted(node: Node, wanted: set[int]) -> Node:
    """An operation whose callbacks are called in another pass."""
    if answers(node.op, is_used=not wanted.isdisjoint(node.makes)):
        raise Refused(
            node.op.place,
            f"calls back once, and needs the answer in several passes (`{spelled(node.op.name)}`)",
        )
    return replace(node, is_mute=True)
