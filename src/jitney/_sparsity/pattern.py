"""Which elements of the arguments each element of a value may depend on: a boolean matrix in
compressed rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy
import numpy.typing as npt

from .typed_numpy import np

Ints = npt.NDArray[numpy.int64]


class TooDenseError(Exception):
    """A pattern that is not worth following; never leaves this package."""


@dataclass(frozen=True, eq=False)
class Pattern:
    """A matrix of booleans: `indices[starts[i]:starts[i + 1]]` are the columns of row `i`, in order
    and without repeats.
    """

    starts: Ints
    indices: Ints
    columns: int

    @classmethod
    def identity(cls, start: int, size: int, columns: int) -> Pattern:
        """`size` rows; the first depends on column `start` alone, the next on the next."""
        return cls(np.arange(size + 1), np.arange(start, start + size), columns)

    @classmethod
    def of_pairs(cls, rows: Ints, cols: Ints, size: int, columns: int) -> Pattern:
        """From the places that are True, in any order and with repeats."""
        keys = np.unique(rows * columns + cols)
        rows, cols = np.divmod(keys, max(columns, 1))
        return cls(
            np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=size))]), cols, columns
        )

    @property
    def size(self) -> int:
        return len(self.starts) - 1

    @property
    def count(self) -> int:
        """How many places are True."""
        return len(self.indices)

    @cached_property
    def lengths(self) -> Ints:
        """How many columns each row has."""
        return np.diff(self.starts)

    @cached_property
    def rows(self) -> Ints:
        """The row of each of `indices`."""
        return np.repeat(np.arange(self.size), self.lengths)

    def take(self, rows: Any) -> Pattern:
        """Row `i` of the result is row `rows[i]`; -1 is an empty one."""
        rows = np.ravel(rows)
        lengths = (
            np.where(rows >= 0, self.lengths[rows], 0)
            if self.size
            else np.zeros(len(rows), np.int64)
        )
        starts = np.concatenate([[0], np.cumsum(lengths)])
        _check(int(starts[-1]), len(rows), self.columns)
        at: Ints = np.repeat(
            (self.starts[rows] if self.size else rows) - starts[:-1], lengths
        ) + np.arange(starts[-1])
        return Pattern(starts, self.indices[at], self.columns)

    def merge(self, into: Any, size: int) -> Pattern:
        """Row `i` of this one becomes part of row `into[i]` of `size` rows."""
        return Pattern.of_pairs(
            np.repeat(np.ravel(into), self.lengths), self.indices, size, self.columns
        )

    def keep(self, rows: npt.NDArray[numpy.bool_]) -> Pattern:
        """The rows that are True; the others are empty."""
        rows = np.ravel(rows)
        return self if rows.all() else self.take(np.where(rows, np.arange(self.size), -1))

    def after(self, inner: Pattern) -> Pattern:
        """What this one depends on, where its columns are the rows of `inner`."""
        return inner.take(self.indices).merge(self.rows, self.size)

    @cached_property
    def transposed(self) -> Pattern:
        order = np.argsort(self.indices, kind="stable")
        starts = np.concatenate([[0], np.cumsum(np.bincount(self.indices, minlength=self.columns))])
        return Pattern(starts, self.rows[order], self.size)

    def equals(self, other: Pattern) -> bool:
        return self is other or (
            np.array_equal(self.starts, other.starts)
            and np.array_equal(self.indices, other.indices)
        )


def union(patterns: Sequence[Pattern]) -> Pattern:
    """Places that are True in any of several patterns of the same shape."""
    first = patterns[0]
    others = [other for other in patterns[1:] if not other.equals(first)]
    if not others:
        return first
    rows = np.concatenate([pattern.rows for pattern in (first, *others)])
    cols = np.concatenate([pattern.indices for pattern in (first, *others)])
    return Pattern.of_pairs(rows, cols, first.size, first.columns)


def stacked(patterns: Sequence[Pattern]) -> Pattern:
    """Rows of several patterns, one after the other."""
    if len(patterns) == 1:
        return patterns[0]
    ends = np.cumsum([0, *(pattern.count for pattern in patterns)])
    starts = np.concatenate(
        [[0], *(pattern.starts[1:] + end for pattern, end in zip(patterns, ends, strict=False))]
    )
    return Pattern(
        starts, np.concatenate([pattern.indices for pattern in patterns]), patterns[0].columns
    )


def _check(count: int, rows: int, columns: int) -> None:
    """Stop where following costs more than it can save: many places, and a large part of all that
    there are.
    """
    if count > _MANY or (count > _SOME and count > _LARGE_PART * rows * columns):
        raise TooDenseError


_SOME, _MANY, _LARGE_PART = 1 << 14, 1 << 23, 0.3
