"""Widths and threads that are chosen by measuring, beside the best by hand: twelve programs.

    python -m tests.perf.auto [NAME ...]

Programs as public documentation writes them under `jax.jit(jax.vmap(...))`: fits, ODEs, filters,
networks, Gaussian processes, Monte Carlo, root finding, agents, image patches. By hand is
`jax.lax.map` in batches of 1 to 1,024 and the whole, each in one thread and in two that wait for
their halves, of which the quickest is taken. Ours is `chunk={"lane": "fast"}`, alone and with
`workers="auto"`, and `auto=True` once its choice has fallen, without what an earlier process has
remembered. Results are asserted equal first. Plain, the best by hand and ours then take turns,
and a figure is the median over rounds; `cores` are seconds of CPU by seconds, of the plain call.
"""

from __future__ import annotations

import math
import os
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from examples._figures import record
from jitney import optimize

WIDTHS, ROUNDS, LONG = (1, 16, 64, 256, 1024), 5, 0.05
MOST_CALLS = 1000
RNG = np.random.default_rng(0)
T = np.linspace(0, 4, 200, dtype=np.float32)
POOL = ThreadPoolExecutor(2)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape, np.float32)


def gauss_newton(y: Any) -> Any:
    def residual(p: Any) -> Any:
        return p[0] * jnp.exp(-p[1] * T) + p[2] - y

    def step(_: Any, p: Any) -> Any:
        r, j = residual(p), jax.jacfwd(residual)(p)
        return p - jnp.linalg.solve(j.T @ j, j.T @ r)

    return jax.lax.fori_loop(0, 10, step, jnp.array([1.0, 1.0, 0.0]))


def levenberg(y: Any) -> Any:
    def residual(p: Any) -> Any:
        return p[0] * jnp.exp(-p[1] * T) + p[2] - y

    def step(state: Any) -> Any:
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


def lorenz(y: Any) -> Any:
    def slope(y: Any) -> Any:
        return jnp.stack(
            [10 * (y[1] - y[0]), y[0] * (28 - y[2]) - y[1], y[0] * y[1] - 8 / 3 * y[2]]
        )

    def step(y: Any, _: Any) -> Any:
        h = 0.01
        a = slope(y)
        b = slope(y + h / 2 * a)
        c = slope(y + h / 2 * b)
        return y + h / 6 * (a + 2 * b + 2 * c + slope(y + h * c)), None

    return jax.lax.scan(step, y, None, length=50)[0]


def kalman(ys: Any) -> Any:
    f, q = jnp.array([[1.0, 1.0], [0.0, 1.0]]), 0.01 * jnp.eye(2)

    def step(state: Any, y: Any) -> Any:
        m, p = f @ state[0], f @ state[1] @ f.T + q
        k = p[:, 0] / (p[0, 0] + 0.1)
        return (m + k * (y - m[0]), p - jnp.outer(k, p[0])), m[0]

    return jax.lax.scan(step, (jnp.zeros(2), jnp.eye(2)), ys)[1]


def kepler(m: Any) -> Any:
    return jax.lax.fori_loop(
        0, 10, lambda _, e: e - (e - 0.6 * jnp.sin(e) - m) / (1 - 0.6 * jnp.cos(e)), m
    )


GRU = [0.3 * normal(16, 40) for _ in range(3)]


