"""The compiled programs of a setup: one fit, a batch of fits, residuals and Jacobian at a point.

Everything above this file is plain JAX, everything below runs on the host. A result crosses in one
vector, since every array that crosses costs microseconds.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ._coleman_li import Bounds, active
from ._implicit import attach_derivative
from ._jit import COMPILER, optimize
from ._problem import (
    Controls,
    Data,
    Setup,
    points,
    residual_type,
    residuals_and_columns,
    weighted,
)
from ._solve import solve
from ._state import TOO_FEW, Records, State

# The first are what the loop carries, in its order, so that they are copied as they are.
SCALARS = (
    "cost",
    "radius",
    "alpha",
    "optimality",
    "nfev",
    "njev",
    "status",
    "points",
    "resolution",
    "pivot",
)
Packed = tuple[Float[Array, "packed"], Records | None]
Evaluated = tuple[Float[Array, "points"], Float[Array, "points k"]]


@dataclass(frozen=True, eq=False)
class Programs:
    """What is compiled for one setup. Each fits or evaluates; a batch takes each fit's own data
    apart from what all share.
    """

    setup: Setup
    fit: Any
    fit_batch: Any
    evaluate: Any
    evaluate_batch: Any


@lru_cache(maxsize=256)
def programs(setup: Setup) -> Programs:
    """Programs for a setup, made once: with functions and options closed over, a call carries
    arrays alone.

    Within a mesh each device has its share of the fits of a batch. They are independent: all that
    devices tell each other is, once for each turn of a loop, whether any of them is not done.
    """

    @optimize(compiler=COMPILER)
    def fit(x0: Float[Array, "k"], data: Data) -> Packed:
        return fitted(setup, x0, data)

    @optimize(
        vmap={"fit": {"x0": 0, "mapped": 0}},
        shard={"fit": "*"},
        mesh="optional",
        auto=True,
        compiler=COMPILER,
    )
    def fit_batch(x0: Float[Array, "k"], mapped: Any, shared: Any) -> Packed:
        return fitted(replace(setup, blocks=False), x0, eqx.combine(mapped, shared))

    @optimize(compiler=COMPILER)
    def evaluate(x: Float[Array, "k"], data: Data) -> Evaluated:
        return _evaluate(setup, x, data)

    @optimize(
        vmap={"fit": {"x": 0, "mapped": 0}}, shard={"fit": "*"}, mesh="optional", compiler=COMPILER
    )
    def evaluate_batch(x: Float[Array, "k"], mapped: Any, shared: Any) -> Evaluated:
        return _evaluate(setup, x, eqx.combine(mapped, shared))

    return Programs(setup, fit, fit_batch, evaluate, evaluate_batch)


def fitted(setup: Setup, x0: Float[Array, "k"], data: Data) -> Packed:
    """Solve, and pack what every result holds: `SCALARS`, x, active bounds, [R, Q^T r].

    The pivot among the scalars is the least of the triangle's, as a part of its column's length: 0
    for a parameter without effect, and for one that does what others before it do.
    """
    last = solve(setup, x0, data)
    x, cost, triangle = attach_derivative(setup, last.x, last.model.cost, last.model.triangle, data)
    status = last.status
    if data.mask is not None:  # else enough of them is a matter of shapes
        status = jnp.where(points(setup, x, data) < x.size, TOO_FEW, status)
        last = eqx.tree_at(lambda state: state.status, last, status)
    return _packed(setup, last, x, cost, triangle, data), last.records


def _packed(
    setup: Setup,
    last: State,
    x: Float[Array, "k"],
    cost: Float[Array, ""],
    triangle: Float[Array, "k k+1"],
    data: Data,
) -> Float[Array, "packed"]:
    resolution = jnp.finfo(residual_type(setup, x, data).dtype).eps
    lengths = jnp.linalg.norm(last.model.R, axis=0)
    pivots = jnp.abs(jnp.diag(last.model.R)) / jnp.where(lengths > 0, lengths, 1.0)
    scalars: tuple[Any, ...] = (
        cost,
        last.radius,
        last.alpha,
        last.optimality,
        last.nfev,
        last.njev,
        last.status,
        points(setup, x, data),
        resolution,
        jnp.min(pivots),
    )
    holds = jnp.zeros_like(x)
    if setup.bounded:
        holds = active(x, Bounds(data.lower, data.upper), Controls.unpack(data.controls).xtol)
    vectors = (x, holds, triangle.ravel())
    packed = jnp.concatenate(
        [
            jnp.stack([jnp.asarray(s, x.dtype) for s in scalars]),
            *(v.astype(x.dtype) for v in vectors),
        ]
    )
    # the start is no result: whoever takes the mean of a batch shall see that a fit failed
    i = np.arange(packed.size)
    found = (i == SCALARS.index("cost")) | ((i >= len(SCALARS)) & (i < len(SCALARS) + x.size))
    return jnp.where(found & (last.status < 0), jnp.nan, packed)


def _evaluate(setup: Setup, x: Float[Array, "k"], data: Data) -> Evaluated:
    """Residuals at x, and the Jacobian with the weights of the loss, as SciPy's results hold
    them.
    """
    f, columns = residuals_and_columns(setup, x, data)
    _, _, columns = weighted(setup, f, columns, data)
    return f, columns.T
