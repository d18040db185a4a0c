"""The one way out where something is read that nobody can be sure of."""

from __future__ import annotations


class Unsure(Exception):
    """What a trace may read cannot be told from what another process reads, for this reason."""
