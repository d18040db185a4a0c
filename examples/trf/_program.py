"""The compiled programs: one fit, a batch of fits, and residuals and Jacobian at a point.

Everything above this file is plain JAX, everything below runs on the host. A result crosses in one vector, since a transfer costs microseconds.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from examples.trf._coleman_li import Bounds, active
from examples.trf._implicit import attach_derivative
from examples.trf._jit import optimize
from examples.trf._problem import Controls, Data, Setup, points, residual_type, residuals_and_columns, weighted
from examples.trf._solve import Records, State, solve

SCALARS = ("cost", "optimality", "nfev", "njev", "status", "points", "resolution")


@optimize
def fit(setup: Setup, x0: Float[Array, "k"], data: Data) -> tuple[Float[Array, "packed"], Records | None]:
    """Fit, and pack what every result holds: `SCALARS`, x, gradient, active bounds, R."""
    return _fit(setup, x0, data)


@optimize(vmap={"fit": {"x0": 0, "mapped": 0}})
def fit_batch(setup: Setup, x0: Float[Array, "k"], mapped: Any, shared: Any) -> tuple[Float[Array, "packed"], Records | None]:
    """Do the same for every start, with each one's own `mapped` data."""
    return _fit(setup, x0, eqx.combine(mapped, shared))


@optimize
def evaluate(setup: Setup, x: Float[Array, "k"], data: Data) -> tuple[Array, Array]:
    """Residuals at x, and the Jacobian with the weights of the loss, as SciPy's results hold them."""
    return _evaluate(setup, x, data)


@optimize(vmap={"fit": {"x": 0, "mapped": 0}})
def evaluate_batch(setup: Setup, x: Float[Array, "k"], mapped: Any, shared: Any) -> tuple[Array, Array]:
    """Do the same for every fit."""
    return _evaluate(setup, x, eqx.combine(mapped, shared))


def _fit(setup: Setup, x0: Float[Array, "k"], data: Data) -> tuple[Float[Array, "packed"], Records | None]:
    last = solve(setup, x0, data)
    x, cost = attach_derivative(setup, last.x, last.model.cost, data)
    return _packed(setup, last, x, cost, data), last.records


def _packed(setup: Setup, last: State, x: Float[Array, "k"], cost: Float[Array, ""], data: Data) -> Float[Array, "packed"]:
    resolution = jnp.finfo(residual_type(setup, x, data).dtype).eps
    scalars: tuple[Any, ...] = (cost, last.optimality, last.nfev, last.njev, last.status, points(setup, x, data), resolution)
    holds = jnp.zeros_like(x)
    if setup.bounded:
        holds = active(x, Bounds(data.lower, data.upper), Controls.unpack(data.controls).xtol)
    vectors = (x, last.model.g, holds, last.model.R.ravel())
    return jnp.concatenate([jnp.stack([jnp.asarray(s, x.dtype) for s in scalars]), *(v.astype(x.dtype) for v in vectors)])


def _evaluate(setup: Setup, x: Float[Array, "k"], data: Data) -> tuple[Array, Array]:
    f, columns = residuals_and_columns(setup, x, data)
    _, _, columns = weighted(setup, f, columns, data)
    return f, columns.T
