"""Sizes of rows that differ from known ones along padded axes alone.

The contract of one row has been checked. That of another one holds too where each axis is a plain
name or number, all arrays agree on the names, and the other sizes are those of the known row. So a
fresh length of a known bucket plans nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..._contract.contract import Contract
from ..._signature.hints import (
    AnyHint,
    ArrayHint,
    Dim,
    ModuleHint,
    ScalarHint,
    StaticHint,
)
from ..._view.view import View

if TYPE_CHECKING:
    from .columns import Column

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
