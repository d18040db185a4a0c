"""Sizes of rows that are known already: a call that has no others plans nothing.

    SizePattern   a row of a new length in a known bucket: does the contract that was checked for
                  another one hold?
    SizeTables    rows that are unlike in one length: what is known of each, in arrays by length

The contract of a row holds for another one too where each axis is a plain name or number, all
arrays agree on the names, and the other sizes are those of the known row.

Without tables a call with ten thousand rows looks for its thousand sizes in a dict, which takes a
tenth of its time.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..._contract.contract import Contract
from ..._jax.typed import NumPyArray
from ..._signature.hints import (
    AnyHint,
    ArrayHint,
    Dim,
    ModuleHint,
    ScalarHint,
    StaticHint,
)
from ..._view.view import View
from .lots import Lot, places_of, sizes_of_members

if TYPE_CHECKING:
    from .columns import Column
    from .group import Member


_SIMPLE = (
    AnyHint,
    ArrayHint,
    ModuleHint,
    ScalarHint,
    StaticHint,
)
"""Annotations that take a value in one way, whatever its sizes are."""


@dataclass(frozen=True)
class SizePattern:
    """Sizes of rows that are like a known row.

    Args:
        names: The padded axis of each size of a row; None of the other sizes.
        sizes: Those of the known row.
        others: Its shapes, with 2 for each padded axis.
    """

    names: tuple[str | None, ...]
    sizes: tuple[int, ...]
    others: tuple[tuple[int, ...], ...]

    def axes(self, sizes: Sequence[int]) -> dict[str, int]:
        """The size of each padded axis in a row of these sizes; none if the row is not alike."""
        found: dict[str, int] = {}
        each = zip(
            self.names,
            self.sizes,
            sizes,
            strict=True,
        )
        for name, known, size in each:
            expected = known if name is None else found.setdefault(name, size)
            if size != expected:
                return {}
        return found


def size_pattern(
    contract: Contract,
    columns: Sequence[Column],
    view: View,
    padded: Collection[str],
    sizes: tuple[int, ...],
    others: tuple[tuple[int, ...], ...],
) -> SizePattern | None:
    """Return the pattern of a row whose contract holds; None if another row may differ in more than
    its sizes.

    Args:
        contract: The contract.
        columns: Arrays of the call.
        view: Those of the row.
        padded: Padded axes.
        sizes: Sizes of the row, along all axes that rows have their own of.
        others: Its shapes, with 2 for each padded axis.
    """
    hints = {parameter.name: parameter.hint for parameter in contract.parameters}
    if not all(isinstance(hint, _SIMPLE) for hint in hints.values()):
        return None
    names: list[str | None] = []
    for column, leaf in zip(columns, view.leaves, strict=True):
        hint, own = leaf.declared, column.kind == "each"
        dims = hint.dims if isinstance(hint, ArrayHint) else ()
        if not all(map(_is_plain, dims)):
            return None
        if not own and not {dim.name for dim in dims}.isdisjoint(padded):
            return None
        if own and (hints.get(leaf.argument) is not hint or len(dims) != len(leaf.shape)):
            return None
        if own:
            names += [dim.name if dim.name in padded else None for dim in dims]
    return SizePattern(tuple(names), sizes, others) if len(names) == len(sizes) else None


def _is_plain(dim: Dim) -> bool:
    """Return whether an axis has the size of its name, or one that is written."""
    return dim.expr is None and not (dim.variadic or dim.broadcast or dim.per_leaf)


_LONGEST = 1 << 16
"""The longest row in a table; calls with longer ones have other work than to look for them."""
_MOST = 64
"""How many tables are kept."""
_SPARSE = 4
"""A table may have this many times as many sizes as the call that makes it has rows."""
_Sizes = tuple[int, ...]
_Alike = tuple[int | None, ...]
"""Sizes of rows along all axes that they have their own of; None where a row has its length."""


class _SizeTable:
    """What is known of rows that are alike but for one length.

    Args:
        alike: Their sizes.
        known: Sizes -> member.
    """

    def __init__(
        self,
        alike: _Alike,
        known: Mapping[_Sizes, Member],
    ):
        self.known, self.count = known, len(known)
        at = alike.index(None)
        # Copied at once: other threads may learn sizes.
        found = {
            sizes[at]: member
            for sizes, member in [*known.items()]
            if sizes == tuple(sizes[at] if size is None else size for size in alike)
        }
        longest = max((length for length in found if length < _LONGEST), default=0)
        # The number of the group of rows of each length, -1 if it is not known; and the place of
        # the length in that group.
        self._group = np.full(longest + 1, -1, np.int64)
        self._place = np.zeros(longest + 1, np.int64)
        numbers: dict[int, int] = {}
        self._members: list[list[Member]] = []
        for length in sorted(found):
            if length > longest:
                break
            member = found[length]
            number = numbers.setdefault(id(member.group), len(numbers))
            if number == len(self._members):
                self._members.append([])
            self._group[length] = number
            self._place[length] = len(self._members[number])
            self._members[number].append(member)
        self._sizes = list(map(sizes_of_members, self._members))

    def lots(
        self,
        lengths: NumPyArray,
        rows: NumPyArray,
    ) -> list[Lot] | None:
        """Put rows into lots; None if one has a length that is not known."""
        if lengths.max() >= len(self._group):
            return None
        groups = self._group[lengths]
        if groups.min() < 0:
            return None
        places = self._place[lengths]
        each = enumerate(places_of(groups, len(self._members)))
        filled = ((number, at) for number, at in each if len(at))
        found = [(int(lengths[at].min()), number, at) for number, at in filled]
        # In the order of the shortest rows of this call, whatever is known of others.
        found.sort(key=lambda lot: lot[0])
        return [
            Lot(
                rows[at],
                self._members[number],
                places[at],
                self._sizes[number],
            )
            for _, number, at in found
        ]


class SizeTables:
    """Tables of one function, by what its rows have in common."""

    def __init__(self) -> None:
        self._tables: dict[Hashable, _SizeTable] = {}

    def lots(
        self,
        dims: Sequence[NumPyArray],
        rows: NumPyArray,
        fixed: Hashable,
        known: Mapping[_Sizes, Member],
    ) -> list[Lot] | None:
        """Put rows into lots; None if they are unlike in other ways or of sizes that are not known.

        Args:
            dims: Sizes of all axes that rows have their own of.
            rows: Numbers of the rows.
            fixed: What does not differ between the rows.
            known: Sizes -> member.
        """
        unlike = next((dim for dim in dims if (dim != dim[0]).any()), None)
        if unlike is None:
            return None
        alike: list[int | None] = []
        for dim in dims:
            if dim is unlike or np.array_equal(dim, unlike):
                alike.append(None)
            elif (dim == dim[0]).all():
                alike.append(int(dim[0]))
            else:
                return None

        key = (fixed, *alike)
        table = self._tables.get(key)
        if table is None or table.known is not known or table.count != len(known):
            if len(known) > _SPARSE * len(rows):
                return None
            if len(self._tables) >= _MOST:
                self._tables.clear()
            table = self._tables[key] = _SizeTable(tuple(alike), known)
        return table.lots(unlike, rows)
