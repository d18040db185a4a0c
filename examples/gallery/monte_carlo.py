"""A Monte Carlo pricer, streamed: a call option and its delta from a billion draws that are never
in memory.

The function draws one number for each element of an axis, and takes means.
`jitney.stream` goes through that axis chunk by chunk. Each chunk has the draws of its positions in
the whole, so the price is that of one array of a billion, which would take 18.6 GiB. A loop over
chunks by hand has other draws for another size of chunk, and takes 0.8 of the time (measured beside
load). Four million draws fit into memory, and a stream of them takes about as long. With some
thousand draws a stream takes milliseconds more.
"""

# %% Imports
import functools

import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats
from jaxtyping import Array, Float, Int8, Key
from matplotlib.figure import Figure

import jitney

STRIKE, RATE, VOLATILITY, YEARS = 105.0, 0.03, 0.25, 1.0


# %% The function, as one would write it
def price(
    spot: Float[Array, ""], key: Key[Array, ""], draws: Int8[Array, "draw"]
) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""]]:
    """Price of a European call, its delta (pathwise), and the mean square of the discounted
    payoffs.
    """
    normal = jax.random.normal(key, draws.shape)
    growth = jnp.exp((RATE - VOLATILITY**2 / 2) * YEARS + VOLATILITY * YEARS**0.5 * normal)
    payoff = np.exp(-RATE * YEARS) * jnp.maximum(spot * growth - STRIKE, 0)
    delta = np.exp(-RATE * YEARS) * jnp.where(spot * growth > STRIKE, growth, 0)
    return jnp.mean(payoff), jnp.mean(delta), jnp.mean(payoff**2)


# %% The decorator line
priced = jitney.optimize(price)


# %% By hand: a loop over chunks
@functools.partial(jax.jit, static_argnums=(2, 3))
def by_hand(
    spot: Float[Array, ""], key: Key[Array, ""], draws: int, chunk: int
) -> tuple[Float[Array, ""], ...]:
    """The same of other draws, which depend on the size of a chunk. It divides their number."""

    def add(i: Array, sums: tuple[Array, ...]) -> tuple[Array, ...]:
        found = price(spot, jax.random.fold_in(key, i), jnp.zeros(chunk, jnp.int8))
        return tuple(map(jnp.add, sums, found))

    count = draws // chunk
    sums = jax.lax.fori_loop(0, count, add, (jnp.zeros(()),) * 3)
    return tuple(each / count for each in sums)


# %% Without jitney
at_once = jax.jit(price)
SPOT, CHUNK = np.float32(100.0), 2**20


def nothing(draws: int) -> np.ndarray:
    """So many elements of an axis, of one byte in all: what the function reads of them is how many
    they are.
    """
    return np.broadcast_to(np.int8(0), (draws,))


def streamed(draws: int, chunk: int = CHUNK) -> tuple[np.ndarray, ...]:
    """Price, delta and mean square, chunk by chunk."""
    key = jax.random.key(0)
    return priced.stream(SPOT, key, nothing(draws), chunk={"draw": chunk}, progress=False).result


def black_scholes(spot: float) -> tuple[float, float]:
    """Price and delta in closed form."""
    width = VOLATILITY * YEARS**0.5
    d = (np.log(spot / STRIKE) + (RATE + VOLATILITY**2 / 2) * YEARS) / width
    delta = scipy.stats.norm.cdf(d)
    return spot * delta - STRIKE * np.exp(-RATE * YEARS) * scipy.stats.norm.cdf(d - width), delta


# %% The plan
def plan() -> tuple[object, ...]:
    """What a billion draws take, each way."""
    return (
        jitney.analysis.strategy(
            priced, SPOT, jax.random.key(0), sizes={"draw": 10**9}, memory="256MiB"
        ),
    )


# %% Before and after: equal results are asserted before anything is timed
def compare(*, full: bool = False) -> dict[str, jitney.types.Measurement]:
    """A number of draws that fits into memory as a whole: streamed, and at once."""
    draws, key = 2**22 if full else 2**14, jax.random.key(0)
    chunk, seconds = 2**18 if full else 2**12, 2.0 if full else 0.1

    def by_stream() -> tuple[np.ndarray, ...]:
        return streamed(draws, chunk)

    def in_memory() -> tuple[Array, ...]:
        return at_once(SPOT, key, nothing(draws))

    def in_a_loop() -> tuple[Array, ...]:
        return by_hand(SPOT, key, draws, chunk)

    # other draws agree to some standard errors
    alike = 12 / draws**0.5
    return {
        f"{draws:,} draws": jitney.measure(
            by_stream, against=in_memory, tolerance=1e-4, seconds=seconds
        ),
        f"{draws:,} draws, a loop by hand (ours compiled above)": jitney.measure(
            by_stream, against=in_a_loop, tolerance=alike, seconds=seconds
        ),
    }


# %% Picture
def draw(figure: Figure, *, full: bool = False) -> None:
    """How far the price is from the closed form, beside its standard error, as draws are added."""
    counts = [10**power for power in range(4, 10)] if full else [2**13, 2**14]
    errors, deviations = [], []
    for count in counts:
        value, _, square = streamed(count, min(CHUNK, count) if full else 2**12)
        errors.append(abs(float(value) - black_scholes(float(SPOT))[0]))
        deviations.append(np.sqrt((float(square) - float(value) ** 2) / count))
    axes = figure.subplots()
    axes.loglog(counts, deviations, color="#808080", label="standard error")
    axes.loglog(counts, errors, "o", color="#2f7fd8", label="distance from Black and Scholes")
    axes.set(xlabel="draws", ylabel="price")
    axes.legend(frameon=False)
