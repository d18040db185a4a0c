"""Bodies that look up and write at positions, and solve small systems: in float64 JAX counts
positions in other integers than in float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_factor, cho_solve
from jax.scipy.stats import multivariate_normal
from jaxtyping import Array, Float, Int

from tests.perf.coverage._arrays import normal, uniform, whole

from ._body import body


def embedded(params, ids: Int[Array, "n"], y: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.mean((jnp.sum(params["table"][ids], axis=1) - y) ** 2)


def likelihood(params, x: Float[Array, "n d"], label: Int[Array, "n"]) -> Float[Array, ""]:
    logp = jax.nn.log_softmax(x @ params["table"][:3])
    return -jnp.mean(jnp.take_along_axis(logp, label[:, None], axis=1))


def one_of_each(params, x: Float[Array, "n d"], label: Int[Array, "n"]) -> Float[Array, ""]:
    logp = jax.nn.log_softmax(x @ params["table"][:3])
    return -jnp.mean(logp[jnp.arange(x.shape[0]), label])


def segments(params, x: Float[Array, "n d"], ids: Int[Array, "n"]) -> Float[Array, ""]:
    sums = jax.ops.segment_sum(x @ params["table"][:3], ids, num_segments=5)
    return jnp.sum(jnp.tanh(sums))


def added(params, y: Float[Array, "n"], ids: Int[Array, "n"]) -> Float[Array, ""]:
    grid = jnp.zeros(5, y.dtype).at[ids].add(y)
    return jnp.sum((grid - params["table"][:, 0]) ** 2)


def interpolated(params, t: Float[Array, "n"], y: Float[Array, "n"]) -> Float[Array, ""]:
    knots = jnp.linspace(0.0, 1.0, 5)
    return jnp.mean((jnp.interp(t, knots, params["table"][:, 0]) - y) ** 2)


def normal_equations(params, x: Float[Array, "n d"], y: Float[Array, "n"]) -> Float[Array, ""]:
    gram = x.T @ x + jnp.exp(params["b"]) * jnp.eye(3)
    return jnp.sum(jnp.linalg.solve(gram, x.T @ y) ** 2)


def precision_matrix(params, x: Float[Array, "n d"]) -> Float[Array, ""]:
    covariance = jnp.cov(x, rowvar=False) + jnp.exp(params["b"]) * jnp.eye(3)
    return jnp.trace(jnp.linalg.inv(covariance))


def log_determinant(params, x: Float[Array, "n d"]) -> Float[Array, ""]:
    _, value = jnp.linalg.slogdet(x.T @ x + jnp.exp(params["b"]) * jnp.eye(3))
    return value


def determinant(params, x: Float[Array, "n d"]) -> Float[Array, ""]:
    return jnp.log(jnp.linalg.det(x.T @ x / x.shape[0] + jnp.exp(params["b"]) * jnp.eye(3)))


def density(params, x: Float[Array, "n d"]) -> Float[Array, ""]:
    root = params["table"][:3, :3]
    covariance = root @ root.T + jnp.eye(3)
    return jnp.sum(multivariate_normal.logpdf(x, params["table"][3, :3], covariance))


def marginal(params, x: Float[Array, "n d"], y: Float[Array, "n"]) -> Float[Array, ""]:
    """Bayesian linear regression, by a factor of the small matrix."""
    factor = cho_factor(x.T @ x + jnp.exp(params["b"]) * jnp.eye(3), lower=True)
    mean = cho_solve(factor, x.T @ y)
    return y @ y - (x.T @ y) @ mean + 2 * jnp.sum(jnp.log(jnp.diag(factor[0])))


def diagonal(params, x: Float[Array, "n d"]) -> Float[Array, ""]:
    metric = jnp.diag(jnp.exp(params["table"][0, :3]))
    return jnp.mean(jnp.sum((x @ metric) * x, axis=1))


def quantised(params, t: Float[Array, "n"]) -> Float[Array, ""]:
    edges = jnp.array([0.2, 0.4, 0.6, 0.8], t.dtype)
    return jnp.mean(params["table"][jnp.searchsorted(edges, t), 0] * t)


def inducing(params, t: Float[Array, "n"], y: Float[Array, "n"]) -> Float[Array, ""]:
    """A Gaussian process by five inducing points."""

    def kernel(a: Any, b: Any) -> Any:
        return jnp.exp(-0.5 * (a[:, None] - b[None]) ** 2 / jnp.exp(params["b"]))

    z = params["table"][:, 0]
    inner = kernel(z, z) + 0.1 * jnp.eye(5)
    cross = kernel(z, t)
    weights = jnp.linalg.solve(inner + cross @ cross.T, cross @ y)
    return jnp.sum((y - cross.T @ weights) ** 2) + weights @ inner @ weights


def neighbours(params, x: Float[Array, "n 3"], pairs: Int[Array, "m 2"]) -> Float[Array, ""]:
    """Lennard-Jones energy over a list of pairs."""
    apart = x[pairs[:, 0]] - x[pairs[:, 1]] + 0.5
    r6 = 1.0 / (1.0 + jnp.sum(apart**2, axis=1)) ** 3
    return jnp.exp(params["b"]) * jnp.sum(r6**2 - r6)


def _given(*names: str) -> Any:
    def data(n: Mapping[str, int]) -> dict[str, Any]:
        k = n["n"]
        arrays = {
            "x": normal(k, 3),
            "y": normal(k, seed=1),
            "t": uniform(k, seed=2),
            "ids": whole(k, below=5),
            "label": whole(k, below=4),
            "pairs": whole(9, 2, below=k),
        }
        params = {"table": normal(5, 4, seed=3), "b": normal(seed=4)}
        return {"params": params, **{name: arrays[name] for name in names}}

    return data


BODIES = (
    body("positions", "rows of a table", embedded, _given("ids", "y")),
    body("positions", "take_along_axis", likelihood, _given("x", "label")),
    body("positions", "logp[arange(n), label]", one_of_each, _given("x", "label")),
    body("positions", "segment_sum", segments, _given("x", "ids")),
    body("positions", "zeros.at[ids].add", added, _given("y", "ids")),
    body("positions", "interp", interpolated, _given("t", "y")),
    body("positions", "solve of normal equations", normal_equations, _given("x", "y")),
    body("positions", "inv of a covariance", precision_matrix, _given("x")),
    body("positions", "slogdet", log_determinant, _given("x")),
    body("positions", "det", determinant, _given("x")),
    body("positions", "multivariate normal density", density, _given("x")),
    body("positions", "cho_solve", marginal, _given("x", "y")),
    body("positions", "diag", diagonal, _given("x")),
    body("positions", "searchsorted", quantised, _given("t")),
    body("positions", "inducing points", inducing, _given("t", "y")),
    body("positions", "list of neighbours", neighbours, _given("x", "pairs")),
)
