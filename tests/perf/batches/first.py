"""The twelve programs that the order of the trials was found with: fits, ODEs, filters, networks,
Gaussian processes, Monte Carlo, root finding, agents, image patches.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

from .batch import Batch, normal

NUMBERS = np.random.default_rng(0)
T = np.linspace(0, 4, 200, dtype=np.float32)


def gauss_newton(y: jax.Array) -> jax.Array:
    def residual(p: jax.Array) -> jax.Array:
        return p[0] * jnp.exp(-p[1] * T) + p[2] - y

    def step(_: jax.Array, p: jax.Array) -> jax.Array:
        r, j = residual(p), jax.jacfwd(residual)(p)
        return p - jnp.linalg.solve(j.T @ j, j.T @ r)

    return jax.lax.fori_loop(0, 10, step, jnp.array([1.0, 1.0, 0.0]))


def levenberg(y: jax.Array) -> jax.Array:
    def residual(p: jax.Array) -> jax.Array:
        return p[0] * jnp.exp(-p[1] * T) + p[2] - y

    def step(state: jax.Array) -> jax.Array:
        i, p, damping, cost = state
        r, j = residual(p), jax.jacfwd(residual)(p)
        a = j.T @ j
        q = p - jnp.linalg.solve(a + damping * jnp.diag(jnp.diag(a)), j.T @ r)
        new = jnp.sum(residual(q) ** 2)
        p, damping = jnp.where(new < cost, q, p), jnp.where(new < cost, 0.3, 3.0) * damping
        return i + 1, p, damping, jnp.minimum(new, cost)

    start = jnp.array([1.0, 1.0, 0.0])
    state = (0, start, jnp.float32(1e-2), jnp.sum(residual(start) ** 2))
    out = jax.lax.while_loop(lambda s: (s[0] < 20) & (s[3] > 0.025), step, state)
    return residual(out[1])[::50]


def lorenz(y: jax.Array) -> jax.Array:
    def slope(y: jax.Array) -> jax.Array:
        return jnp.stack(
            [10 * (y[1] - y[0]), y[0] * (28 - y[2]) - y[1], y[0] * y[1] - 8 / 3 * y[2]]
        )

    def step(y: jax.Array, _: jax.Array) -> jax.Array:
        h = 0.01
        a = slope(y)
        b = slope(y + h / 2 * a)
        c = slope(y + h / 2 * b)
        return y + h / 6 * (a + 2 * b + 2 * c + slope(y + h * c)), None

    return jax.lax.scan(step, y, None, length=50)[0]


def kalman(ys: jax.Array) -> jax.Array:
    f, q = jnp.array([[1.0, 1.0], [0.0, 1.0]]), 0.01 * jnp.eye(2)

    def step(state: jax.Array, y: jax.Array) -> jax.Array:
        m, p = f @ state[0], f @ state[1] @ f.T + q
        k = p[:, 0] / (p[0, 0] + 0.1)
        return (m + k * (y - m[0]), p - jnp.outer(k, p[0])), m[0]

    return jax.lax.scan(step, (jnp.zeros(2), jnp.eye(2)), ys)[1]


def kepler(m: jax.Array) -> jax.Array:
    return jax.lax.fori_loop(
        0, 10, lambda _, e: e - (e - 0.6 * jnp.sin(e) - m) / (1 - 0.6 * jnp.cos(e)), m
    )


GRU = [0.3 * NUMBERS.standard_normal((16, 40), np.float32) for _ in range(3)]


def gru(xs: jax.Array) -> jax.Array:
    def step(h: jax.Array, x: jax.Array) -> jax.Array:
        hx = jnp.concatenate([h, x])
        z, r = jax.nn.sigmoid(GRU[0] @ hx), jax.nn.sigmoid(GRU[1] @ hx)
        return (1 - z) * h + z * jnp.tanh(GRU[2] @ jnp.concatenate([r * h, x])), None

    return jax.lax.scan(step, jnp.zeros(16), xs)[0]


MLP_INPUTS = NUMBERS.standard_normal((64, 8), np.float32)


def ensemble(weights: jax.Array) -> jax.Array:
    w = weights.reshape(2, 16, 8 * 2)
    h = jnp.tanh(MLP_INPUTS @ w[0, :8])
    return jnp.mean(jnp.tanh(h @ w[1]), axis=0)


def gaussian_process(x: jax.Array) -> jax.Array:
    k = jnp.exp(-((x[:, None] - x[None]) ** 2)) + 0.1 * jnp.eye(40)
    c = jnp.linalg.cholesky(k)
    a = jax.scipy.linalg.solve_triangular(c, jnp.sin(x), lower=True)
    return -0.5 * jnp.sum(a * a) - jnp.sum(jnp.log(jnp.diag(c)))


def asian(x: jax.Array) -> jax.Array:
    path = jnp.exp(jnp.cumsum(-0.02 / 252 + 0.2 / math.sqrt(252) * x))
    return jnp.maximum(jnp.mean(path) - 1.0, 0.0)


def agents(start: jax.Array) -> jax.Array:
    def step(state: jax.Array, i: jax.Array) -> jax.Array:
        x, energy = state
        moved = jnp.where(energy > 0, x + 0.1 * jnp.sin(3 * x + i), x)
        return (moved, energy - 0.05 + 0.1 * jnp.exp(-moved * moved)), None

    return jax.lax.scan(step, (start[0], start[1]), jnp.arange(100.0))[0][0]


def patches(image: jax.Array) -> jax.Array:
    kernel = jnp.outer(jnp.hanning(5), jnp.hanning(5))
    smooth = jax.scipy.signal.convolve2d(image, kernel, mode="same")
    return jnp.stack([jnp.mean(smooth), jnp.std(smooth), jnp.max(smooth)])


def solve(x: jax.Array) -> jax.Array:
    return jnp.linalg.solve(x @ x.T + 50 * jnp.eye(50), x[0])


def curves(rng: np.random.Generator, size: int) -> tuple[np.ndarray, ...]:
    exact = np.exp(-np.outer(rng.uniform(0.5, 2, size), T)) + 0.3
    return ((exact + 0.01 * rng.normal(size=exact.shape)).astype(np.float32),)


def anomalies(rng: np.random.Generator, size: int) -> tuple[np.ndarray, ...]:
    return (rng.uniform(0, 6, size).astype(np.float32),)


def weights(rng: np.random.Generator, size: int) -> tuple[np.ndarray, ...]:
    return (0.3 * rng.standard_normal((size, 512), np.float32),)


FIRST = {
    "fit": Batch(gauss_newton, curves, 4096, lapack=9),
    "levenberg": Batch(levenberg, curves, 2048, lapack=9),
    "lorenz": Batch(lorenz, normal(3), 16384),
    "kalman": Batch(kalman, normal(100), 4096),
    "kepler": Batch(kepler, anomalies, 400_000),
    "gru": Batch(gru, normal(20, 24), 2048),
    "ensemble": Batch(ensemble, weights, 4096),
    "gaussian process": Batch(gaussian_process, normal(40), 2048, lapack=1600),
    "asian": Batch(asian, normal(252), 8192),
    "agents": Batch(agents, normal(2), 65536),
    "patches": Batch(patches, normal(32, 32), 512),
    "solve": Batch(solve, normal(50, 50), 1024, lapack=2500),
}
