"""What the options cost that change nothing of the numbers: the first call and a warm one of one
function, each option beside none.

Run from the project's root: `python -m tests.perf.options`. Results are compared first, to the bit.
The first call is of a function of its own each time, with no persistent cache; a warm one waits for
its result. Figures are the least of short laps, in turn.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import jitney
from examples._figures import record

ROUNDS = int(os.environ.get("JITNEY_BENCH_ROUNDS", "400"))
# of a short lap, since other work takes less of some of these; and functions whose first call is
# timed
CALLS, FIRST = 20, 5
OPTIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "contracts=False": {"contracts": False},
    "max_compiles=8": {"max_compiles": 8},
    'compiler="fast"': {"compiler": "fast"},
    "debug_nans=True": {"debug_nans": True},
    "verify=True, pad": {"verify": True, "pad": {"n": [1000]}},
    "pad": {"pad": {"n": [1000]}},
    'on_trace_error="eager"': {"on_trace_error": "eager"},
    'on_trace_error="eager", un-jitted': {"on_trace_error": "eager"},
}


def body() -> Callable[..., Any]:
    """A function that nobody has compiled yet."""

    def decayed(x: Float[Array, "n"], rate: Float[Array, ""]) -> Float[Array, "n"]:
        for _ in range(8):
            x = jnp.tanh(x) * jnp.exp(-rate * x**2)
        return x

    return decayed


def deciding() -> Callable[..., Any]:
    """The same, behind a decision by a value."""
    inner = body()

    def decided(x: Float[Array, "n"], rate: Float[Array, ""]) -> Float[Array, "n"]:
        if rate > 0:
            return inner(x, rate)
        return x

    return decided


def made(name: str) -> Any:
    return jitney.optimize(deciding() if name.endswith("un-jitted") else body(), **OPTIONS[name])


def seconds(call: Callable[[], Any], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        jax.block_until_ready(call())
    return (time.perf_counter() - start) / count


def main() -> None:
    jitney.configure(cache=False)
    x, rate = jnp.asarray(np.random.default_rng(0).normal(size=1000), jnp.float32), jnp.float32(0.5)
    plain = jax.jit(body())(x, rate)
    first = dict.fromkeys(OPTIONS, float("inf"))
    warm = dict.fromkeys(OPTIONS, float("inf"))
    programs: dict[str, Any] = {}
    for _ in range(FIRST):
        for name in OPTIONS:
            programs[name] = made(name)
            first[name] = min(first[name], seconds(lambda name=name: programs[name](x, rate), 1))
    for name, program in programs.items():
        if name.endswith("un-jitted"):
            # XLA fuses nothing there
            np.testing.assert_allclose(program(x, rate), plain, rtol=1e-5)
        else:
            np.testing.assert_array_equal(program(x, rate), plain)
    for _ in range(ROUNDS):
        for name, program in programs.items():
            count = 1 if name.endswith("un-jitted") else CALLS
            warm[name] = min(warm[name], seconds(lambda program=program: program(x, rate), count))
    print(f"jax {jax.__version__}\n{'option':34}{'first call, ms':>16}{'a warm call, us':>17}")
    for name in OPTIONS:
        print(f"{name:34}{1e3 * first[name]:16.0f}{1e6 * warm[name]:17.1f}")
    record(
        warm={name: 1e6 * taken for name, taken in warm.items()},
        first={name: 1e3 * taken for name, taken in first.items()},
    )


if __name__ == "__main__":
    import warnings

    # which says that a function runs un-jitted
    warnings.simplefilter("ignore", jitney.JitneyWarning)
    main()
