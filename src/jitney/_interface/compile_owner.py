"""The program that a compile belongs to: the listener finds the frames of some methods, and reads
their local variables `self`, `entry` and `arrays`.
"""

from __future__ import annotations

from collections.abc import Sequence

from .._diagnosis.counters import Counters, Locals, Owner
from .._jax.typed import Array


def _counters(names: Locals) -> Counters:
    return names["self"].core.counters


def _call_arrays(names: Locals) -> Sequence[Array]:
    return names["arrays"]


OF_CALLS = Owner(
    _counters,
    lambda names, call: names["entry"].compile_event(_call_arrays(names), call),
    _call_arrays,
)
