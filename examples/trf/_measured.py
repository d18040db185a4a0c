"""Measurements and their spread, as `curve_fit` is given them: checked, and in the form that
residuals are divided by.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ._check import numbers
from ._fail import fail


def measured(values: Any, name: str, kinds: str) -> Any:
    """Measurements as an array of numbers; what already is one stays where it is.

    Args:
        values: What the user gave.
        name: What the user calls it.
        kinds: Which kinds of dtype it may have.
    """
    array = (
        values
        if type(values) is np.ndarray or isinstance(values, jax.Array)
        else _converted(values, name)
    )
    if not (array.dtype.kind in kinds or jnp.issubdtype(array.dtype, jnp.floating)):
        fail(
            f"`{name}` has dtype {array.dtype}.",
            "Measurements are real numbers.",
            "pass an array of numbers.",
            TypeError,
        )
    if array.ndim == 0 or (name == "y" and array.ndim > 2):
        fail(
            f"`{name}` has shape {array.shape}.",
            "There is one value for every point; a batch of fits has one more leading axis.",
            "reshape it.",
        )
    return array


def _converted(values: Any, name: str) -> np.ndarray:
    """A list, or an array of some other library or kind."""
    if isinstance(values, np.ma.MaskedArray):
        fail(
            f"`{name}` is a masked array.",
            "Its mask would be lost.",
            f"pass {name}.data and mask=~{name}.mask.",
            TypeError,
        )
    try:
        array = np.asarray(values)
    except ValueError:
        fail(
            f"The rows of `{name}` differ in length.",
            "Measurements fill an array.",
            "pad them and use `mask`, or fit one at a time.",
        )
    return array.astype(np.float64) if array.dtype.kind in "iub" else array


def spread(sigma: Any, y: Any) -> tuple[str, Any]:
    """What `sigma` is ("no", "vector", "matrix"), and what residuals are divided by: standard
    deviations, or the Cholesky factor.
    """
    if sigma is None:
        return "no", None
    concrete = not isinstance(sigma, jax.core.Tracer)
    if concrete:
        sigma = numbers(
            sigma,
            "`sigma`",
            "It is a number, one per point, or a covariance matrix.",
            "pass numbers.",
        )
    n = y.shape[-1]
    if sigma.shape in ((), (n,), y.shape):
        positive = sigma > 0 if concrete else None
        if sigma.ndim == 2 and concrete and positive.all(axis=1).any():
            return "vector", np.where(positive, sigma, np.nan)  # a fit without one fails alone
        if concrete and not positive.all():
            fail(
                "`sigma` is not positive everywhere.",
                "A standard deviation is positive.",
                "pass positive numbers; leave points out with `mask`.",
            )
        return "vector", sigma
    if sigma.shape[-2:] != (n, n) or sigma.ndim > y.ndim + 1:
        fail(
            f"`sigma` has shape {sigma.shape} and `y` has {y.shape}.",
            "It is a number, one per point, or a (points, points) covariance matrix.",
            "make the shapes agree.",
        )
    if not concrete:
        return "matrix", jnp.linalg.cholesky(sigma)
    if sigma.ndim == 3:
        factors = [_factor(each) for each in sigma]
        if not all(np.isnan(factor).all() for factor in factors):
            return "matrix", np.stack(factors)  # a fit without one fails alone
        sigma = sigma[0]
    if not _is_symmetric(sigma):
        fail(
            "`sigma` is not finite and symmetric.",
            "A covariance matrix is.",
            "take points without a value out; check how it was made.",
        )
    try:
        return "matrix", np.linalg.cholesky(sigma)
    except np.linalg.LinAlgError:
        fail(
            "`sigma` is not positive definite.",
            "A covariance matrix of the points is.",
            "check it for duplicate points or a missing diagonal.",
        )


def _is_symmetric(sigma: np.ndarray) -> bool:
    """Finite, and equal to its transpose up to rounding."""
    return bool(np.isfinite(sigma).all()) and np.allclose(sigma, sigma.T, rtol=1e-6, atol=0.0)


def _factor(sigma: np.ndarray) -> np.ndarray:
    """Cholesky factor; NaN of what has none."""
    try:
        return np.linalg.cholesky(sigma) if _is_symmetric(sigma) else np.full_like(sigma, np.nan)
    except np.linalg.LinAlgError:
        return np.full_like(sigma, np.nan)
