"""Tables of rows that are unlike in one length: what is known of each, in arrays by that length.

A call with ten thousand rows looks for its thousand sizes in a dict otherwise, which takes a tenth
of its time.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..._jax.typed import NumPyArray
from .lots import Lot, places_of, sizes_of_members

if TYPE_CHECKING:
    from .group import Member

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
        found = [(int(lengths[at].min()), number, at) for number, at in each if len(at)]
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