def gru(xs: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        hx = jnp.concatenate([h, x])
        z, r = jax.nn.sigmoid(GRU[0] @ hx), jax.nn.sigmoid(GRU[1] @ hx)
        return (1 - z) * h + z * jnp.tanh(GRU[2] @ jnp.concatenate([r * h, x])), None

    return jax.lax.scan(step, jnp.zeros(16), xs)[0]


MLP_INPUTS = normal(64, 8)


def ensemble(weights: Any) -> Any:
    w = weights.reshape(2, 16, 8 * 2)
    h = jnp.tanh(MLP_INPUTS @ w[0, :8])
    return jnp.mean(jnp.tanh(h @ w[1]), axis=0)


def gaussian_process(x: Any) -> Any:
    k = jnp.exp(-((x[:, None] - x[None]) ** 2)) + 0.1 * jnp.eye(40)
    c = jnp.linalg.cholesky(k)
    a = jax.scipy.linalg.solve_triangular(c, jnp.sin(x), lower=True)
    return -0.5 * jnp.sum(a * a) - jnp.sum(jnp.log(jnp.diag(c)))


def asian(x: Any) -> Any:
    path = jnp.exp(jnp.cumsum(-0.02 / 252 + 0.2 / math.sqrt(252) * x))
    return jnp.maximum(jnp.mean(path) - 1.0, 0.0)


def agents(start: Any) -> Any:
    def step(state: Any, i: Any) -> Any:
        x, energy = state
        moved = jnp.where(energy > 0, x + 0.1 * jnp.sin(3 * x + i), x)
        return (moved, energy - 0.05 + 0.1 * jnp.exp(-moved * moved)), None

    return jax.lax.scan(step, (start[0], start[1]), jnp.arange(100.0))[0][0]


def patches(image: Any) -> Any:
    kernel = jnp.outer(jnp.hanning(5), jnp.hanning(5))
    smooth = jax.scipy.signal.convolve2d(image, kernel, mode="same")
    return jnp.stack([jnp.mean(smooth), jnp.std(smooth), jnp.max(smooth)])


def solve(x: Any) -> Any:
    return jnp.linalg.solve(x @ x.T + 50 * jnp.eye(50), x[0])


def curves(count: int) -> Any:
    exact = np.exp(-np.outer(RNG.uniform(0.5, 2, count), T)) + 0.3
    return (exact + 0.01 * RNG.normal(size=exact.shape)).astype(np.float32)


PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[], Any]]] = {
    "fit": (gauss_newton, lambda: curves(4096)),
    "levenberg": (levenberg, lambda: curves(2048)),
    "lorenz": (lorenz, lambda: normal(16384, 3)),
    "kalman": (kalman, lambda: normal(4096, 100)),
    "kepler": (kepler, lambda: RNG.uniform(0, 6, 400_000).astype(np.float32)),
    "gru": (gru, lambda: normal(2048, 20, 24)),
    "ensemble": (ensemble, lambda: 0.3 * normal(4096, 512)),
    "gaussian process": (gaussian_process, lambda: normal(2048, 40)),
    "asian": (asian, lambda: normal(8192, 252)),
    "agents": (agents, lambda: normal(65536, 2)),
    "patches": (patches, lambda: normal(512, 32, 32)),
    "solve": (solve, lambda: normal(1024, 50, 50)),
}


def by_hand(body: Callable[..., Any], width: int | None, threads: int) -> Callable[[Any], Any]:
    if width is None:
        part = jax.jit(jax.vmap(body))
    else:
        part = jax.jit(lambda x: jax.lax.map(body, x, batch_size=width if width > 1 else None))
    if threads == 1:
        return part

    def half(x: Any) -> Any:
        return np.asarray(part(x))

    return lambda x: jnp.asarray(np.concatenate([*POOL.map(half, np.split(np.asarray(x), 2))]))


def once(f: Callable[[Any], Any], x: Any) -> tuple[float, float]:
    """Seconds of a call, and of the CPU in it."""
    began, busy = time.perf_counter(), sum(os.times()[:2])
    jax.block_until_ready(f(x))
    return time.perf_counter() - began, sum(os.times()[:2]) - busy


