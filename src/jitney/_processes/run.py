"""The run that this process belongs to, if it is one of several.

It stands apart from what starts one (`distributed.py`): each first call over devices asks this, and
few runs have several processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .channel import Channel
    from .distributed import Processes


class Run:
    """The state behind `distributed`: JAX has one run per process, so there is one of these."""

    def __init__(self) -> None:
        self.processes: Processes | None = None
        self.channel: Channel | None = None
        self.compared: set[Any] = set()  # shapes of parts that `from_processes` has put together

    def leave(self, error: str = "") -> None:
        """Tell the other processes that this one ends."""
        if self.channel is not None:
            self.channel.leave(error)


RUN: Final = Run()
