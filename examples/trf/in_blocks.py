"""Levenberg and Marquardt's method for so many points that their Jacobian does not fit into the
caches, as one writes it by hand: the products [J r]^T [J r] are summed block by block, a share of
the blocks for each core. The benchmark has it as the column "by hand, blocks".

JAX runs the shares at once, since a call comes back before it is done. What remains is a loop in
NumPy over a matrix of a few numbers. It has as few promises as `levenberg.py`, and no bounds.
"""

import os
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

BLOCK = 4096  # points, whose columns fit into a core's cache
Sums = Float[Array, "products"]  # the upper triangle, since the products are symmetric


@partial(jax.jit, static_argnums=(0, 1, 2))
def products(
    model: Callable[..., Array], count: int, size: int, p: Array, t: Array, y: Array, first: Array
) -> Sums:
    """Sums over so many blocks of this size, from the first point on."""

    def along(p: list[Array], i: int, t: Array, y: Array) -> tuple[Array, Array]:
        def one(value: Array) -> Array:
            return model(t, *p[:i], value, *p[i + 1 :]) - y

        return jax.jvp(one, (p[i],), (jnp.ones_like(p[i]),))

    def add(i: Array, sums: Array) -> Array:
        block = [jax.lax.dynamic_slice_in_dim(of, first + i * size, size) for of in (t, y)]
        found = [along(list(p), j, *block) for j in range(p.size)]
        rows = [*(column for _, column in found), found[0][0]]
        # a sum for each, in one loop that keeps sums alone: a third of the time of a product
        return sums + jnp.stack([jnp.sum(rows[a] * rows[b]) for a, b in pairs])

    pairs = list(zip(*np.triu_indices(p.size + 1), strict=True))
    return jax.lax.fori_loop(0, count, add, jnp.zeros(len(pairs)))


def fit(
    model: Callable[..., Array], t: Array, y: Array, x0: np.ndarray, tol: float = 1e-8
) -> np.ndarray:
    """Fit y = model(t, *p)."""
    cores = os.cpu_count() or 1
    count = y.size // BLOCK // cores
    rest = y.size - cores * count * BLOCK

    def gram(p: np.ndarray) -> np.ndarray:
        parts = [
            products(model, count, BLOCK, p, t, y, core * count * BLOCK) for core in range(cores)
        ]
        if rest:
            parts.append(products(model, 1, rest, p, t, y, y.size - rest))
        upper = np.zeros((p.size + 1, p.size + 1))
        upper[np.triu_indices(p.size + 1)] = np.sum([np.asarray(part) for part in parts], axis=0)
        return upper + np.triu(upper, 1).T

    x, found, damping = np.asarray(x0, float), gram(x0), 1e-3
    for _ in range(100 * x.size):
        A, g, cost = found[:-1, :-1], found[:-1, -1], found[-1, -1]
        step = -np.linalg.solve(A + damping * np.diag(np.diag(A)), g)
        after = gram(x + step)
        small = np.linalg.norm(step) < tol * (tol + np.linalg.norm(x))
        fall = cost - after[-1, -1]
        if fall > 0:
            x, found, damping = x + step, after, damping / 10
        else:
            damping *= 4
        if 0 < fall < tol * cost or small or np.max(np.abs(g)) < tol:
            break
    return x