def measured(name: str, body: Callable[..., Any], x: Any) -> dict[str, Any]:
    plain = jax.jit(jax.vmap(body))
    want = np.asarray(plain(x))
    near = {"rtol": 2e-3, "atol": 2e-3 * max(1.0, float(np.abs(want).max()))}

    # Two threads that run LAPACK on many numbers at once may hang in XLA, of plain JAX too.
    most = {"gaussian process": 1, "solve": 1, "fit": 256, "levenberg": 256}.get(name)
    safe = [width for width in (None, *WIDTHS) if most is None or (width or most + 1) <= most]
    # The best by hand: one run of each that is compiled already.
    grid: dict[str, Callable[[Any], Any]] = {}
    for width in (None, *(width for width in WIDTHS if width < len(x))):
        for threads in (1, 2) if width in safe else (1,):
            way = f"{'whole' if width is None else width} in {threads}"
            grid[way] = by_hand(body, width, threads)
            np.testing.assert_allclose(np.asarray(grid[way](x)), want, **near)
    trial = {way: min(once(f, x)[0] for _ in range(2)) for way, f in grid.items()}
    best = min(trial, key=lambda way: trial[way])

    options: dict[str, Any] = {"vmap": {"lane": {"x": 0}}, "chunk": {"lane": "fast"}}
    named = lambda x: body(x)
    alone, threaded = optimize(named, **options), optimize(named, **options, workers="auto")
    auto = optimize(lambda x: body(x), vmap=options["vmap"], auto=True, cache=False)
    learning = learn(auto, x, want, near)
    first: dict[str, float] = {}
    for way, f in (("fast", alone), ("fast, workers", threaded)):
        first[way] = once(f, x)[0]
        np.testing.assert_allclose(np.asarray(f(x)), want, **near)

    ways = {
        "plain": plain,
        "by hand": grid[best],
        "fast": alone,
        "fast, workers": threaded,
        "auto": auto,
    }
    taken: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    for _ in range(ROUNDS):
        for way, f in ways.items():
            taken[way].append(once(f, x))
    wall = {way: statistics.median(w for w, _ in pairs) for way, pairs in taken.items()}
    cores = sum(busy for _, busy in taken["plain"]) / sum(w for w, _ in taken["plain"])
    why = line_of(alone, x, "chunk")
    return {
        **{way: seconds * 1e3 for way, seconds in wall.items()},
        "best": best,
        "chosen": why.partition(", measured")[0],
        "chosen by auto": line_of(auto, x, "auto"),
        "calls that learnt": learning,
        "cores": cores,
        "first": first["fast"],
    }


def line_of(f: Any, x: Any, name: str) -> str:
    lines = f.plan(x).to_dict()["decisions"]
    return next(line["why"] for line in lines if line["name"] == name)


def learn(f: Any, x: Any, want: Any, near: dict[str, float]) -> int:
    """Call it until its choice has fallen, and return how many calls that took."""
    out, calls = None, 0
    while calls < MOST_CALLS:
        out, calls = f(x), calls + 1
        # A result that nobody waits for would be timed with those before it.
        jax.block_until_ready(out)
        if not line_of(f, x, "auto").startswith("whole, while it learns"):
            break
    np.testing.assert_allclose(np.asarray(out), want, **near)
    return calls


def main() -> None:
    names = sys.argv[1:] or list(PROGRAMS)
    figures: dict[str, dict[str, Any]] = {}
    print(
        f"{'':<17}{'plain':>9}{'by hand':>9}{'fast':>9}{'workers':>9}{'auto':>9} ms  cores  first call"
    )
    for name in names:
        body, inputs = PROGRAMS[name]
        found = figures[name] = measured(name, body, inputs())
        told = "".join(
            f"{found[way]:9.1f}" for way in ("plain", "by hand", "fast", "fast, workers", "auto")
        )
        print(
            f"{name:<17}{told}    {found['cores']:5.2f}  {found['first']:6.1f} s"
            f"   by hand: {found['best']}; fast: {found['chosen']}"
            f"; auto: {found['chosen by auto']}",
            flush=True,
        )
    for way in ("by hand", "fast", "fast, workers", "auto"):
        gains = {name: found["plain"] / found[way] for name, found in figures.items()}
        long = [gain for name, gain in gains.items() if figures[name]["plain"] >= LONG * 1e3]
        mean = math.exp(statistics.mean(map(math.log, long))) if long else math.nan
        worst = min(gains, key=lambda name: gains[name])
        print(
            f"{way:<14} {mean:5.2f} times as fast as plain in {len(long)} programs of {LONG * 1e3:.0f}"
            f" ms or more; least {gains[worst]:.2f} ({worst})"
        )
    record(milliseconds=figures)


if __name__ == "__main__":
    main()
