"""The user's line of an operation."""

from __future__ import annotations

from typing import Any

from .._nans import _source  # pyright: ignore[reportPrivateUsage]


def source_of(eqn: Any) -> str:
    """The user's line, "fit.py:12 (residual)", or ""."""
    return _source(eqn)
