"""What a Jacobian of eight sizes in one bucket costs: coloured and dense passes of a padded
program, and exact programs.

Run from the project's root: `python -m tests.perf.padded_jacobians`. The function is a chain of
neighbours with some work at each point, after Bratu's problem. The first call of a bucket traces
and compiles, one of a new size reads its structure, and warm calls are the least of several rounds,
in turn. All are compared with `jax.jacfwd` first.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import jitney

ROUNDS = 9
PAD = {"n": "pow2"}
BUCKETS = ((121, 128), (1017, 1024))


def chain() -> Callable[[Any], Any]:
    """The function, anew: programs of the same one share what they have compiled."""

    def residual(u: Float[Array, "n"]) -> Float[Array, "n"]:
        v = jnp.pad(u, 1)
        work = jnp.tanh(jnp.exp(0.1 * u) + jnp.sin(u) * jnp.cos(u))
        return v[2:] - 2 * u + v[:-2] + work

    return residual


def waited(call: Callable[[Any], Any], x: Any) -> float:
    start = time.perf_counter()
    jax.block_until_ready(call(x))
    return time.perf_counter() - start


def main() -> None:
    """Print a line for each way."""
    print(
        "| sizes | way | compiles | first call, s | each new size, s | all eight, s | warm call, ms"
        " |\n|---|---|---|---|---|---|---|"
    )
    for first, last in BUCKETS:
        xs = [
            jnp.asarray(np.random.default_rng(n).normal(size=n), jnp.float32)
            for n in range(first, last + 1)
        ]
        ways = {
            "coloured, padded": (
                jitney.lazy_derivatives(wrt="u", mode="coloured")(
                    jitney.optimize(pad=PAD, cache=False)(chain())
                ).jacobian
            ),
            "dense, padded": (
                jitney.lazy_derivatives(wrt="u", mode="forward")(
                    jitney.optimize(pad=PAD, cache=False)(chain())
                ).jacobian
            ),
            "coloured, exact": (
                jitney.lazy_derivatives(wrt="u", mode="coloured")(
                    jitney.optimize(cache=False)(chain())
                ).jacobian
            ),
        }
        seen = {name: [waited(call, x) for x in xs] for name, call in ways.items()}
        compiles = {name: call.stats.compiles for name, call in ways.items()}
        for call in ways.values():
            np.testing.assert_allclose(
                call(xs[3]), jax.jacfwd(chain())(xs[3]), rtol=1e-4, atol=1e-5
            )
        rounds = [{name: waited(call, xs[3]) for name, call in ways.items()} for _ in range(ROUNDS)]
        for name, times in seen.items():
            new, warm = float(np.median(times[1:])), 1e3 * min(each[name] for each in rounds)
            line = (
                f"{first} to {last}",
                name,
                compiles[name],
                f"{times[0]:.2f}",
                f"{new:.3f}",
                f"{sum(times):.2f}",
                f"{warm:.2f}",
            )
            print("| " + " | ".join(map(str, line)) + " |")


if __name__ == "__main__":
    main()
