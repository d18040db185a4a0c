"""What a low type costs or saves: `precision="bf16"` and `"fp16"` against float32, in turn in one
process.

Run from the project's root: `python -m tests.perf.precision`. Each result is first held against
float32's, to the tolerance of its type; compiling is timed apart. Figures are the least of several
rounds, in milliseconds, of the value and gradient of a two-layer network.
"""

from __future__ import annotations

import os
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import jitney

ROUNDS = int(os.environ.get("JITNEY_BENCH_ROUNDS", "7"))
WIDTHS = tuple(
    int(width) for width in os.environ.get("JITNEY_BENCH_WIDTHS", "64,256,1024").split(",")
)
TOLERANCE = {"f32": 1e-5, "bf16": 3e-2, "fp16": 4e-3}


def loss(
    first: Float[Array, "n n"], second: Float[Array, "n n"], x: Float[Array, "n n"]
) -> Float[Array, ""]:
    # not a mean: its cotangents are below what float16 holds
    return jnp.sum((jnp.tanh(x @ first) @ second) ** 2) / x.shape[0]


def timed(run: Any, *args: Any) -> float:
    start = time.perf_counter()
    jax.block_until_ready(run(*args))
    return 1e3 * (time.perf_counter() - start)


def row(width: int) -> str:
    """One width: compile and run times of each type."""
    draw = np.random.default_rng(0)
    args = [
        jnp.asarray(draw.normal(size=(width, width)) / width**0.5, jnp.float32) for _ in range(3)
    ]
    plain = jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))(*args)
    programs: dict[str, Any] = {
        name: (
            jitney.optimize(precision=None if name == "f32" else name, cache=False)(
                loss
            ).value_and_grad
        )
        for name in TOLERANCE
    }
    first = {}
    for name, run in programs.items():
        first[name] = timed(lambda *args, run=run: run(*args, wrt=("first", "second")), *args)
        value, grads = run(*args, wrt=("first", "second"))
        for mine, exact in zip(
            (value, grads["first"], grads["second"]), (plain[0], *plain[1]), strict=True
        ):
            off = float(jnp.linalg.norm(mine - exact) / jnp.linalg.norm(exact))
            assert off < TOLERANCE[name], f"{name} is off by {off:.1e}"
    least = dict.fromkeys(programs, float("inf"))
    for _ in range(ROUNDS):
        for name, run in programs.items():
            least[name] = min(
                least[name],
                timed(lambda *args, run=run: run(*args, wrt=("first", "second")), *args),
            )
    cells = [
        f"{name} {least[name]:9.3f} ({least['f32'] / least[name]:4.2f}x, first call"
        f" {first[name]:6.0f})"
        for name in programs
    ]
    return f"{width:5d}  " + "  ".join(cells)


def main() -> None:
    device = jax.local_devices()[0]
    print(
        f"jax {jax.__version__} on {device.platform} ({device.device_kind}); milliseconds, speed"
        " against f32 in brackets"
    )
    for width in WIDTHS:
        print(row(width), flush=True)


if __name__ == "__main__":
    main()
