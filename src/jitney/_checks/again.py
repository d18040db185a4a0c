"""Checks that were made a number, made checks again: what was loaded from elsewhere returns the
number and has the messages as text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx

from .._jax.trees import extended, issubdtype
from .table import parted

_eqx: Any = eqx


def with_checks(results: Sequence[Any], number: Any, checks: Sequence[Sequence[str]]) -> list[Any]:
    """Results of which one is there only if no check has failed: Equinox's checks, which whoever
    runs the program treats as any others.

    Args:
        results: Of a program that was evaluated by `flagged`.
        number: Of the check that failed, as `flagged` gives it.
        checks: The messages of each check.
    """
    out = list(results)
    if not out or not checks:
        return out
    at = min(
        range(len(out)), key=lambda i: (issubdtype(out[i].dtype, extended), math.prod(out[i].shape))
    )
    failed, index = parted(number)
    for place, messages in enumerate(checks):
        out[at] = _eqx.branched_error_if(
            out[at], failed == place, index, tuple(messages), on_error="raise"
        )
    return out
