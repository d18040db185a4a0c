"""Block elimination of what is linear in all periods of a path.

Linearised at a path, period t ties (du_t, dx_t+1) to dx_t and du_t+1. So from the last period
backward du_t+1 = g + G dx_t+1 is known, and one linear solve of the size of one period gives the
same relation a period earlier: one `lax.scan` backward. A second one forward from dx_0 = 0 reads
off the step.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from ._local import Local
from ._newton import lu, lu_solved, solve
from ._rolled import elements

Matrix = Float[Array, "rows columns"]
Steps = Float[Array, "periods v"]


def eliminate(
    local: Local, entries: Float[Array, "periods entries"], G_last: Float[Array, "u x"]
) -> Float[Array, "periods v"]:
    """Solve the linearised stacked system for the steps of u_0.. and x_1.. ."""
    nu, nx = G_last.shape
    read = local.columns("u_next")
    where = np.concatenate(
        [
            local.read(("u", "x_next", "x")),
            np.arange(local.rows)[:, None],
            local.index["u_next"][:, read],
        ],
        1,
    )

    cuts = (nu, nu + nx, nu + 2 * nx, nu + 2 * nx + 1)

    def backward(G: Matrix, entries: Float[Array, "entries"]) -> tuple[Matrix, Matrix]:
        F_u, F_x_next, F_x, F, F_u_next = jnp.split(elements(entries, where), cuts, axis=1)
        ahead = F_u_next @ G[read]  # by x_next, and what does not depend on it
        matrix = jnp.concatenate([F_u, F_x_next + ahead[:, :nx]], 1)
        solved = -solve(matrix, jnp.concatenate([F_x, F + ahead[:, nx:]], 1))
        return solved[:nu], solved

    def forward(
        dx: Float[Array, "x"], solved: Matrix
    ) -> tuple[Float[Array, "x"], Float[Array, "v"]]:
        moved = solved[:, :nx] @ dx + solved[:, nx]
        return moved[nu:], moved

    _, solved = lax.scan(
        backward, jnp.concatenate([G_last, jnp.zeros((nu, 1))], 1), entries, reverse=True
    )
    return lax.scan(forward, jnp.zeros(nx), solved)[1]


class Factors(NamedTuple):
    """What elimination makes of derivatives, whatever the residuals: of each period the factors of
    its matrix, its derivatives by what is ahead, and what its state does.
    """

    lu: Float[Array, "periods v v"]
    permutation: Int[Array, "periods v"]
    ahead: Float[Array, "periods v read"]
    moved: Float[Array, "periods v x"]


def factored(
    local: Local, entries: Float[Array, "periods entries"], G_last: Float[Array, "u x"]
) -> Factors:
    """The first half of `eliminate`, which does not read residuals."""
    nu, nx = G_last.shape
    read = local.columns("u_next")
    where = np.concatenate([local.read(("u", "x_next", "x")), local.index["u_next"][:, read]], 1)
    cuts = (nu, nu + nx, nu + 2 * nx)

    def backward(G: Matrix, entries: Float[Array, "entries"]) -> tuple[Matrix, Factors]:
        F_u, F_x_next, F_x, F_u_next = jnp.split(elements(entries, where), cuts, axis=1)
        factors = lu(jnp.concatenate([F_u, F_x_next + F_u_next @ G[read]], 1))
        moved = -lu_solved(*factors, F_x)
        return moved[:nu], Factors(*factors, F_u_next, moved)

    return lax.scan(backward, G_last, entries, reverse=True)[1]


def stepped(local: Local, factors: Factors, residual: Steps) -> Steps:
    """What `eliminate` gives for residuals, in which it is linear, so that JAX can transpose it."""
    nx = factors.moved.shape[2]
    nu = factors.moved.shape[1] - nx
    read = local.columns("u_next")

    def backward(
        after: Float[Array, "u"], given: tuple[Factors, Float[Array, "v"]]
    ) -> tuple[Float[Array, "u"], Float[Array, "v"]]:
        period, side = given
        side = side + period.ahead @ after[read]
        own = -lu_solved(period.lu, period.permutation, side[:, None])[:, 0]
        return own[:nu], own

    def forward(
        dx: Float[Array, "x"], given: tuple[Matrix, Float[Array, "v"]]
    ) -> tuple[Float[Array, "x"], Float[Array, "v"]]:
        moved, own = given
        step = moved @ dx + own
        return step[nu:], step

    own = lax.scan(backward, jnp.zeros(nu), (factors, residual), reverse=True)[1]
    return lax.scan(forward, jnp.zeros(nx), (factors.moved, own))[1]
