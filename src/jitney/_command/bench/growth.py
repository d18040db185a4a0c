"""Growth of time and memory with the size of an axis: exponents of a power law.

Least squares through the logarithms of sizes and figures. The dispatch of a call costs the same at
any size and hides the growth at small sizes, so the upper half of the sizes is fitted once more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..._text.json import Data
from .measuring import SizeRun

_KINDS: dict[str, Callable[[SizeRun], float | None]] = {
    "warm call": lambda run: run.quartiles[1],
    "compile": lambda run: run.making if run.programs else None,
    "memory": lambda run: None if run.memory is None else float(run.memory.total),
    "temporaries": lambda run: None if run.memory is None else float(run.memory.temporaries),
}
# Sizes of an axis from which on its upper half is fitted.
_LEAST = 3


@dataclass(frozen=True)
class Exponent:
    """Exponent k of figure ~ size^k.

    Args:
        value: 1 is linear, 0 constant.
        error: Its standard error, from the residuals of the fit; None if there are too few sizes to
            estimate one.
        sizes: Number of different sizes in the fit.
    """

    value: float
    error: float | None
    sizes: int

    def __str__(self) -> str:
        return f"{round(self.value, 2) + 0.0:.2f} ± " + (
            "unknown" if self.error is None else f"{self.error:.2f}"
        )


@dataclass(frozen=True)
class Growth:
    """Growth of one figure along one axis.

    Args:
        of: "warm call", "compile", "memory" or "temporaries".
        axis: Name of the axis.
        exponent: Fit over all sizes.
        upper: Fit over the upper half of them; None if these are too few.
    """

    of: str
    axis: str
    exponent: Exponent
    upper: Exponent | None

    def to_dict(self) -> Data:
        """Return the fields as plain data, for JSON."""
        upper = None if self.upper is None else vars(self.upper)
        return {"of": self.of, "axis": self.axis, "exponent": vars(self.exponent), "upper": upper}


def growths(runs: Sequence[SizeRun]) -> list[Growth]:
    """Fit each figure along each axis that has several sizes.

    Figures that are 0 or unknown have no logarithm, and are left out.
    """
    found: list[Growth] = []
    for of, figure in _KINDS.items():
        told = [(run.sizes, value) for run in runs if (value := figure(run))]
        for axis, exponent in fit_exponents(told).items():
            middle = sorted({sizes[axis] for sizes, _ in told})
            upper = [
                (sizes, value) for sizes, value in told if sizes[axis] >= middle[len(middle) // 2]
            ]
            many = len({sizes[axis] for sizes, _ in upper}) >= _LEAST
            found.append(
                Growth(of, axis, exponent, fit_exponents(upper).get(axis) if many else None)
            )
    return found


def fit_exponents(told: Sequence[tuple[Mapping[str, int], float]]) -> dict[str, Exponent]:
    """Fit c * n^k * m^l * ..., and return the exponents of the axes that have several sizes."""
    if not told:
        return {}
    names = told[0][0]
    different = {axis: {sizes[axis] for sizes, _ in told} for axis in names}
    axes = [axis for axis in names if len(different[axis]) > 1]
    if not axes:
        return {}

    # Linear regression: log(figure) = log(c) + k * log(n) + l * log(m) + ...
    rows: list[list[float]] = []
    for sizes, _ in told:
        logarithms = [math.log(sizes[axis]) for axis in axes]
        rows.append([1.0, *logarithms])
    x = np.array(rows)
    y = np.log(np.array([value for _, value in told]))
    slopes, _, rank, _ = np.linalg.lstsq(x, y, rcond=None)
    # Axes whose sizes grow together cannot be told apart.
    if rank < x.shape[1]:
        return {}

    # Standard errors: s^2 * inv(X'X), with s^2 the sum of squared residuals by degrees of freedom.
    # The first row and column belong to log(c).
    free = len(y) - x.shape[1]
    errors: list[float | None] = [None] * len(axes)
    if free > 0:
        spread = float(np.sum((y - x @ slopes) ** 2)) / free
        inverse = np.linalg.inv(x.T @ x)
        variances = np.diag(inverse)[1:].tolist()
        errors = [math.sqrt(spread * each) for each in variances]
    counts = [len(different[axis]) for axis in axes]
    return {
        a: Exponent(float(k), e, n)
        for a, k, e, n in zip(axes, slopes[1:], errors, counts, strict=True)
    }
