"""The run that this process belongs to, if it is one of several.

It is apart from `distributed.py`, which starts a run: each first call over devices reads this, and
few programs have several processes.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .channel import Channel
    from .distributed import Processes


class Run:
    """State behind `distributed`: JAX has one run per process, so there is a single instance."""

    def __init__(self) -> None:
        self.processes: Processes | None = None
        self.channel: Channel | None = None
        # Shapes of parts that `from_processes` has compared.
        self.compared: set[Hashable] = set()

    def leave(self, error: str = "") -> None:
        """Tell the other processes that this one ends."""
        if self.channel is not None:
            self.channel.leave(error)


RUN: Final = Run()
