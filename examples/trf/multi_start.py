"""Many starts at once: where a cost has several minima, the best of them is likely found.

Starts are drawn within a box by a Latin hypercube or by Sobol's sequence (`scipy.stats.qmc`), and
all fits run in one program.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.stats import qmc

from ._api import curve_fit, least_squares
from ._check import numbers, pair
from ._fail import fail
from ._result import Result

KINDS = {"latin": qmc.LatinHypercube, "sobol": qmc.Sobol}
SHOWN = 5  # minima that are printed


@dataclass(frozen=True, repr=False)
class MultiStart:
    """Fits from many starts.

    Attributes:
        best: The fit with the lowest cost among those that met a tolerance.
        fits: All of them, a batch.
        starts: Where each began.
        minima: Parameters of the minima that were found, the best first, each once.
        costs: Their costs.
        reached: How many starts ended in each.
    """

    best: Result
    fits: Result
    starts: Float[np.ndarray, "fit k"]
    minima: Float[np.ndarray, "minimum k"]
    costs: Float[np.ndarray, "minimum"]
    reached: Int[np.ndarray, "minimum"]

    def __repr__(self) -> str:
        lines = [f"{len(self.starts)} starts, {len(self.costs)} minima"]
        for x, cost, count in zip(self.minima[:SHOWN], self.costs, self.reached, strict=False):
            lines.append(f"cost {cost:.6g} from {count} starts, x {x}")
        return "\n".join([*lines, *["..."][: len(self.costs) > SHOWN]])


def starts(within: Any, count: int, draw: str = "latin", seed: int = 0) -> Float[np.ndarray, "n k"]:
    """Points that fill a box evenly.

    Args:
        within: Lower and upper ends, all finite, as `bounds` of `least_squares`.
        count: How many.
        draw: "latin" or "sobol" (of which a power of two fills evenly).
        seed: Of the scrambling.
    """
    lower, upper = _box(within)
    if draw not in KINDS:
        fail(f"`draw` is {draw!r}.", "It is one of latin, sobol.", "choose one of these.")
    with warnings.catch_warnings():  # another number than a power of two is the user's choice
        warnings.filterwarnings("ignore", "The balance properties", UserWarning)
        unit = KINDS[draw](lower.size, rng=np.random.default_rng(seed)).random(count)
    return lower + unit * (upper - lower)


def multi_start(
    fun: Any,
    within: Any,
    count: int = 64,
    *,
    draw: str = "latin",
    seed: int = 0,
    rtol: float = 1e-4,
    **options: Any,
) -> MultiStart:
    """Minimise by `least_squares` from `count` starts at once.

    Args:
        fun: Residuals, as of `least_squares`.
        within: The box of the starts, finite. It does not bound the fits; `bounds` does.
        count: Number of starts.
        draw: "latin" or "sobol".
        seed: Of the starts.
        rtol: Ends that are less than this part of the box apart are one minimum.
        options: All others of `least_squares` but `mapped`: the fits share their data.
    """
    if "mapped" in options:
        fail(
            "`mapped` is not an option of `multi_start`.",
            "Its fits differ by their starts alone.",
            "fit each data set by itself.",
            TypeError,
        )
    begun = starts(within, count, draw, seed)
    return _sorted(least_squares(fun, begun, **options), begun, within, rtol)


def multi_start_curve(
    model: Any,
    t: Any,
    y: Any,
    within: Any,
    count: int = 64,
    *,
    draw: str = "latin",
    seed: int = 0,
    rtol: float = 1e-4,
    **options: Any,
) -> MultiStart:
    """The same for one curve, as of `curve_fit`."""
    if np.ndim(y) != 1:
        fail(
            f"`y` has shape {np.shape(y)}.",
            "All starts fit one curve.",
            "fit each curve by itself.",
        )
    begun = starts(within, count, draw, seed)
    return _sorted(curve_fit(model, t, y, begun, **options), begun, within, rtol)


def _box(within: Any) -> tuple[np.ndarray, np.ndarray]:
    rule = "It is a pair: lower and upper ends, each one number per parameter."
    fix = "pass ([low, ...], [high, ...])."
    ends = pair(within, "within")
    sides = [np.atleast_1d(numbers(side, "`within`", rule, fix)) for side in ends]
    if len({side.shape for side in sides if side.size > 1}) > 1:
        fail(f"The ends of `within` have shapes {sides[0].shape} and {sides[1].shape}.", rule, fix)
    lower, upper = np.broadcast_arrays(*sides)
    if not (np.isfinite(lower) & np.isfinite(upper) & (lower < upper)).all():
        fail(
            "The box of the starts is not finite, or empty.",
            "Starts are drawn between its ends.",
            "pass finite ends, lower < upper; the fits may leave it where `bounds` are wider.",
        )
    return lower, upper


def _sorted(fits: Result, begun: np.ndarray, within: Any, rtol: float) -> MultiStart:
    lower, upper = _box(within)
    costs = np.where(fits.status > 0, fits.cost, np.inf)
    if not np.isfinite(costs).any():
        fail(
            f"None of {len(begun)} fits met a tolerance.",
            "The best of them would not be a minimum.",
            "raise `max_nfev`, or draw the starts elsewhere.",
        )
    groups: list[list[int]] = []  # the first of each has the lowest cost
    for i in np.argsort(costs, kind="stable").tolist():
        if not np.isfinite(costs[i]):
            break
        apart = (np.abs(fits.x[i] - fits.x[group[0]]) / (upper - lower) for group in groups)
        near = [n for n, distances in enumerate(apart) if np.all(distances <= rtol)]
        if near:
            groups[near[0]].append(i)
        else:
            groups.append([i])
    first = [group[0] for group in groups]
    reached = np.array([len(group) for group in groups])
    return MultiStart(fits[first[0]], fits, begun, fits.x[first], fits.cost[first], reached)
