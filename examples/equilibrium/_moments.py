"""What a linear solution says of data: variances, autocovariances, the part of each shock, and the
same after a filter of Hodrick and Prescott.

Functions of a `Solution`, traced or not, which JAX differentiates. With a unit root there is no
stationary distribution, and moments are NaN; filtered ones are finite, since the filter takes a
unit root out.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float, PyTree

from ._fail import ModelError, message
from ._given import count, in_float64, made_by, number, real
from ._implicit import Solution
from ._model import Model
from ._persistence import full
from ._sylvester import sylvester
from ._variables import named

QUARTERLY = 1600.0

Matrix = Float[Array, "rows columns"]
System = tuple[Matrix, Matrix, Matrix]


class Moments(NamedTuple):
    """Second moments of variables, in the order in which they were asked for.

    Args:
        covariance: At lags 0, 1 and so on: of lag k, E[y_t y_t-k'].
        parts: Of the variance of a variable, what each shock accounts for; rows are variables, and
            their sums are one. Of shocks that move together the first in the model's order takes
            what they share (Cholesky).
    """

    covariance: Float[Array, "lags y y"]
    parts: Float[Array, "y z"]

    @property
    def deviation(self) -> Float[Array, "y"]:
        """Standard deviations."""
        return jnp.sqrt(jnp.diagonal(self.covariance[0]))

    @property
    def correlation(self) -> Float[Array, "lags y y"]:
        """Correlations of each variable with the lags of each."""
        size = self.deviation
        return self.covariance / (size[:, None] * size)


def moments(
    model: Model,
    found: Solution,
    covariance: PyTree,
    of: Sequence[str] | None = None,
    lags: int = 5,
    filtered: float | None = None,
    points: int = 2048,
) -> Moments:
    """Second moments of a model's variables, in deviations from the steady state.

    Args:
        model: The model.
        found: What `solution` gives.
        covariance: Of the innovations of shocks: a matrix, or a group like the shocks with their
            variances.
        of: Names of variables. Default: all, controls, states and shocks. A state is as it is at
            the beginning of a date.
        lags: How many autocovariances.
        filtered: The parameter of the filter of Hodrick and Prescott, 1600 for quarters; moments
            are those of the cycle, from the spectrum.
        points: Frequencies at which the spectrum is computed.
    """
    made_by("moments", "model", model, Model, "Model(...)")
    where = f"{model.name}, moments"
    in_float64(where)
    made_by(where, "found", found, Solution, "solution(model, params)")
    lags = count(where, "lags", lags, 0)
    A, B, C = system(model, found, of, where)
    shocks = B @ _root(matrix(model, covariance, where))
    if filtered is None:
        each = jax.vmap(lambda column: variance(A, jnp.outer(column, column)), 1)(shocks)
        total, powers = jnp.sum(each, 0), [C]
        for _ in range(lags):
            powers.append(powers[-1] @ A)
        by_lag = jnp.stack([power @ total @ C.T for power in powers])
        by_shock = jnp.einsum("yi,kij,yj->yk", C, each, C)
    else:
        strength = number(where, "filtered", filtered)
        frequencies, gain = _gain(strength, count(where, "points", points, 8))
        spectrum = _responses(A, shocks, C, frequencies) * gain[:, None, None]
        power = jnp.abs(spectrum) ** 2
        by_shock = jnp.mean(power, 0)
        cross = jnp.einsum("wyk,wxk->wyx", spectrum, jnp.conj(spectrum))
        turns = jnp.exp(1j * frequencies[:, None] * jnp.arange(lags + 1))
        by_lag = jnp.real(jnp.einsum("wl,wyx->lyx", turns, cross)) / len(frequencies)
    return Moments(by_lag, by_shock / jnp.sum(by_shock, 1, keepdims=True))


def system(model: Model, found: Solution, of: Sequence[str] | None, where: str) -> System:
    """A, B and C of s' = A s + B e', y = C s, where s are states and shocks."""
    nx, nz = found.x.size, model.layouts[2].size
    R = full(found.rho)
    A = jnp.concatenate(
        [
            jnp.concatenate([found.H_x, found.H_z], 1),
            jnp.concatenate([jnp.zeros((nz, nx)), R], 1),
        ]
    )
    B = jnp.concatenate([jnp.zeros((nx, nz)), jnp.eye(nz)])
    every = jnp.concatenate([jnp.concatenate([found.G_x, found.G_z], 1), jnp.eye(nx + nz)])
    return A, B, every[places(model, of, where)]


def places(model: Model, of: Sequence[str] | None, where: str) -> np.ndarray:
    """Where variables stand among controls, states and shocks; all of them by default."""
    names = tuple(name for layout in model.layouts for name in layout.names)
    if of is None:
        return np.arange(len(names))
    of = (of,) if isinstance(of, str) else of
    return np.array([named(where, names, name) for name in of], int)


def levels(model: Model, found: Solution) -> Float[Array, "y"]:
    """All variables in the steady state, where shocks are zero."""
    return jnp.concatenate([found.u, found.x, jnp.zeros(model.layouts[2].size)])


def matrix(model: Model, covariance: PyTree, where: str) -> Matrix:
    """A covariance of the innovations as a matrix."""
    layout, size = model.layouts[2], model.layouts[2].size
    if np.shape(covariance) == (size, size):
        return _variances(where, jnp.asarray(real(where, "covariance", covariance), jnp.float64))
    if isinstance(covariance, (int, float, jax.Array, np.ndarray, list)):
        raise ModelError(
            message(
                where,
                f"covariance has shape {np.shape(covariance)}.",
                f"It is a matrix of shape ({size}, {size}), or a group of variances of"
                f" {', '.join(layout.names)}.",
                "pass one of these.",
            )
        )
    leaves = layout.leaves(covariance, f"{where}, covariance")
    parts = [
        jnp.ravel(layout.spread(where, i, jnp.asarray(real(where, name, leaf), jnp.float64)))
        for i, (name, leaf) in enumerate(zip(layout.paths, leaves, strict=True))
    ]
    return _variances(where, jnp.diag(jnp.concatenate(parts)))


def _variances(where: str, covariance: Matrix) -> Matrix:
    """A matrix that is a covariance, as far as it is known."""
    if isinstance(covariance, jax.core.Tracer):
        return covariance
    known = np.asarray(covariance)
    roots = np.linalg.eigvalsh(known)
    even = np.allclose(known, known.T, rtol=1e-9, atol=0.0)
    if not even or np.min(roots, initial=0.0) < -1e-12 * np.max(np.abs(roots), initial=0.0):
        raise ModelError(
            message(
                where,
                f"covariance is not one: {'' if even else 'it is not symmetric, and '}its smallest"
                f" root is {np.min(roots):.3g}.",
                "A covariance is symmetric, and no combination of shocks has a negative variance.",
                "pass variances and covariances, not standard deviations and correlations.",
            )
        )
    return covariance


def _root(covariance: Matrix) -> Matrix:
    """The Cholesky factor, with a column of zeros for a shock that does not move."""
    still = jnp.diagonal(covariance) == 0.0
    return jnp.linalg.cholesky(covariance + jnp.diag(1.0 * still)) * ~still


def variance(A: Matrix, noise: Matrix) -> Matrix:
    """The stationary variance of s' = A s + e."""
    return sylvester(jnp.eye(len(A)), -A, A.T, noise)


def _gain(strength: float, points: int) -> tuple[Float[Array, "w"], Float[Array, "w"]]:
    """Frequencies between those of a grid, so that zero, where a unit root is infinite, is none of
    them; and what of each the filter leaves in the cycle.
    """
    frequencies = (np.arange(points) + 0.5) * 2.0 * np.pi / points
    squared = 4.0 * strength * (1.0 - np.cos(frequencies)) ** 2
    return jnp.asarray(frequencies), jnp.asarray(squared / (1.0 + squared))


def _responses(
    A: Matrix, shocks: Matrix, C: Matrix, frequencies: Float[Array, "w"]
) -> Complex[Array, "w y z"]:
    """What each shock does to each variable at each frequency."""

    def one(frequency: Float[Array, ""]) -> Complex[Array, "y z"]:
        lagged = jnp.eye(len(A)) - A * jnp.exp(-1j * frequency)
        return C @ jnp.linalg.solve(lagged, shocks + 0j)

    return jax.vmap(one)(frequencies)
