"""The rows of a call that are in one group, and the parts of them that programs take."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ..._jax.typed import NumPyArray

if TYPE_CHECKING:
    from .columns import Column
    from .group import Member

RUNGS = (512, 64, 8, 1)
"""How many rows a program takes at a time."""
_SPARE = 8
"""A part of this many of a group's rows may be computed in vain, to run them in fewer programs."""
_CHEAP = 8
"""So may rows that hold a part of this many of all elements of a call, in all groups together."""


_MORE, _CALLS = 4, 16
"""So many times as many rows may be computed in vain, and so many more programs run, as long as
they are compiled already.
"""
_TABLE = 8
"""A table of values may be this many times as long as they are, and is faster than sorting them."""


class Lot:
    """The rows of a call that are in one group, in the caller's order.

    Args:
        rows: Numbers of the rows.
        members: Members of the group, those of these rows and maybe others.
        member_of: Which member each row is.
        sizes: Axis -> true sizes of the members.
    """

    def __init__(
        self,
        rows: NumPyArray,
        members: Sequence[Member],
        member_of: NumPyArray,
        sizes: Mapping[str, NumPyArray] | None = None,
    ):
        self.group = members[0].group
        self.rows = rows
        self.members = members
        self.member_of = member_of
        self._sizes = sizes_of_members(members) if sizes is None else sizes

    @cached_property
    def present(self) -> list[Member]:
        """The members that its rows are."""
        return [self.members[i] for i in np.unique(self.member_of).tolist()]

    def member(self, place: int) -> Member:
        """The member that the row at a place is."""
        return self.members[int(self.member_of[place])]

    def sizes(self, at: NumPyArray) -> dict[str, NumPyArray]:
        """Axis -> the true sizes of the rows at these places."""
        which = self.member_of[at]
        return {name: sizes[which] for name, sizes in self._sizes.items()}

    @property
    def is_filled(self) -> bool:
        """True if all padded axes of its rows are filled, and none is at its exact size."""
        recipe = self.group.recipe
        return recipe is not None and len(recipe.fill.axes) == len(self._sizes)

    def numbers(self, at: NumPyArray) -> list[NumPyArray]:
        """Numbers that Python computes from the sizes, of the rows at these places."""
        if not self.members[0].numbers:
            return []
        own, which = np.unique(self.member_of[at], return_inverse=True)
        columns = zip(*(self.members[i].numbers for i in own.tolist()), strict=True)
        return [np.stack(column)[which] for column in columns]

    def times(self) -> dict[str, tuple[NumPyArray, NumPyArray]]:
        """Axis -> the sizes of its rows, and how many have each."""
        counts = np.bincount(self.member_of, minlength=len(self.members))
        own = np.flatnonzero(counts)
        return {name: (sizes[own], counts[own]) for name, sizes in self._sizes.items()}


def sizes_of_members(members: Sequence[Member]) -> dict[str, NumPyArray]:
    """Axis -> the true size of each member."""
    return {
        name: np.array([member.sizes[name] for member in members], np.int32)
        for name in members[0].sizes
    }


def _nothing(_dims: Sequence[NumPyArray]) -> None:
    """Know nothing."""


def lots_of(
    columns: Sequence[Column],
    rows: NumPyArray,
    known: Callable[[], Mapping[tuple[int, ...], Member]],
    learn: Callable[[tuple[int, ...], int], Member],
    warm: Callable[[Sequence[NumPyArray]], list[Lot] | None] = _nothing,
) -> list[Lot]:
    """Put rows into the lots of their groups.

    Args:
        columns: Their arrays.
        rows: Numbers of the rows.
        known: Returns what is known of rows by their sizes, along all axes that rows have their own
            of.
        learn: Finds out what rows of these sizes are; takes the first of them too.
        warm: Returns the lots of rows of these sizes, if it knows all of them.
    """
    dims = [dim for column in columns for dim in column.dims(rows)]
    found = warm(dims)
    if found is not None:
        return found
    distinct, which = _distinct(dims, rows)
    members = list(filter(None, map(known().get, distinct)))
    if len(members) < len(distinct):
        # What is learned of one size may change what is known of another.
        members = [
            known().get(sizes) or learn(sizes, int(rows[np.argmax(which == i)]))
            for i, sizes in enumerate(distinct)
        ]
    groups = [id(each.group) for each in members]
    numbers = {group: number for number, group in enumerate(dict.fromkeys(groups))}
    lot_of = np.array(list(map(numbers.__getitem__, groups)))
    lots: list[Lot] = []
    place = np.empty(len(members), np.int64)
    for number, at in enumerate(places_of(lot_of[which], len(numbers))):
        own = np.flatnonzero(lot_of == number)
        place[own] = np.arange(len(own))
        of_lot = [members[i] for i in own.tolist()]
        lots.append(
            Lot(
                rows[at],
                of_lot,
                place[which[at]],
            )
        )
    return lots


def places_of(lots: NumPyArray, count: int) -> list[NumPyArray]:
    """Return the places of each lot, where its number stands, in ascending order."""
    # NumPy sorts 16 bits by their digits.
    dtype = np.uint16 if count <= np.iinfo(np.uint16).max else np.int64
    order = np.argsort(lots.astype(dtype), kind="stable")
    ends = np.cumsum(np.bincount(lots, minlength=count))
    return np.split(order, ends[:-1])


