"""Sparsity patterns: boolean matrices in compressed sparse rows, from elements of a value to
elements of the arguments that they may depend on. An equation as sparsity rules see it has the
patterns of its operands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from .typed_numpy import Bools, Ints, np


class TooDenseError(Exception):
    """Pattern that is not worth following; never leaves this package."""


@dataclass(frozen=True, eq=False)
class Pattern:
    """Boolean matrix: `indices[starts[i]:starts[i + 1]]` are the columns of row `i`, sorted and
    without repeats.
    """

    starts: Ints
    indices: Ints
    columns: int

    @classmethod
    def identity(cls, start: int, size: int, columns: int) -> Pattern:
        """Pattern of `size` rows, of which row `i` depends on column `start + i` alone."""
        return cls(np.arange(size + 1), np.arange(start, start + size), columns)

    @classmethod
    def of_pairs(
        cls,
        rows: Ints,
        cols: Ints,
        size: int,
        columns: int,
    ) -> Pattern:
        """Pattern from (row, column) pairs, in any order and with repeats."""
        # A pair becomes one integer key, so that `unique` sorts by row, then column, and drops
        # repeats.
        keys = np.unique(rows * columns + cols)
        rows, cols = np.divmod(keys, max(columns, 1))
        lengths = np.bincount(rows, minlength=size)
        return cls(_starts(lengths), cols, columns)

    @property
    def size(self) -> int:
        return len(self.starts) - 1

    @property
    def count(self) -> int:
        """Number of nonzeros."""
        return len(self.indices)

    @cached_property
    def lengths(self) -> Ints:
        """Number of columns in each row."""
        return np.diff(self.starts)

    @cached_property
    def rows(self) -> Ints:
        """Row of each of `indices`."""
        return np.repeat(np.arange(self.size), self.lengths)

    def take(self, rows: Ints) -> Pattern:
        """Pattern whose row `i` is row `rows[i]` of this one; -1 gives an empty row."""
        rows = np.ravel(rows)
        if self.size:
            lengths = np.where(rows >= 0, self.lengths[rows], 0)
            old_starts = self.starts[rows]
        else:
            lengths = np.zeros(len(rows), np.int64)
            old_starts = rows
        starts = _starts(lengths)
        _check(int(starts[-1]), len(rows), self.columns)

        # Row `rows[i]` is a run of `indices`: its old start minus its new one, plus a running
        # count.
        shifts = np.repeat(old_starts - starts[:-1], lengths)
        at: Ints = shifts + np.arange(starts[-1])
        return Pattern(starts, self.indices[at], self.columns)

    def merge(self, into: Ints, size: int) -> Pattern:
        """Union of rows: row `i` becomes part of row `into[i]` of `size` rows."""
        rows = np.repeat(np.ravel(into), self.lengths)
        return Pattern.of_pairs(rows, self.indices, size, self.columns)

    def keep(self, rows: Bools) -> Pattern:
        """Rows that are True; the others become empty."""
        rows = np.ravel(rows)
        if rows.all():
            return self
        return self.take(np.where(rows, np.arange(self.size), -1))

    def compose(self, inner: Pattern) -> Pattern:
        """Boolean matrix product: the columns of this pattern are the rows of `inner`."""
        return inner.take(self.indices).merge(self.rows, self.size)

    @cached_property
    def transpose(self) -> Pattern:
        order = np.argsort(self.indices, kind="stable")
        lengths = np.bincount(self.indices, minlength=self.columns)
        return Pattern(_starts(lengths), self.rows[order], self.size)

    def equals(self, other: Pattern) -> bool:
        return self is other or (
            np.array_equal(self.starts, other.starts)
            and np.array_equal(self.indices, other.indices)
        )


def union(patterns: Sequence[Pattern]) -> Pattern:
    """Union of patterns of the same shape."""
    first = patterns[0]
    others = [other for other in patterns[1:] if not other.equals(first)]
    if not others:
        return first
    parts = (first, *others)
    rows = np.concatenate([pattern.rows for pattern in parts])
    cols = np.concatenate([pattern.indices for pattern in parts])
    return Pattern.of_pairs(rows, cols, first.size, first.columns)


def stack_rows(patterns: Sequence[Pattern]) -> Pattern:
    """Rows of several patterns, one after the other."""
    first = patterns[0]
    if len(patterns) == 1:
        return first
    lengths = np.concatenate([pattern.lengths for pattern in patterns])
    indices = np.concatenate([pattern.indices for pattern in patterns])
    return Pattern(_starts(lengths), indices, first.columns)


def _starts(lengths: Ints) -> Ints:
    """Starts of rows of these lengths, and the end of the last one."""
    return np.concatenate([[0], np.cumsum(lengths)])


def _check(count: int, rows: int, columns: int) -> None:
    """Stop if following costs more than it can save: many nonzeros, and a large part of all
    elements.
    """
    if count > _MANY:
        raise TooDenseError
    if count > _SOME and count > _LARGE_PART * rows * columns:
        raise TooDenseError


_SOME = 1 << 14
_MANY = 1 << 23
_LARGE_PART = 0.3


Shape = tuple[int, ...]
MaybePattern = Pattern | None


@dataclass(frozen=True)
class SparsityOp:
    """Equation with the patterns of its operands, and their values where they are known."""

    name: str
    params: Mapping[str, Any]
    shapes: Sequence[Shape]
    outs: Sequence[Shape]
    patterns: Sequence[MaybePattern]
    values: Sequence[object]

    @property
    def out(self) -> Shape:
        return self.outs[0]

    @property
    def varying(self) -> list[int]:
        """Operands that depend on anything."""
        return [i for i, pattern in enumerate(self.patterns) if pattern is not None]

    def pattern(self, i: int) -> Pattern:
        """Pattern of an operand that varies."""
        pattern = self.patterns[i]
        if pattern is None:
            raise ValueError(i)
        return pattern

    def positions(self, i: int) -> Ints:
        """Flat positions of an operand, in its shape."""
        return np.arange(math.prod(self.shapes[i])).reshape(self.shapes[i])


Rule = Callable[[SparsityOp], Sequence[MaybePattern]]


def everything(op: SparsityOp) -> list[MaybePattern]:
    """Top element: every element of every result depends on all that any operand depends on."""
    rows: list[Pattern] = []
    for i in op.varying:
        into_one = np.zeros(math.prod(op.shapes[i]), int)
        rows.append(op.pattern(i).merge(into_one, 1))
    whole = union(rows)

    results: list[MaybePattern] = []
    for shape in op.outs:
        from_one = np.zeros(math.prod(shape), int)
        results.append(whole.take(from_one))
    return results
