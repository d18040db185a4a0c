"""Bootstrap: the fit again for many data sets that might have been measured, in one program.

Residuals drawn anew are a shift of the residuals, and points drawn anew are weights, so any fit can
be drawn, whatever its function and data are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Array, Float

from ._api import least_squares
from ._check import converged
from ._check import levels as _levels
from ._fail import fail
from ._result import Result

KINDS = ("residuals", "points", "normal")


@dataclass(frozen=True, eq=False)
class Bootstrap:
    """Fits of data sets that were drawn.

    Attributes:
        fits: A batch, one for each.
        roots: Roots of the weights that each fit gives to each point.
        shifts: What was added to each residual.
    """

    fits: Result
    roots: Float[np.ndarray, "draw points"]
    shifts: Float[np.ndarray, "draw points"]

    @property
    def x(self) -> Float[np.ndarray, "draw k"]:
        """Parameters of the fits that met a tolerance."""
        return self.fits.x[self.fits.success]

    @property
    def covariance(self) -> Float[np.ndarray, "k k"]:
        """Of these."""
        return np.atleast_2d(np.cov(self.x, rowvar=False))

    def interval(
        self, levels: Sequence[float] | float = (0.6827, 0.9545)
    ) -> tuple[Float[np.ndarray, "level k"], Float[np.ndarray, "level k"]]:
        """Lower and upper ends: quantiles of the parameters, a row for each level."""
        tails = (1 - np.array(_levels(levels))) / 2
        return np.quantile(self.x, tails, axis=0), np.quantile(self.x, 1 - tails, axis=0)


@dataclass(frozen=True)
class Drawn:
    """Residuals of a data set that was drawn."""

    fun: Callable[..., Array]

    def __call__(self, x: Array, root: Array, shift: Array, args: Any, kwargs: Any) -> Array:
        """Shifted and weighted."""
        return root * (self.fun(x, *args, **kwargs) + shift)


def bootstrap(
    result: Result, draws: int = 1000, kind: str = "residuals", seed: int = 0
) -> Bootstrap:
    """Fit `draws` data sets that are like the one that was fitted, each from its solution.

    Args:
        result: Of `least_squares` or `curve_fit`, one fit that met a tolerance.
        draws: How many data sets.
        kind: "residuals": residuals drawn with replacement around the fitted curve, less their
            mean and scaled to the freedom that the fit has left them. "points": points drawn with
            replacement, where their spread is not the same everywhere. "normal": normal errors of
            the size of the residuals', or of 1 where `sigma` was absolute.
        seed: Of the draws.
    """
    converged(result, "Data sets are drawn around a fit.")
    if kind not in KINDS:
        fail(f"`kind` is {kind!r}.", f"It is one of {', '.join(KINDS)}.", "choose one of these.")
    setup, data = result.programs.setup, result.data
    if kind == "points" and getattr(setup.fun, "whiten", "no") == "matrix":
        fail(
            "`sigma` is a covariance matrix.",
            "Correlated points are not drawn one by one.",
            'draw "residuals" or "normal".',
        )
    if kind == "points" and setup.loss != "linear":
        fail(
            "The loss is robust.",
            "A point that is drawn twice would count as one that is farther off.",
            'draw "residuals" or "normal".',
        )
    counts = result.counts
    roots, shifts = _drawn(result, counts, draws, kind, np.random.default_rng(seed))
    options = result.loss_options
    if data.lower is not None:
        options["bounds"] = (np.asarray(data.lower), np.asarray(data.upper))
    if data.mask is not None:
        options["mask"] = counts
    fits = least_squares(
        Drawn(setup.fun),
        np.tile(result.x, (draws, 1)),
        args=(roots, shifts, data.args, dict(data.kwargs)),
        mapped=("root", "shift"),
        x_scale="jac",
        **options,
    )
    return Bootstrap(fits, roots, shifts)


def _drawn(
    result: Result, counts: np.ndarray, draws: int, kind: str, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Roots of weights, and shifts of residuals; 1 and 0 for points that do not count."""
    roots, shifts = np.ones((2, draws, counts.size))
    own, m = result.fun[counts], int(np.count_nonzero(counts))
    shifts[:] = 0.0
    if kind == "points":
        roots[:, counts] = np.sqrt(rng.multinomial(m, np.full(m, 1 / m), size=draws))
        return roots, shifts
    if m <= result.x.size and not (kind == "normal" and result.variance):
        fail(
            f"There are {m} points for {result.x.size} parameters.",
            "Residuals of a fit through all points say nothing about errors.",
            "give `sigma` with absolute_sigma=True, and draw normal errors.",
        )
    freedom = m - result.x.size
    if kind == "normal":
        size = np.sqrt(result.variance or own @ own / freedom)
        errors = size * rng.normal(size=(draws, m))
    else:
        errors = rng.choice(own - own.mean(), (draws, m)) * np.sqrt(m / freedom)
    # the residual is the curve less the data: data on the curve have none, and an error takes away
    shifts[:, counts] = -own - errors
    return roots, shifts