def _distinct(
    dims: Sequence[NumPyArray],
    rows: NumPyArray,
) -> tuple[list[tuple[int, ...]], NumPyArray]:
    """Return the distinct sizes of rows, in ascending order, and which of them each row has.

    Args:
        dims: Sizes of all axes that rows have their own of.
        rows: Numbers of the rows.
    """
    if not dims:
        return [(0,)], np.zeros_like(rows)
    varying: list[NumPyArray] = []
    for dim in dims:
        varies = bool((dim != dim[0]).any())
        if varies and not any(np.array_equal(dim, other) for other in varying):
            varying.append(dim)
    which = np.zeros(len(rows), np.int64)
    for dim in varying:
        which = which * (int(dim.max()) + 1) + dim
        which = _ranks(which)
    first = np.empty(which.max() + 1, np.int64)
    first[which] = np.arange(len(which))
    sizes = np.stack([dim[first] for dim in dims], axis=1)
    return list(map(tuple, sizes.tolist())), which


def _ranks(values: NumPyArray) -> NumPyArray:
    """The rank of each value among the distinct ones; they are not negative."""
    most = int(values.max()) + 1
    if most > _TABLE * len(values):
        return np.unique(values, return_inverse=True)[1]
    is_there = np.zeros(most, np.int64)
    is_there[values] = 1
    return (np.cumsum(is_there) - 1)[values]


def rungs_of(
    count: int,
    most: int,
    *,
    exactly: bool,
    cheap: int = 0,
    rungs: Sequence[int] = RUNGS,
) -> list[tuple[int, int]]:
    """Cut a number of rows into parts that programs take: how many rows of each, and how many the
    program takes. The programs are few and the same for all numbers of rows: none is smaller than
    the largest one that may run for a single row.

    Args:
        count: The number of rows.
        most: How many a program takes at most, 1 or more.
        exactly: Whether no row is computed in vain.
        cheap: So many may be, beside a part of the rows.
        rungs: How many rows a program may take, in descending order; the least one is taken
            anyway.
    """
    *_, least = rungs
    spare = count // _SPARE
    if exactly:
        spare = cheap = 0
    # Of a program that is no larger, one row may run alone.
    largest = min(most, cheap + 1)
    unit = max([least, *(rung for rung in rungs if rung <= largest)])
    taken = [*(rung for rung in rungs if unit < rung <= most), unit]
    parts: list[tuple[int, int]] = []
    left = count
    for rung, smaller in zip(taken, [*taken[1:], 0], strict=True):
        whole, left = divmod(left, rung)
        parts += [(rung, rung)] * whole
        if left and (rung == unit or (left > smaller and rung - left <= spare)):
            parts.append((left, rung))
            left = 0
    return parts


def known_rungs_of(
    count: int,
    most: int,
    *,
    exactly: bool,
    cheap: int,
    rungs: Sequence[int],
    known: Collection[int],
) -> list[tuple[int, int]]:
    """Cut a number of rows into parts of programs that there are, and of others only where they
    save much: so a fresh mixture of lengths compiles nothing.

    Args:
        known: How many rows each program of the group takes.
        count, most, exactly, cheap, rungs: As `rungs_of` has them.
    """
    parts = rungs_of(count, most, exactly=exactly, cheap=cheap, rungs=rungs)
    held = [rung for rung in rungs if rung in known and rung <= most]
    if exactly or not held or all(rung in held for _, rung in parts):
        return parts
    # Known programs may take a few calls more, and repeat some rows in vain: a compile costs more.
    again = rungs_of(count, most, exactly=False, cheap=cheap, rungs=held)
    spare = _MORE * max(cheap, count // _SPARE)
    is_near = len(again) <= len(parts) + _CALLS
    return again if is_near and _in_vain(again) <= _in_vain(parts) + spare else parts


def _in_vain(parts: Sequence[tuple[int, int]]) -> int:
    """Number of rows that are computed and that the group does not have."""
    return sum(rung - count for count, rung in parts)


def cheap_rows(lots: Sequence[Lot], columns: Sequence[Column]) -> list[int]:
    """How many rows of each lot may be computed in vain, as they are little beside the call."""
    sizes = [max(1, lot.group.elements(columns)) for lot in lots]
    whole = sum(size * len(lot.rows) for size, lot in zip(sizes, lots, strict=True))
    return [whole // _CHEAP // len(lots) // size for size in sizes]


def count_sizes(lots: Iterable[Lot]) -> dict[str, tuple[NumPyArray, NumPyArray, int]]:
    """Axis -> sizes of rows, how many rows have each, and how many elements programs take for all;
    a size may be there twice.
    """
    found = defaultdict[str, list[tuple[NumPyArray, NumPyArray]]](list)
    elements = Counter[str]()
    for lot in lots:
        padded = {} if lot.group.recipe is None else lot.group.recipe.fill.sizes
        for name, (sizes, times) in lot.times().items():
            found[name].append((sizes, times))
            taken = times * padded.get(name, sizes)
            elements[name] += int(taken.sum())
    counted: dict[str, tuple[NumPyArray, NumPyArray, int]] = {}
    for name, each in found.items():
        sizes, times = map(np.concatenate, zip(*each, strict=True))
        counted[name] = sizes, times, elements[name]
    return counted
