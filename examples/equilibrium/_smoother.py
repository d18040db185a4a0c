"""What data say of all dates: variables and innovations given the whole sample, by a fixed-interval
smoother (de Jong 1989; Durbin and Koopman 2012, section 4.4) behind the filter of the likelihood.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PyTree

from ._given import made_by
from ._implicit import Solution
from ._likelihood import innovation, prepared
from ._model import Model
from ._moments import levels, matrix, places, system

Rows = Float[Array, "dates y"]


class Smoothed(NamedTuple):
    """Means and standard deviations given all data, rows are dates.

    Args:
        mean: Levels of the variables, in the order in which they were asked for.
        deviation: What is not known of them.
        innovations: Means of the innovations of the shocks on each date but the first, which shocks
            carry from what is before the sample.
    """

    mean: Rows
    deviation: Rows
    innovations: Float[Array, "later z"]


def smoothed(
    model: Model,
    found: Solution,
    data: Rows,
    observed: Sequence[str],
    covariance: PyTree,
    errors: Float[Array, "y"] | float = 0.0,
    start: float | None = None,
    of: Sequence[str] | None = None,
) -> Smoothed:
    """Variables at each date given all data, under `jit`, `vmap` and `grad`.

    Args:
        model: The model.
        found: What `solution` gives.
        data: As of `log_likelihood`.
        observed: The variables of its columns.
        covariance: Of the innovations.
        errors: Variances of measurement errors.
        start: The variance of states at the first date, as of `log_likelihood`.
        of: Names of variables. Default: all, controls, states and shocks.
    """
    where = f"{getattr(model, 'name', 'model')}, smoothed"
    made_by("smoothed", "model", model, Model, "Model(...)")
    given = prepared(where, model, found, data, observed, covariance, errors, start)
    C, shocks = system(model, found, of, where)[2], matrix(model, covariance, where)
    mean, spread, pull = smooth(*given)
    level = levels(model, found)[places(model, of, where)]
    variances = jnp.einsum("yi,tij,yj->ty", C, spread, C)
    nz = len(shocks)
    return Smoothed(
        level + mean @ C.T, jnp.sqrt(jnp.maximum(variances, 0.0)), pull[1:, -nz:] @ shocks
    )


def smooth(*given: Array) -> tuple[Rows, Float[Array, "dates s s"], Rows]:
    """Means and variances of s at each date, and what the dates from it on say of it: the gradient
    of their density by its mean.
    """
    A, noise, C, errors, data, start = given

    def forward(state: PyTree, y: Float[Array, "y"]) -> PyTree:
        mean, spread = state
        off, seen, share, root, _ = innovation(C, errors, mean, spread, y)
        by_off, by_seen = (jax.scipy.linalg.cho_solve((root, True), each) for each in (off, seen))
        gain = A @ share.T @ by_seen
        moved = A @ (mean + share.T @ by_off)
        left = A @ (spread - share.T @ jax.scipy.linalg.cho_solve((root, True), share)) @ A.T
        kept = (mean, spread, seen.T @ by_off, seen.T @ by_seen, A - gain)
        return (moved, left + noise), kept

    def backward(pulls: PyTree, kept: PyTree) -> PyTree:
        pull, certain = pulls
        mean, spread, by_off, by_seen, L = kept
        pull, certain = by_off + L.T @ pull, by_seen + L.T @ certain @ L
        there = (mean + spread @ pull, spread - spread @ certain @ spread, pull)
        return (pull, certain), there

    _, kept = lax.scan(forward, (jnp.zeros(len(A)), start), data)
    none = (jnp.zeros(len(A)), jnp.zeros_like(A))
    return lax.scan(backward, none, kept, reverse=True)[1]
