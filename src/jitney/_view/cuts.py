"""Which axes of the results of a padded program are longer than the results are, and what is cut
off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .._axes import evaluate, is_symbolic
from .true_sizes import Proof


@dataclass(frozen=True)
class Cutting:
    """A padded axis of a result: its position, and its size as the name of a mapped axis or as an
    expression of symbols.
    """

    axis: int
    names: str | dict[str, str]
    dim: Any = None

    def at(self, sizes: Mapping[str, int]) -> int:
        if isinstance(self.names, str):
            return sizes[self.names]
        return int(evaluate(self.dim, {symbol: sizes[name] for symbol, name in self.names.items()}))


Cut = tuple[Cutting, ...]
"""The padded axes of one result."""


def cuts_of(
    count: int, levels: Sequence[str], proof: Proof | None, padded: Sequence[str]
) -> list[Cut]:
    """Which axes of which results are padded.

    Args:
        count: How many results there are.
        levels: The axes that Vmap adds in front of them, outermost first.
        proof: What is known of the body's program, if an axis of the body is padded.
        padded: The padded axes.
    """
    mapped = [Cutting(axis, name) for axis, name in enumerate(levels) if name in padded]
    inside: Sequence[Sequence[Any]] = [()] * count if proof is None else proof.program.out_dims
    symbols = {} if proof is None else {symbol: name for name, symbol in proof.symbols.items()}
    return [
        (
            *mapped,
            *(
                Cutting(len(levels) + axis, symbols, dim)
                for axis, dim in enumerate(dims)
                if is_symbolic(dim)
            ),
        )
        for dims in inside
    ]


def shape_after(shape: Sequence[int], cut: Cut, sizes: Mapping[str, int]) -> list[int]:
    """What is left of a result at these sizes."""
    out = list(shape)
    for place in cut:
        out[place.axis] = place.at(sizes)
    return out
