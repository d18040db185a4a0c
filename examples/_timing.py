"""Compare results first, then time calls in turn, so that a busy machine is busy for all."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

Call = Callable[[], Any]
ROUNDS = 100


def assert_equal(results: Mapping[str, Any], rtol: float, atol: float = 0.0) -> None:
    """Compare all results with the first.

    Raises:
        AssertionError: One differs; the message names it.
    """
    (first, wanted), *others = results.items()
    for name, found in others:
        pairs = zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True)
        for one, other in pairs:
            np.testing.assert_allclose(
                np.asarray(one),
                np.asarray(other),
                rtol=rtol,
                atol=atol,
                err_msg=f"{name} differs from {first}",
            )


def seconds_of(call: Call) -> tuple[float, Any]:
    """How long a call takes until its result is there, and the result."""
    begin = time.perf_counter()
    result = jax.block_until_ready(call())
    return time.perf_counter() - begin, result


def in_turn(calls: Mapping[str, Call], seconds: float) -> dict[str, float]:
    """The shortest time of each call, warm: a hundred rounds, or as many as begin within
    `seconds`.
    """
    best, until = dict.fromkeys(calls, np.inf), time.perf_counter() + seconds
    for _ in range(ROUNDS):
        for name, call in calls.items():
            best[name] = min(best[name], seconds_of(call)[0])
        if time.perf_counter() > until:
            break
    return best
