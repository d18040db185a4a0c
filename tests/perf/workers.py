"""A mapped axis over threads: `workers=2` beside `jit(vmap)`, chunks, and threads by hand.

    python -m tests.perf.workers

8,192 fits of 400 points, and loops whose lanes end at different turns, both on two threads; and a
call that is too small for any. Results are asserted equal first, to the bit where the widths are.
Compiling is apart; all ways take turns, and a figure is the median over rounds, with the cores that
were busy (seconds of CPU by seconds) beside it.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from examples._figures import record
from jitney import optimize

FITS, POINTS, CHUNK, ROUNDS = 8192, 400, 32, 7
SMALL_CALLS = 200
T = np.linspace(0, 4, POINTS, dtype=np.float32)


def decay(p: Any, t: Any) -> Any:
    return p[0] * jnp.exp(-p[1] * t) + p[2]


def fit(y: Float[Array, "points"]) -> Float[Array, "3"]:
    """Twenty steps of Gauss-Newton."""

    def residual(p: Any) -> Any:
        return decay(p, T) - y

    def step(_: Any, p: Any) -> Any:
        r, j = residual(p), jax.jacfwd(residual)(p)
        return p - jnp.linalg.solve(j.T @ j, j.T @ r)

    return jax.lax.fori_loop(0, 20, step, jnp.array([1.0, 1.0, 0.0]))


def halved(x: Float[Array, "n"]) -> Float[Array, ""]:
    """Turns until the first element is small."""
    return jnp.sum(jax.lax.while_loop(lambda s: jnp.abs(s[0]) > 1.0, lambda s: s * (1 - 1e-3), x))


def curves() -> Any:
    rng = np.random.default_rng(0)
    exact = np.exp(-np.outer(rng.uniform(0.5, 2, FITS), T)) + 0.3
    return jnp.asarray(exact + 0.01 * rng.normal(size=exact.shape), jnp.float32)


def lanes() -> Any:
    x = np.random.default_rng(0).standard_normal((2048, 64), np.float32)
    x[:, 0] = np.where(np.arange(2048) % 64 == 9, 1e6, 1.005)
    return jnp.asarray(x)


def by_hand(body: Callable[..., Any], width: int, count: int = 2) -> Callable[[Any], Any]:
    """Threads as one writes them: `lax.map` in batches, each half in a thread that waits for it."""
    part = jax.jit(lambda x: jax.lax.map(body, x, batch_size=width))
    pool = ThreadPoolExecutor(count)

    def half(x: Any) -> Any:
        return np.asarray(part(x))

    return lambda x: jnp.asarray(np.concatenate([*pool.map(half, np.split(np.asarray(x), count))]))


def ways_of(body: Callable[..., Any], width: int) -> dict[str, Callable[..., Any]]:
    chunk = {"lane": width}
    return {
        "jax.jit(vmap)": jax.jit(jax.vmap(body)),
        f"chunk={width}": optimize(body, vmap="lane", chunk=chunk),
        # Of the fits in halves XLA may hang, in LAPACK of many matrices in two threads.
        'workers="auto"': optimize(body, vmap="lane", workers="auto"),
        f"chunk={width}, workers=2": optimize(body, vmap="lane", chunk=chunk, workers=2),
        f"lax.map of {width} in two threads": by_hand(body, width),
    }


def rounds(ways: dict[str, Callable[..., Any]], x: Any, times: int = 1) -> dict[str, list[Any]]:
    """Wall and CPU seconds of a call in each round."""
    taken: dict[str, list[Any]] = {way: [] for way in ways}
    for _ in range(ROUNDS):
        for way, f in ways.items():
            began, busy = time.perf_counter(), sum(os.times()[:2])
            for _ in range(times):
                jax.block_until_ready(f(x))
            wall = time.perf_counter() - began
            taken[way].append((wall / times, (sum(os.times()[:2]) - busy) / times))
    return taken


def main() -> None:
    milliseconds: dict[str, dict[str, float]] = {}
    for name, body, width, x in (("fits", fit, CHUNK, curves()), ("loops", halved, 1, lanes())):
        ways = ways_of(body, width)
        outs = {way: np.asarray(f(x)) for way, f in ways.items()}
        first = next(iter(outs.values()))
        for out in outs.values():
            np.testing.assert_allclose(out, first, rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(outs[f"chunk={width}, workers=2"], outs[f"chunk={width}"])
        milliseconds[name] = {}
        for number, (way, pairs) in enumerate(rounds(ways, x).items()):
            wall, busy = (statistics.median(each) for each in zip(*pairs, strict=True))
            milliseconds[name][f"way {number}"] = wall * 1e3
            print(f"{name:<6} {way:<32} {wall * 1e3:9.1f} ms, {busy / wall:.1f} cores", flush=True)

    small = {
        "vmap": optimize(jnp.sin, vmap={"lane": {"x": 0}}),
        "workers=2": optimize(jnp.sin, vmap={"lane": {"x": 0}}, workers=2),
    }
    x = jnp.arange(64.0)
    microseconds: dict[str, float] = {}
    for f in small.values():
        jax.block_until_ready(f(x))
    for way, pairs in rounds(small, x, SMALL_CALLS).items():
        microseconds[way] = statistics.median(wall for wall, _ in pairs) * 1e6
        print(f"small  {way:<32} {microseconds[way]:9.1f} us", flush=True)
    record(milliseconds=milliseconds, microseconds=microseconds)


if __name__ == "__main__":
    main()
