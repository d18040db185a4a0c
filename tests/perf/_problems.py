"""Functions whose Jacobians differ in size and structure: `tests.perf.jacobians` measures them,
`tests/sparsity` checks them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Problem = tuple[Callable[[Any], Any], Any]


def draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(list(shape)).normal(size=shape).astype(np.float32)


def network(sizes: list[int]) -> Callable[[Any], Any]:
    layers = [jnp.asarray(draw(b, a) / a**0.5) for a, b in itertools.pairwise(sizes)]

    def apply(x):
        for layer in layers:
            x = jnp.tanh(layer @ x)
        return x

    return apply


def rosenbrock(x):
    return jnp.concatenate([10 * (x[1:] - x[:-1] ** 2), 1 - x[:-1]])


def bratu(u):
    padded = jnp.pad(u, 1)
    return (
        4 * u
        - padded[2:, 1:-1]
        - padded[:-2, 1:-1]
        - padded[1:-1, 2:]
        - padded[1:-1, :-2]
        - 0.01 * jnp.exp(u)
    )


def collocation(x):
    """Implicit Euler for a pendulum with two states, all steps at once: block-bidiagonal."""
    before = jnp.concatenate([jnp.asarray([[1.0, 0.0]]), x[:-1]])
    slope = jnp.stack([x[:, 1], -jnp.sin(x[:, 0]) - 0.1 * x[:, 1]], axis=1)
    return x - before - 0.01 * slope


def stacked_blocks(x):
    """Each block of four depends on itself and on its neighbours, as the paths of a macro-economic
    model do.
    """
    ahead, behind = jnp.pad(x, ((0, 1), (0, 0)))[1:], jnp.pad(x, ((1, 0), (0, 0)))[:-1]
    mix = jnp.asarray(draw(4, 4))
    return (
        jnp.tanh(x @ mix)
        + jnp.exp(-(ahead**2)) @ mix.T
        - behind * jnp.sum(x, axis=1, keepdims=True)
    )


def arrow(x):
    return jnp.concatenate([jnp.sum(x**2)[None], x[1:] * x[0] + x[1:] ** 3])


def solve_each(x):
    eye = jnp.eye(4, dtype=x.dtype)
    return jax.vmap(lambda row: jnp.linalg.solve(eye * 4 + jnp.outer(row, row), jnp.sin(row)))(x)


def attention(x):
    return jax.nn.softmax(x @ x.T / 4, axis=-1) @ x


def recurrent(x):
    return jax.lax.scan(lambda h, v: (jnp.tanh(0.5 * h + v), h * v), jnp.zeros(()), x)[1]


def gaussian_peaks(b):
    """The residuals of NIST's Gauss1: 8 parameters, 250 points."""
    t = jnp.linspace(1.0, 250.0, 250)
    return (
        b[0] * jnp.exp(-b[1] * t)
        + b[2] * jnp.exp(-((t - b[3]) ** 2) / b[4] ** 2)
        + b[5] * jnp.exp(-((t - b[6]) ** 2) / b[7] ** 2)
    )


def correlations(p):
    """Two-time correlations as `examples/homodyne` fits them: 7 parameters, 20,000 points."""
    a, b = jnp.meshgrid(jnp.linspace(0.1, 1.0, 200), jnp.linspace(0.1, 1.0, 100))
    spread = p[0] * jnp.abs(a ** (p[1] + 1) - b ** (p[1] + 1)) + p[2] * jnp.abs(a - b)
    return (
        p[3] + p[4] * jnp.exp(-2 * spread) * jnp.sinc(p[5] * jnp.abs(a - b) + p[6]) ** 2
    ).reshape(-1)


ROWS, COLUMNS = (np.random.default_rng(0).integers(0, 600, 1800) for _ in range(2))
BAND = jnp.asarray(np.triu(np.tril(draw(800, 800), 2), -2))
TALL, WIDE, SQUARE = (jnp.asarray(draw(m, n)) for m, n in ((4000, 20), (20, 4000), (300, 300)))

PROBLEMS: Mapping[str, Problem] = {
    "dense tall": (lambda x: jnp.tanh(TALL @ x), draw(20)),
    "dense wide": (lambda x: jnp.tanh(WIDE @ x), draw(4000)),
    "dense square": (lambda x: jnp.tanh(SQUARE @ x), draw(300)),
    "network tall": (network([8, 64, 64, 500]), draw(8)),
    "network wide": (network([500, 64, 64, 8]), draw(500)),
    "network square": (network([128, 128, 128, 128]), draw(128)),
    "scalar of 10": (lambda x: jnp.sum(jnp.sin(x) * x), draw(10)),
    "scalar of 5,000": (lambda x: jnp.sum(jnp.sin(x) * x), draw(5000)),
    "scalar from network": (lambda x: jnp.sum(network([300, 128, 128])(x) ** 2), draw(300)),
    "curve of one number": (lambda x: jnp.exp(-x * jnp.linspace(0.0, 1.0, 5000)), draw()),
    "elementwise": (lambda x: jnp.sin(x) * jnp.exp(-(x**2)), draw(1500)),
    "tridiagonal": (lambda x: jnp.pad(x, 1)[2:] * x - jnp.pad(x, 1)[:-2] ** 2, draw(1500)),
    "pentadiagonal product": (lambda x: jnp.tanh(BAND @ x), draw(800)),
    "rosenbrock": (rosenbrock, draw(700)),
    "convolution": (
        lambda x: jnp.convolve(x, jnp.asarray([0.2, 0.5, 1.0, 0.5, 0.2]), mode="same") ** 2,
        draw(1000),
    ),
    "bratu 30x30": (bratu, draw(30, 30)),
    "collocation": (collocation, draw(300, 2)),
    "block-tridiagonal": (stacked_blocks, draw(120, 4)),
    "block-diagonal, small": (lambda x: jax.vmap(network([5, 5]))(x), draw(200, 5)),
    "block-diagonal, large": (lambda x: jax.vmap(network([40, 40]))(x), draw(15, 40)),
    "block-diagonal solves": (solve_each, draw(120, 4)),
    "batch of norms": (lambda x: jnp.linalg.norm(x, axis=1), draw(300, 6)),
    "batch of outer products": (lambda x: jnp.einsum("bi,bj->bij", x, x), draw(60, 5)),
    "softmax of rows": (lambda x: jax.nn.softmax(x, axis=1), draw(80, 10)),
    "sum of groups": (
        lambda x: jax.ops.segment_sum(x**2, jnp.arange(1000) // 10, num_segments=100),
        draw(1000),
    ),
    "arrow": (arrow, draw(800)),
    "sparse random": (lambda x: jnp.zeros(600).at[ROWS].add(jnp.sin(x[COLUMNS])), draw(600)),
    "gather": (lambda x: x[COLUMNS] ** 2 * x[ROWS], draw(600)),
    "cumulative sum": (lambda x: jnp.cumsum(jnp.sin(x)), draw(400)),
    "attention": (attention, draw(20, 16)),
    "recurrent": (recurrent, draw(300)),
    "fourier": (lambda x: jnp.abs(jnp.fft.rfft(x)) ** 2, draw(400)),
    "eigenvalues": (lambda x: jnp.linalg.eigvalsh(x + x.T), draw(16, 16)),
    "Gauss1 (trf)": (gaussian_peaks, np.abs(draw(8)) + 1),
    "correlations (homodyne)": (correlations, np.abs(draw(7)) + 0.1),
    "log-sum-exp": (lambda x: jax.nn.logsumexp(WIDE[:, :600] * x, axis=1), draw(600)),
}
