"""Padded axes of the results of a program, and the sizes that they are sliced to."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .._axes import evaluate, is_symbolic
from .._jax.typed import NumPyArray
from .true_sizes import Proof

if TYPE_CHECKING:
    from .._axes.dims import Dim


@dataclass(frozen=True)
class PaddedDim:
    """Padded axis of a result: its position, and its true size as the name of a mapped axis or as
    an expression of symbols.
    """

    axis: int
    names: str | dict[str, str]
    dim: Dim = None

    def at(self, sizes: Mapping[str, int]) -> int:
        if isinstance(self.names, str):
            return sizes[self.names]
        of_symbols = {symbol: sizes[name] for symbol, name in self.names.items()}
        return int(evaluate(self.dim, of_symbols))

    def of_each(self, sizes: Mapping[str, NumPyArray]) -> NumPyArray:
        """Its true size in each row of many."""
        if isinstance(self.names, str):
            return sizes[self.names]
        own = {symbol: sizes[name].astype(np.int64) for symbol, name in self.names.items()}
        found = np.asarray(evaluate(self.dim, own), np.int64)
        return np.broadcast_to(found, next(iter(own.values())).shape)


Cut = tuple[PaddedDim, ...]
"""The padded axes of one result."""


class CutRecord(dict[Hashable, list[Cut]]):
    """Padded program -> the padded axes of each of its results.

    Attributes:
        version: How often one was set, as each trace does: what was read at a version holds until
            the next one.
    """

    version = 0

    def __setitem__(self, key: Hashable, cuts: list[Cut]) -> None:
        super().__setitem__(key, cuts)
        self.version += 1


def cuts_of(
    count: int,
    levels: Sequence[str],
    proof: Proof | None,
    padded: Sequence[str],
) -> list[Cut]:
    """Padded axes of each result.

    Args:
        count: Number of results.
        levels: Axes that Vmap adds in front of the results, outermost first.
        proof: The body's program with symbolic sizes, if an axis of the body is padded.
        padded: The padded axes.
    """
    mapped = [PaddedDim(axis, name) for axis, name in enumerate(levels) if name in padded]

    # A dimension of the body's results is padded if it depends on a symbol.
    inside = [()] * count if proof is None else proof.program.out_dims
    symbols: dict[str, str] = {}
    if proof is not None:
        symbols = {symbol: name for name, symbol in proof.symbols.items()}
    cuts: list[Cut] = []
    for dims in inside:
        padded_dims = [
            PaddedDim(len(levels) + axis, symbols, dim)
            for axis, dim in enumerate(dims)
            if is_symbolic(dim)
        ]
        cuts.append((*mapped, *padded_dims))
    return cuts


def unpadded_shape(
    shape: Sequence[int],
    cut: Cut,
    sizes: Mapping[str, int],
) -> list[int]:
    """Shape of a result after its padding is cut off."""
    out = list(shape)
    for place in cut:
        out[place.axis] = place.at(sizes)
    return out
