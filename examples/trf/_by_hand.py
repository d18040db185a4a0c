"""A turn of a fit of `peak` as one writes it by hand for this curve: derivatives written out,
normal equations, and their Cholesky factor. `options.py` times it beside the port's turn.

Normal equations square the condition number: the factor has half of the digits of that by QR.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

BLOCK = 5_000  # points, whose columns fit into a core's caches
PAIRS = tuple(zip(*np.triu_indices(6), strict=True))


def triangle(
    p: Float[Array, "5"], t: Float[Array, "points"], y: Float[Array, "points"]
) -> Float[Array, "5 6"]:
    """[R, Q^T r] of [J r], block by block; points are a multiple of `BLOCK`, or fewer than it."""
    height, centre, width, slope, offset = p

    def products(t: Array, y: Array) -> Array:
        z = (t - centre) / width
        bell = jnp.exp(-0.5 * z * z)
        rise = height / width * bell * z
        misfit = height * bell + slope * t + offset - y
        rows = (bell, rise, rise * z, t, jnp.ones_like(t), misfit)
        # one loop that keeps sums alone: quicker than a product
        return jnp.stack([jnp.sum(rows[a] * rows[b]) for a, b in PAIRS])

    def add(total: Array, block: tuple[Array, Array]) -> tuple[Array, None]:
        return total + products(*block), None

    size = min(BLOCK, t.size)
    blocks = (t.reshape(-1, size), y.reshape(-1, size))
    total, _ = jax.lax.scan(add, jnp.zeros(len(PAIRS)), blocks)
    lower = jnp.zeros((6, 6)).at[np.triu_indices(6)[::-1]].set(total)
    return jnp.linalg.cholesky(lower, symmetrize_input=False).T[:-1]
