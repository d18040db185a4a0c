"""Confidence intervals by profile likelihood: how far a parameter can move, the others fitted anew,
until the cost has risen by what the level allows.

Where the model is not linear in its parameters these are not symmetric, and truer than standard
errors. All ends of all intervals are searched at once: each step is one batch of fits.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import scipy.stats
from jaxtyping import Array, Float

from . import _outcome
from ._api import least_squares
from ._check import converged
from ._check import levels as _levels
from ._fail import fail
from ._held import parameter_names
from ._result import Result

STEPS = 40  # until an end is bracketed, and then found
RTOL = 1e-6  # of the root of the cost's rise
LOWER = 1e-6  # parts of the cost below the minimum that rounding does not explain


@dataclass(frozen=True)
class Intervals:
    """Ends of the intervals, a row for each level: the parameter's bound where the cost has not
    risen enough there, and inf where it does not rise as far.

    Attributes:
        levels: Probabilities.
        lower: Lower ends.
        upper: Upper ends.
        nfits: How many fits it took.
    """

    levels: tuple[float, ...]
    lower: Float[np.ndarray, "level k"]
    upper: Float[np.ndarray, "level k"]
    nfits: int


@dataclass(frozen=True)
class Pinned:
    """Residuals of all parameters but the one with this index, which has this value."""

    fun: Callable[..., Array]

    def __call__(self, x: Array, i: Array, value: Array, args: Any, kwargs: Any) -> Array:
        """With all parameters in their places."""
        places, end = jnp.arange(x.size + 1), jnp.zeros_like(x[:1])
        before, behind = jnp.concatenate([x, end]), jnp.concatenate([end, x])
        full = jnp.where(places < i, before, jnp.where(places > i, behind, value))
        return self.fun(full, *args, **kwargs)


def intervals(result: Result, levels: Sequence[float] | float = (0.6827, 0.9545)) -> Intervals:
    """Intervals of all parameters of a fit.

    Args:
        result: Of `least_squares` or `curve_fit`, one fit that met a tolerance.
        levels: Probabilities. The rise is judged by the F distribution, or by chi-squared where
            `sigma` was absolute.
    Raises:
        ValueError: The result is of a batch, has not met a tolerance, or has no scatter to judge
            by; or with a parameter held the others find a lower cost.
    """
    converged(result, "An interval is around a minimum.")
    levels = _levels(levels)
    freedom = float(result._scalar("points")) - result.x.size
    if result.variance is None and (freedom <= 0 or result.cost == 0):
        fail(
            f"The residuals have {freedom:.0f} degrees of freedom and a cost of {result.cost:.3g}.",
            "Their scatter says how far the cost may rise.",
            "give `sigma` with absolute_sigma=True.",
        )
    return _Search(result, levels, freedom)()


class _Search:
    """One row for each end: of each level, of each parameter, on both sides."""

    def __init__(self, result: Result, levels: tuple[float, ...], freedom: float):
        self.result, self.levels, k = result, levels, result.x.size
        known = result.variance is not None
        self.variance = result.variance if known else 2 * float(result.cost) / freedom
        chi2, f = scipy.stats.chi2, scipy.stats.f
        quantiles = chi2.ppf(levels, 1) if known else f.ppf(levels, 1, freedom)
        rows = np.indices((len(levels), k, 2)).reshape(3, -1)
        self.i, self.sign = rows[1], 2.0 * rows[2] - 1
        self.goal = np.sqrt(quantiles)[rows[0]]
        data, free = result.data, np.full(k, np.inf)
        self.lower = -free if data.lower is None else np.asarray(data.lower)
        self.upper = free if data.upper is None else np.asarray(data.upper)
        self.nfits = 0

    def __call__(self) -> Intervals:
        ends = self.ends().reshape(len(self.levels), -1, 2)
        return Intervals(self.levels, ends[..., 0], ends[..., 1], self.nfits)

    def ends(self) -> np.ndarray:
        """Values at which the root of the rise is the goal: by regula falsi in Illinois form, as
        that root is about linear in the distance.
        """
        center = self.result.x[self.i]
        limit = np.where(self.sign < 0, self.lower[self.i], self.upper[self.i])
        distance, most = self.goal * self.sizes()[self.i], np.abs(limit - center)
        near, low = np.zeros_like(center), -self.goal
        far, high = np.full_like(center, np.nan), np.full_like(center, np.nan)
        done = most == 0  # at its bound already
        for _ in range(STEPS):
            distance = np.where(done, distance, np.minimum(distance, most))
            miss = self.rise(center + self.sign * np.minimum(distance, most)) - self.goal
            done |= np.abs(miss) <= RTOL * self.goal
            done |= (miss <= 0) & (distance >= most)
            if done.all():
                break
            above = ~(miss <= 0)  # NaN: no fit there
            twice_near, twice_far = ~above & ~np.isnan(far), above & (near > 0)
            low = np.where(above, np.where(twice_far, low / 2, low), miss)
            high = np.where(above, miss, np.where(twice_near, high / 2, high))
            near, far = np.where(above, near, distance), np.where(above, distance, far)
            with np.errstate(invalid="ignore"):
                inside = (near * high - far * low) / (high - low)
            within = (inside > near) & (inside < far)
            inside = np.where(within, inside, (near + far) / 2)
            ahead = np.where(np.isnan(far), 2 * distance, inside)
            distance = np.where(done, distance, ahead)
        self.warn_of(~done & ~np.isnan(far))
        end = np.where(np.isnan(far) & ~done, np.inf, np.minimum(distance, most))
        return center + self.sign * end

    def sizes(self) -> np.ndarray:
        """Of the first step of each parameter."""
        errors = np.sqrt(np.diag(self.result.covariance))
        known = np.isfinite(errors) & (errors > 0)
        return np.where(known, errors, np.maximum(np.abs(self.result.x), 1.0))

    def warn_of(self, lost: np.ndarray) -> None:
        """Where the cost is not continuous an end may be anywhere in its bracket."""
        if lost.any():
            names = parameter_names(self.result.programs.setup.fun, self.result.x.size)
            which = ", ".join(f"`{names[i]}`" for i in np.unique(self.i[lost]))
            _outcome.warn(
                f"Ends of the intervals of {which} are not found to six digits.\nThe cost jumps as"
                " the parameter moves, or a fit with it held does not end.\nFix: look at the cost"
                " along it, or start from another minimum."
            )

    def rise(self, values: np.ndarray) -> np.ndarray:
        """Root of the rise of the cost, in units of the variance, with each parameter held there
        and the others fitted; NaN where no fit ended.
        """
        self.nfits += values.size
        cost, best = self.costs(values), float(self.result.cost)
        lowest = int(np.argmin(np.where(np.isnan(cost), np.inf, cost)))
        if cost[lowest] < best - LOWER * max(best, self.variance):
            names = parameter_names(self.result.programs.setup.fun, self.result.x.size)
            fail(
                f"With `{names[self.i[lowest]]}` at {values[lowest]:.6g} the cost is"
                f" {cost[lowest]:.6g}, and at the solution it is {best:.6g}.",
                "An interval is around the lowest minimum.",
                "fit from there, or from many starts (`multi_start.py`).",
            )
        return np.sqrt(2 * np.maximum(cost - best, 0.0) / self.variance)

    def costs(self, values: np.ndarray) -> np.ndarray:
        """The lowest cost with each parameter held at its value."""
        setup, data, k = self.result.programs.setup, self.result.data, self.result.x.size
        options = self.result.loss_options
        if data.mask is not None:
            options["mask"] = np.asarray(data.mask)
        with warnings.catch_warnings():  # far out a model need not be defined
            warnings.filterwarnings("ignore", "Residuals or their Jacobian are not finite")
            warnings.filterwarnings("ignore", ".* no effect of (its|their) own")
            if k == 1:  # nothing is left to fit
                options.update(args=data.args, kwargs=data.kwargs, max_nfev=1)
                return least_squares(setup.fun, values[:, None], **options).cost
            fits = self.fits(values, options)
        return np.where(fits.status > 0, fits.cost, np.nan)

    def fits(self, values: np.ndarray, options: dict[str, Any]) -> Result:
        """Those of the other parameters, from where a linear model has them."""
        x, data = self.result.x, self.result.data
        others = np.array([[j for j in range(x.size) if j != i] for i in self.i])
        slope = self.slopes()[self.i[:, None], others]
        box = (self.lower[others], self.upper[others])
        begun = x[others] + slope * (values - x[self.i])[:, None]
        return least_squares(
            Pinned(self.result.programs.setup.fun),
            np.clip(begun, *box),
            bounds=box,
            args=(self.i.astype(float), values, data.args, dict(data.kwargs)),
            mapped=("i", "value"),
            x_scale="jac",
            ftol=1e-14,  # at many points a part of 1e-8 of the cost is much beside its rise
            **options,
        )

    def slopes(self) -> np.ndarray:
        """How the others move with a parameter, where the model is linear."""
        covariance = np.where(np.isfinite(self.result.covariance), self.result.covariance, 0.0)
        variances = np.diag(covariance)[:, None]
        return covariance / np.where(variances > 0, variances, 1.0)
