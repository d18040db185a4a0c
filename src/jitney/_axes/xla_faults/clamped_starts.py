"""Starts of windows of fixed size, clamped as XLA does it.

XLA merges a slice of a slice, and clamps the sum of their starts alone (openxla/xla issue 49121).
At exact size the first start is often a number, and nothing is merged; on a padded axis it is not.
So a start that may be out of bounds is clamped in the program, and what XLA makes of a scatter of
one window, which reads what it writes over, has a barrier before its operand.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..._jax.programs.jaxprs import inside
from ..._jax.programs.primitives import PLAIN_CALLS
from ..._jax.typed import JaxprEqn, Value, Values
from ..typed_jax import lax

_SLICES = ("dynamic_slice", "dynamic_update_slice")
_CLIP = lax.GatherScatterMode.CLIP


def in_bounds(
    eqn: JaxprEqn,
    values: Sequence[Value],
) -> Values:
    """The operands of an operation along axes of fixed size, with its starts in bounds."""
    name = eqn.primitive.name
    if name in _SLICES:
        return _starts(eqn, values)
    if name == "gather" and eqn.params["mode"] == _CLIP:
        return _positions(eqn, values)
    if name.startswith("scatter") and is_single(values[1]):
        x, *others = values
        return [lax.optimization_barrier(x), *others]
    return [*values]


def calls_with_starts(eqn: JaxprEqn) -> bool:
    """Return whether an operation is a call of a program that has such starts."""
    if eqn.primitive.name not in PLAIN_CALLS:
        return False
    return any(_takes_starts(each) for each in inside(eqn))


def _takes_starts(eqn: JaxprEqn) -> bool:
    name = eqn.primitive.name
    return name in _SLICES or name == "gather" or name.startswith("scatter")


def is_single(indices: Value) -> bool:
    """Return whether a gather or scatter has one window, not several."""
    return all(size == 1 for size in indices.shape[:-1])


def _starts(
    eqn: JaxprEqn,
    values: Sequence[Value],
) -> Values:
    is_update = eqn.primitive.name == "dynamic_update_slice"
    first = 1 + is_update
    windows = values[1].shape if is_update else eqn.params["slice_sizes"]
    starts: Values = []
    for start, size, window in zip(
        values[first:],
        values[0].shape,
        windows,
        strict=True,
    ):
        starts.append(
            _clamped(
                start,
                size - window,
            )
        )
    return [*values[:first], *starts]


def _positions(
    eqn: JaxprEqn,
    values: Sequence[Value],
) -> Values:
    x, indices = values
    if not is_single(indices):
        return [*values]
    sizes = eqn.params["slice_sizes"]
    axes = eqn.params["dimension_numbers"].start_index_map
    last = np.array(
        [x.shape[axis] - sizes[axis] for axis in axes],
        np.int64,
    )
    return [x, _clamped(indices, last)]


def _clamped(
    start: Value,
    last: Value,
) -> Value:
    """Between 0 and the last start; narrow integers hold it, or never reach it."""
    kind = np.iinfo(start.dtype)
    most = np.minimum(
        last,
        min(kind.max, np.iinfo(np.int64).max),
    ).astype(start.dtype)
    most = lax.broadcast_in_dim(
        most,
        start.shape,
        [start.ndim - 1] if np.ndim(most) else [],
    )
    zero = lax.full(
        start.shape,
        0,
        start.dtype,
    )
    return lax.min(
        lax.max(start, zero),
        most,
    )
