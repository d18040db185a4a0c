"""Levenberg and Marquardt's method as one writes it by hand in an hour: one curve, one `jax.jit`,
normal equations, bounds by projection. The benchmark has it as the column "by hand".

It has no other loss, no mask, no covariance, no check and no message, and normal equations square
the condition number: where a fit is well scaled none of that shows, and nothing here is slow.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Vector = Float[Array, "k"]


@partial(jax.jit, static_argnums=(0, 6))
def fit(
    model: Callable[..., Array],
    t: Array,
    y: Array,
    x0: Vector,
    lower: Vector | None = None,
    upper: Vector | None = None,
    tol: float = 1e-8,
) -> Vector:
    """Fit y = model(t, *p), if need be within bounds."""

    def residual(p: Vector) -> tuple[Array, Array]:
        r = model(t, *p) - y
        return r, r

    def products(p: Vector) -> tuple[Array, Vector, Array]:
        J, r = jax.jacfwd(residual, has_aux=True)(p)
        return 0.5 * (r @ r), J.T @ r, J.T @ J

    def unfinished(state: Any) -> Array:
        *_, count, done = state
        return ~done & (count < 100 * x0.size)

    def turn(state: Any) -> Any:
        x, cost, g, A, damping, count, _ = state
        damped = A + damping * jnp.diag(jnp.diag(A))
        slope = g
        if lower is not None:
            free = ~((x <= lower) & (g > 0) | (x >= upper) & (g < 0))
            damped = jnp.where(free[:, None] & free, damped, jnp.eye(x.size))
            slope = jnp.where(free, g, 0.0)
        new = x - jnp.linalg.solve(damped, slope)
        if lower is not None:
            new = jnp.clip(new, lower, upper)
        step = new - x
        new_cost, new_g, new_A = products(new)
        fall = cost - new_cost
        better = fall > 0
        small = jnp.linalg.norm(step) < tol * (tol + jnp.linalg.norm(x))
        done = (better & (fall < tol * cost)) | small | (jnp.max(jnp.abs(slope)) < tol)
        x, cost, g, A = jax.tree.map(
            lambda a, b: jnp.where(better, a, b),
            (new, new_cost, new_g, new_A),
            (x, cost, g, A),
        )
        damping = jnp.where(better, damping / 10, damping * 4)
        return x, cost, g, A, damping, count + 1, done

    first = (x0, *products(x0), jnp.asarray(1e-3, x0.dtype), jnp.asarray(1), jnp.asarray(False))
    return jax.lax.while_loop(unfinished, turn, first)[0]
