"""Equation as sparsity rules see it, and the rule that is always sound."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .pattern import Pattern, union
from .typed_numpy import Ints, np

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
