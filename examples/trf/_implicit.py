"""Derivatives of a fit with respect to its data, by the implicit function theorem.

At the solution the free part of the gradient g(x, data) is zero, so dx = -H^-1 dg with H the
Hessian of the cost (all of it, not only its Gauss-Newton part). `lax.custom_root` has that rule,
and its derivatives. The loop itself carries none. Where nobody differentiates, XLA removes what
this file adds.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from ._coleman_li import Bounds, active
from ._problem import Controls, Data, Setup, residuals_and_columns, weighted
from ._qr import triangularise

Vector = Float[Array, "k"]
Triangle = Float[Array, "k k+1"]


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


def attach_derivative(
    setup: Setup, x: Vector, cost: Array, triangle: Triangle, data: Data
) -> tuple[Vector, Array, Triangle]:
    """Give the solution, its cost and its [R, Q^T r] their derivatives, of any order, with respect
    to `data` and to what the functions close over. A parameter at a bound moves with it.
    """
    held = jnp.zeros_like(x)
    bounds = Bounds(data.lower, data.upper)
    if setup.bounded:
        held = lax.stop_gradient(active(x, bounds, Controls.unpack(data.controls).xtol))

    def zero(x: Vector) -> Vector:
        f, columns = residuals_and_columns(setup, x, data)
        _, f, columns = weighted(setup, f, columns, data)
        gradient = columns @ f
        if not setup.bounded:
            return gradient
        return jnp.where(
            held < 0, x - bounds.lower, jnp.where(held > 0, x - bounds.upper, gradient)
        )

    x = lax.custom_root(
        zero,
        lax.stop_gradient(x),
        lambda _, found: found,
        lambda product, y: jnp.linalg.solve(jax.jacfwd(product)(y), y),
    )
    new_cost, f, columns = weighted(setup, *residuals_and_columns(setup, x, data), data)
    new_triangle = triangularise(columns, f)
    return x, _tangent_of(cost, new_cost), _tangent_of(triangle, new_triangle)


def without_derivative(tree: Any) -> Any:
    """Cut a tree of arrays off from differentiation."""
    return jax.tree.map(
        lambda leaf: lax.stop_gradient(leaf) if isinstance(leaf, jax.Array) else leaf, tree
    )
