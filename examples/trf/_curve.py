"""A curve y = model(t, *p) as residuals of p."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from ._fail import fail


@dataclass(frozen=True)
class Residual:
    """Residuals of a model, divided by sigma: a function that equals itself from call to call."""

    model: Callable[..., Array]
    whiten: str  # "no", "vector" or "matrix"
    # Whether each fit of a batch has points of its own.
    has_own_points: bool = False

    def __call__(
        self,
        p: Sequence[Float[Array, ""]],
        t: Array,
        y: Float[Array, "points"],
        sigma: Array | None,
        held: Any = None,
    ) -> Float[Array, "points"]:
        """Misfit of every point in units of its standard deviation; uncorrelated ones for a
        covariance matrix.

        `held` are the arrays of a model that is a module; see `_held.py`.
        """
        curve = jnp.asarray(eqx.combine(held[0], self.model)(t, *p) if held else self.model(t, *p))
        if curve.shape not in ((), y.shape):
            fail(
                f"`model` returns shape {curve.shape} and `y` has {y.shape}.",
                "A curve has one value for every point of `y`.",
                "give `t` and `y` the same points, one each.",
            )
        if self.has_own_points and curve.shape != y.shape:
            fail(
                f"`model` returns one number for the {len(y)} points of a fit.",
                "Where `t` has the shape of `y`, each fit of the batch has a row of `t`, not all of"
                " them the same predictors.",
                "let the model hold predictors that all fits share, and pass t=np.arange(points);"
                " of a constant return `a + 0 * t`.",
            )
        misfit = curve - y
        if self.whiten == "matrix":
            return solve_triangular(sigma, misfit, lower=True)
        return misfit if sigma is None else misfit / sigma


@dataclass(frozen=True)
class ResidualJacobian:
    """The user's Jacobian of the model, divided by sigma likewise."""

    jac: Callable[..., Array]
    whiten: str

    def __call__(
        self,
        p: Float[Array, "k"],
        t: Array,
        y: Float[Array, "points"],
        sigma: Array | None,
        held: Any = None,
    ) -> Float[Array, "points k"]:
        """Derivative of every misfit with respect to every parameter."""
        del y
        J = jnp.asarray(eqx.combine(held[1], self.jac)(t, *p) if held else self.jac(t, *p))
        if self.whiten == "matrix":
            return solve_triangular(sigma, J, lower=True)
        return J if sigma is None else J / jnp.broadcast_to(sigma, J.shape[:1])[:, None]
