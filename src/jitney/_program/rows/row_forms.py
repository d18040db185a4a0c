"""Forms of rows: their kinds and shapes, which calls have in common, and their lengths."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..._axes import Refused
from ..._errors import ContractError
from ..._view.layout import aval_parts
from ..._view.named_axes import named_axes, shape_at, sizes_of
from ..._view.view import View
from ..compiled_calls import CompiledCalls
from .group import Shapes

if TYPE_CHECKING:
    from .columns import Column


def form_of(entry: CompiledCalls, columns: Sequence[Column]) -> Hashable:
    """Return what the arrays of a call have in common with those of calls that differ along padded
    axes alone.
    """
    kinds = [(column.kind, *aval_parts(column.arrays[0])[1:]) for column in columns]
    try:
        view = entry.plan_call([column.abstract(0) for column in columns], jit=False).view
        known = sizes_of(view, named_axes(view))
        shapes = shapes_at(view, {name: 2 for name, _ in entry.options.pad if name in known})
    # The call raises it, with the row at fault.
    except (ContractError, Refused):
        return signature_of(columns)
    return tuple(kinds), shapes


def signature_of(columns: Sequence[Column]) -> Hashable:
    """Return what does not differ between the rows of a call."""
    return tuple(column.signature() for column in columns)


def shapes_at(view: View, sizes: Mapping[str, int]) -> Shapes:
    """Shapes of the arrays at other sizes of the padded axes.

    Raises:
        Refused: The size of another axis has no whole number there.
    """
    named = named_axes(view)
    known = sizes_of(view, named)
    return tuple(
        shape_at(leaf, axes, known, sizes) for leaf, axes in zip(view.leaves, named, strict=True)
    )


def count_lengths(
    entry: CompiledCalls,
    columns: Sequence[Column],
    count: int,
) -> dict[str, Counter[int]]:
    """Padded axis -> how many rows have each length."""
    view = entry.plan_call([column.abstract(0) for column in columns], jit=False).view
    rows = np.arange(count)
    counts = {name: Counter[int]() for name, _ in entry.options.pad}
    for column, axes in zip(columns, named_axes(view), strict=True):
        dims = column.dims(rows)
        for axis in axes:
            if axis.size in counts and dims and not counts[axis.size]:
                sizes, times = np.unique(dims[axis.axis], return_counts=True)
                counts[axis.size] = Counter(dict(zip(sizes.tolist(), times.tolist(), strict=True)))
    return counts
