"""Twelve programs that were written after the order of the trials was frozen: of other fields, of
other shapes, and with branches and loops that are unlike from element to element.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jax.scipy.stats import norm

from .batch import Batch, normal

Arrays = tuple[np.ndarray, ...]
NUMBERS = np.random.default_rng(1)


def numbers(*shape: int, scale: float = 1.0) -> np.ndarray:
    return scale * NUMBERS.standard_normal(shape, np.float32)


# Gradients of each example, as differentially private training clips them.

LAYERS = [(numbers(20, 32, scale=0.2), numbers(32)), (numbers(32, 5, scale=0.2), numbers(5))]


def example_gradients(x: jax.Array, label: jax.Array) -> list[tuple[jax.Array, jax.Array]]:
    def loss(layers: list[tuple[jax.Array, jax.Array]]) -> jax.Array:
        (w1, b1), (w2, b2) = layers
        logits = jax.nn.relu(x @ w1 + b1) @ w2 + b2
        return -jax.nn.log_softmax(logits)[label]

    gradients = jax.grad(loss)(LAYERS)
    length = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(gradients)))
    return jax.tree.map(lambda g: g / jnp.maximum(1.0, length), gradients)


def labelled(rng: np.random.Generator, size: int) -> Arrays:
    return rng.standard_normal((size, 20), np.float32), rng.integers(0, 5, size, np.int32)


# A bootstrap particle filter of stochastic volatility, with the draws as data.


def particle_filter(ys: jax.Array, draws: jax.Array, starts: jax.Array) -> jax.Array:
    count = draws.shape[1]

    def step(
        h: jax.Array, now: tuple[jax.Array, jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        y, draw, start = now
        h = 0.95 * h + 0.3 * draw
        log_weights = -0.5 * (h + y * y * jnp.exp(-h))
        total = logsumexp(log_weights)
        order = jnp.argsort(h)
        shares = jnp.cumsum(jnp.exp(log_weights - total)[order])
        # Between particles it is linear, so the likelihood is continuous.
        return jnp.interp((start + jnp.arange(count)) / count, shares, h[order]), total

    return jax.lax.scan(step, draws[0], (ys, draws, starts))[1]


def observed_returns(rng: np.random.Generator, size: int) -> Arrays:
    ys, draws = rng.standard_normal((size, 50)), rng.standard_normal((size, 50, 64))
    starts = rng.uniform(0, 1, (size, 50))
    return ys.astype(np.float32), draws.astype(np.float32), starts.astype(np.float32)


# Newton's method for the implied volatility of a call.


def implied_volatility(price: jax.Array, strike: jax.Array, years: jax.Array) -> jax.Array:
    def value_and_slope(sigma: jax.Array) -> tuple[jax.Array, jax.Array]:
        root = jnp.sqrt(years)
        d1 = -jnp.log(strike) / (sigma * root) + 0.5 * sigma * root
        value = norm.cdf(d1) - strike * norm.cdf(d1 - sigma * root)
        return value, norm.pdf(d1) * root

    def step(_: int, sigma: jax.Array) -> jax.Array:
        value, slope = value_and_slope(sigma)
        return jnp.clip(sigma - (value - price) / slope, 0.01, 2.0)

    return jax.lax.fori_loop(0, 8, step, jnp.float32(0.3))


def quotes(rng: np.random.Generator, size: int) -> Arrays:
    sigma, strike, years = (
        rng.uniform(low, high, size) for low, high in ((0.15, 0.5), (0.9, 1.1), (0.5, 2.0))
    )
    d1 = -np.log(strike) / (sigma * np.sqrt(years)) + 0.5 * sigma * np.sqrt(years)
    price = norm.cdf(d1) - strike * norm.cdf(d1 - sigma * np.sqrt(years))
    return tuple(np.asarray(each, np.float32) for each in (price, strike, years))


# The forward pass of a small convolutional network.

KERNELS = [numbers(8, 1, 3, 3, scale=0.3), numbers(16, 8, 3, 3, scale=0.1)]
DENSE = numbers(16 * 7 * 7, 10, scale=0.05)


def conv_net(image: jax.Array) -> jax.Array:
    x = image[None, None]
    for kernel in KERNELS:
        x = jax.nn.relu(jax.lax.conv(x, kernel, (1, 1), "SAME"))
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    return jax.nn.log_softmax(x.reshape(-1) @ DENSE)


# Lotka and Volterra's equations, fitted by Adam through an Euler scheme.


def lotka_volterra(start: jax.Array, seen: jax.Array) -> jax.Array:
    def loss(logs: jax.Array) -> jax.Array:
        a, b, c, d = jnp.exp(logs)

        def step(state: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
            x, y = state
            state = state + 0.1 * jnp.stack([a * x - b * x * y, d * x * y - c * y])
            return state, state

        return jnp.mean((jax.lax.scan(step, start, None, len(seen))[1] - seen) ** 2)

    def adam(
        state: tuple[jax.Array, jax.Array, jax.Array], i: jax.Array
    ) -> tuple[tuple[jax.Array, jax.Array, jax.Array], jax.Array]:
        logs, m, v = state
        value, g = jax.value_and_grad(loss)(logs)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        step = (m / (1 - 0.9**i)) / (jnp.sqrt(v / (1 - 0.999**i)) + 1e-8)
        return (logs - 0.02 * step, m, v), value

    begin = (jnp.zeros(4), jnp.zeros(4), jnp.zeros(4))
    (logs, _, _), values = jax.lax.scan(adam, begin, jnp.arange(1.0, 21.0))
    return jnp.append(jnp.exp(logs), values[-1])


def populations(rng: np.random.Generator, size: int) -> Arrays:
    start = rng.uniform(0.8, 1.2, (size, 2))
    a, b, c, d = rng.uniform(0.8, 1.2, (4, size))
    state, seen = start.T, []
    for _ in range(30):
        x, y = state
        state = state + 0.1 * np.stack([a * x - b * x * y, d * x * y - c * y])
        seen.append(state.T)
    return start.astype(np.float32), np.stack(seen, 1).astype(np.float32)


# The forward algorithm of a hidden Markov model, in log space.

MOVES = jax.nn.log_softmax(numbers(12, 12), axis=1)
EMITS = jax.nn.log_softmax(numbers(12, 6), axis=1)


def hidden_markov(symbols: jax.Array) -> jax.Array:
    def step(alpha: jax.Array, symbol: jax.Array) -> tuple[jax.Array, None]:
        return logsumexp(alpha[:, None] + MOVES, axis=0) + EMITS[:, symbol], None

    alpha = -jnp.log(12.0) + EMITS[:, symbols[0]]
    return logsumexp(jax.lax.scan(step, alpha, symbols[1:])[0])


def symbols_seen(rng: np.random.Generator, size: int) -> Arrays:
    return (rng.integers(0, 6, (size, 80), np.int32),)


# Dynamic time warping, row by row.


def time_warping(a: jax.Array, b: jax.Array) -> jax.Array:
    def row(above: jax.Array, x: jax.Array) -> tuple[jax.Array, None]:
        def cell(
            left: jax.Array, at: tuple[jax.Array, jax.Array, jax.Array]
        ) -> tuple[jax.Array, jax.Array]:
            y, up, corner = at
            here = jnp.abs(x - y) + jnp.minimum(jnp.minimum(left, up), corner)
            return here, here

        costs = jax.lax.scan(cell, jnp.inf, (b, above[1:], above[:-1]))[1]
        return jnp.concatenate([jnp.array([jnp.inf]), costs]), None

    first = jnp.full(len(b) + 1, jnp.inf).at[0].set(0.0)
    return jax.lax.scan(row, first, a)[0][-1]


def series(rng: np.random.Generator, size: int) -> Arrays:
    walks = rng.standard_normal((2, size, 40), np.float32).cumsum(axis=2)
    return walks[0], walks[1]


# Entropic transport between two clouds of points by Sinkhorn's iterations.

BLUR = 0.5


def sinkhorn(xs: jax.Array, ys: jax.Array) -> jax.Array:
    cost = jnp.sum((xs[:, None] - ys[None]) ** 2, axis=-1)

    def step(_: int, dual: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        f = -BLUR * logsumexp((dual[1] - cost) / BLUR, axis=1)
        return f, -BLUR * logsumexp((f[:, None] - cost) / BLUR, axis=0)

    f, g = jax.lax.fori_loop(0, 20, step, (jnp.zeros(len(xs)), jnp.zeros(len(ys))))
    return jnp.sum(jnp.exp((f[:, None] + g - cost) / BLUR) * cost)


def clouds(rng: np.random.Generator, size: int) -> Arrays:
    return tuple(rng.standard_normal((2, size, 24, 2), np.float32))


# A bank of resonant filters over one recording: an element is a band.

RECORDING = numbers(1000)


def filter_bank(frequency: jax.Array) -> jax.Array:
    w = 2 * jnp.pi * frequency
    alpha = jnp.sin(w) / 8
    b0, a0, a1, a2 = alpha, 1 + alpha, -2 * jnp.cos(w), 1 - alpha

    def step(
        state: tuple[jax.Array, jax.Array], x: jax.Array
    ) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        s1, s2 = state
        y = (b0 * x + s1) / a0
        return (s2 - a1 * y, -b0 * x - a2 * y), y * y

    return jnp.mean(jax.lax.scan(step, (jnp.float32(0), jnp.float32(0)), RECORDING)[1])


def frequencies(rng: np.random.Generator, size: int) -> Arrays:
    return (np.linspace(0.01, 0.4, size, dtype=np.float32),)


# The bootstrap of a linear regression, with the rows that are drawn as data.

ROWS = numbers(200, 5)
TARGETS = ROWS @ np.float32([1, -2, 0.5, 0, 3]) + numbers(200, scale=0.3)


def bootstrap(index: jax.Array) -> jax.Array:
    x, y = jnp.asarray(ROWS)[index], jnp.asarray(TARGETS)[index]
    return jnp.linalg.solve(x.T @ x, x.T @ y)


def resampled(rng: np.random.Generator, size: int) -> Arrays:
    return (rng.integers(0, 200, (size, 200), np.int32),)


# A body near another one takes many small steps, and all others one.


def encounters(state: jax.Array) -> jax.Array:
    def pull(state: jax.Array, h: float) -> jax.Array:
        x, v = state[:2], state[2:]
        v = v - h * x / (jnp.sum(x * x) + 1e-2) ** 1.5
        return jnp.concatenate([x + h * v, v])

    def near(state: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 50, lambda _, s: pull(s, 0.001), state)

    def step(state: jax.Array, _: None) -> tuple[jax.Array, None]:
        is_near = jnp.sum(state[:2] ** 2) < 0.25
        return jax.lax.cond(is_near, near, lambda s: pull(s, 0.05), state), None

    return jax.lax.scan(step, state, None, length=20)[0]


# Van der Pol's oscillator in steps of a size that errors decide: stiff elements take many.


def van_der_pol(mu: jax.Array) -> jax.Array:
    def slope(y: jax.Array) -> jax.Array:
        return jnp.stack([y[1], mu * (1 - y[0] ** 2) * y[1] - y[0]])

    def goes_on(state: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
        return state[0] < 5.0

    def step(
        state: tuple[jax.Array, jax.Array, jax.Array],
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        t, h, y = state
        h = jnp.minimum(h, 5.0 - t)
        # Bogacki and Shampine's pair of order 3 and 2.
        k1 = slope(y)
        k2 = slope(y + h / 2 * k1)
        k3 = slope(y + 3 * h / 4 * k2)
        new = y + h / 9 * (2 * k1 + 3 * k2 + 4 * k3)
        other = y + h / 24 * (7 * k1 + 6 * k2 + 8 * k3 + 3 * slope(new))
        error = jnp.max(jnp.abs(new - other)) / 1e-4
        is_good = error < 1
        factor = jnp.clip(0.9 * (error + 1e-6) ** (-1 / 3), 0.2, 5.0)
        last = is_good & (h >= 5.0 - t)
        t = jnp.where(last, 5.0, jnp.where(is_good, t + h, t))
        return t, h * factor, jnp.where(is_good, new, y)

    return jax.lax.while_loop(goes_on, step, (0.0, jnp.float32(0.05), jnp.array([2.0, 0.0])))[2]


def stiffness(rng: np.random.Generator, size: int) -> Arrays:
    return (rng.exponential(2.0, size).astype(np.float32),)


SECOND = {
    "example gradients": Batch(example_gradients, labelled, 8192),
    "particle filter": Batch(particle_filter, observed_returns, 128),
    "implied volatility": Batch(implied_volatility, quotes, 400_000),
    "conv net": Batch(conv_net, normal(28, 28), 512),
    "lotka-volterra": Batch(lotka_volterra, populations, 4096),
    "hidden markov": Batch(hidden_markov, symbols_seen, 2048),
    "time warping": Batch(time_warping, series, 4096),
    "sinkhorn": Batch(sinkhorn, clouds, 1024),
    "filter bank": Batch(filter_bank, frequencies, 4096),
    "bootstrap": Batch(bootstrap, resampled, 16384, lapack=25),
    "encounters": Batch(encounters, normal(4), 4096),
    "van der pol": Batch(van_der_pol, stiffness, 16384),
}
