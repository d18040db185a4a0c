"""A thousand random sizes: `pad=` against plain `jax.jit` and against a mask written by hand.

    python -m tests.perf.sizes [--sizes 1000] [--largest 100000]

Each side runs the same function on the same NumPy arrays, in turn, in a process of its own with an
empty compilation cache. Results are compared with float64 NumPy before anything is timed. The first
pass meets every size for the first time: compiling is most of it. The second pass, with everything
compiled, is given apart.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import jitney
from examples._figures import record

Body = Callable[[Any, Any], Any]


def body(t: Float[Array, "n"], y: Float[Array, "n"]) -> tuple[Float[Array, "n"], Float[Array, ""]]:
    """Standardised residuals of a decay, and the log-sum-exp of them."""
    r = jnp.exp(-t) - y
    z = (r - jnp.mean(r)) / jnp.std(r)
    return z, jax.nn.logsumexp(z)


def plain() -> Body:
    return jax.jit(body)


def padded() -> Body:
    return jitney.optimize(pad={"n": "pow2"})(body)


def by_hand() -> Body:
    """What one writes without jitney: the body again, with a mask at each reduction, and padding
    around it.
    """

    @jax.jit
    def masked(t: Any, y: Any, n: Any) -> Any:
        inside = jnp.arange(t.shape[0]) < n
        size = n.astype(t.dtype)
        r = jnp.exp(-t) - y
        mean = jnp.sum(jnp.where(inside, r, 0)) / size
        std = jnp.sqrt(jnp.sum(jnp.where(inside, (r - mean) ** 2, 0)) / size)
        z = (r - mean) / std
        return z, jax.nn.logsumexp(jnp.where(inside, z, -jnp.inf))

    def run(t: Any, y: Any) -> Any:
        n = len(t)
        if n < 2:
            return jax.jit(body)(t, y)
        size = 1 << (n - 1).bit_length()
        z, total = masked(
            np.pad(t, (0, size - n), mode="edge"),
            np.pad(y, (0, size - n), mode="edge"),
            np.int32(n),
        )
        return np.asarray(z)[:n], total

    return run


SIDES: dict[str, Callable[[], Body]] = {"jax.jit": plain, "pad": padded, "mask by hand": by_hand}


def check(f: Body, n: int) -> None:
    """Equal to NumPy in float64."""
    t, y = data(n)
    r = np.exp(-t.astype(np.float64)) - y
    z = (r - r.mean()) / r.std()
    got = f(t, y)
    np.testing.assert_allclose(got[0], z, rtol=1e-2, atol=1e-3)
    np.testing.assert_allclose(got[1], np.log(np.sum(np.exp(z))), rtol=1e-3)


def data(n: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(n)
    return rng.uniform(0, 2, n).astype(np.float32), rng.normal(size=n).astype(np.float32)


def measure(side: str, sizes: int, largest: int) -> dict[str, Any]:
    """One side: the number of compiles, the seconds of the first pass and of a second one, and
    microseconds a call of that.
    """
    compiles = [0]

    def count(event: str, seconds: float, **_: Any) -> None:
        compiles[0] += event == "/jax/core/compile/backend_compile_duration"

    f = SIDES[side]()
    for n in (7, 100, 3000):
        check(f, n)
    f = SIDES[side]()  # anew: what the check compiled is compiled again
    jax.clear_caches()
    jax.monitoring.register_event_duration_secs_listener(count)
    inputs = [data(int(n)) for n in np.random.default_rng(0).integers(1, largest + 1, sizes)]
    passes: list[float] = []
    for _ in range(2):
        start = time.perf_counter()
        for t, y in inputs:
            jax.block_until_ready(f(t, y))
        passes.append(time.perf_counter() - start)
    return {
        "compiles": compiles[0],
        "first": passes[0],
        "second": passes[1],
        "warm": passes[1] / sizes * 1e6,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sizes", type=int, default=1000, help="how many random sizes")
    parser.add_argument("--largest", type=int, default=100_000, help="the largest size")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        print(json.dumps(measure(options.side, options.sizes, options.largest)))
        return
    print(f"{options.sizes} random sizes from 1 to {options.largest}, jax {jax.__version__}")
    print(
        f"{'':13} {'compiles':>9} {'first pass, s':>12} {'second pass, s':>13}"
        f" {'us a call, warm':>15}"
    )
    found: dict[str, dict[str, Any]] = {}
    for side in SIDES:
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "JITNEY_CACHE_DIR": folder}
            command = [
                sys.executable,
                "-m",
                "tests.perf.sizes",
                "--side",
                side,
                "--sizes",
                str(options.sizes),
                "--largest",
                str(options.largest),
            ]
            printed = subprocess.run(
                command, env=environment, check=True, stdout=subprocess.PIPE, text=True
            ).stdout
        found[side] = it = json.loads(printed.splitlines()[-1])
        print(
            f"{side:13} {it['compiles']:9d} {it['first']:12.2f} {it['second']:13.3f}"
            f" {it['warm']:15.0f}",
            flush=True,
        )
    record(jit=found["jax.jit"], pad=found["pad"], hand=found["mask by hand"])


if __name__ == "__main__":
    main()
