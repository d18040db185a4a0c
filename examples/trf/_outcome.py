"""What only the numbers of a finished fit show: a start that could not be evaluated, residuals too
coarse for the tolerances.
"""

import inspect
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from examples.trf._fail import fail

LISTED = 5  # fits that a message names
INSIDE = __name__.rpartition(".")[0] + "._"


def check_start(
    packed: np.ndarray,
    status: int,
    x0: np.ndarray,
    name: str,
    mask: Any,
    named: Callable[[], Mapping[str, Any]],
) -> None:
    """The start could be evaluated.

    Args:
        packed: What the program gave, a row per fit in a batch.
        status: Where in it the status is.
        x0: The start.
        name: What the user calls it.
        mask: Which points count.
        named: The data by name, asked for only when there is something to say.
    """
    if not (packed[status] < 0 if packed.ndim == 1 else (packed[:, status] < 0).any()):
        return
    fits = (
        ""
        if packed.ndim == 1
        else f" of fits {_listed(np.flatnonzero(packed[:, status] < 0).tolist())}"
    )
    if not np.isfinite(x0).all():
        fail(
            f"`{name}` is not finite at the start{fits}.",
            "The parameters are real numbers.",
            "start from finite ones.",
        )
    what = f"Residuals or their Jacobian are not finite at the start{fits}"
    for label, values in named().items():
        where = _first_not_finite(values, mask)
        if where is not None:
            fail(
                f"{what}, and `{label}` is {values[where]} at {list(where)}.",
                "A point counts only if it is a number.",
                "leave such points out with `mask`, or take them out of the data.",
            )
    fail(
        f"{what}.",
        "The solver needs a finite cost and slope to leave a point.",
        "move the start to where the model is defined, or leave points out with `mask`.",
    )


def _listed(numbers: list[int]) -> str:
    """The first of them, and how many there are."""
    return (
        str(numbers)
        if len(numbers) <= LISTED
        else f"{str(numbers[:LISTED])[:-1]}, ...] ({len(numbers):,} in all)"
    )


def _first_not_finite(values: Any, mask: Any) -> tuple[int, ...] | None:
    """Index of the first NaN or inf among the points that count."""
    if (
        not isinstance(values, np.ndarray | jax.Array)
        or values.ndim == 0
        or values.dtype.kind not in "fc"
    ):
        return None
    bad = ~np.isfinite(values)
    if mask is not None and np.shape(mask)[-1] == values.shape[-1] and np.ndim(mask) <= values.ndim:
        bad &= np.asarray(mask)
    found = np.argwhere(bad)
    return tuple(int(i) for i in found[0]) if len(found) else None


def check_resolution(packed: np.ndarray, resolution: int, finest: float) -> None:
    """Residuals are fine enough for the tolerances, else there is a warning."""
    unit = packed[resolution] if packed.ndim == 1 else packed[0, resolution]
    if unit > finest:
        warn(
            f"`fun` returns residuals with a rounding unit of {unit:.1e}, and the finest tolerance"
            f" is {finest:.1e}.\nA change of the cost below the rounding unit is noise, so the"
            " tolerance may never be met.\nFix: compute the residuals in float64 (data as float64,"
            " no casts to float32), or raise the tolerances."
        )


def warn(message: str) -> None:
    """Warn, pointing at the line that called this package from outside."""
    frame, level = inspect.currentframe(), 1
    while frame is not None and _is_inside(frame.f_globals.get("__name__", "")):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)


def _is_inside(module: str) -> bool:
    return module.startswith(INSIDE) and not module.startswith(INSIDE + "_")
