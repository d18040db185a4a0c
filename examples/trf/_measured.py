"""Measurements and their spread, as `curve_fit` is given them: checked, and in the form that residuals are divided by."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from examples.trf._check import fail


def measured(values: Any, name: str) -> Any:
    """Measurements as an array of numbers; what already is one stays where it is."""
    if isinstance(values, np.ndarray | jax.Array):
        return values
    array = np.asarray(values)
    if array.dtype.kind not in "fiub":
        fail(f"`{name}` has dtype {array.dtype}.", "Measurements are real numbers.", "pass an array of numbers.", TypeError)
    return array.astype(np.float64)


def spread(sigma: Any, y: Any) -> tuple[str, Any]:
    """What `sigma` is ("no", "vector", "matrix"), and what residuals are divided by: standard deviations, or the Cholesky factor."""
    if sigma is None:
        return "no", None
    concrete = not isinstance(sigma, jax.core.Tracer)
    sigma = np.asarray(sigma, dtype=np.float64) if concrete else sigma
    n = y.shape[-1]
    if sigma.shape in ((), (n,), y.shape):
        if concrete and not (sigma > 0).all():
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
    try:
        return "matrix", np.linalg.cholesky(sigma)
    except np.linalg.LinAlgError:
        fail(
            "`sigma` is not positive definite.",
            "A covariance matrix of the points is.",
            "check it for duplicate points or a missing diagonal.",
        )
