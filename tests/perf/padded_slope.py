"""What each more padded array costs a warm call: `python -m tests.perf.padded_slope`.

Sums of one to five arrays of 1,000 numbers in a bucket of 1,024, on a device and as NumPy arrays:
`jax.jit` at exact size, jitney, and a NumPy bucket by hand. All programs run in the calling thread,
whose processor time is taken, so that other work on the machine counts little. Results are compared
first. A figure is the least of 300 laps of 25 calls, in an order that changes, in microseconds over
`jax.jit`; the slope is that of the line through the five.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import reduce
from operator import add
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import jitney
from examples._figures import record

from ._features import SIZE, V, filled, sum_of_five, sum_of_one

LAPS, CALLS = 300, 25
Key = tuple[str, int, str]
Bound = tuple[Callable[..., Any], tuple[Any, ...]]


def sum_of_two(a: V, b: V) -> Float[Array, ""]:
    return jnp.sum(a + b)


def sum_of_three(a: V, b: V, c: V) -> Float[Array, ""]:
    return jnp.sum(a + b + c)


def sum_of_four(a: V, b: V, c: V, d: V) -> Float[Array, ""]:
    return jnp.sum(a + b + c + d)


TOTALS = (sum_of_one, sum_of_two, sum_of_three, sum_of_four, sum_of_five)


def by_hand(total: Callable[..., Any]) -> Callable[..., Any]:
    @jax.jit
    def padded(size: Any, *arrays: Any) -> Any:
        valid = jnp.arange(1024) < size
        return total(*[jnp.where(valid, x, 0) for x in arrays])

    return lambda *arrays: padded(SIZE, *map(filled, arrays))


def calls() -> dict[Key, Bound]:
    """The calls by where their arrays are, how many there are, and who makes them."""
    rng = np.random.default_rng(0)
    host = [rng.standard_normal(1000, np.float32) for _ in TOTALS]
    found: dict[Key, Bound] = {}
    for count, total in enumerate(TOTALS, 1):
        sides = {
            "jit": jax.jit(total),
            "jitney": jitney.optimize(pad={"n": "pow2"})(total),
            "hand": by_hand(total),
        }
        given = host[:count]
        want = float(np.sum(reduce(add, given), dtype=float))
        places = {
            "device": tuple(map(jnp.asarray, given)),
            "NumPy": tuple(given),
        }
        for place, arrays in places.items():
            for side, call in sides.items():
                found[place, count, side] = call, arrays
                got = call(*arrays)
                np.testing.assert_allclose(
                    got,
                    want,
                    rtol=1e-4,
                    atol=1e-3,
                )
    return found


def main() -> None:
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    table = calls()
    least, keys = dict.fromkeys(table, float("inf")), [*table]
    for lap in range(LAPS):
        random.Random(lap).shuffle(keys)
        for key in keys:
            call, arrays = table[key]
            call(*arrays)
            start = time.thread_time_ns()
            for _ in range(CALLS):
                call(*arrays)
            taken = time.thread_time_ns() - start
            least[key] = min(least[key], taken / CALLS / 1e3)
    slopes: dict[str, float] = {}
    counts = range(1, len(TOTALS) + 1)
    for place in ("device", "NumPy"):
        for side in ("jitney", "hand"):
            ours = [least[place, n, side] for n in counts]
            jit = [least[place, n, "jit"] for n in counts]
            more = np.subtract(ours, jit)
            slope = float(np.polyfit(counts, more, 1)[0])
            slopes[f"{place}, {side}"] = slope
            columns = [f"{x:6.2f}" for x in more]
            print(f"{place:7} {side:7}", *columns, f"slope {slope:.2f} us")
    record(us=slopes)


if __name__ == "__main__":
    main()
