"""Thousands of fits at once: how many run at a time, and in how many threads.

Today `jax.jit(jax.vmap(fit))` runs all at once, in memory that no cache holds; XLA's programs of
small operations use one core of a CPU. By hand it is `jax.lax.map` in batches, of a width that is
the best of some, and a thread for each core, with a part of the fits. `auto=True` finds both by
measuring its own calls.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import jitney

from .._timing import assert_equal, in_turn, seconds_of
from ._gain import Gain, Line

FITS, POINTS = 4096, 200
T = np.linspace(0, 4, POINTS, dtype=np.float32)
WIDTHS = (16, 64, 256)
MOST_CALLS = 200
CORES = os.cpu_count() or 1


def fit(y: Float[Array, "points"]) -> Float[Array, "3"]:
    """Ten steps of Gauss and Newton on a decay to a constant."""

    def misfit(p: Array) -> Array:
        return p[0] * jnp.exp(-p[1] * T) + p[2] - y

    def step(_: Array, p: Array) -> Array:
        r, j = misfit(p), jax.jacfwd(misfit)(p)
        return p - jnp.linalg.solve(j.T @ j, j.T @ r)

    return jax.lax.fori_loop(0, 10, step, jnp.array([1.0, 1.0, 0.0]))


def curves() -> np.ndarray:
    """A noisy decay a row."""
    rng = np.random.default_rng(0)
    decays = np.exp(-np.outer(rng.uniform(0.5, 2, FITS), T))
    return (decays + 0.3 + 0.01 * rng.normal(size=(FITS, POINTS))).astype(np.float32)


def in_batches(width: int, pool: ThreadPoolExecutor) -> Callable[[np.ndarray], np.ndarray]:
    """By hand: so many fits at a time, and threads with a part each."""
    batched = jax.jit(lambda y: jax.lax.map(fit, y, batch_size=width))

    def part(y: np.ndarray) -> np.ndarray:
        return np.asarray(batched(y))

    return lambda y: np.concatenate(list(pool.map(part, np.array_split(y, CORES))))


def learnt(program: Any, y: np.ndarray) -> None:
    """Call it until its choice has fallen."""
    for _ in range(MOST_CALLS):
        jax.block_until_ready(program(y))
        decisions = program.plan(y).to_dict()["decisions"]
        why = next(each["why"] for each in decisions if each["name"] == "auto")
        if "while it learns" not in why:
            return


def measure() -> Gain:
    """Compare, then time."""
    y = curves()
    with ThreadPoolExecutor(CORES) as pool:
        plain = jax.jit(jax.vmap(fit))
        # A choice of an earlier run is not used again, and is not found in no time.
        program = jitney.optimize(fit, vmap="fit", auto=True, cache=False)
        by_width = {width: in_batches(width, pool) for width in WIDTHS}
        found = {"all at once": lambda: plain(y), "jitney": lambda: program(y)}
        compile_s, results = {}, {}
        for name, call in found.items():
            compile_s[name], results[name] = seconds_of(call)
        taken = {}
        for width, batched in by_width.items():
            first, results[f"{width} by hand"] = seconds_of(lambda batched=batched: batched(y))
            taken[width] = (seconds_of(lambda batched=batched: batched(y))[0], first)
        best = min(taken, key=taken.get)
        to_choose = seconds_of(lambda: learnt(program, y))[0]
        results["jitney's choice"] = program(y)
        assert_equal(results, rtol=1e-3, atol=1e-4)
        sides = {
            "all at once": found["all at once"],
            "by hand": lambda: by_width[best](y),
            "jitney": found["jitney"],
        }
        ms = {name: 1e3 * each for name, each in in_turn(sides, seconds=2).items()}
    return Gain(
        "widths",
        f"{FITS:,} fits of {POINTS} points at once",
        "jax.jit(jax.vmap(fit))",
        f"jax.lax.map in batches of {best}, the best of {len(WIDTHS)}, in {CORES} threads",
        "auto=True, once it has chosen",
        "parameters to 1e-3, in float32",
        (
            Line("all fits, ms", *ms.values()),
            Line(
                "until it is chosen, s",
                compile_s["all at once"],
                sum(first + again for again, first in taken.values()),
                compile_s["jitney"] + to_choose,
            ),
        ),
    )
