"""The likelihood of data under a linear solution: a Kalman filter, one scan over dates, whose
gradient is JAX's own.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PyTree

from ._fail import ModelError, message
from ._given import count, in_float64, made_by, real, shown
from ._implicit import Solution
from ._model import Model
from ._moments import Matrix, levels, matrix, places, system, variance
from ._persistence import full

Vector = Float[Array, "size"]
Given = tuple[Matrix, Matrix, Matrix, Vector, Matrix, Matrix]


def log_likelihood(
    model: Model,
    found: Solution,
    data: Float[Array, "dates y"],
    observed: Sequence[str],
    covariance: PyTree,
    errors: Float[Array, "y"] | float = 0.0,
    start: float | None = None,
    presample: int = 0,
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
        start: The variance of each state at the first date, where states are independent and have
            their mean. Default: the stationary distribution.
        presample: How many dates the filter learns from before their density counts.

    Returns:
        A number; NaN where there is not exactly one stable solution, with a unit root, and where
        fewer shocks and errors than observed variables make the density infinite or zero.
    """
    where = f"{getattr(model, 'name', 'model')}, likelihood"
    made_by("log_likelihood", "model", model, Model, "Model(...)")
    given = prepared(where, model, found, data, observed, covariance, errors, start)
    presample = count(where, "presample", presample, 0)
    return jnp.sum(densities(*given)[presample:])


def prepared(
    where: str,
    model: Model,
    found: Solution,
    data: Float[Array, "dates y"],
    observed: Sequence[str],
    covariance: PyTree,
    errors: Float[Array, "y"] | float,
    start: float | None,
) -> Given:
    """Return what the filter takes, from what callers give."""
    in_float64(where)
    made_by(where, "found", found, Solution, "solution(model, params)")
    given = jnp.asarray(real(where, "data", data), jnp.float64)
    seen = columns(model, np.shape(given), observed, where)
    A, B, C = system(model, found, observed, where)
    shocks = matrix(model, covariance, where)
    noise = B @ shocks @ B.T
    spread = jnp.asarray(real(where, "errors", errors), jnp.float64)
    not_negative(where, "errors", spread, "Measurement errors have variances")
    spread = jnp.broadcast_to(spread, C.shape[:1])
    begun = variance(A, noise) if start is None else _given(where, found, shocks, start)
    return A, noise, C, spread, given - levels(model, found)[seen], begun


def _given(where: str, found: Solution, shocks: Matrix, start: float) -> Matrix:
    """States whose variance is given, and shocks that are stationary."""
    each = jnp.asarray(real(where, "start", start), jnp.float64)
    not_negative(where, "start", each, "States have variances")
    states = jnp.diag(jnp.broadcast_to(each, found.x.shape))
    return jax.scipy.linalg.block_diag(states, variance(full(found.rho), shocks))


def not_negative(where: str, name: str, value: Array, rule: str) -> None:
    """Variances, as far as they are known.

    Raises:
        ModelError: One is negative.
    """
    if not isinstance(value, jax.core.Tracer) and np.any(np.asarray(value) < 0.0):
        raise ModelError(
            message(
                where,
                f"{name} is {shown(np.asarray(value).tolist())}.",
                f"{rule}, which are not negative.",
                "pass squares of standard deviations.",
            )
        )


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
    return jnp.sum(densities(A, noise, C, errors, data, variance(A, noise)))


def densities(
    A: Matrix, noise: Matrix, C: Matrix, errors: Vector, data: Matrix, start: Matrix
) -> Float[Array, "dates"]:
    """The logarithm of each date's density given the dates before it."""

    def date(state: tuple[Vector, Matrix], y: Vector) -> tuple[tuple[Vector, Matrix], Array]:
        mean, spread = state
        off, _, share, root, there = innovation(C, errors, mean, spread, y)
        scaled = jax.scipy.linalg.solve_triangular(root, off, lower=True)
        gains = jax.scipy.linalg.solve_triangular(root, share, lower=True)
        mean, spread = mean + gains.T @ scaled, spread - gains.T @ gains
        density = -0.5 * (
            scaled @ scaled
            + 2.0 * jnp.sum(jnp.log(jnp.diagonal(root)))
            + jnp.sum(there) * jnp.log(2.0 * jnp.pi)
        )
        return (A @ mean, A @ spread @ A.T + noise), density

    return lax.scan(date, (jnp.zeros(len(A)), start), data)[1]


def innovation(
    C: Matrix, errors: Vector, mean: Vector, spread: Matrix, y: Vector
) -> tuple[Vector, Matrix, Matrix, Matrix, Array]:
    """How far data are from what was expected, the rows of C that are seen and their covariance
    with the state, the Cholesky factor of their own, and what is there.
    """
    there = ~jnp.isnan(y)
    # what is missing is a zero that was seen with variance one and says nothing of the state
    seen = jnp.where(there[:, None], C, 0.0)
    off = jnp.where(there, y, 0.0) - seen @ mean
    share = seen @ spread
    total = share @ seen.T + jnp.diag(jnp.where(there, errors, 1.0))
    return off, seen, share, jnp.linalg.cholesky(total), there
