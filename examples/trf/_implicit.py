"""Derivatives of a fit with respect to its data, by the implicit function theorem.

At the solution the free part of the gradient g(x, data) is zero, so dx = -H^-1 dg with H the
Hessian of the cost (all of it, not only its Gauss-Newton part). The loop itself carries no
derivatives. Where nobody differentiates, XLA removes what this file adds.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from ._coleman_li import Bounds, active
from ._problem import Controls, Data, Setup, residuals_and_columns, weighted

Vector = Float[Array, "k"]


@jax.custom_jvp
def _tangent_of(value: Array, source: Array) -> Array:
    """`value` itself, with the derivative of `source`."""
    del source
    return value


@_tangent_of.defjvp
def _tangent_rule(
    primals: tuple[Array, Array], tangents: tuple[Array, Array]
) -> tuple[Array, Array]:
    return _tangent_of(*primals), tangents[1]


def attach_derivative(setup: Setup, x: Vector, cost: Array, data: Data) -> tuple[Vector, Array]:
    """Give the solution and its cost their derivatives with respect to `data` and to what the
    functions close over.
    """

    def gradient(x: Vector) -> Vector:
        f, columns = residuals_and_columns(setup, x, data)
        _, f, columns = weighted(setup, f, columns, data)
        return columns @ f

    def cost_at(x: Vector) -> Array:
        return weighted(setup, *residuals_and_columns(setup, x, data), data)[0]

    free = jnp.ones_like(x, bool)
    if setup.bounded:
        free = active(x, Bounds(data.lower, data.upper), Controls.unpack(data.controls).xtol) == 0
    hessian = lax.stop_gradient(jax.jacfwd(gradient)(x))
    hessian = jnp.where(free[:, None] & free, hessian, jnp.eye(x.size))
    newton = -jnp.linalg.solve(hessian, jnp.where(free, gradient(x), 0.0))
    x = _tangent_of(x, newton)
    # anew, at the x that carries its derivative: derivatives of the second order need that
    return x, _tangent_of(cost, cost_at(x))


def without_derivative(tree: Any) -> Any:
    """Cut a tree of arrays off from differentiation."""
    return jax.tree.map(
        lambda leaf: lax.stop_gradient(leaf) if isinstance(leaf, jax.Array) else leaf, tree
    )
