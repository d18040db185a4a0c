"""What 250 numbers in a state cost: one split of the vector against one slice a field, in turn in
one process.

Run from the project's root: `python -m tests.perf.state`. Results are compared first. Traced
operations are counted in the jaxpr; tracing, lowering and compiling are timed apart, each the least
of several rounds, without the persistent cache.
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
from examples._figures import record

FIELDS, ROUNDS = 250, 7
NAMES = [f"x{i}" for i in range(FIELDS)]
Numbers = type(
    "Numbers", (jitney.states.State,), {"__annotations__": dict.fromkeys(NAMES, Float[Array, ""])}
)


def model(numbers: Any) -> Any:
    """Something of every field, and a state again."""
    return type(numbers)(**{name: jnp.sin(getattr(numbers, name)) for name in NAMES})


def by_split(vector: jax.Array) -> jax.Array:
    return model(Numbers.of(vector)).array


def by_slices(vector: jax.Array) -> jax.Array:
    state = model(Numbers(**{name: vector[i] for i, name in enumerate(NAMES)}))
    return jnp.concatenate([jnp.reshape(getattr(state, name), (1,)) for name in NAMES])


def measure(fn: Callable[..., Any], vector: jax.Array) -> tuple[int, float, float, float]:
    """Operations, and the seconds of tracing, lowering and compiling."""
    times: list[tuple[float, float, float]] = []
    for _ in range(ROUNDS):
        jax.clear_caches()
        start = time.perf_counter()
        traced = jax.jit(lambda v: fn(v)).trace(vector)
        a = time.perf_counter()
        lowered = traced.lower()
        b = time.perf_counter()
        lowered.compile()
        times.append((a - start, b - a, time.perf_counter() - b))
    return (
        len(jax.make_jaxpr(fn)(vector).eqns),
        *(min(column) for column in zip(*times, strict=True)),
    )


def main() -> None:
    jitney.configure(cache=False)
    vector = jnp.linspace(0.0, 1.0, FIELDS)
    np.testing.assert_array_equal(jax.jit(by_split)(vector), jax.jit(by_slices)(vector))
    ways = {"one split": by_split, "a slice for each field": by_slices}
    print(f"a state of {FIELDS} numbers, sin of each, jax {jax.__version__}")
    print(f"{'':24}{'operations':>11}{'trace':>10}{'lower':>10}{'compile':>10}")
    found: list[dict[str, float]] = []
    for name, fn in ways.items():
        count, *seconds = measure(fn, vector)
        found.append({"operations": count, "ms": (seconds[0] + seconds[1]) * 1e3})
        print(f"{name:24}{count:11}" + "".join(f"{s * 1e3:7.1f} ms" for s in seconds))
    record(split=found[0], slices=found[1])


if __name__ == "__main__":
    main()
