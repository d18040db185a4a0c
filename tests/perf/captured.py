"""What a function costs that closes over an array of 36 MB: the first call of a process, that of a
later one, a warm call, and what is left on the disk.

Run from the project's root: `python -m tests.perf.captured [BODY ...]`. Beside it stands plain
`jax.jit` without a cache, and with JAX's own cache of compiled programs in a folder; "argument" is
`jax.jit` with the array as an argument, the floor. Each side runs in processes of its own, in turn;
each round has a folder of its own, which the second process of the round finds filled. Before any
figure is shown, the results of all sides are equal up to rounding. Wall seconds, medians.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from examples._figures import record

ROUNDS = 3
SIDE = 3000
SIDES = ("jax", "jax cached", "argument", "off", "on", "program")
_OURS: dict[str, bool | str] = {"off": False, "on": True, "program": "program"}
_RTOL = 1e-4
_CALLS = 15


def bodies() -> dict[str, Callable[..., Any]]:
    """Functions of the array and a number."""
    import jax.numpy as jnp

    return {
        "sum": lambda weight, x: jnp.sum(weight * weight * x),
        "product": lambda weight, x: jnp.sum((weight @ (x * weight[0])) ** 2),
        "fft": lambda weight, x: jnp.sum(jnp.abs(jnp.fft.fft2(weight * x))),
        "exp": lambda weight, x: jnp.sum(jnp.exp(weight) * x),
    }


def measure(body: str, side: str) -> None:
    """The first call of this process, a warm one, and the result."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    import jitney

    fn = bodies()[body]
    random = np.random.default_rng(0)
    weight = jnp.asarray(random.standard_normal((SIDE, SIDE), dtype=np.float32))
    x = jnp.float32(1.5)
    jax.block_until_ready(jnp.sin(weight[0]))
    if side == "jax cached":
        jax.config.update("jax_compilation_cache_dir", os.environ["JITNEY_CACHE_DIR"])
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)

    run: Callable[..., Any]
    if side == "argument":
        jitted = jax.jit(fn)
        run = lambda x: jitted(weight, x)
    elif side in _OURS:
        run = jitney.optimize(cache=_OURS[side])(lambda x: fn(weight, x))
    else:
        run = jax.jit(lambda x: fn(weight, x))

    began = time.perf_counter()
    result = float(run(x))
    first = time.perf_counter() - began
    warm: list[float] = []
    for _ in range(_CALLS):
        began = time.perf_counter()
        jax.block_until_ready(run(x))
        warm.append(time.perf_counter() - began)
    print(first, min(warm), result)


def run(body: str, side: str, folder: str) -> tuple[float, ...]:
    """A process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.perf.captured", body, side],
        env={**os.environ, "JITNEY_CACHE_DIR": folder},
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    return tuple(map(float, done.stdout.split()))


def _round(body: str, side: str) -> tuple[float, ...]:
    """First call, first call of a later process, warm call, bytes on the disk, result."""
    with tempfile.TemporaryDirectory() as folder:
        first, warm, result = run(body, side, folder)
        later, again, same = run(body, side, folder)
        if result != same:
            raise AssertionError(f"{body} {side}: {result} in one process, {same} in the next")
        files = (file for file in Path(folder).rglob("*") if file.is_file())
        size = sum(file.stat().st_size for file in files)
    return first, later, min(warm, again), size, result


def main() -> None:
    """All bodies, side by side."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for body in sys.argv[1:] or bodies():
        taken: dict[str, list[tuple[float, ...]]] = {side: [] for side in SIDES}
        for _ in range(ROUNDS):
            for side, rounds in taken.items():
                rounds.append(_round(body, side))

        floor = taken["argument"][0][-1]
        for side, rounds in taken.items():
            if any(abs(each[-1] - floor) > _RTOL * abs(floor) for each in rounds):
                raise AssertionError(f"{body} {side}: {rounds[0][-1]}, and {floor} of jax.jit")

        found[body] = {}
        for side, rounds in taken.items():
            first, later, warm, size = (
                statistics.median(column) for column in list(zip(*rounds, strict=True))[:-1]
            )
            print(
                f"{body:8} {side:11} first call {first:6.2f} s, later process {later:6.2f} s,"
                f" warm call {warm * 1e3:7.2f} ms, {size / 1e6:6.2f} MB on the disk",
                flush=True,
            )
            found[body][side] = first
            found[body][f"{side} later"] = later
    record(seconds=found)


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[2] in SIDES:
        measure(*sys.argv[1:])
    else:
        main()
