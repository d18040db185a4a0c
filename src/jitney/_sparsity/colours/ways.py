"""The two ways to make a Jacobian, and how one is asked for."""

from __future__ import annotations

from typing import Literal

Mode = Literal["auto", "forward", "reverse", "coloured"]
Way = Literal["forward", "reverse"]
WAYS: tuple[Way, ...] = ("forward", "reverse")
REVERSE = 2
"""About how many forward passes a backward pass costs."""
