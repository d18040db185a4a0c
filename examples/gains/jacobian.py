"""The Jacobian of a discretised heat equation, 2,000 unknowns that each know their neighbours.

Today it is `jax.jit(jax.jacfwd(f))`, dense. By hand one sees that it is tridiagonal, takes three
directions, and puts what they give in its place.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.sparse import BCOO
from jaxtyping import Array, Float

import jitney

from .._timing import assert_equal, in_turn, seconds_of
from ._gain import Gain, Line

UNKNOWNS = 2000


def heat(u: Float[Array, "n"]) -> Float[Array, "n"]:
    """Diffusion and a reaction, at each place."""
    wide = jnp.pad(u, 1)
    return wide[2:] - 2 * u + wide[:-2] + 0.1 * jnp.exp(u)


def by_hand(u: Any) -> Any:
    """Three directions, each of every third place, as a sparse matrix."""
    place, colours = np.arange(u.size), np.arange(3)[:, None]
    seeds = (place % 3 == colours).astype(u.dtype)
    found = jax.vmap(lambda seed: jax.jvp(heat, (u,), (seed,))[1])(jnp.asarray(seeds))
    column = place[:, None] + np.arange(-1, 2)
    row = np.broadcast_to(place[:, None], column.shape)
    inside = (column >= 0) & (column < u.size)
    row, column = row[inside], column[inside]
    return BCOO((found[column % 3, row], jnp.stack([row, column], 1)), shape=(u.size, u.size))


def dense(matrix: Any) -> np.ndarray:
    """A dense array of either kind of matrix."""
    return np.asarray(matrix.todense() if isinstance(matrix, BCOO) else matrix)


def stored(matrix: Any) -> float:
    """MiB that its arrays take."""
    return sum(each.nbytes for each in jax.tree.leaves(matrix)) / 2**20


def measure() -> Gain:
    """Compare, then time."""
    u = jnp.linspace(0.0, 1.0, UNKNOWNS)
    sparse = jitney.lazy_derivatives(wrt="u", sparse=True)(heat)
    programs = {
        "jax.jacfwd": jax.jit(jax.jacfwd(heat)),
        "by hand": jax.jit(by_hand),
        "jitney": sparse.jacobian,
    }
    sides = {name: lambda program=program: program(u) for name, program in programs.items()}
    first, results = {}, {}
    for name, call in sides.items():
        first[name], results[name] = seconds_of(call)
    assert_equal({name: dense(found) for name, found in results.items()}, rtol=1e-5, atol=1e-6)
    ms = {name: 1e3 * taken for name, taken in in_turn(sides, seconds=1.0).items()}
    return Gain(
        "jacobian",
        f"a Jacobian of {UNKNOWNS:,} unknowns",
        "jax.jit(jax.jacfwd(f)), dense",
        "three directions, put in their places: a sparse matrix",
        "lazy_derivatives(sparse=True), which finds that three are enough",
        "all elements to 1e-5",
        (
            Line("a Jacobian, ms", *ms.values()),
            Line("stored, MiB", *map(stored, results.values())),
            Line("first call, s", *first.values()),
        ),
    )
