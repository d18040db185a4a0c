"""Light curves of unlike numbers of points, as a survey has them: times, magnitudes and errors. The
periodogram of each (Lomb-Scargle with errors and a floating mean, Zechmeister and Kuerster 2009),
and the likelihood of a damped random walk (a Gaussian process).
"""

# %% Imports
import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import jitney

from ._by_hand import blocks, in_order
from ._sides import SMALL, Lengths, Work


# %% The function of one row: of periodogram
def periodogram(
    omega: Float[Array, "frequency"],
    t: Float[Array, "point"],
    y: Float[Array, "point"],
    error: Float[Array, "point"],
) -> Float[Array, "frequency"]:
    """Power from 0 to 1 at each angular frequency."""
    weights = error**-2 / jnp.sum(error**-2)
    y = y - weights @ y
    cos, sin = jnp.cos(omega[:, None] * t), jnp.sin(omega[:, None] * t)
    c, s = cos @ weights, sin @ weights
    yc, ys = cos @ (weights * y), sin @ (weights * y)
    cc, ss = cos**2 @ weights - c**2, sin**2 @ weights - s**2
    cs = (cos * sin) @ weights - c * s
    return (ss * yc**2 + cc * ys**2 - 2 * cs * yc * ys) / ((weights @ y**2) * (cc * ss - cs**2))


# %% With jitney: of periodogram
power = jitney.optimize(vmap="star", pad={"point": "pow2"}, chunk={"star": 4})(periodogram)


# %% By hand, masks, the same buckets: of periodogram
@jax.jit
def power_of_block(omega, t, y, error, count):
    def masked(t, y, error, count):
        inside = jnp.arange(t.shape[0]) < count
        weights = jnp.where(inside, jnp.where(inside, error, 1) ** -2, 0)
        weights = weights / jnp.sum(weights)
        y = y - weights @ y
        cos, sin = jnp.cos(omega[:, None] * t), jnp.sin(omega[:, None] * t)
        c, s = cos @ weights, sin @ weights
        yc, ys = cos @ (weights * y), sin @ (weights * y)
        cc, ss = cos**2 @ weights - c**2, sin**2 @ weights - s**2
        cs = (cos * sin) @ weights - c * s
        square = (weights @ y**2) * (cc * ss - cs**2)
        return (ss * yc**2 + cc * ys**2 - 2 * cs * yc * ys) / square

    return jax.vmap(masked)(t, y, error, count)


def power_by_hand(omega, t, y, error):
    parts = [
        (rows, power_of_block(omega, *given)) for rows, _, given in blocks([t, y, error], most=4)
    ]
    return in_order(len(t), parts)


# %% A compile for each length: of periodogram
power_alone = jax.jit(periodogram)


def power_a_length(omega, *curves):
    return np.stack([power_alone(omega, *curve) for curve in zip(*curves, strict=True)])


# %% The function of one row: of likelihood
def walk_likelihood(
    size: Float[Array, ""],
    memory: Float[Array, ""],
    t: Float[Array, "point"],
    y: Float[Array, "point"],
    error: Float[Array, "point"],
) -> Float[Array, ""]:
    """Log-likelihood of a process with covariance size^2 exp(-|t - t'| / memory)."""
    covariance = size**2 * jnp.exp(-jnp.abs(t[:, None] - t) / memory) + jnp.diag(error**2)
    factor = jnp.linalg.cholesky(covariance)
    white = jax.scipy.linalg.solve_triangular(factor, y, lower=True)
    # A term for each point: `t.shape[0] * math.log(2 * math.pi)` is a number of Python, for which
    # jitney traces each new length.
    each = jnp.log(jnp.diag(factor)) + 0.5 * math.log(2 * math.pi)
    return -0.5 * (white @ white) - jnp.sum(each)


# %% With jitney: of likelihood
likelihoods = jitney.optimize(vmap="star", pad={"point": "pow2"}, chunk={"star": 4})(
    walk_likelihood
)


# %% By hand, masks, the same buckets: of likelihood
@jax.jit
def walk_of_block(size, memory, t, y, error, count):
    def masked(t, y, error, count):
        inside = jnp.arange(t.shape[0]) < count
        both = inside[:, None] & inside
        kernel = size**2 * jnp.exp(-jnp.abs(t[:, None] - t) / memory)
        covariance = jnp.where(both, kernel, 0) + jnp.diag(jnp.where(inside, error**2, 1))
        factor = jnp.linalg.cholesky(covariance)  # its padding is the identity
        white = jax.scipy.linalg.solve_triangular(factor, y, lower=True)
        return -0.5 * (white @ white + count * math.log(2 * math.pi)) - jnp.sum(
            jnp.log(jnp.diag(factor))
        )

    return jax.vmap(masked)(t, y, error, count)


def walk_by_hand(size, memory, t, y, error):
    parts = [
        (rows, walk_of_block(size, memory, *given))
        for rows, _, given in blocks([t, y, error], most=4)
    ]
    return in_order(len(t), parts)


# %% A compile for each length: of likelihood
walk_alone = jax.jit(walk_likelihood)


def walk_a_length(size, memory, *curves):
    return np.stack([walk_alone(size, memory, *curve) for curve in zip(*curves, strict=True)])


# %% Data
def survey(sizes: Lengths, seed: int) -> tuple[list[np.ndarray], ...]:
    """Times in days, magnitudes and their errors, of stars with periods around a day."""
    rng, counts = sizes.draw(seed)
    stars = [[], [], []]
    for n in counts:
        t = np.sort(rng.uniform(0, 30, n))
        error = rng.uniform(0.05, 0.2, n)
        y = np.sin(2 * np.pi * t / rng.uniform(0.5, 3)) + error * rng.normal(size=n)
        for column, values in zip(stars, (t, y, error), strict=True):
            column.append(values.astype(np.float32))
    return tuple(stars)


def works(*, full: bool) -> tuple[Work, ...]:
    """Both."""
    sizes = Lengths(500, 100, 20, 500) if full else SMALL
    omega = np.linspace(1, 15, 400 if full else 20, dtype=np.float32)

    def curves(seed: int) -> tuple[list[np.ndarray], ...]:
        return survey(sizes, seed)

    return (
        Work(
            "periodogram",
            f"light curves: Lomb-Scargle at {len(omega)} frequencies",
            (omega,),
            curves,
            {"jitney": power, "by hand": power_by_hand, "a length": power_a_length},
            (power,),
            rtol=1e-3,
            atol=1e-4,
        ),
        Work(
            "likelihood",
            "light curves: likelihood of a Gaussian process",
            (np.float32(0.7), np.float32(1.5)),
            curves,
            {"jitney": likelihoods, "by hand": walk_by_hand, "a length": walk_a_length},
            (likelihoods,),
            rtol=1e-4,
            atol=1e-2,
        ),
    )
