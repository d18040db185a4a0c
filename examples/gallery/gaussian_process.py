"""A Gaussian process: its length, scale and noise by the marginal likelihood, again after each new
measurement.

A survey grows by a point at a time, as in Bayesian optimisation, and each number of points would be
a program of its own. With `pad` those from 65 to 128 share one: the Cholesky factor is that of the
true points. The gain is compile time. Once everything is compiled, a padded call takes longer,
since a factor of 128 points is more work than one of 70. Five masks by hand do the same: they are
compiled in 0.4 of the time, since nothing has to be proven, and a call is up to 7 % quicker.
"""

# %% Imports
import math

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
from jaxtyping import Array, Float
from matplotlib.figure import Figure

import jitney


# %% The function, as one would write it
def kernel(
    theta: Float[Array, "3"], a: Float[Array, "n"], b: Float[Array, "m"]
) -> Float[Array, "n m"]:
    """Squared-exponential, of the logarithms of length, scale and noise."""
    return jnp.exp(2 * theta[1] - 0.5 * ((a[:, None] - b) / jnp.exp(theta[0])) ** 2)


def misfit(
    theta: Float[Array, "3"], x: Float[Array, "points"], y: Float[Array, "points"]
) -> Float[Array, ""]:
    """The negative logarithm of the marginal likelihood."""
    covariance = kernel(theta, x, x) + jnp.exp(2 * theta[2]) * jnp.eye(x.size)
    factor = jnp.linalg.cholesky(covariance)
    white = jax.scipy.linalg.solve_triangular(factor, y, lower=True)
    return 0.5 * jnp.sum(white**2) + jnp.sum(
        jnp.log(jnp.diag(factor)) + 0.5 * math.log(2 * math.pi)
    )


# %% The decorator line
padded = jitney.optimize(pad={"points": "pow2"})(misfit)

# %% Without jitney, and the data
plain = jax.jit(jax.value_and_grad(misfit))
START = np.log(np.float32([0.5, 1.0, 0.3]))


def survey(number: int) -> tuple[np.ndarray, np.ndarray]:
    """Noisy values of a smooth function."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 6, 200)
    y = np.sin(2 * x) + 0.3 * x + 0.1 * rng.normal(size=200)
    return x[:number].astype(np.float32), y[:number].astype(np.float32)


# %% By hand: masks, and sizes rounded up
def masked(
    theta: Float[Array, "3"], number: int, x: Float[Array, "wide"], y: Float[Array, "wide"]
) -> Float[Array, ""]:
    """The misfit of the first points. The others have the covariance 1 with themselves alone."""
    inside = jnp.arange(x.size) < number
    covariance = kernel(theta, x, x) + jnp.exp(2 * theta[2]) * jnp.eye(x.size)
    factor = jnp.linalg.cholesky(jnp.where(inside[:, None] & inside, covariance, jnp.eye(x.size)))
    white = jax.scipy.linalg.solve_triangular(factor, jnp.where(inside, y, 0.0), lower=True)
    each = jnp.log(jnp.diag(factor)) + 0.5 * math.log(2 * math.pi)
    return 0.5 * jnp.sum(white**2) + jnp.sum(jnp.where(inside, each, 0.0))


rounded = jax.jit(jax.value_and_grad(masked))


def by_hand(theta: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[Array, Array]:
    """Value and gradient, of as many points as the next power of two."""
    more = (1 << (x.size - 1).bit_length()) - x.size
    return rounded(theta, x.size, np.pad(x, (0, more)), np.pad(y, (0, more)))


# %% A fit, and what it knows
def fit(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The most likely logarithms."""

    def value_and_slope(theta: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = padded.value_and_grad(theta.astype(np.float32), x, y, wrt="theta")
        return float(value), np.asarray(slope, float)

    return scipy.optimize.minimize(
        value_and_slope, START, jac=True, method="L-BFGS-B", options={"ftol": 1e-5}
    ).x


def posterior(
    theta: np.ndarray, x: np.ndarray, y: np.ndarray, new: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the function at new places."""
    across, known = (
        np.asarray(kernel(theta.astype(np.float32), places, x), float)
        for places in (new.astype(np.float32), x)
    )
    solved = np.linalg.solve(
        known + np.exp(2 * theta[2]) * np.eye(x.size), np.column_stack([y, across.T])
    )
    return across @ solved[:, 0], np.sqrt(
        np.exp(2 * theta[1]) - np.sum(across * solved[:, 1:].T, 1)
    )


# %% The plan
def plan() -> tuple[object, ...]:
    """Of 100 points."""
    return (padded.plan(START, *survey(100)),)


# %% Before and after: equal results are asserted before anything is timed
def compare(*, full: bool = False) -> dict[str, jitney.types.Measurement]:
    """The likelihood as the survey grows, each size compiled when it first comes."""
    sizes = range(33, 129, 8) if full else (65, 70)

    def with_pad() -> list[object]:
        return [padded.value_and_grad(START, *survey(size), wrt="theta") for size in sizes]

    def at_exact_size() -> list[object]:
        return [plain(START, *survey(size)) for size in sizes]

    def with_masks() -> list[object]:
        return [by_hand(START, *survey(size)) for size in sizes]

    seconds = 2.0 if full else 0.1
    return {
        f"{len(sizes)} sizes": jitney.measure(
            with_pad, against=at_exact_size, tolerance=1e-3, seconds=seconds
        ),
        f"{len(sizes)} sizes, masks by hand (ours compiled above)": jitney.measure(
            with_pad, against=with_masks, tolerance=1e-3, seconds=seconds
        ),
    }


# %% Picture
def draw(figure: Figure, *, full: bool = False) -> None:
    """What is known after few and after more points."""
    new = np.linspace(0, 6, 150)
    for axes, number in zip(
        figure.subplots(1, 3, sharey=True), (8, 20, 100) if full else (70, 70, 70), strict=True
    ):
        x, y = survey(number)
        mean, spread = posterior(fit(x, y), x, y, new)
        axes.fill_between(
            new, mean - 2 * spread, mean + 2 * spread, color="#2f7fd8", alpha=0.2, linewidth=0
        )
        axes.plot(new, mean, color="#2f7fd8", label="mean and two standard deviations")
        axes.plot(x, y, ".", color="black", markersize=3)
        axes.set(title=f"{number} points", xlabel="x")
