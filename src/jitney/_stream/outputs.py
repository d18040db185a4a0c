"""Results of a stream that have the axis, put together on the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .._jax.typed import Array, NumPyArray
from .schedule import PassSchedule, ScheduledPass


@dataclass(frozen=True)
class _Pending:
    """Values of a step that are not fetched yet.

    Args:
        wholes: Numbers of the values, and the arrays that they belong in.
        outs: The values.
        start: First element of the chunk.
        count: Number of its elements.
    """

    wholes: Sequence[tuple[int, NumPyArray]]
    outs: Sequence[Array]
    start: int
    count: int


class ChunkOutputs:
    """Values that come out chunk by chunk. Those of a chunk are fetched while the step of the next
    one runs.

    Args:
        schedule: The passes.
        total: Length of the axis.
    """

    def __init__(self, schedule: PassSchedule, total: int):
        self._schedule = schedule
        self._total = total
        self.results = {i: self._empty(n) for turn in schedule.turns for i, n in turn.emits}
        """Results, by their positions."""
        self.collected: dict[int, NumPyArray] = {}
        """Values that a later pass takes whole, by their numbers."""
        self._pending: _Pending | None = None

    def begin(self, turn: ScheduledPass) -> None:
        """Begin a pass."""
        self.collected = {n: self._empty(n) for n in turn.collects}

    def add(
        self,
        turn: ScheduledPass,
        outs: Sequence[Array],
        start: int,
        count: int,
    ) -> None:
        """Take what the step of a chunk gives, and fetch what the step before it gave."""
        self.fetch()
        wholes = [(n, self.results[i]) for i, n in turn.emits]
        wholes += [(n, self.collected[n]) for n in turn.collects]
        self._pending = _Pending(
            wholes,
            outs,
            start,
            count,
        )

    def fetch(self) -> None:
        """Wait for the last step, and copy what it gives to its place."""
        pending = self._pending
        if pending is None:
            return
        self._pending = None
        for (n, whole), out in zip(pending.wholes, pending.outs, strict=True):
            place = self._place(n, pending.start, pending.count)
            whole[place] = np.asarray(out)

    def _empty(self, n: int) -> NumPyArray:
        return np.empty(self._schedule.shapes[n], self._schedule.dtypes[n])

    def _place(
        self,
        n: int,
        start: int,
        count: int,
    ) -> tuple[slice, ...]:
        axis = self._schedule.axes[n]
        # A dimension may be a multiple of the axis, such as `2 * n`: each element has `times`
        # entries.
        times = self._schedule.shapes[n][axis] // self._total
        cut = slice(start * times, (start + count) * times)
        return (*[slice(None)] * axis, cut)
