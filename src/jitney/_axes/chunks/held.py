"""What is there as a whole though its axis is cut.

Some operations cannot be put together of chunks: a sort looks at all elements before it gives the
first. Such a one is done at once, on the whole of what it reads, as plain JAX does it, and so with
its very bits. Memory holds that, and what comes of it, as long as the program runs; everything else
is still made one chunk at a time, and made of slices of it where it is read again. What is read is
an argument, which is there anyhow where the axis is cut in memory; or it is collected, chunk by
chunk, in the pass that makes it; or it is made of nothing that has the axis (positions, zeros), or
moved or counted of what is there, and made as a whole too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Held:
    """The values that have the axis and are there as a whole, by number, as a plan comes to know
    them.

    Args:
        given: Arguments.
        made: What is made at once.
        collected: Value -> the pass that collects its chunks.
        free: Value -> the operation that makes it, which can do so on the whole too.
        spread: Of those, the ones that are made as a whole too.
    """

    given: frozenset[int] = frozenset()
    made: set[int] = field(default_factory=set[int])
    collected: dict[int, int] = field(default_factory=dict[int, int])
    free: dict[int, Any] = field(default_factory=dict[int, Any])
    spread: set[int] = field(default_factory=set[int])

    def is_at_once(self, node: Any) -> bool:
        """Whether an operation is done on the whole."""
        return not self.made.isdisjoint(node.makes)

    def is_whole(self, refs: Iterable[int]) -> bool:
        """Whether values are there as a whole, without being collected."""
        return all(ref in self.given or ref in self.made for ref in refs)

    def is_spread(self, node: Any) -> bool:
        """Whether what an operation makes is there as a whole, beside its chunks."""
        return not self.spread.isdisjoint(node.makes)

    def gather(self, refs: Iterable[int], level: dict[int, int]) -> int:
        """See that values are there as a whole, and say after how many passes they are."""
        return max((self._gathered(n, level) for n in refs), default=0)

    def _gathered(self, n: int, level: dict[int, int]) -> int:
        if n in self.given or n in self.made:
            return level[n]
        if n in self.free:
            self._make(n)
            return level[n]
        self.collected[n] = level[n]
        return level[n] + 1

    def _make(self, n: int) -> None:
        if n not in self.spread:
            self.spread.add(n)
            for ref in self.free[n].numbers:
                if ref in self.free:
                    self._make(ref)

    def there(self, p: int, takes: Sequence[int]) -> set[int]:
        """What a pass cuts slices of, in place of making it anew."""
        return self.made | {n for n, at in self.collected.items() if at < p and n not in takes}

    @property
    def last(self) -> int:
        """How many passes there are at least."""
        return max((at + 1 for at in self.collected.values()), default=0)
