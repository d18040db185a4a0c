"""The exception for reads that cannot be compared between processes."""

from __future__ import annotations


class NotDeterministic(Exception):
    """The trace may read something that cannot be compared with what another process reads; the
    message is the reason.
    """
