"""Warm padded calls: what one call has worked out, for the next ones of the same shapes.

`PaddedCalls` asks at each call whether it stands in a trace, under which mesh and how it is padded.
For arrays alone, on one device or of NumPy, the answer depends on their shapes and dtypes and on
two settings. So it is looked up by these, and what is left are the filling, one program and the
cut.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Generic, TypeVar

import jax
import numpy as np
from jax.core import Tracer

from ..._diagnosis.counters.counters import CallTally
from ..._jax.settings import x64_is_on
from ..._jax.typed import Array
from ..._view.layout import jit_is_off
from ..._view.true_sizes import KnownSizes, TrueSizes
from .filling import DEVICE_ARRAYS, FillPlan, fill_plan
from .wrappers import Run

T = TypeVar("T")
_aval_of = attrgetter("shape", "dtype", "weak_type")


@dataclass(slots=True)
class WarmCall(Generic[T]):
    """Calls of one set of shapes that have run.

    Args:
        run: Their program.
        recipe: How they are padded.
        known: True sizes, for a trace.
        counts: True sizes, for the program.
        plans: How their arrays are filled.
        tally: Counts the calls.
        whole_at: Version of the cuts at which nothing was cut from a result; -1 if something is.
    """

    run: Run
    recipe: T
    known: KnownSizes
    counts: TrueSizes
    plans: tuple[FillPlan, ...]
    tally: CallTally
    whole_at: int = -1


def warm_key(arrays: Sequence[Array]) -> Hashable:
    """Return the key of a call; None if it has anything but arrays of NumPy and of devices, or if
    JAX compiles nothing now.
    """
    if jit_is_off():
        return None
    key: list[Hashable] = [x64_is_on()]
    for array in arrays:
        kind = type(array)
        if kind in DEVICE_ARRAYS:
            key += _aval_of(array)
        elif kind is np.ndarray:
            key += array.shape, array.dtype, None
        elif _is_on_device(array):
            DEVICE_ARRAYS.add(kind)
            key += _aval_of(array)
        else:
            return None
    return tuple(key)


def _is_on_device(array: object) -> bool:
    """Return whether a value is an array on devices: no tracer, and no random keys."""
    if isinstance(array, Tracer) or not isinstance(array, jax.Array):
        return False
    return isinstance(array.dtype, np.dtype)


def fill_plans(
    arrays: Sequence[Array],
    filled: Sequence[int],
    shapes: Sequence[tuple[int, ...]],
    takes: Sequence[bool],
) -> tuple[FillPlan, ...]:
    """Return how the arrays at the places `filled` are filled."""
    return tuple(fill_plan(i, arrays[i], shapes[i], takes=takes[i]) for i in filled)
