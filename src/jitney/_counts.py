"""The true sizes of padded axes, as they travel behind the arrays of a call into its program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ._trees import register_pytree_node


class Counts:
    """One int32 scalar for each padded axis.

    Args:
        values: The true sizes.
        names: Of which axes.
        weak: Which arrays were weakly typed before they were filled; NumPy arrays are not. It changes what the body computes, so it is
            part of the program's key, as the names are.
    """

    def __init__(self, values: Sequence[Any], names: tuple[str, ...], weak: tuple[bool, ...]):
        self.values = tuple(values)
        self.names = names
        self.weak = weak


def parted(arrays: Sequence[Any]) -> tuple[Sequence[Any], Counts | None]:
    """The arrays of a call, and its true sizes if it is padded."""
    return (arrays[:-1], arrays[-1]) if arrays and isinstance(arrays[-1], Counts) else (arrays, None)


register_pytree_node(
    Counts,
    lambda counts: (counts.values, (counts.names, counts.weak)),
    lambda what, values: Counts(values, *what),
)
