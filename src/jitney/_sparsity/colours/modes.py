"""Modes of a Jacobian, and how one is requested."""

from __future__ import annotations

from typing import Literal

Mode = Literal["auto", "forward", "reverse", "coloured"]
PassMode = Literal["forward", "reverse"]
WAYS: tuple[PassMode, ...] = ("forward", "reverse")
REVERSE = 2
"""Cost of a backward pass, in forward passes."""
