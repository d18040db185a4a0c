"""Checks of a loaded program: its number and messages, turned back into Equinox checks.

An exported program returns the number of the check that failed and carries the messages as text.
The process that runs it wraps a result in `eqx.branched_error_if` for each check.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax

from .._jax.trees import extended, issubdtype
from .table import split_code


def with_checks(
    results: Sequence[jax.Array],
    number: Any,
    checks: Sequence[Sequence[str]],
) -> list[jax.Array]:
    """Make one result depend on the checks, so that Equinox raises where one has failed.

    The caller treats these checks like any others of Equinox.

    Args:
        results: Results of a program that `evaluate_flagged` has evaluated.
        number: Number of the check that failed, as `evaluate_flagged` returns it.
        checks: Messages of each check, in the order of their numbers.
    """
    out = list(results)
    if not out or not checks:
        return out
    # Any result can carry the checks: take the smallest one that is not a PRNG key, if there is
    # one.
    ranks = [(issubdtype(x.dtype, extended), math.prod(x.shape)) for x in out]
    at = ranks.index(min(ranks))
    failed, index = split_code(number)
    for place, messages in enumerate(checks):
        has_failed = failed == place
        out[at] = eqx.branched_error_if(
            out[at],
            has_failed,
            index,
            tuple(messages),
            on_error="raise",
        )
    return out
