"""Checks that were made a number, made checks again: what was loaded from elsewhere returns the number and has the messages as text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np

from .._jax.trees import extended, issubdtype
from .table import BITS, HALF, MASK

_eqx: Any = eqx
_lax: Any = jax.lax


def with_checks(results: Sequence[Any], number: Any, checks: Sequence[Sequence[str]]) -> list[Any]:
    """Results of which one is there only if no check has failed: Equinox's checks, which whoever runs the program treats as any others.

    Args:
        results: Of a program that was evaluated by `flagged`.
        number: Of the check that failed, as `flagged` gives it.
        checks: The messages of each check.
    """
    out = list(results)
    if not out or not checks:
        return out
    at = min(range(len(out)), key=lambda i: (issubdtype(out[i].dtype, extended), math.prod(out[i].shape)))
    failed = _lax.shift_right_logical(number, np.int32(BITS))
    low = _lax.bitwise_and(number, np.int32(MASK))
    index = _lax.select(_lax.lt(low, np.int32(HALF)), low, _lax.sub(low, np.int32(2 * HALF)))
    for place, messages in enumerate(checks, 1):
        out[at] = _eqx.branched_error_if(out[at], _lax.eq(failed, np.int32(place)), index, tuple(messages), on_error="raise")
    return out
