"""Measurements of `doctor`: a compile, and the speed of JAX's default device.

Figures have no verdict: a good value depends on the machine.
"""

from __future__ import annotations

import time

import jax
import jax.numpy as jnp
import numpy as np

from ..._devices.speeds import speed_of
from ..._jax.compile_cache import cache
from .checks import Check


def measurements() -> list[Check]:
    """Return the figures."""
    # On the device of JAX's default, which may be set.
    (device,) = jnp.zeros(()).devices()
    speed = speed_of(device, ["tf32"])
    rate = speed.products["tf32"]
    return [
        _compile(),
        Check(
            "matmul",
            f"{rate / 1e9:,.1f} GFLOP/s, float32 at JAX's default precision",
            data={"flop_per_s": rate},
        ),
        Check(
            "memory bandwidth",
            f"{speed.bandwidth / 2**30:,.1f} GiB/s, read and written",
            data={"bytes_per_s": speed.bandwidth},
        ),
        Check(
            "dispatch",
            f"{speed.latency * 1e6:.1f} us a warm call, until its result is there",
            data={"seconds": speed.latency},
        ),
    ]


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
