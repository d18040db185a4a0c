"""A fit for each of many curves of unlike lengths, by the trust-region solver of `examples.trf`:
parameters, cost and status of each, in float64.
"""

# %% Imports
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import jitney

from ..trf._curve import Residual
from ..trf._problem import Data, Setup
from ..trf._solve import solve
from ._by_hand import blocks, in_order
from ._sides import SMALL, Lengths, Work

START = (1.0, 1.0, 0.0)


def decay(t, height, rate, rest):
    """The curve."""
    return height * jnp.exp(-rate * t) + rest


# %% The function of one row
PROBLEM = Setup(
    Residual(decay, "no"), None, "linear", bounded=False, scale_by_jac=False, records=None
)
TOLERANCES = np.array([1e-8, 1e-8, 1e-8, 1.0, 300.0])  # as `curve_fit` has them


def fit(
    t: Float[Array, "point"], y: Float[Array, "point"]
) -> tuple[Float[Array, "3"], Float[Array, ""]]:
    """Parameters and cost, by the solver inside of `curve_fit`."""
    data = Data(None, None, None, jnp.asarray(TOLERANCES), None, (t, y, None), {})
    last = solve(PROBLEM, jnp.array(START), data)
    return last.x, last.model.cost


# %% With jitney
fits = jitney.optimize(vmap="curve", pad={"point": "pow2"}, precision="f64")(fit)


# %% By hand: masks, the same buckets
@jax.jit
def of_block(t, y, count):
    def masked(t, y, count):
        mask = jnp.arange(t.shape[0]) < count
        data = Data(None, None, None, jnp.asarray(TOLERANCES), mask, (t, y, None), {})
        last = solve(PROBLEM, jnp.array(START), data)
        return last.x, last.model.cost

    return jax.vmap(masked)(t, y, count)


def by_hand(t, y):
    with jax.enable_x64(True):
        parts = [(rows, *of_block(*given)) for rows, _, given in blocks([t, y], most=256)]
    return (
        in_order(len(t), [(rows, x) for rows, x, _ in parts]),
        in_order(len(t), [(rows, cost) for rows, _, cost in parts]),
    )


# %% A compile for each length
alone = jax.jit(fit)


def a_length(t, y):
    with jax.enable_x64(True):
        found = [alone(*curve) for curve in zip(t, y, strict=True)]
    return np.stack([x for x, _ in found]), np.stack([cost for _, cost in found])


# %% Data
def curves(sizes: Lengths, seed: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Decays, each with its own rate and its own times."""
    rng, counts = sizes.draw(seed)
    times = [np.sort(rng.uniform(0, 4, n)) for n in counts]
    return times, [
        np.exp(-rng.uniform(0.5, 2) * t) + 0.3 + 0.01 * rng.normal(size=t.size) for t in times
    ]


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
        ),
    )
