"""Residuals and derivatives of the economy of `models/sectors.py` as one writes them for it alone,
without this package: once with the derivatives written out, once by `jax.jacfwd` of one sector.

It is what `parts.py` compares the dense and the rolled way with. Sectors have only consumption in
common, so each has a few derivatives of its own; those that are 1 or -1 are left out.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

SECTORS = 14
Each = Float[Array, "sector"]
Place = Float[Array, "inputs"]
# of one sector: the places of what moves, and its equations
MOVING = ("c", "inv", "y", "mp", "q", "ret", "logK", "c ahead", "ret ahead", "logK ahead")
EQUATIONS = ("Euler", "Tobin's q", "capital", "marginal product", "output", "resources", "return")


class Given(NamedTuple):
    """A place by name."""

    alpha: Array
    beta: Array
    delta: Array
    phi: Array
    gamma: Array
    Zbar: Each
    c: Array
    inv: Each
    y: Each
    mp: Each
    q: Each
    ret: Each
    logK: Each  # noqa: N815
    z: Each
    c_ahead: Array
    ret_ahead: Each
    logK_ahead: Each  # noqa: N815


def given(place: Place) -> Given:
    """The column of inputs of a model, cut: parameters, controls, states and shocks, now and
    ahead.
    """
    now, ahead = place[20:], place[119:]
    inv, y, mp, q, ret, logK, z = now[1:99].reshape(7, SECTORS)
    rest = (now[0], inv, y, mp, q, ret, logK, z, ahead[0], ahead[57:71], ahead[71:85])
    return Given(*place[:5], place[6:20], *rest)


def written_out(place: Place) -> tuple[Float[Array, "equation"], Float[Array, "slope sector"]]:
    """Residuals, and the derivatives of `SLOPES`."""
    g = given(place)
    K, K_ahead = jnp.exp(g.logK), jnp.exp(g.logK_ahead)
    output = g.Zbar * jnp.exp(g.z + g.alpha * g.logK)
    ratio, marginal = g.inv / K, g.alpha * g.y / K
    gap, kept = ratio - g.delta, (1 - g.delta) * K
    utility, ahead = g.c**-g.gamma, g.beta * g.c_ahead**-g.gamma
    cost = 0.5 * g.phi * gap * gap * K
    left = jnp.sum(g.y - g.inv - cost)
    pays = g.mp + 0.5 * g.phi * gap * (ratio + g.delta) + (1 - g.delta) * g.q
    residuals = (
        g.q * utility - ahead * g.ret_ahead,
        g.q - 1 - g.phi * gap,
        K_ahead - kept - g.inv,
        g.mp - marginal,
        g.y - output,
        (g.c - left)[None],
        g.ret - pays,
    )
    bent = g.phi * ratio
    slopes = (
        -g.gamma * g.q * utility / g.c,
        jnp.broadcast_to(utility, K.shape),
        g.gamma * ahead / g.c_ahead * g.ret_ahead,
        jnp.broadcast_to(-ahead, K.shape),
        -g.phi / K,
        bent,
        -kept,
        K_ahead,
        -g.alpha / K,
        marginal,
        -g.alpha * output,
        1 + g.phi * gap,
        cost - bent * gap * K,
        jnp.broadcast_to(g.delta - 1, K.shape),
        -bent / K,
        bent * ratio,
    )
    return jnp.concatenate(residuals), jnp.stack(slopes)


SLOPES = (
    ("Euler", "c"),
    ("Euler", "q"),
    ("Euler", "c ahead"),
    ("Euler", "ret ahead"),
    ("Tobin's q", "inv"),
    ("Tobin's q", "logK"),
    ("capital", "logK"),
    ("capital", "logK ahead"),
    ("marginal product", "y"),
    ("marginal product", "logK"),
    ("output", "logK"),
    ("resources", "inv"),
    ("resources", "logK"),
    ("return", "q"),
    ("return", "inv"),
    ("return", "logK"),
)


def by_sector(
    place: Place,
) -> tuple[Float[Array, "equation"], Float[Array, "sector of by"]]:
    """The same by `jax.jacfwd` of the equations of one sector, of all of them by all that moves; of
    resources it has its part.
    """
    g = given(place)

    def sector(moving: Array, Zbar: Array, z: Array) -> tuple[Array, Array]:
        c, inv, y, mp, q, ret, logK, c_ahead, ret_ahead, logK_ahead = moving
        K = jnp.exp(logK)
        gap = inv / K - g.delta
        cost = 0.5 * g.phi * gap * gap * K
        pays = mp + 0.5 * g.phi * gap * (inv / K + g.delta) + (1 - g.delta) * q
        found = (
            q * c**-g.gamma - g.beta * c_ahead**-g.gamma * ret_ahead,
            q - 1 - g.phi * gap,
            jnp.exp(logK_ahead) - (1 - g.delta) * K - inv,
            mp - g.alpha * y / K,
            y - Zbar * jnp.exp(z) * jnp.exp(g.alpha * logK),
            inv + cost - y,
            ret - pays,
        )
        return jnp.stack(found), jnp.stack(found)

    shared = (jnp.broadcast_to(g.c, (SECTORS,)), jnp.broadcast_to(g.c_ahead, (SECTORS,)))
    own = (g.inv, g.y, g.mp, g.q, g.ret, g.logK)
    moving = jnp.stack([shared[0], *own, shared[1], g.ret_ahead, g.logK_ahead], 1)
    slopes, found = jax.vmap(jax.jacfwd(sector, has_aux=True))(moving, g.Zbar, g.z)
    resources = g.c + jnp.sum(found[:, 5])
    residuals = (found[:, :5].T.ravel(), resources[None], found[:, 6])
    return jnp.concatenate(residuals), slopes


def places() -> tuple[dict[str, np.ndarray], dict[str, tuple[str, np.ndarray]]]:
    """Rows of each equation; of each variable its block and columns."""
    rows = {name: np.arange(14) + 14 * i for i, name in enumerate(EQUATIONS[:5])}
    rows |= {"resources": np.full(14, 70), "return": np.arange(71, 85)}
    each = np.arange(14)
    columns = {"c": ("u", 0 * each), "c ahead": ("u_next", 0 * each)}
    for i, name in enumerate(("inv", "y", "mp", "q", "ret")):
        columns[name] = ("u", 1 + 14 * i + each)
    columns |= {"ret ahead": ("u_next", 57 + each), "logK": ("x", each)}
    columns["logK ahead"] = ("x_next", each)
    return rows, columns


def in_blocks(slopes: np.ndarray) -> dict[str, np.ndarray]:
    """Dense blocks of what is not 1 or -1, as `Local.blocks` has them with `nan` elsewhere: for
    comparing.

    Args:
        slopes: (slope, sector) of one place, or (sector, of, by).
    """
    if slopes.ndim == 3:
        at = [(EQUATIONS.index(equation), MOVING.index(name)) for equation, name in SLOPES]
        slopes = np.stack([slopes[:, row, column] for row, column in at])
    rows, columns = places()
    sizes = {"u": 71, "x": 14, "u_next": 71, "x_next": 14}
    blocks = {name: np.full((85, size), np.nan) for name, size in sizes.items()}
    for (equation, name), values in zip(SLOPES, slopes, strict=True):
        group, at = columns[name]
        blocks[group][rows[equation], at] = values
    return blocks
