"""Values that are materialised as a whole, though their axis is cut.

Some operations have no chunked form: a sort reads all elements before it returns the first. Such an
operation runs at once on its whole operands, as in plain JAX and to the same bits. Its operands and
results stay in memory while the program runs. All other values are still made per chunk, from
slices of these where they are read again.

A whole operand has one of three origins: it is an argument, which is in memory anyway unless it is
streamed; its chunks are collected in the pass that makes them; or it is free, that is made of
nothing that has the axis (positions, zeros), or by moves and integer operations of whole values,
and then made as a whole too.

    sort(a) * 2, cut along n: sort runs before the pass, which multiplies slices of its result
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from .numbered import Node


@dataclass
class Materialised:
    """The materialised values that have the axis, by number; filled in while planning.

    Args:
        given: Arguments that are in memory as a whole.
        made: Results of operations that run at once.
        collected: Value -> the pass that collects its chunks.
        free: Value -> the node that makes it, and can do so on whole operands as well.
        spread: Free values that are needed as a whole, and so made as a whole besides per chunk.
    """

    given: frozenset[int] = frozenset()
    made: set[int] = field(default_factory=set[int])
    collected: dict[int, int] = field(default_factory=dict[int, int])
    free: dict[int, Node] = field(default_factory=dict[int, Node])
    spread: set[int] = field(default_factory=set[int])

    def is_at_once(self, node: Node) -> bool:
        """Return whether an operation runs at once, on whole operands."""
        return not self.made.isdisjoint(node.makes)

    def is_whole(self, refs: Iterable[int]) -> bool:
        """Return whether values are materialised without being collected in a pass."""
        return all(ref in self.given or ref in self.made for ref in refs)

    def is_spread(self, node: Node) -> bool:
        """Return whether an operation's results are made as a whole besides per chunk."""
        return not self.spread.isdisjoint(node.makes)

    def gather(
        self,
        refs: Iterable[int],
        level: dict[int, int],
    ) -> int:
        """Materialise values, and return the number of passes after which all of them are there."""
        return max((self._gather_value(n, level) for n in refs), default=0)

    def _gather_value(
        self,
        n: int,
        level: dict[int, int],
    ) -> int:
        if n in self.given or n in self.made:
            return level[n]
        if n in self.free:
            self._make(n)
            return level[n]
        # A pass that collects the chunks has to be over before the whole can be read.
        self.collected[n] = level[n]
        return level[n] + 1

    def _make(self, n: int) -> None:
        if n in self.spread:
            return
        self.spread.add(n)
        for ref in self.free[n].numbers:
            if ref in self.free:
                self._make(ref)

    def sliced_values(
        self,
        p: int,
        takes: Sequence[int],
    ) -> set[int]:
        """The values that pass `p` slices from a whole instead of recomputing them per chunk."""
        collected = {n for n, at in self.collected.items() if at < p}
        return self.made | collected.difference(takes)

    @property
    def last(self) -> int:
        """The number of passes that collecting needs at least."""
        return max((at + 1 for at in self.collected.values()), default=0)
