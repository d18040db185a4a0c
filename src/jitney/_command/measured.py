"""Measurements of `doctor`, about five seconds in all: products, memory, a warm call, a compile.

Each figure is the best of several tries, since other load on a machine only takes away. Figures
have no verdict: a good value depends on the machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from .._jax.compile_cache import cache
from .checks import Check

# Seconds for each of the figures.
_BUDGET = 0.8
_ROWS = 1024
# 64 MiB, which no cache of a CPU holds twice.
_FLOATS = 2**24
_CALLS = 1000


def measurements() -> list[Check]:
    """Return the figures, on JAX's default device."""
    return [_compile(), _product(), _bandwidth(), _dispatch()]


def _product() -> Check:
    x = jnp.ones((_ROWS, _ROWS), np.float32)
    f = jax.jit(_square)
    seconds = _best(lambda: f(x).block_until_ready())
    # A product of two n x n matrices takes n^3 multiplications and as many additions.
    rate = 2 * _ROWS**3 / seconds
    return Check(
        "matmul", f"{rate / 1e9:,.1f} GFLOP/s, float32 {_ROWS}x{_ROWS}", data={"flop_per_s": rate}
    )


def _bandwidth() -> Check:
    x = jnp.ones(_FLOATS, np.float32)
    f = jax.jit(_one_more)
    seconds = _best(lambda: f(x).block_until_ready())
    rate = 2 * x.nbytes / seconds
    return Check(
        "memory bandwidth",
        f"{rate / 2**30:,.1f} GiB/s, reading and writing {x.nbytes >> 20} MiB",
        data={"bytes_per_s": rate},
    )


def _dispatch() -> Check:
    x = jnp.ones(8, np.float32)
    f = jax.jit(_one_more)

    def calls() -> None:
        out = x
        for _ in range(_CALLS):
            out = f(out)
        out.block_until_ready()

    seconds = _best(calls) / _CALLS
    return Check("dispatch", f"{seconds * 1e6:.1f} us a warm call", data={"seconds": seconds})


def _square(x: jax.Array) -> jax.Array:
    return x @ x


def _one_more(x: jax.Array) -> jax.Array:
    return x + 1


def _compile() -> Check:
    """Time the compilation of a fixed program, past the persistent cache."""

    def program(x: jax.Array) -> jax.Array:
        for _ in range(8):
            x = jnp.tanh(x @ x.T) / (1 + jnp.sum(x * x, axis=0))
        return jnp.linalg.norm(x)

    lowered = jax.jit(program).lower(jax.ShapeDtypeStruct((64, 64), np.float32))
    with cache.pause_cache():
        began = time.perf_counter()
        lowered.compile()
        seconds = time.perf_counter() - began
    return Check(
        "compile", f"{seconds:.2f} s for a fixed program of 8 layers", data={"seconds": seconds}
    )


def _best(run: Callable[[], object]) -> float:
    """Return the shortest of as many runs as the budget allows, after a run that compiles."""
    run()
    until, best = time.perf_counter() + _BUDGET, float("inf")
    while time.perf_counter() < until:
        began = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - began)
    return best
