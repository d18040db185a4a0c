"""The likelihood of data under a linear solution: a Kalman filter that starts from the stationary
distribution, one scan over dates. Its gradient is JAX's own.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PyTree

from ._fail import ModelError, message
from ._given import in_float64, made_by, real, shown
from ._implicit import Solution
from ._model import Model
from ._moments import Matrix, levels, matrix, places, system
from ._sylvester import sylvester

Vector = Float[Array, "size"]


def log_likelihood(
    model: Model,
    found: Solution,
    data: Float[Array, "dates y"],
    observed: Sequence[str],
    covariance: PyTree,
    errors: Float[Array, "y"] | float = 0.0,
) -> Float[Array, ""]:
    """The logarithm of the density of data, under `jit`, `vmap` and `grad`.

    Args:
        model: The model.
        found: What `solution` gives.
        data: Levels of the observed variables, rows are dates; NaN where there is none.
        observed: Names of controls, states or shocks. A state is as it is at the beginning of a
            date.
        covariance: Of the innovations of shocks: a matrix, or a group like the shocks with their
            variances.
        errors: Variances of measurement errors, which are independent.

    Returns:
        A number; NaN where there is not exactly one stable solution, with a unit root, and where
        fewer shocks and errors than observed variables make the density infinite or zero.
    """
    made_by("log_likelihood", "model", model, Model, "Model(...)")
    where = f"{model.name}, likelihood"
    in_float64(where)
    made_by(where, "found", found, Solution, "solution(model, params)")
    given = jnp.asarray(real(where, "data", data), jnp.float64)
    seen = columns(model, np.shape(given), observed, where)
    A, B, C = system(model, found, observed, where)
    noise = B @ matrix(model, covariance, where) @ B.T
    spread = jnp.asarray(real(where, "errors", errors), jnp.float64)
    if not isinstance(spread, jax.core.Tracer) and np.any(np.asarray(spread) < 0.0):
        raise ModelError(
            message(
                where,
                f"errors is {shown(errors)}.",
                "Measurement errors have variances, which are not negative.",
                "pass squares of standard deviations.",
            )
        )
    spread = jnp.broadcast_to(spread, C.shape[:1])
    return kalman(A, noise, C, spread, given - levels(model, found)[seen])


def columns(
    model: Model, shape: tuple[int, ...], observed: Sequence[str], where: str
) -> np.ndarray:
    """The places of observed variables, of which data has a column each.

    Raises:
        ModelError: They are not names of variables, or data has another shape.
    """
    if isinstance(observed, str) or not isinstance(observed, Sequence) or not observed:
        raise ModelError(
            message(
                where,
                f"observed is {shown(observed)}.",
                "It is a list of names of variables.",
                'pass observed=["y", "pi"].',
            )
        )
    found = places(model, observed, where)
    if len(shape) != 2 or shape[1] != len(observed):
        raise ModelError(
            message(
                where,
                f"data has shape {shape}.",
                f"Rows are dates and columns {', '.join(observed)}.",
                "pass such a matrix.",
            )
        )
    return found


def kalman(A: Matrix, noise: Matrix, C: Matrix, errors: Vector, data: Matrix) -> Float[Array, ""]:
    """The likelihood of y = C s + error, s' = A s + e, from the stationary distribution of s."""
    size = len(A)
    start = sylvester(jnp.eye(size), -A, A.T, noise)

    def date(state: tuple[Vector, Matrix], y: Vector) -> tuple[tuple[Vector, Matrix], Array]:
        mean, variance = state
        there = ~jnp.isnan(y)
        # what is missing is a zero that was seen with variance one and says nothing of the state
        seen = jnp.where(there[:, None], C, 0.0)
        off = jnp.where(there, y, 0.0) - seen @ mean
        share = seen @ variance
        total = share @ seen.T + jnp.diag(jnp.where(there, errors, 1.0))
        root = jnp.linalg.cholesky(total)
        scaled = jax.scipy.linalg.solve_triangular(root, off, lower=True)
        gains = jax.scipy.linalg.solve_triangular(root, share, lower=True)
        mean, variance = mean + gains.T @ scaled, variance - gains.T @ gains
        density = -0.5 * (
            scaled @ scaled
            + 2.0 * jnp.sum(jnp.log(jnp.diagonal(root)))
            + jnp.sum(there) * jnp.log(2.0 * jnp.pi)
        )
        return (A @ mean, A @ variance @ A.T + noise), density

    _, densities = lax.scan(date, (jnp.zeros(size), start), data)
    return jnp.sum(densities)
