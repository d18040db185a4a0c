"""The local model of many points, block by block.

Residuals and Jacobian of a million points do not fit into the caches, and whatever is done with
them column by column reads the memory each time. Here a block of points is evaluated and reduced at
once to its triangle, and that with the one of all blocks before it, in the caches; the Jacobian is
nowhere as a whole. The method is that of `_qr.py`, for blocks and for two triangles in turn, so it
is as stable: no products J^T J are formed (tall and skinny QR: Demmel, Grigori, Hoemmen and Langou,
SIAM J. Sci. Comput. 34, 2012). It is one loop on one core: XLA for CPUs runs two independent loops
one after the other (jax 0.10.2; a share of the blocks for each of two cores took as long).

It needs a function that is proven to be pointwise (`_pointwise.py`). Others, few points, more than
`WIDE` parameters, batches and devices that are no CPU are evaluated as a whole.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from ._pointwise import at_points, is_pointwise
from ._qr import WIDE, triangularise

MANY = 100_000  # points, from which on blocks are worth while to compile
BLOCK = 4096  # points at most, whose columns fit into a core's cache
Sums = tuple[Float[Array, ""], Float[Array, "k k+1"]]


def may_cut(k: int, m: int) -> bool:
    """Tell whether so many points are worth cutting, here."""
    return m >= MANY and k <= WIDE and jax.default_backend() == "cpu"


def by_blocks(
    rows: Callable[..., list[Float[Array, "points"]]], x: Float[Array, "k"], data: Any, m: int
) -> Sums | None:
    """Find cost and triangle, or `None` where the function is not proven to be pointwise.

    Args:
        rows: Of (x, data): the Jacobian's columns, the residuals, and what each point costs.
        x: The parameters.
        data: What else `rows` takes, a tree.
        m: Number of points.
    """
    k = x.size
    arrays, rest = eqx.partition(data, eqx.is_array)
    leaves, treedef = jax.tree.flatten(arrays)

    def flat(x: Array, *leaves: Array) -> list[Array]:
        return rows(x, eqx.combine(jax.tree.unflatten(treedef, leaves), rest))

    traced = jax.make_jaxpr(flat)(x, *leaves)
    if not is_pointwise(traced, m):
        return None
    count = -(-m // BLOCK)  # blocks
    size = m // count

    def at(start: Any, size: int, before: Array) -> Sums:
        *columns, costs = at_points(traced, (x, *leaves), m, start, size)
        own = triangularise(jnp.stack(columns[:k]), columns[k])
        both = jnp.concatenate([before, own]).T
        return jnp.sum(costs), triangularise(both[:k], both[k])

    def add(i: Array, sums: Sums) -> Sums:
        cost, triangle = at(i * size, size, sums[1])
        return sums[0] + cost, triangle

    cost, triangle = lax.fori_loop(0, count, add, (jnp.zeros(()), jnp.zeros((k, k + 1))))
    done = count * size
    rest, triangle = at(done, m - done, triangle)
    return cost + rest, triangle
