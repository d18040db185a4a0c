"""What only the numbers of a finished fit show: a start that could not be evaluated, residuals too
coarse for the tolerances.
"""

import inspect
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from ._fail import fail
from ._state import NOT_FINITE, TOO_FEW

LISTED = 5  # fits that a message names
SMALL_PIVOT = 1e-6  # of a column's length
INSIDE = __name__.rpartition(".")[0] + "._"


def check_start(
    packed: np.ndarray,
    status: int,
    x0: np.ndarray,
    name: str,
    mask: Any,
    named: Callable[[], Mapping[str, Any]],
) -> None:
    """The start could be evaluated. In a batch a fit that failed is warned of, by its index: the
    others are as good without it. If all failed it is an error.

    Args:
        packed: What the program gave, a row per fit in a batch.
        status: Where in it the status is.
        x0: The start.
        name: What the user calls it.
        mask: Which points count.
        named: The data by name, asked for only when there is something to say.
    """
    if packed.ndim == 1:
        if packed[status] < 0:
            fail(*_why(x0, name, "", mask, named()))
        return
    failed = np.flatnonzero(packed[:, status] < 0)
    if not failed.size:
        return
    few = np.flatnonzero(packed[:, status] == TOO_FEW).tolist()
    if few:
        what = f"The mask leaves fewer points than parameters in fits {listed(few)}"
        texts = [(f"{what}.", "A fit needs at least as many.", "leave those fits out.")]
    else:
        texts = []
    rest = np.flatnonzero(packed[:, status] == NOT_FINITE)
    if rest.size:
        of = f" of fits {listed(rest.tolist())}"
        texts.append(_why(x0[rest], name, of, mask, named()))
    if failed.size == len(packed):
        fail(*texts[-1])
    for what, rule, fix in texts:
        warn(f"{what}\n{rule} These fits have status < 0 and NaN; the others are done.\nFix: {fix}")


def _why(
    x0: np.ndarray, name: str, fits: str, mask: Any, named: Mapping[str, Any]
) -> tuple[str, str, str]:
    """What, the rule, the fix."""
    if not np.isfinite(x0).all():
        return (
            f"`{name}` is not finite at the start{fits}.",
            "The parameters are real numbers.",
            "start from finite ones.",
        )
    what = f"Residuals or their Jacobian are not finite at the start{fits}"
    for label, values in named.items():
        where = _first_not_finite(values, mask)
        if where is not None:
            return (
                f"{what}, and `{label}` is {values[where]} at {list(where)}.",
                "A point counts only if it is a number.",
                "leave such points out with `mask`, or take them out of the data.",
            )
    return (
        f"{what}.",
        "The solver needs a finite cost and slope to leave a point.",
        "move the start to where the model is defined, or leave points out with `mask`.",
    )


def listed(numbers: list[int]) -> str:
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


def check_determined(
    result: Any, packed: np.ndarray, pivot: int, named: Callable[[], list[str]]
) -> None:
    """Each parameter has an effect of its own, else there is a warning that names it.

    The least pivot of the triangle is small wherever a parameter has none. The singular values
    are looked at only then.
    """
    # NaN for a fit that failed
    if packed.ndim == 1:
        small = packed[pivot] < SMALL_PIVOT
    else:
        small = (packed[:, pivot] < SMALL_PIVOT).any()
    if not small:
        return
    loose = result.undetermined
    if not loose.any():
        return
    names, per_fit = named(), loose.any(axis=0) if loose.ndim == 2 else loose
    which = ", ".join(f"`{names[i]}`" for i in np.flatnonzero(per_fit))
    rows = [] if loose.ndim == 1 else np.flatnonzero(loose.any(axis=1)).tolist()
    fits = f" in fits {listed(rows)}" if rows else ""
    alone = np.count_nonzero(per_fit) == 1
    warn(
        f"{which} {'has' if alone else 'have'} no effect of {'its' if alone else 'their'} own on"
        f" the residuals at the solution{fits}.\nWhere a parameter changes nothing, or no more than"
        " others do together, the data do not determine it, and its standard error is"
        " infinite.\nFix: take it out of the model, hold it fixed, or start elsewhere."
    )


def warn(message: str, kind: type[Warning] = UserWarning) -> None:
    """Warn, pointing at the line that called this package from outside."""
    frame, level = inspect.currentframe(), 1
    while frame is not None and _is_inside(frame.f_globals.get("__name__", "")):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, kind, stacklevel=level)


def _is_inside(module: str) -> bool:
    own = module.startswith(INSIDE) or module == INSIDE.removesuffix("_") + "drop_in"
    return own and not module.startswith(INSIDE + "_")
