"""A curve y = model(t, *p) as residuals of p."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float


@dataclass(frozen=True)
class Residual:
    """Residuals of a model, divided by sigma: a function that equals itself from call to call."""

    model: Callable[..., Array]
    whiten: str  # "no", "vector" or "matrix"

    def __call__(self, p: Sequence[Float[Array, ""]], t: Array, y: Float[Array, "points"], sigma: Array | None) -> Float[Array, "points"]:
        """Misfit of every point in units of its standard deviation; uncorrelated ones for a covariance matrix."""
        misfit = self.model(t, *p) - y
        if self.whiten == "matrix":
            return solve_triangular(sigma, misfit, lower=True)
        return misfit if sigma is None else misfit / sigma


@dataclass(frozen=True)
class ResidualJacobian:
    """The user's Jacobian of the model, divided by sigma likewise."""

    jac: Callable[..., Array]
    whiten: str

    def __call__(self, p: Float[Array, "k"], t: Array, y: Float[Array, "points"], sigma: Array | None) -> Float[Array, "points k"]:
        """Derivative of every misfit with respect to every parameter."""
        del y
        J = self.jac(t, *p)
        if self.whiten == "matrix":
            return solve_triangular(sigma, J, lower=True)
        return J if sigma is None else J / jnp.broadcast_to(sigma, J.shape[:1])[:, None]
