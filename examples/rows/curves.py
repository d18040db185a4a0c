"""A fit for each of many curves of unlike lengths, by the trust-region solver of `examples.trf`:
parameters, cost and status of each, in float64.
"""

# %% Imports
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import jitney
from examples.rows._by_hand import blocks, in_order
from examples.rows._sides import SMALL, Lengths, Work
from examples.trf import curve_fit
from examples.trf._program import programs
from examples.trf._run import prepare

START = (1.0, 1.0, 0.0)


def decay(t, height, rate, rest):
    """The curve."""
    return height * jnp.exp(-rate * t) + rest


# %% The function of one row
def fit(
    t: Float[Array, "point"], y: Float[Array, "point"]
) -> tuple[Float[Array, "3"], Float[Array, ""]]:
    """Parameters and cost."""
    found = curve_fit(decay, t, y, p0=START)
    return found.x, found.cost


# %% With jitney
fits = jitney.optimize(vmap="curve", pad={"point": "pow2"}, precision="f64")(fit)


# %% By hand: masks, the same buckets
def by_hand(t, y):
    parts = []
    for rows, _, (times, values, count) in blocks([t, y], most=256):
        mask = np.arange(times.shape[1]) < count[:, None]
        found = curve_fit(decay, times, values, p0=START, mask=mask)
        parts.append((rows, found.x, found.cost))
    return (
        in_order(len(t), [(rows, x) for rows, x, _ in parts]),
        in_order(len(t), [(rows, cost) for rows, _, cost in parts]),
    )


# %% A compile for each length
def a_length(t, y):
    found = [curve_fit(decay, *curve, p0=START) for curve in zip(t, y, strict=True)]
    return np.stack([each.x for each in found]), np.stack([each.cost for each in found])


# %% Data
def curves(sizes: Lengths, seed: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Decays, each with its own rate and its own times."""
    rng, counts = sizes.draw(seed)
    times = [np.sort(rng.uniform(0, 4, n)) for n in counts]
    return times, [
        np.exp(-rng.uniform(0.5, 2) * t) + 0.3 + 0.01 * rng.normal(size=t.size) for t in times
    ]


def forget() -> None:
    """Drop the programs that the solver keeps."""
    programs.cache_clear()
    prepare.cache_clear()


def works(*, full: bool) -> tuple[Work, ...]:
    """A fit of each."""
    sizes = Lengths(10_000, 80, 20, 500) if full else SMALL
    return (
        Work(
            "curves",
            "fits by `examples.trf`",
            (),
            lambda seed: curves(sizes, seed),
            {"jitney": fits, "by hand": by_hand, "a length": a_length},
            (fits,),
            rtol=1e-5,
            atol=1e-6,
            forget=forget,
        ),
    )
